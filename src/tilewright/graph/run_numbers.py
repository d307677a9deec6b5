"""Nodes whose numbers only a run knows and that are no sizes as they stand: places from the end, steps, -1.

    Slice(x, start, end)        Slice(x, begin, last), both from 0 to the size of the axis
    Slice(x, …, step)           Gather(x, begin + step * Range(count))
    Reshape(x, (a, -1))         Reshape(x, (a, elements / a))
    Range(a, b, c)              a + c * Range(count)

What sizes there are is computed by nodes; `counting.py` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType
from typing import Any, Final

from tilewright.graph.counting import MOST_COUNTED, SAID, Counting
from tilewright.graph.model import Attribute, Node, TensorType
from tilewright.graph.registry import NotStaticError
from tilewright.graph.size_values import array_of_sizes, is_sized
from tilewright.graph.unroll import VERSION
from tilewright.ir import MAX_RANK, Size, is_open, most_of
from tilewright.support import ModelError

#: Steps of slices are taken to be no longer: longer ones take one element as well.
_LONGEST_STEP: Final = 1 << 31


class RunNumbers(Counting):
    """A walk that meets numbers of a run."""

    def _by_numbers(self, node: Node, error: NotStaticError) -> bool:
        """Take in a node by numbers that are sizes as they stand, or by nodes that compute sizes."""
        first = not any(value.endswith(SAID) for value in node.inputs)
        rule = _RULES.get(node.op) if first and not node.domain else None
        if rule is None:
            instead = self._with_sizes(node, error)
            if instead is not None:
                self.visit(instead)
            return instead is not None
        before = dict(self.counts), dict(self.types), dict(self.constants), len(self.nodes), set(self.blocked)
        refused = len(self.refused)
        try:
            instead = None if node.op in _NO_SIZES else self._with_sizes(node, error)
            if instead is not None:
                self.visit(instead)
            if instead is not None and self.blocked.isdisjoint(node.used_outputs):
                return True
        except ModelError:
            pass  # what they are is not decided, or does not fit
        self.counts, self.types, self.constants, nodes, self.blocked = before
        del self.nodes[nodes:], self.refused[refused:]
        return rule(_Parts(self, node))


@dataclass(slots=True, eq=False)
class _Parts:
    """The nodes that a node is made of."""

    walk: RunNumbers
    node: Node
    numbers: Any = field(default_factory=count)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Its inputs."""
        return self.node.inputs

    def type(self, value: str) -> TensorType:
        """The type of a value."""
        return self.walk.types[value]

    def given(self, at: int) -> str:
        """An optional input; the empty name where it is absent."""
        return self.inputs[at] if at < len(self.inputs) else ""

    def known(self, at: int) -> list[int] | None:
        """The integers of an input, where they are numbers."""
        array = self.walk.constants.get(self.given(at))
        return None if array is None or is_sized(array) else [int(n) for n in array.reshape(-1)]

    def do(
        self, op: str, *inputs: str | int | Sequence[int], makes: str = "", **attributes: Attribute
    ) -> str:
        """A node's output; integers among the inputs are constants, or data where they are of a run."""
        output = makes or self.fresh()
        names = tuple(value if isinstance(value, str) else self.constant(value) for value in inputs)
        own, name = self.node, self.node.name or self.node.used_outputs[0]
        self.walk.visit(Node(op, names, (output,), attributes, name, version=VERSION, origin=own.origin))
        return output

    def fresh(self) -> str:
        """A name."""
        return f"{self.node.used_outputs[0]}/run/{next(self.numbers)}"

    def constant(self, value: int | Sequence[int], *, data: bool = True) -> str:
        """Integers as a value; sizes of a run among them as ``data``, or as they are."""
        array = array_of_sizes([value] if isinstance(value, int | Size) else list(value))
        name = self.fresh()
        self.walk._enter({name: array.reshape(()) if isinstance(value, int | Size) else array})
        return self.walk._as_data(name) if data and is_sized(array) else name

    def size(self, value: str, at: int, most: int = MOST_COUNTED) -> int:
        """The size that an element of a value says."""
        return self.walk._count(value, at, most)

    def resized(self, value: str, shape: Sequence[int]) -> str | None:
        """The value with another shape, which runs check."""
        return self.walk._resized(self.node, value, self.type(value), shape)

    def places(self, count: int) -> str:
        """0, 1 … before a count."""
        return self.do("Range", 0, self.constant(count, data=False), 1)

    def cast(self, value: str, dtype: str) -> str:
        """A value in another type."""
        return value if self.type(value).dtype == dtype else self.do("Cast", value, to=dtype)

    def step(self, value: str) -> str:
        """A step as data, which may not be 0: the place 1 is out of range of one element."""
        zero = self.cast(self.do("Equal", value, self.do("CastLike", 0, value)), "i64")
        none = self.do("Sub", self.do("Gather", [1], zero), 1)
        return self.do("Add", value, self.do("CastLike", none, value))

    def data(self, at: int) -> str:
        """An input that is to hold integers, as data in i64."""
        value = self.inputs[at]
        if is_sized(self.walk.constants.get(value)):
            value = self.walk._as_data(value)
        return self.cast(value, "i64")


