"""Sequences of tensors whose lengths are known when compiling: names of values, and no values of their own.

    s = SplitToSequence(x, 2)      x0, x1, … = Split(x)      s is (x0, x1, …)
    y = SequenceAt(s, 1)           y = Identity(x1)
    z = ConcatFromSequence(s)      z = Concat(x0, x1, …)

Optional values are the same: something that is there is itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from tilewright.graph.model import Array, Node
from tilewright.graph.registry import Context
from tilewright.graph.unroll import MAX_STEPS, VERSION


@dataclass(slots=True)
class Resolved:
    """What a node on sequences is: nodes and constants in its place, and the sequences that it makes."""

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    sequences: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def copy(self, value: str, output: str) -> None:
        """Let a value have another name, too."""
        self.nodes.append(Node("Identity", (value,), (output,), version=VERSION))


Sequences = Mapping[str, tuple[str, ...]]


def on_sequences(node: Node, sequences: Collection[str]) -> bool:
    """Whether a node is one on sequences, of which the names are given."""
    return not node.domain and (
        (node.op in _RESOLVERS and node.op != "Identity")
        or (node.op == "Identity" and bool(node.inputs) and node.inputs[0] in sequences)
    )


def resolve(context: Context, sequences: Sequences) -> Resolved:
    """The node, whose inputs are known, in other terms.

    Raises ModelError for places out of range, UnsupportedOperatorError where a place or a length is not
    known when compiling.
    """
    made = Resolved()
    _RESOLVERS[context.node.op](context, sequences, made)
    return made


def _items(ctx: Context, sequences: Sequences, at: int = 0) -> tuple[str, ...]:
    value = ctx.node.inputs[at] if at < len(ctx.node.inputs) else ""
    ctx.require(value in sequences, f"its input {at} is no sequence")
    return sequences[value]


def _place(ctx: Context, at: int, length: int, *, end: bool = False) -> int:
    """An element's place, counted from the end where negative; that behind the last only at the ``end``."""
    place = ctx.static_int(at)
    ctx.require(-length <= place < length + end, f"place {place} is out of range for {length} elements")
    return place + length if place < 0 else place


def _construct(ctx: Context, _: Sequences, made: Resolved) -> None:
    made.sequences[ctx.node.outputs[0]] = ctx.node.inputs


def _same(ctx: Context, sequences: Sequences, made: Resolved) -> None:
    value, output = ctx.node.inputs[0], ctx.node.outputs[0]
    if value in sequences:
        made.sequences[output] = sequences[value]
    else:
        made.copy(value, output)


def _optional(ctx: Context, sequences: Sequences, made: Resolved) -> None:
    if not ctx.node.used_inputs:
        raise ctx.unsupported("an optional value that is not there")
    _same(ctx, sequences, made)


def _has_element(ctx: Context, _: Sequences, made: Resolved) -> None:
    made.constants[ctx.node.outputs[0]] = np.array(bool(ctx.node.used_inputs))


def _insert(ctx: Context, sequences: Sequences, made: Resolved) -> None:
    items = list(_items(ctx, sequences))
    at = _place(ctx, 2, len(items), end=True) if ctx.has_input(2) else len(items)
    items.insert(at, ctx.node.inputs[1])
    made.sequences[ctx.node.outputs[0]] = tuple(items)


def _erase(ctx: Context, sequences: Sequences, made: Resolved) -> None:
    items = list(_items(ctx, sequences))
    ctx.require(bool(items), "the sequence is empty")
    del items[_place(ctx, 1, len(items)) if ctx.has_input(1) else -1]
    made.sequences[ctx.node.outputs[0]] = tuple(items)


def _at(ctx: Context, sequences: Sequences, made: Resolved) -> None:
    items = _items(ctx, sequences)
    made.copy(items[_place(ctx, 1, len(items))], ctx.node.outputs[0])


def _length(ctx: Context, sequences: Sequences, made: Resolved) -> None:
    made.constants[ctx.node.outputs[0]] = np.array(len(_items(ctx, sequences)), np.int64)


def _split(ctx: Context, _: Sequences, made: Resolved) -> None:
    shape = ctx.type(0).sizes
    axis = ctx.axis("axis", len(shape), 0)
    single = not ctx.has_input(1)
    if single:
        sizes = [1] * shape[axis]
    else:
        given = ctx.static(1)
        if given.ndim:
            sizes = [int(size) for size in given]
            ctx.require(sum(sizes) == shape[axis], f"parts of {sizes} are not {shape[axis]} elements")
        else:
            size = int(given)
            ctx.require(size > 0, f"parts of {size} elements")
            sizes = [min(size, shape[axis] - first) for first in range(0, shape[axis], size)]
    if len(sizes) > MAX_STEPS:
        raise ctx.unsupported(f"{len(sizes)} parts; at most {MAX_STEPS} are made")
    output = ctx.node.outputs[0]
    parts = [f"{output}/{n}" for n in range(len(sizes))]
    made.sequences[output] = tuple(parts)
    if not parts:
        return
    squeezed = single and not ctx.integer("keepdims", 1)
    whole = [f"{part}/whole" for part in parts] if squeezed else parts
    made.constants[f"{output}/sizes"] = np.array(sizes, np.int64)
    made.constants[f"{output}/axes"] = np.array([axis], np.int64)
    reads = (ctx.node.inputs[0], f"{output}/sizes")
    made.nodes.append(Node("Split", reads, tuple(whole), {"axis": axis}, version=VERSION))
    if squeezed:
        made.nodes += [
            Node("Squeeze", (one, f"{output}/axes"), (part,), version=VERSION)
            for one, part in zip(whole, parts, strict=True)
        ]


def _concat(ctx: Context, sequences: Sequences, made: Resolved) -> None:
    items = _items(ctx, sequences)
    ctx.require(bool(items), "the sequence is empty")
    output, axis = ctx.node.outputs[0], ctx.integer("axis")
    if ctx.flag("new_axis", False):
        made.constants[f"{output}/axes"] = np.array([axis], np.int64)
        parts = [f"{output}/{n}" for n in range(len(items))]
        made.nodes += [
            Node("Unsqueeze", (item, f"{output}/axes"), (part,), version=VERSION)
            for item, part in zip(items, parts, strict=True)
        ]
        items = tuple(parts)
    made.nodes.append(Node("Concat", items, (output,), {"axis": axis}, version=VERSION))


_RESOLVERS: Final[Mapping[str, Callable[[Context, Sequences, Resolved], None]]] = MappingProxyType(
    {
        "SequenceConstruct": _construct,
        "SequenceEmpty": _construct,
        "SequenceInsert": _insert,
        "SequenceErase": _erase,
        "SequenceAt": _at,
        "SequenceLength": _length,
        "SplitToSequence": _split,
        "ConcatFromSequence": _concat,
        "Identity": _same,
        "Optional": _optional,
        "OptionalGetElement": _same,
        "OptionalHasElement": _has_element,
    }
)
