"""Drawn cases of `sweep.py`: operators of any kind at shapes that nobody chose, each from its own seed.

A kind is a function from a :class:`Draw` to a case, or to ``None`` where what it drew is no valid node.
Adding a kind is adding it to ``KINDS``; drawing more in one changes only that kind's cases.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeVar

import numpy as np
from sweep_cases import Case, ints

T = TypeVar("T")

OPSET = 17
EXTENTS = (1, 2, 3, 5, 8, 13, 32, 100)
WIDE = (1, 2, 3, 7, 8, 16, 17, 33, 64, 100, 128, 256, 500)
BATCHES = (1, 1, 1, 2, 4, 16)
PLACES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 14, 17, 28, 33, 56)
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32)
LARGEST = 1 << 22
"""Elements of an input, at most."""
MOST_PRODUCTS = 3e8
"""Multiply-adds of a case, at most."""


class Draw:
    """What a case is drawn from; the same numbers for the same seed, kind and number."""

    def __init__(self, seed: int, kind: str, number: int) -> None:
        self.random = np.random.default_rng((seed, zlib.crc32(kind.encode()), number))

    def of(self, options: Sequence[T]) -> T:
        """One of some options."""
        return options[int(self.random.integers(len(options)))]

    def below(self, end: int) -> int:
        """A number from 0 on."""
        return int(self.random.integers(end))

    def shape(self, *ranks: int, extents: Sequence[int] = EXTENTS) -> tuple[int, ...]:
        """Extents of as many dimensions as one of the ranks says."""
        return tuple(self.of(extents) for _ in range(self.of(ranks)))

    def array(self, *shape: int, dtype: str = "float32") -> np.ndarray:
        """Elements of that shape: normal ones, or integers over a byte's range."""
        if dtype in ("uint8", "int8", "bool"):
            limits = {"uint8": (0, 256), "int8": (-127, 128), "bool": (0, 2)}[dtype]
            return self.random.integers(*limits, shape).astype(dtype)
        if dtype.startswith(("int", "uint")):
            return self.random.integers(0, 100, shape).astype(dtype)
        return (self.random.standard_normal(shape) / 5).astype(dtype)

    def some(self, length: int, least: int = 1) -> list[int]:
        """Some of the numbers below a length, in order."""
        size = least + self.below(length - least + 1)
        return sorted(int(n) for n in self.random.permutation(length)[:size])


Kind = Callable[[Draw], Case | None]


def case(op: str, label: object, *arrays: np.ndarray | None, fixed: str = "", **more: Any) -> Case:
    """A case whose inputs are named a, b, c …, with attributes among the fields of `Case`."""
    own = {
        name: more.pop(name) for name in ("outputs", "tolerance", "steps", "domain", "opset") if name in more
    }
    inputs = tuple(zip("abcdefghij", arrays, strict=False))
    return Case(
        op, own.pop("opset", OPSET), str(label), inputs, more, frozenset(fixed), **{"tolerance": 2e-3, **own}
    )


