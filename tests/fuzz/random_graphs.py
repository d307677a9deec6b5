"""Random models from a seed: graphs of operators whose operands have shapes and types that fit them.

Shapes have sizes of 0 and 1 among others, and no axes at all; operands are results of other nodes, inputs or
constants. What onnxruntime computes of a model, or else the onnx package's evaluator, must be computed here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIZES = (0, 1, 1, 2, 3, 4, 5, 7)
DTYPES = (np.float32,) * 6 + (np.float64, np.int32, np.int64, np.int8, np.uint8, np.bool_)
FLOATS, NUMBERS = "f", "fiu"

UNARY = {
    "f": "Abs Neg Relu Sigmoid Tanh Floor Ceil Round Erf Softplus Sqrt Sin Cos Atan Sign Elu HardSwish",
    "i": "Abs Neg Sign",
    "u": "Abs Sign",
    "b": "Not",
}
BINARY = {
    "f": "Add Sub Mul Max Min Div",
    "i": "Add Sub Mul Max Min",
    "u": "Add Mul Max Min",
    "b": "And Or Xor",
}
COMPARE = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
REDUCE = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2", "ReduceSumSquare")


@dataclass
class Graph:
    """A model that grows: `values` are what nodes may read, with examples of them."""

    rng: random.Random
    numpy: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def array(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        """Elements that are exact in every type: what is computed of them differs by rounding alone."""
        kind = np.dtype(dtype).kind
        if kind == "b":
            return self.numpy.integers(0, 2, shape).astype(bool)
        if kind in "iu":
            return self.numpy.integers(0 if kind == "u" else -4, 5, shape).astype(dtype)
        return (self.numpy.integers(-16, 17, shape) / 8).astype(dtype)

    def leaf(self, shape: tuple[int, ...], dtype: type) -> str:
        """A new input or constant."""
        array, name = self.array(shape, dtype), f"l{len(self.values)}"
        self.values[name] = array
        if self.rng.random() < 0.5:
            self.inputs.append(name)
        else:
            self.constants[name] = array
        return name

    def integers(self, values: list[int]) -> str:
        """A constant of integers, as operators take axes and shapes."""
        name = f"k{len(self.constants)}"
        self.constants[name] = np.array(values, np.int64)
        return name

    def pick(self, kinds: str = "fiub", ranks: range = range(5)) -> str:
        """A value of one of the kinds of types, and of one of the ranks."""
        fits = [n for n, a in self.values.items() if a.dtype.kind in kinds and a.ndim in ranks]
        if fits and self.rng.random() < 0.85:
            return self.rng.choice(fits[-6:])
        dtypes = [d for d in DTYPES if np.dtype(d).kind in kinds]
        rank = self.rng.choice([r for r in ranks if r < 5])
        return self.leaf(tuple(self.rng.choice(SIZES) for _ in range(rank)), self.rng.choice(dtypes))

    def partner(self, name: str) -> str:
        """A value that broadcasts with another, of its type."""
        array = self.values[name]
        same = [n for n, a in self.values.items() if a.dtype == array.dtype and a.shape == array.shape]
        if self.rng.random() < 0.4:
            return self.rng.choice(same)
        shape = [1 if self.rng.random() < 0.3 else size for size in array.shape]
        return self.leaf(tuple(shape[self.rng.randint(0, len(shape)) :]), array.dtype.type)


def _unary(g: Graph) -> onnx.NodeProto:
    x = g.pick()
    return helper.make_node(g.rng.choice(UNARY[g.values[x].dtype.kind].split()), [x], ["?"])


def _binary(g: Graph) -> onnx.NodeProto:
    x = g.pick()
    pair = [x, g.partner(x)]
    return helper.make_node(g.rng.choice(BINARY[g.values[x].dtype.kind].split()), pair, ["?"])


def _compare(g: Graph) -> onnx.NodeProto:
    x = g.pick(NUMBERS)
    return helper.make_node(g.rng.choice(COMPARE), [x, g.partner(x)], ["?"])


def _where(g: Graph) -> onnx.NodeProto:
    x = g.pick()
    condition = g.leaf(g.values[x].shape, np.bool_)
    return helper.make_node("Where", [condition, x, g.partner(x)], ["?"])


def _cast(g: Graph) -> onnx.NodeProto:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(g.rng.choice(DTYPES)))
    return helper.make_node("Cast", [g.pick("iub" if g.rng.random() < 0.5 else "fb")], ["?"], to=to)


def _reduce(g: Graph) -> onnx.NodeProto:
    x = g.pick(FLOATS)
    rank = g.values[x].ndim
    axes = sorted(g.rng.sample(range(rank), g.rng.randint(0, rank)))
    reads = [x, g.integers([a - rank if g.rng.random() < 0.3 else a for a in axes])] if axes else [x]
    return helper.make_node(g.rng.choice(REDUCE), reads, ["?"], keepdims=g.rng.randint(0, 1))


def _row(g: Graph) -> onnx.NodeProto:
    x = g.pick(FLOATS, range(1, 5))
    op = g.rng.choice(("Softmax", "LogSoftmax", "ArgMax", "ArgMin", "CumSum"))
    axis = g.rng.randint(-g.values[x].ndim, g.values[x].ndim - 1)
    if op == "CumSum":
        place = g.integers([axis])
        g.constants[place] = g.constants[place].reshape(())
        return helper.make_node(
            op, [x, place], ["?"], reverse=g.rng.randint(0, 1), exclusive=g.rng.randint(0, 1)
        )
    return helper.make_node(op, [x], ["?"], axis=axis)


def _transpose(g: Graph) -> onnx.NodeProto:
    x = g.pick(ranks=range(1, 5))
    perm = list(range(g.values[x].ndim))
    g.rng.shuffle(perm)
    return helper.make_node("Transpose", [x], ["?"], perm=perm)


def _reshape(g: Graph) -> onnx.NodeProto:
    x = g.pick()
    shape = [*g.values[x].shape]
    at = g.rng.randint(0, len(shape))
    if len(shape) > 1 and g.rng.random() < 0.5:
        shape = (
            [*shape[: at - 1], -1, *shape[at + 1 :]]
            if 0 < at < len(shape) and 0 not in shape
            else [*shape, 1]
        )
    else:
        shape.insert(at, 1)
    return helper.make_node("Reshape", [x, g.integers(shape)], ["?"], allowzero=1)


def _slice(g: Graph) -> onnx.NodeProto:
    x = g.pick(ranks=range(1, 5))
    axis = g.rng.randrange(g.values[x].ndim)
    first, last, step = g.rng.randint(-6, 6), g.rng.randint(-9, 9), g.rng.choice((-2, -1, 1, 1, 2))
    return helper.make_node("Slice", [x, *(g.integers([v]) for v in (first, last, axis, step))], ["?"])


def _concat(g: Graph) -> onnx.NodeProto:
    x = g.pick(ranks=range(1, 5))
    axis, shape = g.rng.randrange(g.values[x].ndim), [*g.values[x].shape]
    shape[axis] = g.rng.choice(SIZES)
    pair = [x, g.leaf(tuple(shape), g.values[x].dtype.type)]
    g.rng.shuffle(pair)
    return helper.make_node("Concat", pair, ["?"], axis=axis)


def _gather(g: Graph) -> onnx.NodeProto:
    x = g.pick(ranks=range(1, 5))
    axis = g.rng.randrange(g.values[x].ndim)
    size, count = g.values[x].shape[axis], g.rng.choice((0, 1, 3))
    places = g.integers([g.rng.randint(-size, size - 1) for _ in range(count if size else 0)])
    return helper.make_node("Gather", [x, places], ["?"], axis=axis)


def _pad(g: Graph) -> onnx.NodeProto:
    x = g.pick(FLOATS, range(1, 5))
    pads = [g.rng.randint(0, 2) for _ in range(2 * g.values[x].ndim)]
    return helper.make_node("Pad", [x, g.integers(pads)], ["?"])


def _matmul(g: Graph) -> onnx.NodeProto:
    x = g.pick(FLOATS, range(1, 5))
    inner = g.values[x].shape[-1]
    shape = (inner, g.rng.choice(SIZES)) if g.rng.random() < 0.8 else (inner,)
    return helper.make_node("MatMul", [x, g.leaf(shape, g.values[x].dtype.type)], ["?"])


def _conv(g: Graph) -> onnx.NodeProto:
    channels, size = g.rng.choice((1, 2, 4)), g.rng.randint(3, 9)
    x = g.leaf((g.rng.choice((0, 1, 2)), channels, size, size), np.float32)
    groups = g.rng.choice((1, channels))
    w = g.leaf((groups * g.rng.randint(1, 3), channels // groups, g.rng.randint(1, 3), 3), np.float32)
    return helper.make_node(
        "Conv", [x, w], ["?"], group=groups, pads=[g.rng.randint(0, 1)] * 4, strides=[g.rng.randint(1, 2)] * 2
    )


def _pool(g: Graph) -> onnx.NodeProto:
    x = g.leaf((1, 3, g.rng.randint(2, 8), g.rng.randint(2, 8)), np.float32)
    op = g.rng.choice(("MaxPool", "AveragePool"))
    return helper.make_node(op, [x], ["?"], kernel_shape=[2, 2], strides=[g.rng.randint(1, 2)] * 2)


MAKERS: tuple[Callable[[Graph], onnx.NodeProto], ...] = (
    *(
        _unary,
        _unary,
        _binary,
        _binary,
        _compare,
        _where,
        _cast,
        _reduce,
        _reduce,
        _row,
        _transpose,
        _reshape,
    ),
    *(_slice, _concat, _gather, _pad, _matmul, _conv, _pool),
)


def random_model(seed: int, evaluate: Callable[..., list[np.ndarray] | None]) -> tuple[onnx.ModelProto, dict]:
    """A model and what it is run on. `evaluate` gives values of single nodes, None for wrong ones."""
    rng = random.Random(seed)
    g = Graph(rng, np.random.default_rng(seed))
    for _ in range(rng.randint(1, 10)):
        node = rng.choice(MAKERS)(g)
        node.output[0] = f"v{len(g.nodes)}"
        reads = {name: g.constants.get(name, g.values.get(name)) for name in node.input}
        made = evaluate(_model([node], list(reads), {}, reads, [node.output[0]]), reads)
        if made is None or not isinstance(made[0], np.ndarray | np.generic) or np.size(made[0]) > 1 << 14:
            continue
        if made[0].dtype.kind == "f" and not np.isfinite(made[0]).all():
            continue
        g.nodes.append(node)
        g.values[node.output[0]] = np.asarray(made[0])
    results = [node.output[0] for node in g.nodes if rng.random() < 0.4] or [
        n.output[0] for n in g.nodes[-1:]
    ]
    used = {name for node in g.nodes for name in node.input}
    feeds = {name: g.values[name] for name in g.inputs if name in used}
    constants = {name: array for name, array in g.constants.items() if name in used}
    return _model(g.nodes, list(feeds), constants, g.values, results), feeds


def _model(nodes, inputs, constants, values, outputs) -> onnx.ModelProto:
    def info(name: str) -> onnx.ValueInfoProto:
        array = values[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    made = [info(name) if name in values else helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(
        nodes,
        "g",
        list(map(info, inputs)),
        made,
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
