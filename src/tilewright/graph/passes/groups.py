"""Convolutions by small groups as convolutions by larger ones, whose channels fill the blocks of a layout.

    before                          after
    y = Conv(x, w, group=32)        y = Conv(x, w with zeros, group=8)    4 groups of 4 channels in one of 16

Lanes of a block would read channels of several groups; so a convolution by small groups reads and writes
plain values, and then so must its neighbours, which are fast on blocks alone. Products with zeros cost less
where there is much more to do in the neighbours. An infinite element makes its whole block not a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final

import numpy as np

from tilewright.graph.model import Array, Graph, Node
from tilewright.graph.registry import Kind, find_operator
from tilewright.graph.rewrite import Rewriter
from tilewright.ir import typical

#: Parts of the peak that convolutions of blocks and of plain values reach, and those by small groups
#: (Emerald Rapids, ResNeXt: 0.75, 0.5 and 0.35 of the products that the core can start).
OF_BLOCKS: Final = 0.75
OF_PLAIN: Final = 0.5
OF_SMALL_GROUPS: Final = 0.35


@dataclass(frozen=True, slots=True)
class MergeGroups:
    """Merge groups of convolutions of constant f32 weights until they fill blocks of ``lanes`` channels."""

    lanes: int
    name: ClassVar[str] = "merge-groups"

    def __call__(self, graph: Graph) -> Graph:
        """Merge wherever that saves time by the model of this file's head."""
        rewriter = Rewriter(graph)
        changed = False
        for old in graph.nodes:
            node = rewriter.current(old)
            count = self._merged(graph, node)
            if count is not None:
                changed = True
                groups = _groups(node)
                weights = rewriter.constant(
                    merged_weights(rewriter.constants[node.inputs[1]], groups, count), node.inputs[1]
                )
                inputs = (node.inputs[0], weights, *node.inputs[2:])
                node = replace(node, inputs=inputs, attributes={**node.attributes, "group": groups // count})
            rewriter.nodes.append(node)
        return rewriter.finish() if changed else graph

    def _merged(self, graph: Graph, node: Node) -> int | None:
        """How many groups become one; ``None`` where they stay."""
        weights = graph.constants.get(node.inputs[1]) if _is_convolution(node) else None
        if weights is None or weights.dtype != np.float32:
            return None
        groups, depth = _groups(node), weights.shape[1]
        each = weights.shape[0] // groups
        if groups == 1 or depth == 1 or (depth % self.lanes == 0 and each % self.lanes == 0):
            return None
        fitting = (
            n
            for n in range(2, groups + 1)
            if groups % n == 0 and n * depth % self.lanes == 0 and n * each % self.lanes == 0
        )
        count = next(fitting, None)
        if count is None:
            return None
        own = _products(graph, node)
        around = sum(_products(graph, other) for other in _neighbours(graph, node))
        apart = own / OF_SMALL_GROUPS + around / OF_PLAIN
        together = (count * own + around) / OF_BLOCKS
        return count if around and together < apart else None


def merged_weights(weights: Array, groups: int, count: int) -> Array:
    """The weights of a convolution by ``groups // count`` groups that sums the same products, and zeros."""
    outputs, depth, *window = weights.shape
    each = outputs // groups
    parts = weights.reshape(groups // count, count, each, depth, *window)
    merged = np.zeros((groups // count, count, each, count, depth, *window), weights.dtype)
    for n in range(count):
        merged[:, n, :, n] = parts[:, n]
    return merged.reshape(outputs, count * depth, *window)


def _is_convolution(node: Node) -> bool:
    return node.op == "Conv" and not node.domain


def _groups(node: Node) -> int:
    groups = node.attributes.get("group", 1)
    assert isinstance(groups, int)
    return groups


def _products(graph: Graph, node: Node) -> float:
    """The products of a convolution of known sizes."""
    weights, result = graph.types[node.inputs[1]], graph.types[node.outputs[0]]
    return float(typical(result.elements)) * prod(weights.sizes[1:])


def _neighbours(graph: Graph, node: Node) -> Iterator[Node]:
    """The convolutions without groups next to one, but for what passes layouts on."""
    makers = {value: maker for maker in graph.nodes for value in maker.used_outputs}
    value = node.inputs[0]
    while value in makers and _passes_on(makers[value]):
        value = makers[value].inputs[0]
    if value in makers and _is_convolution(makers[value]) and _groups(makers[value]) == 1:
        yield makers[value]
    todo, seen = list(node.outputs), set(node.outputs)
    while todo:
        value = todo.pop()
        for user in graph.nodes:
            if value not in user.inputs:
                continue
            if _is_convolution(user) and _groups(user) == 1 and user.inputs[0] == value:
                yield user
            elif _passes_on(user) and not seen & set(user.outputs):
                todo += user.outputs
                seen.update(user.outputs)


def _passes_on(node: Node) -> bool:
    """Whether what stands between convolutions passes their layouts on."""
    operator = find_operator(node)
    return operator is not None and operator.kind is Kind.ELEMENTWISE
