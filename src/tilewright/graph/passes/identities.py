"""Nodes that do nothing: removed, their input standing for their output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

import numpy as np

from tilewright.graph.model import Graph, Node
from tilewright.graph.registry import Kind, find_operator, integer_of
from tilewright.graph.rewrite import Rewriter
from tilewright.ir import dtype_of

#: Operations that leave the left operand alone where the right one is this number.
_RIGHT_NEUTRAL: Final[Mapping[str, float]] = MappingProxyType(
    {"Add": -0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0, "Pow": 1.0}
)
#: Those of them for which the operands may change places.
_COMMUTATIVE: Final = frozenset({"Add", "Mul"})

#: Operators whose output is their first input when it has the same type: they only change shape or dtype,
#: or (Dropout) act in training. Views are recognised by their kind.
_SAME_IF_SAME_TYPE: Final = frozenset({"Cast", "CastLike", "Dropout", "Expand", "Tile", "Slice", "Split"})


@dataclass(frozen=True, slots=True)
class RemoveIdentities:
    """Remove views that keep the shape, casts to the same dtype, neutral arithmetic, dropout, and so on."""

    name: ClassVar[str] = "remove-identities"

    def __call__(self, graph: Graph) -> Graph:
        """Walk once; what an identity made is aliased to what it read."""
        rewriter = Rewriter(graph)
        changed = False
        for old in graph.nodes:
            node = rewriter.current(old)
            source = _same_as(rewriter, node)
            if source is None:
                rewriter.keep(node)
            else:
                changed = True
                rewriter.alias(node.outputs[0], source)
        return rewriter.finish() if changed else graph


def _same_as(rewriter: Rewriter, node: Node) -> str | None:
    """The input that the node's only output equals, if there is one."""
    if len(node.used_outputs) != 1 or not node.outputs[0] or not node.inputs or node.domain:
        return None
    entry = find_operator(node)
    first = node.inputs[0]
    types = rewriter.types
    kept = bool(first) and types[first] == types[node.outputs[0]]
    if entry is not None and entry.kind is Kind.VIEW:
        return first if kept else None
    if node.op in _SAME_IF_SAME_TYPE:
        reversed_slice = node.op == "Slice" and _negative_step(rewriter, node)
        return first if kept and not reversed_slice else None
    if node.op == "Transpose":
        perm = node.attributes.get("perm")
        return first if isinstance(perm, tuple) and perm == tuple(range(len(perm))) else None
    if node.op == "Concat" and len(node.inputs) == 1:
        return first
    if node.op == "Pad" and kept and not any(_integers(rewriter, node, 1, "pads")):
        return first
    return _neutral(rewriter, node)


def _negative_step(rewriter: Rewriter, node: Node) -> bool:
    return len(node.inputs) > 4 and any(step < 0 for step in _integers(rewriter, node, 4, ""))


def _integers(rewriter: Rewriter, node: Node, at: int, attribute: str) -> list[int]:
    given = node.attributes.get(attribute)
    if isinstance(given, tuple):
        return [int(value) for value in given]
    array = rewriter.constants.get(node.inputs[at]) if at < len(node.inputs) else None
    return [] if array is None else [integer_of(value) for value in array.flat]


def _neutral(rewriter: Rewriter, node: Node) -> str | None:
    number = _RIGHT_NEUTRAL.get(node.op)
    if number is None or len(node.inputs) != 2:
        return None
    left, right = node.inputs
    pairs = [(left, right), (right, left)] if node.op in _COMMUTATIVE else [(left, right)]
    for value, other in pairs:
        array = rewriter.constants.get(other)
        same = rewriter.types[value] == rewriter.types[node.outputs[0]]
        if array is None or not same or array.size == 0 or not bool((array == number).all()):
            continue
        # -0.0 + 0.0 is 0.0: of floats, the zero that nothing is changed by has a sign
        signed = number == 0 and dtype_of(rewriter.types[value].dtype).is_float
        if not signed or bool((np.signbit(array) == np.signbit(number)).all()):
            return value
    return None
