"""The kernels of the five papers, in the sizes of real networks: what the mapper is asked for each of them.

Shared by `tests/unit/mapping/test_kernels.py` and `benchmarks/mapping.py --only kernels`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tilewright import lang
from tilewright.ir import Program

NARROW, WIDE = "bf16", "f32"


@dataclass(frozen=True)
class Kernel:
    """A kernel, and what is asked: mappings of a product of matrices, as it is (``maps``) or after rewrites
    (``transforms``), or a machine's instructions for all of its stages (``selects``).
    """

    name: str
    asked: Literal["maps", "transforms", "selects"]
    program: Callable[[], Program]


def given(name: str, *shape: int, dtype: str = NARROW) -> Any:
    return lang.placeholder(shape, dtype, name=name)


def wide(x: Any) -> Any:
    return lang.cast(x, WIDE)


def gemm(m: int, n: int, k: int) -> Program:
    a, b, x = given("A", m, k), given("B", k, n), lang.reduce_axis(k, "k")
    c = lang.compute((m, n), lambda i, j: lang.sum(wide(a[i, x]) * wide(b[x, j]), x), name="C")
    return lang.program([a, b], [c])


def gemv(m: int, k: int) -> Program:
    a, v, x = given("A", m, k), given("v", k), lang.reduce_axis(k, "k")
    return lang.program(
        [a, v], [lang.compute((m,), lambda i: lang.sum(wide(a[i, x]) * wide(v[x]), x), name="y")]
    )


def batched(b: int, m: int, n: int, k: int) -> Program:
    p, q, x = given("A", b, m, k), given("B", b, k, n), lang.reduce_axis(k, "k")

    def term(g: Any, i: Any, j: Any) -> Any:
        return lang.sum(wide(p[g, i, x]) * wide(q[g, x, j]), x)

    return lang.program([p, q], [lang.compute((b, m, n), term, name="C")])


def conv(
    out: tuple[int, ...], ic: int, oc: int, taps: int, stride: int = 1, dilation: int = 1, groups: int = 1
) -> Program:
    """``C[n, *o, oc] += A[n, *(stride*o + dilation*t), ic] * B[*t, ic, oc]``, one image, channels last."""
    sizes = [(o - 1) * stride + (taps - 1) * dilation + 1 for o in out]
    a, b = given("A", 1, *sizes, ic * groups), given("B", *[taps] * len(out), ic, oc)
    window = [lang.reduce_axis(taps, f"t{d}") for d in range(len(out))]
    c = lang.reduce_axis(ic, "ic")

    def term(n: Any, *at: Any) -> Any:
        *o, f = at
        channel = c if groups == 1 else c + ic * (f // (oc // groups))
        places = [stride * i + dilation * t for i, t in zip(o, window, strict=True)]
        return lang.sum(wide(a[(n, *places, channel)]) * wide(b[(*window, c, f)]), (*window, c))

    return lang.program([a, b], [lang.compute((1, *out, oc), term, name="C")])


def transposed(size: int, ic: int, oc: int, taps: int, stride: int) -> Program:
    """All phases of a transposed convolution: each has every ``stride``-th tap and result."""
    n = taps // stride
    a, b = given("A", size + n - 1, size + n - 1, ic), given("B", stride, stride, n, n, ic, oc)
    kh, kw, c = lang.reduce_axis(n, "kh"), lang.reduce_axis(n, "kw"), lang.reduce_axis(ic, "ic")

    def term(p: Any, q: Any, i: Any, j: Any, f: Any) -> Any:
        return lang.sum(wide(a[i + kh, j + kw, c]) * wide(b[p, q, kh, kw, c, f]), (kh, kw, c))

    shape = (stride, stride, size, size, oc)
    return lang.program([a, b], [lang.compute(shape, term, name="C")])


def depthwise(size: int, channels: int, taps: int, stride: int = 1) -> Program:
    wide_size = (size - 1) * stride + taps
    a, b = given("A", 1, wide_size, wide_size, channels), given("B", taps, taps, channels)
    kh, kw = lang.reduce_axis(taps, "kh"), lang.reduce_axis(taps, "kw")

    def term(n: Any, i: Any, j: Any, c: Any) -> Any:
        return lang.sum(wide(a[n, stride * i + kh, stride * j + kw, c]) * wide(b[kh, kw, c]), (kh, kw))

    return lang.program([a, b], [lang.compute((1, size, size, channels), term, name="C")])


def separable(size: int, channels: int, multiplier: int, oc: int, taps: int) -> Program:
    """Listing 3 of ISA Mapper: a depthwise and a pointwise convolution in one stage."""
    wide_size = size + taps - 1
    a, d = given("A", 1, wide_size, wide_size, channels), given("D", taps, taps, channels, multiplier)
    p = given("P", channels * multiplier, oc)
    names = {"di": taps, "dj": taps, "q": channels, "r": multiplier}
    di, dj, q, r = (lang.reduce_axis(n, name) for name, n in names.items())

    def term(b: Any, i: Any, j: Any, k: Any) -> Any:
        x = wide(a[b, i + di, j + dj, q]) * wide(d[di, dj, q, r]) * wide(p[multiplier * q + r, k])
        return lang.sum(x, (di, dj, q, r))

    return lang.program([a, d, p], [lang.compute((1, size, size, oc), term, name="C")])


def products(x: Any, weights: Any, rows: int, columns: int, depth: int, name: str) -> Any:
    k = lang.reduce_axis(depth, "k")
    return lang.compute(
        (rows, columns), lambda i, j: lang.sum(wide(x[i, k]) * wide(weights[k, j]), k), name=name
    )


def cell(gates: str, batch: int, hidden: int) -> tuple[Any, dict[str, Any], list[Any]]:
    """The state, the products of each gate with it and the input and its bias, and all inputs."""
    x, h = given("x", batch, hidden), given("h", batch, hidden, dtype=WIDE)
    state = lang.compute((batch, hidden), lambda i, j: lang.cast(h[i, j], NARROW), name="state")
    W, U = ({g: given(f"{n}{g}", hidden, hidden) for g in gates} for n in "WU")
    bias = {g: given(f"b{g}", hidden, dtype=WIDE) for g in gates}
    xs = {g: products(x, W[g], batch, hidden, hidden, f"x{g}") for g in gates}
    hs = {g: products(state, U[g], batch, hidden, hidden, f"h{g}") for g in gates}
    both = {g: (xs[g], hs[g], bias[g]) for g in gates}
    return h, both, [x, h, *W.values(), *U.values(), *bias.values()]


def gru(batch: int, hidden: int) -> Program:
    h, both, inputs = cell("zrn", batch, hidden)
    shape = batch, hidden

    def gate(g: str) -> Any:
        xs, hs, b = both[g]
        return lang.compute(shape, lambda i, j: lang.sigmoid(xs[i, j] + hs[i, j] + b[j]), name=g)

    z, r = gate("z"), gate("r")
    xs, hs, b = both["n"]
    n = lang.compute(shape, lambda i, j: lang.tanh(xs[i, j] + r[i, j] * (hs[i, j] + b[j])), name="n")
    new = lang.compute(shape, lambda i, j: n[i, j] + z[i, j] * (h[i, j] - n[i, j]), name="h2")
    return lang.program(inputs, [new], name="gru")


def lstm(batch: int, hidden: int) -> Program:
    _, both, inputs = cell("ifog", batch, hidden)
    c = given("c", batch, hidden, dtype=WIDE)
    shape = batch, hidden

    def gate(g: str) -> Any:
        xs, hs, b = both[g]
        squash = lang.tanh if g == "g" else lang.sigmoid
        return lang.compute(shape, lambda i, j: squash(xs[i, j] + hs[i, j] + b[j]), name=g)

    i_, f_, o_, g_ = map(gate, "ifog")
    kept = lang.compute(shape, lambda i, j: f_[i, j] * c[i, j] + i_[i, j] * g_[i, j], name="c2")
    new = lang.compute(shape, lambda i, j: o_[i, j] * lang.tanh(kept[i, j]), name="h2")
    return lang.program([*inputs, c], [kept, new], name="lstm")


def scores(heads: int, length: int, width: int) -> Program:
    """Queries and keys in one buffer, as GPT-2 has them."""
    qkv, x = given("QKV", length, 3, heads, width), lang.reduce_axis(width, "d")

    def term(h: Any, i: Any, j: Any) -> Any:
        return lang.sum(wide(qkv[i, 0, h, x]) * wide(qkv[j, 1, h, x]), x)

    return lang.program([qkv], [lang.compute((heads, length, length), term, name="S")])


def weighted(heads: int, length: int, width: int) -> Program:
    """Values weighted by probabilities, the values in a buffer with others."""
    qkv, p = given("QKV", length, 3, heads, width), given("P", heads, length, length)
    j = lang.reduce_axis(length, "j")

    def term(i: Any, h: Any, d: Any) -> Any:
        return lang.sum(wide(p[h, i, j]) * wide(qkv[j, 2, h, d]), j)

    return lang.program([qkv, p], [lang.compute((length, heads, width), term, name="O")])


KERNELS = (
    Kernel("gemm 5124x700x2048", "maps", lambda: gemm(5124, 700, 2048)),
    Kernel("gemv 4096x4096", "maps", lambda: gemv(4096, 4096)),
    Kernel("batched gemm 16x128x128x64", "maps", lambda: batched(16, 128, 128, 64)),
    Kernel("conv1d 512, 3 taps", "maps", lambda: conv((512,), 64, 64, 3)),
    Kernel("conv2d 56x56x64, 3x3", "maps", lambda: conv((56, 56), 64, 64, 3)),
    Kernel("conv3d 8x28x28x64, 3x3x3", "maps", lambda: conv((8, 28, 28), 64, 64, 3)),
    Kernel("strided conv2d 28x28x128", "maps", lambda: conv((28, 28), 64, 128, 3, stride=2)),
    Kernel("dilated conv2d 28x28x128", "maps", lambda: conv((28, 28), 64, 128, 3, dilation=2)),
    Kernel("grouped conv2d 28x28, 32 groups", "maps", lambda: conv((28, 28), 4, 128, 3, groups=32)),
    Kernel("transposed conv2d 14x14x64, stride 2", "maps", lambda: transposed(14, 64, 64, 4, 2)),
    Kernel("depthwise conv2d 56x56x64", "maps", lambda: depthwise(56, 64, 3)),
    Kernel("attention scores, 12 heads of 128x64", "maps", lambda: scores(12, 128, 64)),
    Kernel("attention values, 12 heads of 128x64", "maps", lambda: weighted(12, 128, 64)),
    Kernel("strided conv2d 28x28x128, windows copied", "transforms", lambda: conv((28, 28), 64, 128, 3, 2)),
    Kernel("separable conv2d 56x56x64", "transforms", lambda: separable(56, 32, 2, 64, 3)),
    Kernel("GRU cell 32x512", "selects", lambda: gru(32, 512)),
    Kernel("LSTM cell 32x512", "selects", lambda: lstm(32, 512)),
)
