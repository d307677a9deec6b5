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

#: What is no number, or the end of what numbers are there: in the leaves of a quarter of all models.
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 1e30)
SIZES = (0, 1, 1, 2, 3, 4, 5, 7)
DTYPES = (np.float32,) * 8 + (np.float64, np.float16, np.int32, np.int64, np.bool_)
DTYPES += (np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64)
FLOATS, NUMBERS = "f", "fiu"

UNARY = {
    "f": "Abs Neg Relu Sigmoid Tanh Floor Ceil Round Erf Softplus Sqrt Sin Cos Atan Sign Elu HardSwish "
    "Exp Log Reciprocal Selu Celu Softsign LeakyRelu ThresholdedRelu HardSigmoid Mish Gelu Sinh Asinh Tan",
    "i": "Abs Neg Sign",
    "u": "Abs Sign",
    "b": "Not",
}
BINARY = {
    "f": "Add Sub Mul Max Min Div PRelu Pow",
    "i": "Add Sub Mul Max Min BitwiseAnd BitwiseOr BitwiseXor",
    "u": "Add Mul Max Min",
    "b": "And Or Xor",
}
COMPARE = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
REDUCE = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2", "ReduceSumSquare", "ReduceL1")
REDUCE += ("ReduceProd", "ReduceLogSumExp")


