"""The table of ATen's operators that are read, and how torch takes others apart into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

from tilewright.frontend.torch import (
    complex,
    elementwise,
    indexing,
    layers,
    movement,
    pooling,
    reductions,
    special,
)
from tilewright.frontend.torch.decompositions import DECOMPOSITIONS
from tilewright.frontend.torch.writer import Rules

#: How each operator is written, by its name and overload in ``torch.ops.aten``; some of ``prims`` as well.
TABLE: Final[Rules] = MappingProxyType(
    {
        **elementwise.RULES,
        **reductions.RULES,
        **movement.RULES,
        **indexing.RULES,
        **layers.RULES,
        **pooling.RULES,
        **special.RULES,
    }
)

#: Operators that give other names and shapes to elements: alone they are left to torch, whose views are free.
VIEWS: Final = frozenset(
    f"aten.{name}"
    for name in (
        *("view.default", "_unsafe_view.default", "reshape.default", "permute.default", "transpose.int"),
        *("t.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default"),
        *("expand.default", "slice.Tensor", "select.int", "alias.default", "detach.default"),
        *("split_with_sizes.default", "as_strided.default", "diagonal.default"),
    )
)

#: What torch takes apart beyond its core set: mostly gradients.
_FURTHER: Final = (
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "native_batch_norm",
    "native_batch_norm_backward",
    "native_group_norm_backward",
    "native_layer_norm_backward",
    "gelu_backward",
    "elu_backward",
    "leaky_relu_backward",
    "hardtanh_backward",
    "upsample_bilinear2d",
    "upsample_nearest2d",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad2d",
    "addmv",
    "narrow_copy",
    "unbind_copy",
    "nan_to_num",
    "_batch_norm_with_update_functional",
    "as_strided_copy",
    "permute_copy",
    "view_copy",
    "new_empty_strided",
)


def rule_of(target: object, pairs: bool = False) -> Callable[..., Any] | None:
    """How an operator is written, of complex numbers where they are ``pairs``; None for what is not read."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return None
    name = f"{target._schema.name.removeprefix('aten::')}.{target._overloadname}"
    return complex.RULES.get(name) if pairs else TABLE.get(name)


@cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """What torch is asked to take apart: what it can, but for what the table has as it is."""
    aten = torch.ops.aten
    further = [getattr(aten, name) for name in _FURTHER]
    known = {**core_aten_decompositions(), **get_decompositions(further)}
    own = {getattr(getattr(aten, name), overload): made for (name, overload), made in _own()}
    return MappingProxyType(
        {**{op: made for op, made in known.items() if not (rule_of(op) or rule_of(op, True))}, **own}
    )


def _own() -> Iterator[tuple[list[str], Callable[..., Any]]]:
    return ((name.split("."), made) for name, made in DECOMPOSITIONS.items())
