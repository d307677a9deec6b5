"""Lists of arrays, and values that may be absent: inputs and outputs of models, and what runs do with them.

A list is a Python list that nothing changes, what is absent is ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.runtime.open_sizes import OpenTensor
from tilewright.runtime.tensors import TensorInfo, checked_array
from tilewright.support import InputError, counted, quoted

Array = npt.NDArray[Any]

#: What runs do with lists, and the inputs that each needs at least.
LIST_OPS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "SequenceConstruct": 1, "SequenceEmpty": 0, "SequenceInsert": 2, "SequenceErase": 1, "SequenceAt": 2,
        "SequenceLength": 1, "SplitToSequence": 1, "ConcatFromSequence": 1, "Identity": 1, "Optional": 0,
        "OptionalGetElement": 1, "OptionalHasElement": 0,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpenList(OpenTensor):
    """An input or output that is a list of tensors, unless ``many`` one; ``optional``: or ``None``.

    Sizes of elements that may be any are "?"; with ``any_rank``, so are all.
    """

    many: bool = True
    optional: bool = False
    any_rank: bool = False

    @property
    def sizes(self) -> set[str]:
        """None: they are those of its elements."""
        return set()

    def checked(self, given: object) -> list[Array] | Array | None:
        """What a caller gives. Raises InputError naming what does not fit."""
        if given is None and self.optional:
            return None
        if not self.many:
            return self._element(given, self.name)
        if not isinstance(given, list | tuple):
            raise InputError(f"the input {self} got {type(given).__name__}", hint="a list of arrays")
        return [self._element(each, f"{self.name}[{at}]") for at, each in enumerate(given)]

    def _element(self, given: object, name: str) -> Array:
        shape = getattr(given, "shape", None)
        if shape is None:
            raise InputError(f"{quoted(name)} is no array but {type(given).__name__}; the input is {self}")
        fits = len(shape) == len(self.shape) and all(
            n in ("?", m) for n, m in zip(self.shape, shape, strict=True)
        )
        if not (fits or self.any_rank):
            raise InputError(f"{quoted(name)} has the shape {list(shape)}; the input is {self}")
        return checked_array(given, TensorInfo(name, self.dtype, shape))

    def __str__(self) -> str:
        dims = "?" if self.any_rank else ", ".join(map(str, self.shape))
        kind = f"{'optional ' * self.optional}{'list of ' * self.many}"
        return f"{quoted(self.name)}: {kind}{self.dtype.name}[{dims}]"


def on_lists(op: str, attributes: Mapping[str, int], where: str, values: Sequence[Any]) -> Any:
    """What a node on lists makes of its ``values``.

    Raises InputError, naming the node, for places out of range, what is absent, and elements that do not fit.
    """
    first: Any = values[0] if values else None
    match op:
        case "SequenceConstruct" | "SequenceEmpty":
            return list(values)
        case "SequenceInsert":
            at = _place(values[2], len(first), where, end=True) if len(values) > 2 else len(first)
            return [*first[:at], values[1], *first[at:]]
        case "SequenceErase":
            at = _place(values[1] if len(values) > 1 else np.array(-1), len(first), where)
            return [*first[:at], *first[at + 1 :]]
        case "SequenceAt":
            return first[_place(values[1], len(first), where)]
        case "SequenceLength":
            return np.array(len(first), np.int64)
        case "SplitToSequence":
            return _split(first, values[1] if len(values) > 1 else None, attributes, where)
        case "ConcatFromSequence":
            return _joined(first, attributes, where)
        case "OptionalHasElement":
            return np.array(first is not None)
        case "OptionalGetElement" if first is None:
            raise InputError(f"{where}: the value that it takes is absent")
        case _:
            return first


def _place(given: Array, count: int, where: str, *, end: bool = False) -> int:
    at = int(given.reshape(-1)[0]) if given.size == 1 else count + 1
    if not -count <= at < count + end:
        raise InputError(f"{where}: place {at} is out of range for {counted(count, 'element')}")
    return at + count if at < 0 else at


def _split(whole: Array, given: Array | None, attributes: Mapping[str, int], where: str) -> list[Array]:
    axis = attributes.get("axis", 0)
    length = whole.shape[axis]
    sizes = [1] * length
    if given is not None:
        sizes = [int(n) for n in given.reshape(-1)]
        if given.ndim == 0 and sizes[0] > 0:
            sizes = [min(sizes[0], length - at) for at in range(0, length, sizes[0])]
    if any(n < 0 for n in sizes) or sum(sizes) != length:
        raise InputError(f"{where}: parts of {sizes} are not {counted(length, 'element')}")
    parts = np.split(whole, np.cumsum(sizes)[:-1], axis) if sizes else []
    if given is None and not attributes.get("keepdims", 1):
        parts = [part.squeeze(axis) for part in parts]
    return [np.ascontiguousarray(part).reshape(part.shape) for part in parts]


def _joined(parts: Sequence[Array], attributes: Mapping[str, int], where: str) -> Array:
    join = np.stack if attributes.get("new_axis", 0) else np.concatenate
    try:
        return join(parts, attributes.get("axis", 0))
    except ValueError:
        shapes = ", ".join(str(list(part.shape)) for part in parts[:4]) or "none"
        raise InputError(f"{where}: elements of these shapes cannot be joined: {shapes}") from None
