"""Constant scales of a matrix product's operands, moved behind the product.

    before                                     after
    a = Mul(q, 0.35)                           t = MatMul(q, k)
    b = Mul(k, 0.35)                           y = Mul(t, 0.1225)
    y = MatMul(a, b)

Some exporters scale both operands of attention's scores, so that half precision does not overflow. In the
way of a product they would be passes over memory of their own; behind it they are part of its epilogue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from tilewright.graph.model import Array, Graph, Node
from tilewright.graph.rewrite import Rewriter

#: The product without the scales is at most so many times larger or smaller than with them: it overflows
#: only where the scaled product is within this factor of doing so.
_LARGEST_CHANGE: Final = 2.0**16
#: The types whose range has room for that.
_WIDE: Final = frozenset({"f32", "f64"})


@dataclass(frozen=True, slots=True)
class HoistScales:
    """Turn products of operands multiplied or divided by one constant number into a scaled product."""

    name: ClassVar[str] = "hoist-scales"

    def __call__(self, graph: Graph) -> Graph:
        """Hoist wherever nothing but the product reads the scaled operand."""
        rewriter = Rewriter(graph)
        changed = False
        for node in graph.nodes:
            scalings = _scalings(graph, node)
            factor = float(np.prod([scalings[v].factor for v in node.inputs if v in scalings]))
            if not scalings or not 1 / _LARGEST_CHANGE <= abs(factor) <= _LARGEST_CHANGE:
                rewriter.keep(node)
                continue
            changed = True
            (output,) = node.outputs
            type_ = graph.types[output]
            first = next(iter(scalings.values()))
            product = rewriter.fresh(f"{output}.unscaled")
            operands = tuple(scalings[v].operand if v in scalings else v for v in node.inputs)
            rewriter.emit(replace(node, inputs=operands, outputs=(product,)), [type_])
            number = rewriter.constant(np.array(factor, first.number.dtype), f"{output}.scale")
            scale = replace(first.node, op="Mul", inputs=(product, number), outputs=node.outputs)
            rewriter.emit(scale, [type_])
        return rewriter.finish() if changed else graph


@dataclass(frozen=True, slots=True, eq=False)
class _Scaling:
    """A node that multiplies `operand` by `factor`; `number` is the constant it does so with."""

    node: Node
    operand: str
    number: Array
    factor: float


def _scalings(graph: Graph, node: Node) -> dict[str, _Scaling]:
    """The operands of a matrix product that are nothing but scaled values, with what scales them."""
    if node.op != "MatMul" or node.domain or graph.types[node.outputs[0]].dtype not in _WIDE:
        return {}
    if any(value in graph.constants for value in node.inputs):
        return {}  # a layer with weights: the scale before it ends the chain of another contraction, for free
    found = {}
    for value in node.inputs:
        maker = graph.producer(value)
        if maker is None or graph.use_count(value) != 1:
            continue
        scaling = _scaling(graph, maker)
        if scaling is not None:
            found[value] = scaling
    return found


def _scaling(graph: Graph, node: Node) -> _Scaling | None:
    """What a node scales by one number, without changing its shape; None where it does something else."""
    if node.op not in ("Mul", "Div") or node.domain:
        return None
    orders = (node.inputs, node.inputs[::-1]) if node.op == "Mul" else (node.inputs,)
    for operand, other in orders:
        number = graph.constant(other)
        if number is None or number.size != 1 or graph.types[operand] != graph.types[node.outputs[0]]:
            continue
        value = float(number.reshape(()))
        if math.isfinite(value) and value != 0.0:
            return _Scaling(node, operand, number, value if node.op == "Mul" else 1.0 / value)
    return None
