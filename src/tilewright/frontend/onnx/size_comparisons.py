"""Whether a model decides by its sizes: comparisons of what it computes of shapes.

What models compute of sizes is mostly affine in them, which a few sizes show. A comparison is not: it can
come out otherwise at one size alone. Those whose outcome no size can change (``Equal(shape, -1)``, which
exporters write before ``Expand``) do not count.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Final

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

#: What makes sizes of sizes, at most as large in number: their results are sizes, too.
_KEEPS: Final = frozenset({
    "Gather", "Slice", "Concat", "Squeeze", "Unsqueeze", "Identity", "Add", "Mul", "Reshape", "Transpose",
    "Split", "Flatten", "ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "Min", "Max", "Cast",
})  # fmt: skip
#: The same, whose results may be negative.
_SIGNED: Final = frozenset({"Sub", "Neg", "Div", "Floor", "Ceil", "Round", "Abs", "Sqrt", "Pow", "Clip"})
#: What has another result at some sizes between two at which it has the same.
_COMPARES: Final = frozenset({
    "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Mod", "Sign", "NonZero", "OneHot",
    "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot",
})  # fmt: skip
#: Elements of constants that are looked at.
_FEW: Final = 64


def size_comparison(graph: GraphProto) -> str | None:
    """The name of the first node that compares sizes, or of its first result; ``None`` where none does."""
    signs: dict[str, bool] = {}
    """Values computed of sizes, and whether they may be negative."""
    known: dict[str, frozenset[float]] = {}
    """Constants, as far as they are small, by the elements that they have."""
    for tensor in graph.initializer:
        _learn(known, tensor.name, tensor)
    for node in graph.node:
        if node.op_type in ("Shape", "Size"):
            signs |= dict.fromkeys(node.output, False)
        elif node.op_type in ("Constant", "ConstantOfShape"):
            _learn_value(known, node)
        elif node.op_type == "Mul" and all(name in known for name in node.input):
            pairs = product(*(known[name] for name in node.input))
            known[node.output[0]] = frozenset(prod(pair) for pair in pairs)
        elif signs and any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
            # what is inside may read any of them
            return str(node.name or node.output[0])
        # the conditions of Where are comparisons that were looked at
        elif read := [name for name in node.input if name in signs]:
            if node.op_type in _COMPARES or _is_bool(node):
                if not _is_settled(node, signs, known):
                    return str(node.name or node.output[0])
            elif node.op_type in _KEEPS | _SIGNED | {"Where"}:
                # of Reshape and its like the shape alone makes no sizes of the data
                if node.input[0] in signs or node.op_type in ("Concat", "Add", "Mul", "Sub", "Div", "Where"):
                    negative = node.op_type in _SIGNED or any(signs[name] for name in read)
                    signs |= dict.fromkeys(node.output, negative or _is_negative(node, known))
    return None


def _learn(known: dict[str, frozenset[float]], name: str, tensor: TensorProto) -> None:
    if prod(tensor.dims) <= _FEW and tensor.data_location != TensorProto.EXTERNAL:
        known[name] = frozenset(map(float, numpy_helper.to_array(tensor).reshape(-1).astype(float)))


def _learn_value(known: dict[str, frozenset[float]], node: NodeProto) -> None:
    """The elements of a constant node, and of one that fills a shape."""
    if node.op_type == "ConstantOfShape" and not node.attribute:
        known[node.output[0]] = frozenset({0.0})
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.type == AttributeProto.TENSOR:
            _learn(known, node.output[0], attribute.t)


def _is_bool(node: NodeProto) -> bool:
    """Whether a cast makes truth values."""
    wanted = [helper.get_attribute_value(a) for a in node.attribute if a.name == "to"]
    return node.op_type == "Cast" and wanted == [TensorProto.BOOL]


def _is_negative(node: NodeProto, known: dict[str, frozenset[float]]) -> bool:
    """Whether a constant that is added or multiplied may make a size negative; joined to others it stays."""
    found = [known[name] for name in node.input if name in known]
    return node.op_type in ("Add", "Mul") and any(n < 0 for each in found for n in each)


def _is_settled(node: NodeProto, signs: dict[str, bool], known: dict[str, frozenset[float]]) -> bool:
    """Whether all sizes give one result: what is at least 0 beside what is below it."""
    if node.op_type not in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        return False
    positive = [name for name in node.input if name in signs and not signs[name]]
    negative = [name for name in node.input if name in known and all(n < 0 for n in known[name])]
    return len(positive) == len(negative) == 1
