"""Integers of 4 and 2 bits: which values of a model have them, and what reads those.

They are held as bytes, whose range is another: dequantising them, converting them and moving them about is
the same, anything else is refused. Operators that make them learn so by an attribute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tilewright.graph import MICROSOFT, NARROW_INTEGERS, OWN, Node, Subgraph
from tilewright.support import quoted

#: Operators whose result has the type and the elements of their first input.
_MOVING: Final = frozenset(
    {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather"}
)
#: Operators that onnxruntime has in its own domain, too: its tools write them before operator set 21.
_CONVERSIONS: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})


def with_narrow(
    nodes: Sequence[Node], narrow: Mapping[str, str]
) -> tuple[list[Node], dict[str, str], dict[str, str]]:
    """The nodes, those that make narrow integers with an attribute that says so; why others are refused.

    Last come all narrow values, those of the nodes too.

    `narrow` gives the narrow values among inputs and constants, with what they hold.
    """
    known = dict(narrow)
    found: dict[int, Node] = {}
    refused: dict[str, str] = {}
    while True:
        before = len(known)
        for at, node in enumerate(nodes):
            found[at] = _typed(node, known, refused)
        if len(known) == before:
            return [found[at] for at in range(len(nodes))], refused, known


def _typed(node: Node, known: dict[str, str], refused: dict[str, str]) -> Node:
    """The node as it is with what is known, which grows by its outputs."""
    second = node.inputs[1] if len(node.inputs) > 1 else ""
    third = node.inputs[2] if len(node.inputs) > 2 else ""
    made: str | None = None
    conversion = node.domain in ("", MICROSOFT) and node.op in _CONVERSIONS
    if not node.domain and node.op == "Cast":
        made = str(node.attributes.get("to"))
    elif not node.domain and node.op == "CastLike" and second in known:
        made = known[second]
        attributes = {**node.attributes, "to": made}
        node = replace(node, op="Cast", inputs=node.inputs[:1], attributes=attributes)
    elif conversion and node.op == "QuantizeLinear":
        made = known.get(third, str(node.attributes.get("output_dtype")))
        if made in NARROW_INTEGERS:
            # not the operator that passes know, whose results have the range of their type
            attributes = {**node.attributes, "output_dtype": made}
            node = replace(node, op="QuantizeNarrow", domain=OWN, version=1, attributes=attributes)
    read = known.keys() & (set(node.used_inputs) | _inner_reads(node))
    if made is None and read and not conversion and (node.domain or node.op != "CastLike"):
        if node.domain or node.op not in _MOVING:
            refused[node.origin] = (
                f"{quoted(min(read))} has elements of 4 bits or fewer, which only DequantizeLinear and Cast "
                "read"
            )
            return node
        made = known.get(node.inputs[0])
    if made in NARROW_INTEGERS:
        assert made is not None
        known.update(dict.fromkeys(node.used_outputs, made))
    return node


def _inner_reads(node: Node) -> set[str]:
    """What the graphs in a node's attributes read of what stands around them."""
    read: set[str] = set()
    for graph in node.attributes.values():
        if isinstance(graph, Subgraph):
            inside = set(graph.outputs).union(*(set(n.used_inputs) | _inner_reads(n) for n in graph.nodes))
            read |= inside.difference(graph.inputs, graph.constants, *(n.used_outputs for n in graph.nodes))
    return read