def _slice(parts: _Parts) -> bool:
    """Where each part begins, and how many elements it has; their places are data then."""
    data, rank = parts.inputs[0], parts.type(parts.inputs[0]).rank
    if any(is_open(parts.type(value).elements) for value in parts.inputs[1:3]):
        # places that are one by one cut out of others: each run checks that it is one
        alone = [parts.resized(v, [1]) if is_open(parts.type(v).elements) else v for v in parts.inputs[1:3]]
        if None in alone:
            return False
        rest = (v or "" for v in alone), parts.inputs[3:]
        parts.walk.visit(replace(parts.node, inputs=(data, *rest[0], *rest[1])))
        return True
    many = parts.type(parts.inputs[1]).elements
    axes = parts.known(3) if parts.given(3) else [*range(many)]
    if is_open(many) or axes is None or len(axes) != many or any(not -rank <= a < rank for a in axes):
        return False
    axes = [axis % rank for axis in axes]
    sizes = [parts.type(data).sizes[axis] for axis in axes]
    first, stop, size = parts.data(1), parts.data(2), parts.constant(sizes)
    known = parts.known(4) if parts.given(4) else [1] * many
    if known is None:
        step = parts.step(parts.data(4))
    else:
        if 0 in known:
            return False
        step = parts.constant(known)
    forward = parts.do("Greater", step, 0)
    low = parts.do("Where", forward, 0, -1)
    high = parts.do("Where", forward, size, parts.do("Sub", size, 1))

    def end(value: str, least: str | int) -> str:
        moved = parts.do("Add", value, parts.do("Where", parts.do("Less", value, 0), size, 0))
        return parts.do("Min", parts.do("Max", moved, least), high)

    begin, last = end(first, 0), end(stop, low)
    apart = _apart(parts) if known == [1] else None
    if known is not None and min(known, default=1) > 0 and apart is None:
        ends = [
            parts.constant([parts.size(v, k, most_of(n)) for k, n in enumerate(sizes)], data=False)
            if value not in parts.walk.constants
            else value
            for value, v in zip(parts.inputs[1:3], (begin, last), strict=True)
        ]
        parts.do("Slice", data, *ends, axes, known, makes=parts.node.used_outputs[0])
        return True
    span = parts.do("Where", forward, parts.do("Sub", last, begin), parts.do("Sub", begin, last))
    length = parts.do("Min", parts.do("Abs", step), _LONGEST_STEP)
    count = parts.do("Div", parts.do("Sub", parts.do("Add", span, length), 1), length)
    count = parts.do("Max", count, 0)
    for at, (axis, n) in enumerate(zip(axes, sizes, strict=True)):
        taken = parts.size(count, at, most_of(n))
        if apart is not None:
            # as many as there are from one to the other, which each run checks
            parts.walk.relations.append((taken, apart, str(parts.node.location)))
            taken = apart
        places = parts.places(taken)
        if known is None or known[at] != 1:
            places = parts.do("Mul", places, parts.do("Gather", step, at))
        places = parts.do("Add", places, parts.do("Gather", begin, at))
        makes = parts.node.used_outputs[0] if at == many - 1 else ""
        data = parts.do("Gather", data, places, makes=makes, axis=axis)
    return True


def _apart(parts: _Parts) -> int | None:
    """By how much the ends of a slice are more than its starts, where the model adds that."""
    start, stop = parts.inputs[1:3]
    maker = next((node for node in reversed(parts.walk.nodes) if stop in node.used_outputs), None)
    if maker is None or maker.op != "Add" or maker.domain or start not in maker.inputs:
        return None
    added = parts.walk.constants.get(maker.inputs[1 - maker.inputs.index(start)])
    if added is None or is_sized(added) or added.size != 1 or added.item() <= 0:
        return None
    return int(added.item())


def _reshape(parts: _Parts) -> bool:
    """What 0 and -1 stand for, as data; that there are as many elements as before is checked."""
    data = parts.inputs[0]
    type_, rank = parts.type(data), parts.type(parts.inputs[1]).elements
    if is_open(rank) or rank > MAX_RANK or not (is_open(type_.elements) or type_.elements):
        return False
    given = parts.data(1)
    if not parts.node.attributes.get("allowzero"):
        own = [*type_.sizes[:rank], *[0] * (rank - type_.rank)]
        given = parts.do("Where", parts.do("Equal", given, 0), parts.constant(own), given)
    left = parts.do("Equal", given, -1)
    rest = parts.do("ReduceProd", parts.do("Where", left, 1, given), keepdims=0)
    rest = parts.do("Div", parts.constant(type_.elements), parts.do("Max", rest, 1))
    given = parts.do("Where", left, rest, given)
    sizes = [parts.size(given, at) for at in range(rank)]
    flat = parts.resized(parts.do("Reshape", data, [-1]), [math.prod(sizes)])
    if flat is None:
        return False
    shape = parts.constant(sizes, data=False)
    parts.do("Reshape", flat, shape, makes=parts.node.used_outputs[0], allowzero=1)
    return True