def _convolution(draw: Draw, rank: int, transposed: bool, depthwise: bool = False) -> Case | None:
    """A convolution with a constant weight; sizes along the axes are unequal as often as not."""
    group = draw.of((1, 1, 1, 1, 2, 3, 4, 8, 16))
    read, made = draw.of(CHANNELS), draw.of(CHANNELS)
    if depthwise:
        group, read, made = draw.of((3, 5, 16, 30, 64, 200)), 1, draw.of((1, 1, 2))
    first = draw.of(PLACES if rank < 3 else (1, 2, 4, 7, 8, 16))
    sizes = [first, *(draw.of((first, first, 1, 2, 3, 5, 7, 14, 30)) for _ in range(rank - 1))]
    sizes = [draw.of((1, 5, 16, 50, 200, 1000))] if rank == 1 else sizes
    edge = (
        draw.of((1, 1, 2, 3, 3, 3, 5, 7)) if rank == 2 else draw.of((1, 3, 5, 9) if rank == 1 else (1, 2, 3))
    )
    kernel = [edge, *(draw.of((edge, edge, 1, 3)) for _ in range(rank - 1))]
    stride, dilation = draw.of((1, 1, 2, 3)), draw.of((1, 1, 1, 2))
    before = [draw.below(dilation * (k - 1) // 2 + 1) for k in kernel]
    spans = [dilation * (k - 1) + 1 for k in kernel]
    for size, span, pad in zip(sizes, spans, before, strict=True):
        if (size - 1) * stride + span - 2 * pad < 1 if transposed else size + 2 * pad < span:
            return None
    batch, channels, outputs = draw.of(BATCHES), group * read, group * made
    weights = (channels, made, *kernel) if transposed else (outputs, read, *kernel)
    if float(np.prod([batch, *sizes, *weights], dtype=float)) > MOST_PRODUCTS:
        return None
    bias = draw.array(outputs) if draw.below(2) else None
    return case(
        "ConvTranspose" if transposed else "Conv",
        f"{batch}x{channels}x{sizes} to {outputs} g{group} k{kernel} s{stride} d{dilation} p{before}",
        draw.array(batch, channels, *sizes), draw.array(*weights), bias, fixed="bc", group=group,
        strides=[stride] * rank, dilations=[dilation] * rank, pads=before * 2,
    )  # fmt: skip


def pool(draw: Draw) -> Case | None:
    """Pooling of one to three axes, with windows apart, rounded up, and counting padding or not."""
    op = draw.of(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"))
    rank = draw.of((1, 2, 2, 2, 3))
    sizes = [draw.of((2, 4, 7, 8, 14, 28, 57) if rank < 3 else (2, 4, 7, 8)) for _ in range(rank)]
    x = draw.array(draw.of(BATCHES), draw.of((1, 3, 8, 16, 30, 64, 256)), *sizes)
    if op.startswith("Global"):
        return case(op, x.shape, x)
    kernel = [draw.of((1, 2, 3, 3, 5, 7)) for _ in range(rank)]
    pads = [draw.below((k + 1) // 2) for k in kernel] * 2
    if any(size + 2 * pad < k for size, pad, k in zip(sizes, pads, kernel, strict=False)):
        return None
    more: dict[str, Any] = {"kernel_shape": kernel, "strides": [draw.of((1, 2, 3))] * rank, "pads": pads}
    more |= {"count_include_pad": draw.below(2)} if op == "AveragePool" else {}
    return case(op, f"{x.shape} {more}", x, **more)


def matmul(draw: Draw) -> Case:
    """Products of matrices, of many and with one operand constant."""
    batch = draw.of(((), (), (2,), (12,), (4, 8)))
    m, n, k = (draw.of(WIDE) for _ in range(3))
    dtype = draw.of(("float32",) * 8 + ("float64", "int32"))
    constant = draw.below(2)
    b = draw.array(*(() if constant else batch), k, n, dtype=dtype)
    label = f"{batch}{m}x{n}x{k} {dtype} {'constant' if constant else ''}"
    return case("MatMul", label, draw.array(*batch, m, k, dtype=dtype), b, fixed="b" if constant else "")


def gemm(draw: Draw) -> Case:
    """A product with a sum, of matrices that lie either way."""
    m, n, k = (draw.of(WIDE) for _ in range(3))
    a, b, bias = draw.below(2), draw.below(2), draw.of(((n,), (m, 1), (1,), (m, n)))
    fixed = draw.of(("", "bc"))
    return case(
        "Gemm", f"{m}x{n}x{k} {a}{b} {bias} {fixed}", draw.array(*((k, m) if a else (m, k))),
        draw.array(*((n, k) if b else (k, n))), draw.array(*bias), fixed=fixed, transA=a, transB=b,
    )  # fmt: skip


EQUATIONS = (
    "bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "ij,kj->ik", "bij,jk->bik",
    "bi,bi->b", "bi,bj->bij", "bijk->bkji", "bij->bj", "bti,io->bto", "nchw,cd->ndhw", "bik,kjl->bijl",
    "ij,ij->",
)  # fmt: skip


def einsum(draw: Draw) -> Case | None:
    """Sums of products by their equation, among them those of attention."""
    equation = draw.of(EQUATIONS)
    terms = equation.split("->")[0].split(",")
    extents = {letter: draw.of((1, 2, 5, 8, 12, 17, 32, 64)) for letter in sorted({*"".join(terms)})}
    shapes = [[extents[letter] for letter in term] for term in terms]
    if np.prod(list(extents.values()), dtype=float) > MOST_PRODUCTS:
        return None
    return case("Einsum", f"{equation} {extents}", *(draw.array(*s) for s in shapes), equation=equation)


REDUCTIONS = (
    "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
    "ReduceProd", "ReduceSumSquare", "ReduceSum", "ArgMax", "ArgMin",
)  # fmt: skip


def reduction(draw: Draw) -> Case:
    """A reduction over any axes, or the place of a row's extremum."""
    op, shape = draw.of(REDUCTIONS), draw.shape(1, 2, 3, 4)
    keep = draw.below(2)
    if op.startswith("Arg"):
        axis = draw.below(len(shape))
        return case(op, f"{shape} {axis} {keep}", draw.array(*shape), axis=axis, keepdims=keep)
    axes = draw.some(len(shape))
    x = draw.array(
        *shape, dtype=draw.of(("float32",) * 5 + ("float64", "int32")) if op in REDUCTIONS[:3] else "float32"
    )
    x = np.abs(x) + 1 if op == "ReduceLogSum" else x
    label = f"{x.dtype}{shape} {axes} {keep}"
    if op == "ReduceSum":
        return case(op, label, x, ints(*axes), fixed="b", keepdims=keep)
    return case(op, label, x, axes=axes, keepdims=keep)


def rows(draw: Draw) -> Case:
    """Softmax along any axis, and sums along one."""
    op, shape = (
        draw.of(("Softmax", "LogSoftmax", "Hardmax", "CumSum", "LpNormalization")),
        draw.shape(2, 3, 4),
    )
    axis = draw.below(len(shape))
    if op == "CumSum":
        more = {"exclusive": draw.below(2), "reverse": draw.below(2)}
        return case(op, f"{shape} {axis} {more}", draw.array(*shape), np.array(axis), fixed="b", **more)
    more = {"p": draw.of((1, 2))} if op == "LpNormalization" else {}
    return case(op, f"{shape} {axis} {more}", draw.array(*shape), axis=axis, **more)


def normalisation(draw: Draw) -> Case:
    """Normalisations over rows, channels, groups and neighbours."""
    op = draw.of(
        ("LayerNormalization", "InstanceNormalization", "BatchNormalization", "GroupNormalization", "LRN")
    )
    if op == "LayerNormalization":
        shape = draw.shape(2, 3, 4, extents=(1, 2, 3, 7, 16, 31, 50, 64, 300))
        axis = draw.below(len(shape))
        tail = shape[axis:]
        return case(
            op,
            f"{shape} {axis}",
            draw.array(*shape),
            draw.array(*tail),
            draw.array(*tail),
            fixed="bc",
            axis=axis,
        )
    groups = draw.of((1, 2, 4))
    channels = groups * draw.of((1, 2, 5, 16))
    shape = (draw.of(BATCHES), channels, *draw.shape(1, 2, 3, extents=(1, 2, 5, 7, 14, 28)))
    x, scale, bias = draw.array(*shape), draw.array(channels), draw.array(channels)
    if op == "LRN":
        return case(op, shape, x, size=draw.of((1, 3, 5)), alpha=1e-2)
    if op == "BatchNormalization":
        return case(
            op, shape, x, scale, bias, draw.array(channels), np.abs(draw.array(channels)) + 1, fixed="bcde"
        )
    if op == "GroupNormalization":
        return case(op, f"{shape} {groups}", x, scale, bias, fixed="bc", num_groups=groups, opset=21)
    return case(op, shape, x, scale, bias, fixed="bc")


MOVEMENTS = (
    "Transpose", "Transpose", "Pad", "Slice", "Concat", "Split", "Tile", "Expand", "DepthToSpace",
    "SpaceToDepth", "Trilu",
)  # fmt: skip


def movement(draw: Draw) -> Case | None:
    """Elements that move: in other orders, in parts, repeated, beside others."""
    op = draw.of(MOVEMENTS)
    shape = draw.shape(2, 3, 4, 5, extents=(1, 2, 3, 5, 8, 13, 32, 64))
    if np.prod(shape) > LARGEST // 8:
        return None
    x = draw.array(*shape, dtype=draw.of(("float32",) * 6 + ("int64", "uint8", "float16", "bool")))
    rank, axis, label = len(shape), draw.below(len(shape)), f"{x.dtype}{shape}"
    if op == "Transpose":
        perm = [int(n) for n in draw.random.permutation(rank)]
        return case(op, f"{label} {perm}", x, perm=perm)
    if op == "Pad":
        mode = draw.of(("constant", "reflect", "edge"))
        pads = [draw.below(4 if mode != "reflect" else min(4, size)) for size in shape * 2]
        return case(op, f"{label} {mode} {pads}", x, ints(*pads), fixed="b", mode=mode)
    if op == "Slice":
        axes = draw.some(rank)
        steps = [draw.of((1, 1, 2, 3, -1, -2)) for _ in axes]
        first = [
            draw.below(shape[a]) if step > 0 else shape[a] - 1 for a, step in zip(axes, steps, strict=True)
        ]
        last = [shape[a] if step > 0 else -shape[a] - 1 for a, step in zip(axes, steps, strict=True)]
        bounds = (ints(*first), ints(*last), ints(*axes), ints(*steps))
        return case(op, f"{label} {axes} {first} {steps}", x, *bounds, fixed="bcde")
    if op == "Concat":
        others = [(*shape[:axis], draw.of((1, 4, 9)), *shape[axis + 1 :]) for _ in range(draw.of((1, 2, 4)))]
        return case(
            op, f"{label} {others} {axis}", x, *(draw.array(*s).astype(x.dtype) for s in others), axis=axis
        )
    if op == "Split":
        cut = draw.below(shape[axis])
        if not cut:
            return None
        return case(
            op, f"{label} {axis} {cut}", x, ints(cut, shape[axis] - cut), fixed="b", axis=axis, outputs=2
        )
    if op == "Tile":
        repeats = [draw.of((1, 1, 2, 3)) for _ in shape]
        return case(op, f"{label} {repeats}", x, ints(*repeats), fixed="b")
    if op == "Expand":
        kept = [size if draw.below(2) else 1 for size in shape]
        return case(op, f"{label} from {kept}", draw.array(*kept).astype(x.dtype), ints(*shape), fixed="b")
    if op == "Trilu":
        upper, k = draw.below(2), draw.below(5) - 2
        return case(op, f"{label} {upper} {k}", x, np.array(k), fixed="b", upper=upper)
    block, h, w, c = draw.of((2, 3, 4)), *draw.shape(3, extents=(1, 2, 5, 7, 16))
    batch, mode = draw.of(BATCHES), draw.of(("DCR", "CRD"))
    if op == "DepthToSpace":
        x = draw.array(batch, c * block * block, h, w)
        return case(op, f"{x.shape} {block} {mode}", x, blocksize=block, mode=mode)
    x = draw.array(batch, c, h * block, w * block)
    return case(op, f"{x.shape} {block}", x, blocksize=block)


def places(draw: Draw) -> Case:
    """Places that are inputs, or that depend on data."""
    op = draw.of(("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "TopK", "OneHot"))
    shape = draw.shape(1, 2, 3, extents=(3, 5, 8, 13, 32, 100))
    axis = draw.below(len(shape))
    size, x, fixed = shape[axis], draw.array(*shape), draw.of(("", "b"))
    numbers = draw.random.integers
    if op == "Gather":
        index = numbers(0, size, draw.of(((1,), (7,), (4, 5), (50,))))
        return case(op, f"{shape} {axis} {index.shape} {fixed}", x, index, fixed=fixed, axis=axis)
    if op == "GatherElements":
        index = numbers(0, size, (*shape[:axis], draw.of((1, 4, 20)), *shape[axis + 1 :]))
        return case(op, f"{shape} {axis} {index.shape}", x, index, axis=axis)
    if op == "ScatterElements":
        index = np.argsort(draw.random.standard_normal(shape), axis=axis)
        how = draw.of(("none", "add", "mul"))
        return case(
            op, f"{shape} {axis} {how}", x, index, draw.array(*shape), axis=axis, reduction=how, opset=18
        )
    if op in ("GatherND", "ScatterND"):
        depth, many = 1 + draw.below(len(shape)), draw.of((1, 6, 40))
        if op == "GatherND":
            index = np.stack([numbers(0, s, many) for s in shape[:depth]], axis=-1)
            return case(op, f"{shape} {depth} {many}", x, index)
        flat = draw.random.permutation(int(np.prod(shape[:depth])))[:many]
        index = np.stack(np.unravel_index(flat, shape[:depth]), axis=-1)
        return case(op, f"{shape} {index.shape}", x, index, draw.array(len(flat), *shape[depth:]))
    if op == "TopK":
        k, largest = min(size, draw.of((1, 2, 5, 20))), draw.below(2)
        return case(
            op, f"{shape} {axis} {k} {largest}", x, ints(k), fixed="b", axis=axis, largest=largest, outputs=2
        )
    depth = draw.of((2, 10, 50))
    index, values = numbers(0, depth, shape), np.array([0, 1], np.float32)
    return case(op, f"{shape} {depth} {axis}", index, np.array(depth), values, fixed="bc", axis=axis)


UNARY = (
    "Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Sqrt", "Abs", "Neg", "Floor", "Softplus", "HardSwish", "Elu",
    "Sin", "LeakyRelu", "Log", "Reciprocal", "Round", "Sign", "Mish",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "Equal", "Less", "Where")


def elements(draw: Draw) -> Case:
    """Element by element, the second operand broadcast; and other types."""
    if draw.below(3) == 0:
        op, shape = draw.of(UNARY), draw.shape(1, 2, 3, 4)
        x = draw.array(*shape)
        return case(op, shape, np.abs(x) + 0.1 if op in ("Sqrt", "Log") else x, opset=18)
    op, shape = draw.of(BINARY), draw.shape(1, 2, 3, 4)
    other = [size if draw.below(2) else 1 for size in shape][draw.below(len(shape)) :]
    dtype = draw.of(("float32", "float32", "float64", "int32", "int64")) if op in BINARY[:3] else "float32"
    x, y = draw.array(*shape, dtype=dtype), draw.array(*other, dtype=dtype)
    label = f"{dtype}{shape}{other}"
    if op == "Where":
        return case(op, label, draw.array(*other, dtype="bool"), x, draw.array(*shape))
    return case(op, label, np.abs(x) + 0.5 if op == "Pow" else x, y + 2 if op == "Div" else y)


def resize(draw: Draw) -> Case:
    """Images made larger and smaller, by whole and by other factors."""
    scales = np.array([1, 1, draw.of((2, 0.5, 1.5, 3)), draw.of((2, 0.5, 1.5, 3))], np.float32)
    mode = draw.of(("nearest", "linear", "cubic"))
    how = draw.of(("half_pixel", "asymmetric"))
    x = draw.array(draw.of(BATCHES), draw.of((1, 3, 16, 30)), *draw.shape(2, extents=(4, 8, 16, 30)))
    more = {"mode": mode, "coordinate_transformation_mode": how}
    return case("Resize", f"{x.shape} {scales} {mode} {how}", x, None, scales, fixed="c", **more)


def recurrent(draw: Draw) -> Case:
    """Small recurrent layers."""
    op, direction = draw.of(("LSTM", "GRU", "RNN")), draw.of(("forward", "reverse", "bidirectional"))
    steps, batch, size, hidden = (draw.of((1, 2, 5, 8, 17, 32)) for _ in range(4))
    ways, width = 1 + (direction == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * hidden
    weights = (draw.array(ways, width, size), draw.array(ways, width, hidden), draw.array(ways, 2 * width))
    more = {"hidden_size": hidden, "direction": direction, "outputs": 3 if op == "LSTM" else 2}
    return case(
        op,
        f"{steps}x{batch}x{size} to {hidden} {direction}",
        draw.array(steps, batch, size),
        *weights,
        fixed="bcd",
        **more,
    )


QUANTISED = (
    "QLinearConv", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger", "DynamicQuantizeLinear",
    "QuantizeLinear", "DequantizeLinear",
)  # fmt: skip


def quantised(draw: Draw) -> Case | None:
    """Products and convolutions of bytes, and conversions to and from them."""
    op = draw.of(QUANTISED)
    x_type, w_type = draw.of((("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")))
    m, n, k = (draw.of(WIDE) for _ in range(3))
    zero, weight_zero = np.array(3).astype(x_type), np.array(0).astype(w_type)
    small, large = np.array(0.02, np.float32), np.array(0.02 * k**0.5, np.float32)
    if op == "DynamicQuantizeLinear":
        return case(op, (m, n), draw.array(m, n), outputs=3, steps=1)
    if op == "QuantizeLinear":
        return case(op, f"{m}x{n} {x_type}", draw.array(m, n), small, zero, fixed="bc", steps=1)
    if op == "DequantizeLinear":
        return case(op, f"{m}x{n} {x_type}", draw.array(m, n, dtype=x_type), small, zero, fixed="bc")
    label = f"{x_type} {w_type} {m}x{n}x{k}"
    if op == "MatMulInteger":
        operands = draw.array(m, k, dtype=x_type), draw.array(k, n, dtype=w_type), zero, weight_zero
        return case(op, label, *operands, fixed="bcd")
    if op == "QLinearMatMul":
        operands = (
            draw.array(m, k, dtype=x_type),
            small,
            zero,
            draw.array(k, n, dtype=w_type),
            small,
            weight_zero,
        )
        return case(op, label, *operands, large, zero, fixed="bcdefgh", steps=1)
    plain = _convolution(draw, 2, transposed=False, depthwise=draw.below(4) == 0)
    if plain is None:
        return None
    image, weights = (a.shape for _, a in plain.inputs[:2] if a is not None)
    x, w, label = (
        draw.array(*image, dtype=x_type),
        draw.array(*weights, dtype=w_type),
        f"{x_type} {w_type} {plain.label}",
    )
    if op == "ConvInteger":
        return case(op, label, x, w, zero, weight_zero, fixed="bcd", **plain.attributes)
    result = np.array(0.02 * float(np.prod(weights[1:])) ** 0.5, np.float32)
    operands = x, small, zero, w, small, weight_zero, result, zero
    return case(op, label, *operands, fixed="bcdefgh", steps=1, **plain.attributes)


def attention(draw: Draw) -> Case:
    """Attention of several heads as one operator."""
    batch, heads, size = draw.of((1, 2, 4)), draw.of((1, 3, 8, 12)), draw.of((8, 16, 40, 64))
    queries, keys = draw.of((1, 7, 32, 100, 197)), draw.of((1, 7, 32, 100, 197))
    operands = [draw.array(batch, length, heads * size) for length in (queries, keys, keys)]
    label = f"{batch}x{heads}x{queries}x{keys}x{size}"
    return case("MultiHeadAttention", label, *operands, domain="com.microsoft", num_heads=heads)


#: How a case of each kind is drawn, and how many of them for one of the others.
KINDS: dict[str, tuple[int, Kind]] = {
    "convolution": (4, lambda draw: _convolution(draw, 2, transposed=False)),
    "depthwise": (2, lambda draw: _convolution(draw, draw.of((1, 2, 2)), transposed=False, depthwise=True)),
    "signal": (1, lambda draw: _convolution(draw, 1, transposed=bool(draw.below(2)))),
    "volume": (1, lambda draw: _convolution(draw, 3, transposed=draw.below(4) == 0)),
    "transposed": (2, lambda draw: _convolution(draw, 2, transposed=True, depthwise=draw.below(5) == 0)),
    "pool": (2, pool),
    "matmul": (2, matmul),
    "gemm": (1, gemm),
    "einsum": (1, einsum),
    "reduction": (2, reduction),
    "rows": (2, rows),
    "normalisation": (2, normalisation),
    "movement": (3, movement),
    "places": (2, places),
    "elements": (2, elements),
    "resize": (1, resize),
    "recurrent": (1, recurrent),
    "quantised": (3, quantised),
    "attention": (1, attention),
}  # fmt: skip


def drawn_case(seed: int, kind: str, number: int) -> Case | None:
    """The case of that kind and number; ``None`` where what was drawn is no valid node, or too large."""
    found = KINDS[kind][1](Draw(seed, kind, number))
    if found is None or any(a is not None and a.size > LARGEST for _, a in found.inputs):
        return None
    return found


def drawn_cases(seed: int, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[tuple[str, Case]]:
    """Cases of the kinds in turn, without end, each with what `--random` finds it again by."""
    turn = [kind for kind in kinds for _ in range(KINDS[kind][0])]
    for number in count():
        for at, kind in enumerate(turn):
            place = number * KINDS[kind][0] + at - turn.index(kind)
            if (found := drawn_case(seed, kind, place)) is not None:
                yield f"{seed}:{kind}:{place}", found