@dataclass
class Graph:
    """A model that grows: `values` are what nodes may read, with examples of them."""

    rng: random.Random
    numpy: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    special: bool = False

    def array(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        """Elements that are exact in every type: what is computed of them differs by rounding alone."""
        kind = np.dtype(dtype).kind
        if kind == "b":
            return self.numpy.integers(0, 2, shape).astype(bool)
        if kind in "iu":
            return self.numpy.integers(0 if kind == "u" else -4, 5, shape).astype(dtype)
        made = np.asarray(self.numpy.integers(-16, 17, shape) / 8)
        if self.special:
            made = np.where(self.numpy.random(shape) < 0.2, self.numpy.choice(SPECIAL, shape), made)
        with np.errstate(over="ignore"):
            return made.astype(dtype)

    def leaf(self, shape: tuple[int, ...], dtype: type) -> str:
        """A new input or constant."""
        array, name = np.asarray(self.array(shape, dtype)), f"l{len(self.values)}"
        self.values[name] = array
        if self.rng.random() < 0.5:
            self.inputs.append(name)
        else:
            self.constants[name] = array
        return name

    def integers(self, values: object) -> str:
        """A constant of integers, as operators take axes and shapes."""
        name = f"k{len(self.constants)}"
        self.constants[name] = np.array(values, np.int64)
        return name

    def scalar(self, value: int) -> str:
        """A constant of one integer without axes."""
        return self.integers(value)

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
    x, to = g.pick("iub" if g.rng.random() < 0.5 else "fb"), np.dtype(g.rng.choice(DTYPES))
    if g.values[x].dtype.kind == "f" and to.kind in "iu":
        # what a number becomes that is not in range is left open
        to = np.dtype(np.float64 if g.special else np.int64)
    return helper.make_node("Cast", [x], ["?"], to=helper.np_dtype_to_tensor_dtype(to))


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


def _einsum(g: Graph) -> onnx.NodeProto:
    """Letters of one operand or of several, each once or twice in it, with or without what is left out."""
    letters = g.rng.sample("abcdEFG", g.rng.randint(1, 4))
    sizes, dtype = (
        {c: g.rng.choice(SIZES) for c in letters},
        g.rng.choice((np.float32, np.float32, np.float64)),
    )
    more = tuple(g.rng.choice(SIZES) for _ in range(g.rng.randint(0, 2))) if g.rng.random() < 0.3 else ()
    texts, reads = [], []
    for _ in range(g.rng.choice((1, 2, 2, 2, 3))):
        text = [g.rng.choice(letters) for _ in range(g.rng.randint(0, 4))]
        shape = [(sizes[c],) for c in text]
        if more and g.rng.random() < 0.8:
            at = g.rng.randint(0, len(text))
            text.insert(at, "...")
            shape.insert(at, tuple(1 if g.rng.random() < 0.2 else n for n in more[g.rng.randint(0, 1) :]))
        texts.append("".join(text))
        reads.append(g.leaf(sum(shape, ()), dtype))
    equation = (", " if g.rng.random() < 0.3 else ",").join(texts)
    if g.rng.random() < 0.7:
        used = [c for c in letters if any(c in t for t in texts)]
        left = g.rng.sample(used, g.rng.randint(0, len(used)))
        equation += "->" + "".join([*(["..."] if "..." in equation else []), *left])
    return helper.make_node("Einsum", reads, ["?"], equation=equation)


def _gemm(g: Graph) -> onnx.NodeProto:
    x = g.pick(FLOATS, range(2, 3))
    flips = {"transA": g.rng.randint(0, 1), "transB": g.rng.randint(0, 1)}
    rows, inner = g.values[x].shape[:: -1 if flips["transA"] else 1]
    columns = g.rng.choice(SIZES)
    dtype = g.values[x].dtype.type
    w = g.leaf((inner, columns)[:: -1 if flips["transB"] else 1], dtype)
    c = (
        [g.leaf(g.rng.choice(((), (columns,), (rows, 1), (rows, columns))), dtype)]
        if g.rng.randint(0, 1)
        else []
    )
    return helper.make_node("Gemm", [x, w, *c], ["?"], alpha=g.rng.choice((1.0, 0.5)), beta=0.25, **flips)


def _shape_of(g: Graph) -> onnx.NodeProto:
    """What only says elements otherwise: no arithmetic."""
    op = g.rng.choice(("Expand", "Tile", "Flatten", "Unsqueeze", "Squeeze", "Trilu", "Shape", "Size"))
    x = g.pick(ranks=range(2 if op == "Trilu" else 0, 5))
    shape = g.values[x].shape
    if op == "Expand":
        target = [g.rng.choice(SIZES) if n == 1 else g.rng.choice((1, n)) for n in shape]
        return helper.make_node(op, [x, g.integers(g.rng.choice(([], [2])) + target)], ["?"])
    if op == "Tile":
        return helper.make_node(op, [x, g.integers([g.rng.choice((0, 1, 2, 3)) for _ in shape])], ["?"])
    if op == "Unsqueeze":
        return helper.make_node(op, [x, g.integers([g.rng.choice((-1, 0))])], ["?"])
    if op == "Squeeze":
        return helper.make_node(op, [x], ["?"])
    if op == "Trilu":
        return helper.make_node(op, [x, g.scalar(g.rng.randint(-3, 3))], ["?"], upper=g.rng.randint(0, 1))
    attributes = {"axis": g.rng.randint(0, len(shape))} if op == "Flatten" else {}
    return helper.make_node(op, [x], ["?"], **attributes)


def _picked(g: Graph) -> onnx.NodeProto:
    """What reads or writes elements at places that data say."""
    op = g.rng.choice(("GatherElements", "GatherND", "ScatterElements", "ScatterND", "OneHot", "Compress"))
    x = g.pick(ranks=range(1, 5))
    array = g.values[x]
    axis = g.rng.randrange(array.ndim)
    if op in ("GatherND", "ScatterND"):
        depth, count = g.rng.randint(1, array.ndim), g.rng.choice((0, 1, 4)) if array.size else 0
        rows = [[g.rng.randint(-n, n - 1) for n in array.shape[:depth]] for _ in range(count)]
        rows = [
            list(row)
            for row in dict.fromkeys(tuple(v % n for v, n in zip(r, array.shape, strict=False)) for r in rows)
        ]
        places = g.integers(np.array(rows, np.int64).reshape(len(rows), depth))
        more = [g.leaf((len(rows), *array.shape[depth:]), array.dtype.type)] if op == "ScatterND" else []
        return helper.make_node(op, [x, places, *more], ["?"])
    if op == "OneHot":
        places, depth = g.leaf(array.shape[:2], np.int64), g.scalar(g.rng.randint(1, 6))
        both = g.leaf((2,), array.dtype.type)
        # the evaluator takes `off + (on - off) hot`, which is NaN for what has no end
        g.values[both][~np.isfinite(g.values[both])] = 0
        return helper.make_node(op, [places, depth, both], ["?"], axis=g.rng.randint(-1, 0))
    if op == "Compress":
        chosen = g.integers(g.array((array.shape[axis],), np.bool_).astype(bool))
        g.constants[chosen] = g.constants[chosen].astype(bool)
        return helper.make_node(op, [x, chosen], ["?"], axis=axis)
    size, others = array.shape[axis], [g.rng.randint(0, n) for n in array.shape]
    lines = g.rng.sample(range(-size, 0), g.rng.randint(0, size))  # each place once: no order matters
    others[axis] = len(lines)
    at = np.broadcast_to(
        np.reshape(np.array(lines, np.int64), [-1 if d == axis else 1 for d in range(array.ndim)]), others
    )
    more = [g.leaf(tuple(others), array.dtype.type)] if op == "ScatterElements" else []
    return helper.make_node(op, [x, g.integers(at), *more], ["?"], axis=axis)


def _norm(g: Graph) -> onnx.NodeProto:
    op = g.rng.choice(
        ("LayerNormalization", "BatchNormalization", "InstanceNormalization", "LpNormalization", "LRN")
    )
    x = g.pick(FLOATS, range(3, 5))
    shape, dtype = g.values[x].shape, g.values[x].dtype.type
    if op == "LpNormalization":
        return helper.make_node(op, [x], ["?"], axis=g.rng.randrange(len(shape)))
    if op == "LRN":
        return helper.make_node(op, [x], ["?"], size=g.rng.choice((1, 3, 5)))
    if op == "LayerNormalization":
        axis = g.rng.randint(1, len(shape) - 1)
        return helper.make_node(op, [x, g.leaf(shape[axis:], dtype)], ["?"], axis=axis)
    reads = [x, *(g.leaf(shape[1:2], dtype) for _ in range(4 if op[0] == "B" else 2))]
    if op[0] == "B":
        g.values[reads[4]][:] = abs(g.values[reads[4]]) + 1
    if op[0] == "I":
        # a large factor, times differences that a deviation without end divides: the order of both decides
        np.clip(g.values[reads[1]], -4, 4, out=g.values[reads[1]])
    return helper.make_node(op, reads, ["?"])


def _parts(g: Graph) -> onnx.NodeProto:
    """Nodes of two results."""
    x = g.pick(FLOATS if g.rng.random() < 0.6 else "fiub", range(1, 5))
    axis = g.rng.randrange(g.values[x].ndim)
    size = g.values[x].shape[axis]
    if g.values[x].dtype.kind == "f" and g.rng.random() < 0.6:
        k = g.integers([g.rng.randint(0, size)])
        return helper.make_node("TopK", [x, k], ["?", "?"], axis=axis, largest=g.rng.randint(0, 1))
    first = g.rng.randint(0, size)
    return helper.make_node("Split", [x, g.integers([first, size - first])], ["?", "?"], axis=axis)


def _picture(g: Graph) -> onnx.NodeProto:
    op = g.rng.choice(
        ("Resize", "ConvTranspose", "DepthToSpace", "SpaceToDepth", "GlobalAveragePool", "LpPool")
    )
    size = g.rng.randint(2, 6) * 2
    x = g.leaf((g.rng.choice((0, 1, 2)), 4, size, size), np.float32)
    if op == "Resize":
        scales = g.leaf((4,), np.float32)
        g.inputs, g.constants[scales] = (
            [n for n in g.inputs if n != scales],
            np.array([1, 1, 2, g.rng.choice((0.5, 1, 3))], "f"),
        )
        mode, at = (
            g.rng.choice(("nearest", "linear", "cubic")),
            g.rng.choice(("asymmetric", "half_pixel", "align_corners")),
        )
        return helper.make_node(op, [x, "", scales], ["?"], mode=mode, coordinate_transformation_mode=at)
    if op == "ConvTranspose":
        w = g.leaf((4, g.rng.randint(1, 3), 3, 2), np.float32)
        return helper.make_node(
            op, [x, w], ["?"], strides=[g.rng.randint(1, 3)] * 2, pads=[g.rng.randint(0, 1)] * 4
        )
    attributes = (
        {"blocksize": 2} if "Depth" in op else {"kernel_shape": [2, 3], "p": 1} if op == "LpPool" else {}
    )
    return helper.make_node(op, [x], ["?"], **attributes)


def _clip(g: Graph) -> onnx.NodeProto:
    x = g.pick(NUMBERS)
    dtype = g.values[x].dtype.type
    ends = [g.leaf((), dtype) if g.rng.random() < 0.7 else "" for _ in range(2)]
    return helper.make_node("Clip", [x, *ends], ["?"])


def _modulo(g: Graph) -> onnx.NodeProto:
    x = g.pick(NUMBERS)
    y = g.leaf((), g.values[x].dtype.type)
    g.values[y][...] = g.rng.choice((1, 2, 3))
    return helper.make_node(
        "Mod", [x, y], ["?"], fmod=int(g.values[x].dtype.kind == "f" or g.rng.randint(0, 1))
    )


def _quantize(g: Graph) -> onnx.NodeProto:
    x = g.leaf(tuple(g.rng.choice(SIZES) for _ in range(g.rng.randint(0, 3))), np.float32)
    scale, zero = g.leaf((), np.float32), g.leaf((), g.rng.choice((np.int8, np.uint8)))
    g.values[scale][...] = g.rng.choice((0.25, 0.1, 3.0))
    return helper.make_node("QuantizeLinear", [x, scale, zero], ["?"])


def _dequantize(g: Graph) -> onnx.NodeProto:
    x = g.leaf(
        tuple(g.rng.choice(SIZES) for _ in range(g.rng.randint(0, 3))), g.rng.choice((np.int8, np.uint8))
    )
    return helper.make_node(
        "DequantizeLinear", [x, g.leaf((), np.float32), g.leaf((), g.values[x].dtype.type)], ["?"]
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
    *(_einsum, _einsum, _gemm, _shape_of, _shape_of, _picked, _picked, _norm, _parts, _picture),
    *(_clip, _modulo, _quantize, _dequantize),
)


#: Makers of models with special values: not those where engines pass over padding or not (0 times infinity),
#: add in other orders, take a maximum of what is no number, or a remainder of what is beyond 2^53 times it.
ORDERED = tuple(maker for maker in MAKERS if maker not in (_conv, _pool, _picture, _einsum, _modulo))


def random_model(seed: int, evaluate: Callable[..., list[np.ndarray] | None]) -> tuple[onnx.ModelProto, dict]:
    """A model and what it is run on. `evaluate` gives values of single nodes, None for wrong ones."""
    rng = random.Random(seed)
    g = Graph(rng, np.random.default_rng(seed), special=rng.random() < 0.25)
    for _ in range(rng.randint(1, 10)):
        node = rng.choice(ORDERED if g.special else MAKERS)(g)
        node.output[:] = [f"v{len(g.nodes)}" + "b" * k for k in range(len(node.output))]
        reads = {name: g.constants.get(name, g.values.get(name)) for name in node.input if name}
        made = evaluate(_model([node], list(reads), {}, reads, node.output), reads)
        if made is None or not all(
            isinstance(a, np.ndarray | np.generic) and np.size(a) <= 1 << 14 for a in made
        ):
            continue
        if not (g.special or all(np.isfinite(a).all() for a in made if a.dtype.kind == "f")):
            continue
        g.nodes.append(node)
        g.values.update(zip(node.output, map(np.asarray, made), strict=True))
    results = [name for node in g.nodes for name in node.output if rng.random() < 0.4] or [
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
        value_info=[info(name) for node in nodes for name in node.output if name in values],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