def _expand(parts: _Parts) -> bool:
    """What 1 stands for, as data; other sizes than 1 have to agree."""
    data, rank = parts.inputs[0], parts.type(parts.inputs[1]).elements
    sizes = parts.type(data).sizes
    if is_open(rank) or rank > MAX_RANK:
        return False
    given = parts.data(1)
    own = [*[1] * (rank - len(sizes)), *sizes[max(0, len(sizes) - rank) :]]
    given = parts.do("Where", parts.do("Equal", given, 1), parts.constant(own), given)
    wanted = [parts.size(given, at) for at in range(rank)]
    shape = parts.constant(wanted, data=False)
    parts.do("Expand", data, shape, makes=parts.node.used_outputs[0])
    return True


def _range(parts: _Parts) -> bool:
    """As many elements as there are steps."""
    dtype = parts.type(parts.inputs[0]).dtype
    given = [
        parts.walk._as_data(value) if is_sized(parts.walk.constants.get(value)) else value
        for value in parts.inputs
    ]
    start, limit, step = (parts.cast(value, "f64") for value in given)
    count = parts.do("Ceil", parts.do("Div", parts.do("Sub", limit, start), parts.step(step)))
    count = parts.do("Max", parts.cast(count, "i64"), 0)
    at = parts.cast(parts.places(parts.size(count, 0)), dtype)
    parts.do("Add", parts.do("Mul", at, given[2]), given[0], makes=parts.node.used_outputs[0])
    return True


def _triangle(parts: _Parts) -> bool:
    """What lies on one side of the diagonal that data says."""
    data = parts.inputs[0]
    *_, rows, columns = parts.type(data).sizes
    diagonal = parts.do("Sub", parts.places(columns), parts.do("Unsqueeze", parts.places(rows), [1]))
    upper = parts.node.attributes.get("upper", 1)
    kept = parts.do("GreaterOrEqual" if upper else "LessOrEqual", diagonal, parts.data(1))
    none = parts.do("CastLike", 0, data)
    parts.do("Where", kept, data, none, makes=parts.node.used_outputs[0])
    return True


def _one_hot(parts: _Parts) -> bool:
    """Its depth, given in another type, as a size."""
    indices, depth, values = parts.inputs
    if parts.type(depth).dtype in ("i32", "i64"):
        return False
    output = parts.node.used_outputs[0]
    parts.do("OneHot", indices, parts.cast(depth, "i64"), values, makes=output, **parts.node.attributes)
    return True


def _pad(parts: _Parts) -> bool:
    """Where each element comes from, one axis after another."""
    data, mode = parts.inputs[0], parts.node.attributes.get("mode", "constant")
    type_ = parts.type(data)
    axes = parts.known(3) if parts.given(3) else [*range(type_.rank)]
    if axes is None or parts.type(parts.inputs[1]).elements != 2 * len(axes):
        return False
    axes = [axis % type_.rank for axis in axes]
    given, fill = parts.data(1), parts.given(2) or parts.do("CastLike", 0, data)
    output = parts.node.used_outputs[0]
    for at, axis in enumerate(axes):
        size = type_.sizes[axis]
        before, after = parts.do("Gather", given, at), parts.do("Gather", given, at + len(axes))
        count = parts.do("Add", parts.do("Add", before, after), parts.constant(size))
        place = parts.places(parts.size(count, 0))
        first = parts.do("Max", parts.do("Neg", before), 0)
        left = parts.do("Sub", parts.constant(size), parts.do("Max", parts.do("Neg", after), 0))
        left = parts.do("Sub", left, first)
        place = parts.do("Sub", place, parts.do("Max", before, 0))
        last = parts.do("Sub", left, 1)
        inner = parts.do("Min", parts.do("Max", place, 0), last)
        if mode == "wrap":
            inner = parts.do("Mod", place, left)
        elif mode == "reflect":
            around = parts.do("Mul", last, 2)
            inner = parts.do("Mod", place, parts.do("Max", around, 1))
            inner = parts.do("Min", inner, parts.do("Sub", around, inner))
        makes = output if mode != "constant" and at == len(axes) - 1 else ""
        data = parts.do("Gather", data, parts.do("Add", inner, first), makes=makes, axis=axis)
        if mode == "constant":
            inside = parts.do("Equal", inner, place)
            if axis < type_.rank - 1:
                inside = parts.do("Unsqueeze", inside, [*range(1, type_.rank - axis)])
            data = parts.do("Where", inside, data, fill, makes=output if at == len(axes) - 1 else "")
    return True


#: Operators whose numbers may as well be no sizes: these are not tried as such.
_NO_SIZES: Final = frozenset({"Expand", "Pad", "Range", "Slice", "Trilu"})

_RULES: Final[Mapping[str, Callable[[_Parts], bool]]] = MappingProxyType(
    {
        "Slice": _slice,
        "Reshape": _reshape,
        "Expand": _expand,
        "Range": _range,
        "Trilu": _triangle,
        "OneHot": _one_hot,
        "Pad": _pad,
    }
)
