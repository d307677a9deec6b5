"""Sequences of layout primitives as values: the one index map that they come to.

A sequence names no tensor: ``(("split", 1, (-1, 16)), ("reorder", (0, 1, 3, 4, 2)))``. It says where the
elements of any tensor of a shape lie, so it can be recorded once for a value and carried out for each kernel
that touches it. Primitives that store elements several times (``unfold``) have no index map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from tilewright.ir import F32, Buffer, Index, IndexMap, Iter, iter_env, prove_ge0, simplify_deep, var
from tilewright.schedule.layout.fuse import fuse_layout
from tilewright.schedule.layout.pad import pad_layout
from tilewright.schedule.layout.reorder import reorder_layout
from tilewright.schedule.layout.rewrite import Layout
from tilewright.schedule.layout.split import split_layout
from tilewright.schedule.layout.unpad import unpad_layout
from tilewright.schedule.loop.set_layout import with_layout
from tilewright.schedule.registry import Value
from tilewright.schedule.trace import Step
from tilewright.support import ScheduleError, known_names

Change: TypeAlias = tuple[Value, ...]
"""A primitive without its tensor: its name less ``layout_``, and its arguments."""
Changes: TypeAlias = Sequence[Change]

_LAYOUTS: Final[Mapping[str, Callable[..., Layout]]] = MappingProxyType(
    {
        "split": split_layout,
        "reorder": reorder_layout,
        "fuse": fuse_layout,
        "pad": pad_layout,
        "unpad": unpad_layout,
    }
)


def index_map(shape: Sequence[Index], changes: Changes) -> IndexMap:
    """Where the elements of a tensor of that shape lie after a sequence of primitives.

    >>> from tilewright.ir import Index
    >>> print(index_map((Index(2), Index(8), Index(3)), (("split", 1, (-1, 4)), ("reorder", (0, 1, 3, 2)))))
    (d0, d1, d2) -> (d0, d1//4, d2, d1%4) in [2, 2, 3, 4]

    Raises ScheduleError for a primitive that has no map, and where one is refused.
    """
    dims = tuple(f"d{n}" for n in range(len(shape)))
    env = iter_env([Iter(d, Index(0), extent, "par") for d, extent in zip(dims, shape, strict=True)])
    at: tuple[Index, ...] = tuple(map(var, dims))
    tensor = Buffer("the tensor", tuple(shape), F32)
    for change in changes:
        name, args = str(change[0]), change[1:]
        if name not in _LAYOUTS:
            raise ScheduleError(
                f"the layout primitive {name!r} has no index map",
                hint=known_names(name, _LAYOUTS, "those that have one"),
            )
        layout = _LAYOUTS[name](tensor, *_plain(args))
        at = tuple(simplify_deep(x, env) for x in layout.forward(at, env))
        tensor = tensor.with_(shape=layout.shape)
        for x, extent in zip(at, tensor.shape, strict=True):
            if not (prove_ge0(x, env) and prove_ge0(extent - 1 - x, env)):
                raise ScheduleError(f"{name!r} takes elements away that are there", hint="take padding only")
    return IndexMap(dims, at, tensor.shape)


def index_texts(layout: IndexMap) -> tuple[str, ...]:
    """An index map as ``set_layout`` and ``layout_place`` take it, for maps that those can say.

    >>> from tilewright.ir import Index
    >>> index_texts(index_map((Index(8), Index(3)), (("split", 0, (2, 4)), ("reorder", (0, 2, 1)))))
    ('d0//4', 'd1', 'd0%4')
    """
    return tuple(str(x) for x in layout.apply(tuple(var(f"d{n}") for n in range(len(layout.dims)))))


def argument_map(declared: Buffer, steps: Iterable[Step], made: Buffer) -> IndexMap:
    """Where the elements of an argument lie that a program ``declared``, by its indices there.

    ``steps`` are those of the schedule, after which the argument is ``made``. Two arguments agree where their
    maps are equal. Raises ScheduleError where steps store elements several times.
    """
    dims = tuple(f"d{n}" for n in range(len(declared.shape)))
    env = iter_env([Iter(d, Index(0), extent, "par") for d, extent in zip(dims, declared.shape, strict=True)])
    at: tuple[Index, ...] = tuple(map(var, dims))
    tensor = declared
    for step in steps:
        name = step.primitive.removeprefix("layout_")
        if name == step.primitive or not step.args or step.args[0] != declared.name:
            continue
        args = _plain((*step.args[1:], *(value for _, value in step.kwargs)))
        if name == "place":
            plain = tensor.with_(layout=None)
            tensor = with_layout(plain, args[0]) if args[0] else plain
        elif name == "adopt":
            at, tensor = tensor.physical(at), tensor.with_(shape=tensor.physical_shape, layout=None)
        elif name in _LAYOUTS:
            layout = _LAYOUTS[name](tensor, *args)
            at, tensor = layout.forward(at, env), tensor.with_(shape=layout.shape)
        else:
            raise ScheduleError(f"{step.primitive} stores elements of {declared.name!r} several times")
    return IndexMap(dims, tuple(simplify_deep(x, env) for x in made.physical(at)), made.physical_shape)


def _plain(args: Sequence[Value]) -> tuple[Any, ...]:
    return tuple(args)
