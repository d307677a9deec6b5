"""Common subexpressions: nodes that compute the same from the same are computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.graph.model import Graph, Node
from tilewright.graph.rewrite import Rewriter
from tilewright.support import digest

#: Constants up to this size are compared; larger ones are rarely equal and cost time to hash.
_COMPARED_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ShareSubexpressions:
    """Let later equal nodes stand for the first, and equal small constants likewise."""

    name: ClassVar[str] = "share-subexpressions"

    def __call__(self, graph: Graph) -> Graph:
        """Operators are pure functions of inputs and attributes: equal keys mean equal results."""
        rewriter = Rewriter(graph)
        changed = False
        constants: dict[str, str] = {}
        for value, array in graph.constants.items():
            if array.nbytes <= _COMPARED_BYTES:
                first = constants.setdefault(digest(array), value)
                changed |= first != value
                rewriter.alias(value, first)
        seen: dict[str, Node] = {}
        for old in graph.nodes:
            node = rewriter.current(old)
            first_node = seen.setdefault(node.key(), node)
            if first_node is node or not _covers(first_node, node):
                rewriter.keep(node)
                continue
            changed = True
            for value, kept in zip(node.outputs, first_node.outputs, strict=True):
                if value:
                    rewriter.alias(value, kept)
        return rewriter.finish() if changed else graph


def _covers(first: Node, second: Node) -> bool:
    """Whether the first node makes every output that the second one does."""
    return all(kept or not value for value, kept in zip(second.outputs, first.outputs, strict=True))
