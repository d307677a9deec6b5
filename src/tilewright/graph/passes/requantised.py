"""Bytes between kernels: movement on quantised elements, and scales that join those around them.

    before                                          after
    x = DequantizeLinear(q, s, z)                   t = MaxPool(q)
    y = MaxPool(x)                                  (t is what y would be quantised to)
    r = QuantizeLinear(y, s, z)

    y = Add(Mul(Cast(i), a), b)                     y = Add(Mul(Cast(i), a / s), b / s)
    r = QuantizeLinear(y, s, z)                     r = QuantizeLinear(y, 1, z)

Exporters quantise what movement and maxima give once more, by the same numbers. Scales join where integers
``i`` are made numbers, as in the standard's own operators on quantised tensors (QLinearConv): one product in
place of two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from tilewright.graph.model import Array, Graph, Node, TensorType
from tilewright.graph.rewrite import Rewriter

#: What gives elements of its first input, or their maxima: increasing functions of them may come after it.
_SELECTIONS: Final = frozenset({"Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_FLOAT: Final = "f32"
#: Scales whose reciprocals are normal numbers of f32.
_SCALES: Final = (2.0**-125, 2.0**125)


@dataclass(frozen=True, slots=True)
class SinkDequantised:
    """Select among bytes and dequantise then; leave out quantisations that give back the bytes there were."""

    name: ClassVar[str] = "sink-dequantised"

    def __call__(self, graph: Graph) -> Graph:
        """Move every DequantizeLinear by one scale and zero point as far down as selections go."""
        rewriter = Rewriter(graph)
        made: dict[str, Node] = {}
        changed = False
        for node in graph.nodes:
            now = rewriter.current(node)
            source = made.get(now.inputs[0]) if now.inputs else None
            if _dequantises(graph, now):
                made[now.outputs[0]] = now
            elif source is not None and _inverse(graph, now, source):
                rewriter.alias(now.outputs[0], source.inputs[0])
                changed = True
                continue
            elif source is not None and _selects(now):
                (output,) = now.outputs
                moved = rewriter.fresh(f"{output}.quantised")
                dtype, shape = rewriter.types[source.inputs[0]].dtype, rewriter.types[output].shape
                type_ = TensorType(dtype, shape)
                rewriter.emit(
                    replace(now, inputs=(source.inputs[0], *now.inputs[1:]), outputs=(moved,)), [type_]
                )
                widened = replace(source, inputs=(moved, *source.inputs[1:]), outputs=(output,))
                rewriter.emit(widened, [rewriter.types[output]])
                made[output] = widened
                changed = True
                continue
            rewriter.nodes.append(now)
        return rewriter.finish() if changed else graph


def _selects(node: Node) -> bool:
    return node.op in _SELECTIONS and not node.domain and len(node.used_outputs) == len(node.outputs) == 1


def _dequantises(graph: Graph, node: Node) -> bool:
    """Whether a node dequantises what is no constant by one positive scale and one zero point."""
    if node.op != "DequantizeLinear" or node.domain or node.inputs[0] in graph.constants:
        return False
    known = [graph.constant(value) for value in node.used_inputs[1:]]
    scale = known[0]
    return scale is not None and float(scale.min()) > 0 and all(v is not None and v.size == 1 for v in known)


def _inverse(graph: Graph, node: Node, source: Node) -> bool:
    """Whether a node quantises as ``source`` dequantises."""
    if node.op != "QuantizeLinear" or node.domain or len(node.used_inputs) != len(source.used_inputs):
        return False
    pairs = zip(node.used_inputs[1:], source.used_inputs[1:], strict=True)
    for own, other in pairs:
        a, b = graph.constant(own), graph.constant(other)
        if a is None or b is None or a.dtype != b.dtype or a.size != 1 or a.reshape(()) != b.reshape(()):
            return False
    return len(node.used_inputs) == 3 or graph.types[node.outputs[0]].dtype == "u8"


@dataclass(frozen=True, slots=True)
class FoldRequantised:
    """Multiply integers by the quotient of two scales, instead of by one and dividing by the other."""

    name: ClassVar[str] = "fold-requantised"

    def __call__(self, graph: Graph) -> Graph:
        """Change every QuantizeLinear of scaled integers by one known scale."""
        divided: dict[str, float] = {}
        for node in graph.nodes:
            scale = _scale(graph, node)
            if scale is not None:
                divided |= dict.fromkeys(_scaled_values(graph, node.inputs[0]), scale)
        rewriter = Rewriter(graph)
        for node in graph.nodes:
            if node.outputs[0] in divided:
                _divide(rewriter, rewriter.current(node), divided[node.outputs[0]])
            elif node.inputs and node.inputs[0] in divided and node.op == "QuantizeLinear":
                one = rewriter.constant(np.ones((), np.float32), f"{node.outputs[0]}.one")
                now = rewriter.current(node)
                made = replace(now, inputs=(now.inputs[0], one, *now.inputs[2:]))
                rewriter.emit(made, [rewriter.types[node.outputs[0]]])
            else:
                rewriter.keep(node)
        return rewriter.finish() if divided else graph


def _scale(graph: Graph, node: Node) -> float | None:
    """The scale by which a node quantises f32 to bytes, where it is one number with a reciprocal."""
    if node.op != "QuantizeLinear" or node.domain or graph.types[node.inputs[0]].dtype != _FLOAT:
        return None
    known = graph.constant(node.inputs[1])
    if known is None or known.size != 1 or graph.types[node.outputs[0]].dtype not in ("u8", "i8"):
        return None
    value = float(known.reshape(()))
    return value if _SCALES[0] <= value <= _SCALES[1] and value != 1.0 else None


def _scaled_values(graph: Graph, value: str) -> list[str]:
    """A value and what it is made of, whose constants scale integers: a product, or a sum with one."""
    total = _with_constant(graph, value, "Add")
    made = [value] if total is None else [value, total.inputs[1 - _constant_at(graph, total)]]
    product = _with_constant(graph, made[-1], "Mul")
    numbers = None if product is None else graph.producer(product.inputs[1 - _constant_at(graph, product)])
    whole = numbers is not None and numbers.op == "Cast" and graph.types[numbers.inputs[0]].dtype == "i32"
    return made if whole else []


def _with_constant(graph: Graph, value: str, op: str) -> Node | None:
    """The node ``op`` of a constant and another operand that makes a value, where one node alone reads it."""
    maker = graph.producer(value)
    if maker is None or maker.op != op or maker.domain or graph.use_count(value) != 1:
        return None
    return maker if sum(each in graph.constants for each in maker.inputs) == 1 else None


def _constant_at(graph: Graph, node: Node) -> int:
    return next(at for at, value in enumerate(node.inputs) if value in graph.constants)


def _divide(rewriter: Rewriter, node: Node, scale: float) -> None:
    """The node with its constant divided by a scale."""
    at = next(at for at, value in enumerate(node.inputs) if value in rewriter.constants)
    name = node.inputs[at]
    inputs = list(node.inputs)
    quotient = rewriter.constants[name].astype(np.float64) / scale
    inputs[at] = rewriter.constant(quotient.astype(np.float32), f"{name}.scaled")
    rewriter.emit(replace(node, inputs=tuple(inputs)), [rewriter.types[node.outputs[0]]])


def _divided(array: Array, scale: float) -> Array:
    made: Array = (array.astype(np.float64) / scale).astype(np.float32)
    return made
