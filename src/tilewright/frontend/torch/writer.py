"""What rules of operators write with: nodes of the graph, typed one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NoReturn, TypeAlias

import numpy as np

from tilewright.graph import Array, Attribute, Inference, Limits, Node, TensorType, array_of_sizes
from tilewright.ir import Size, dtype_of, is_open
from tilewright.support import UnsupportedOperatorError

#: The operator set of the standard that rules are written in.
VERSION: Final = 21


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph that is being written: its name, element type and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether its elements are floating-point numbers."""
        return dtype_of(self.dtype).is_float


Number: TypeAlias = bool | int | float
Operand: TypeAlias = Value | Number
Made: TypeAlias = Value | Sequence[Value | None]
Rule: TypeAlias = Callable[..., Made]
"""How an operator is written: a writer and the operator's arguments, by its schema -> the results."""
Rules: TypeAlias = Mapping[str, Rule]


def wide(dtype: str) -> str:
    """The type that torch computes in where the elements are of 16 bits."""
    return "f32" if dtype in ("f16", "bf16") else dtype


@dataclass(slots=True)
class Writer:
    """Nodes of a graph, as they are written.

    ``outs`` are the types that torch says the operator at hand makes, of ``complex`` numbers those of the
    parts; ``wanted`` is which of its results anything reads.
    """

    limits: Limits
    name: str = ""
    location: str = ""
    outs: tuple[TensorType | None, ...] = ()
    complex: bool = False
    wanted: frozenset[int] = frozenset({0})
    walk: Inference = field(init=False)
    _count: int = 0

    def __post_init__(self) -> None:
        self.walk = Inference({}, {}, self.limits, {}, None, None)

    @property
    def out(self) -> TensorType:
        """The type of the only result, or the first."""
        if not self.outs or self.outs[0] is None:
            self.refuse("it makes no tensor of this machine's types")
        return self.outs[0]

    @property
    def inner(self) -> str:
        """The element type that the result is computed in."""
        return wide(self.out.dtype)

    def refuse(self, reason: str) -> NoReturn:
        """Say why the operator at hand is not compiled."""
        raise UnsupportedOperatorError(reason)

    def require(self, condition: bool, reason: str) -> None:
        """Refuse the operator at hand unless the condition holds."""
        if not condition:
            self.refuse(reason)

    def input(self, name: str, type_: TensorType) -> Value:
        """A value that comes from outside."""
        self.walk.types[name] = type_
        return Value(name, type_.dtype, type_.sizes)

    def constant(self, array: Array) -> Value:
        """A tensor that is known when compiling; of objects, one of sizes."""
        name = self._fresh()
        self.walk.constants[name] = array
        dtype = next((t for t in _DTYPE_NAMES if dtype_of(t).numpy == array.dtype), "i64")
        return self.input(name, TensorType(dtype, array.shape))

    def ints(self, values: Sequence[int]) -> Value:
        """A constant of integers, as operators take shapes and axes."""
        return self.constant(array_of_sizes(list(values)))

    def number(self, value: Number, dtype: str) -> Value:
        """A constant of rank 0."""
        if isinstance(value, Size):
            return self.to(self.constant(array_of_sizes([value]).reshape(())), dtype)
        if dtype == "bool":
            return self.constant(np.array(bool(value)))
        if not dtype_of(dtype).is_float:
            kept = dtype_of(dtype)
            low, high = int(kept.min_value), int(kept.max_value)
            self.require(low <= value <= high, f"the number {value} is none of {dtype}")
        return self.constant(np.array(value, dtype_of(dtype).numpy))

    def full(self, shape: Sequence[int], value: Number, dtype: str) -> Value:
        """A tensor of one value."""
        return self.expand(self.number(value, dtype), shape)

    def add(self, op: str, *inputs: Value | None, domain: str = "", **attributes: Attribute) -> Value:
        """A node of one result."""
        return self.several(op, inputs, 1, domain, attributes=attributes)[0]

    def several(
        self,
        op: str,
        inputs: Sequence[Value | None],
        count: int,
        domain: str = "",
        wanted: frozenset[int] | None = None,
        attributes: Mapping[str, Attribute] = MappingProxyType({}),
    ) -> list[Value]:
        """A node of several results; those that are not wanted have no name and no meaning."""
        names = tuple(self._fresh() if wanted is None or at in wanted else "" for at in range(count))
        given = [value.name if value is not None else "" for value in inputs]
        while given and not given[-1]:
            given.pop()
        walk = self.walk
        walk.visit(
            Node(op, tuple(given), names, attributes, self.location or self.name, domain, VERSION, self.name)
        )
        if walk.refused:
            reason = "; ".join(said for _, said in walk.refused)
            walk.refused.clear()
            walk.undetermined.clear()
            self.refuse(reason)
        nothing = TensorType("f32", ())
        types = [walk.types[name] if name else nothing for name in names]
        return [Value(name, kind.dtype, kind.sizes) for name, kind in zip(names, types, strict=True)]

    def to(self, x: Operand, dtype: str) -> Value:
        """A tensor in an element type; a number as a constant of it."""
        if not isinstance(x, Value):
            return self.number(x, dtype)
        return x if x.dtype == dtype else self.add("Cast", x, to=dtype)

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        """A tensor broadcast to a shape."""
        return x if x.shape == tuple(shape) else self.add("Expand", x, self.ints(shape))

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """The elements, in their order, under another shape."""
        wanted = tuple(shape)
        return x if x.shape == wanted else self.add("Reshape", x, self.ints(wanted), allowzero=1)

    def transpose(self, x: Value, axes: Sequence[int]) -> Value:
        """The axes in another order."""
        return x if list(axes) == [*range(x.rank)] else self.add("Transpose", x, perm=tuple(axes))

    def slice(self, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
        """A part of an axis; bounds as the standard's Slice has them."""
        whole = end == x.shape[axis] if is_open(end - x.shape[axis]) else end >= x.shape[axis]
        if (start, step) == (0, 1) and whole:
            return x
        return self.add(
            "Slice", x, self.ints([start]), self.ints([end]), self.ints([axis]), self.ints([step])
        )

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        return axis % rank if rank else 0

    def axes(self, axes: int | Sequence[int] | None, rank: int) -> list[int]:
        """Axes counted from the front, in order; all where none is named."""
        if isinstance(axes, int):
            axes = [axes]
        if not axes:
            return [*range(rank)]
        return sorted({self.axis(axis, rank) for axis in axes}) if rank else []

    def _fresh(self) -> str:
        self._count += 1
        return f"{self.name}/{self._count}"


_DTYPE_NAMES: Final = ("f32", "i64", "bool", "f64", "i32", "i16", "i8", "u8", "f16", "bf16")
