"""Kernels and instructions that tests of the mapper share."""

from dataclasses import replace

from tilewright import lang
from tilewright.ir import F32, Const, store
from tilewright.target import Instruction, Placement, contraction, element


def matmul(extents=(4, 4, 4), *, types=(F32, F32, F32), starts=False, partial=("m", "n", "k"), **places):
    """``c[m, n] += a[m, k] * b[k, n]``; ``starts``: the sum is started, not continued."""
    c, a, b = (element(n, x, t) for n, x, t in zip("cab", ("mn", "mk", "kn"), types, strict=True))
    stage = contraction(tuple(zip("mnk", extents, strict=True)), c, a, b)
    if starts:
        stage = replace(stage, init=store("c", c.indices, Const(0.0, F32)))
    placements = tuple(sorted(places.items()))
    return Instruction(name="matmul", stage=stage, partial=partial, placements=placements)


ROWS = {"a": Placement(strided=("m",)), "b": Placement(strided=("k",)), "c": Placement(strided=("m",))}
FREE_ROWS = {"a": Placement(strided=("m",))}


def program(inputs, output):
    """A program of one result."""
    return lang.program(inputs, [output])


def gemm(m=4, n=8, k=8, types=("f32", "f32", "f32")):
    """A matrix product."""
    a, b = lang.placeholder((m, k), types[1], name="A"), lang.placeholder((k, n), types[2], name="B")
    kk = lang.reduce_axis(k, "k")

    def term(i, j):
        if types == ("f32", "f32", "f32"):
            return lang.sum(a[i, kk] * b[kk, j], kk)
        return lang.sum(lang.cast(a[i, kk], types[0]) * lang.cast(b[kk, j], types[0]), kk)

    return program([a, b], lang.compute((m, n), term, name="C"))


def gemv(m=8, k=8):
    """A product of a matrix and a vector."""
    a, x, kk = lang.placeholder((m, k), name="A"), lang.placeholder((k,), name="x"), lang.reduce_axis(k, "k")
    return program([a, x], lang.compute((m,), lambda i: lang.sum(a[i, kk] * x[kk], kk), name="y"))


def conv(dims, stride=1, dilation=1, n=2, size=4, taps=3, ic=4, oc=8, groups=1, types=("f32", "f32", "f32")):
    """A convolution, channels last: ``C[n, *o, oc] += A[n, *(s*o + d*t), ic] * B[*t, ic, oc]``."""
    wide = (size - 1) * stride + (taps - 1) * dilation + 1
    total, left, right = types
    a = lang.placeholder((n, *[wide] * dims, ic * groups), left, name="A")
    b = lang.placeholder((*[taps] * dims, ic, oc), right, name="B")
    names = ["d", "kh", "kw"][-dims:] if dims > 1 else ["d"]
    window = [lang.reduce_axis(taps, t) for t in names]
    c = lang.reduce_axis(ic, "ic")

    def term(*at):
        b0, *out, o = at
        channel = c if groups == 1 else c + ic * (o // (oc // groups))
        x = a[(b0, *[stride * i + dilation * t for i, t in zip(out, window, strict=True)], channel)]
        w = b[(*window, c, o)]
        if total != "f32":
            x, w = lang.cast(x, total), lang.cast(w, total)
        return lang.sum(x * w, (*window, c))

    shape = (n, *[size] * dims, oc)
    return program([a, b], lang.compute(shape, term, name="C"))


def separable(b=2, size=3, taps=3, q=4, r=2, k=8, stride=2):
    """Listing 3: a separable depthwise convolution in one stage."""
    wide = (size - 1) * stride + taps
    a = lang.placeholder((b, wide, wide, q), name="A")
    d = lang.placeholder((taps, taps, q, r), name="D")
    p = lang.placeholder((q * r, k), name="P")
    di, dj = lang.reduce_axis(taps, "di"), lang.reduce_axis(taps, "dj")
    qq, rr = lang.reduce_axis(q, "q"), lang.reduce_axis(r, "r")

    def term(bb, i, j, kk):
        x = a[bb, stride * i + di, stride * j + dj, qq]
        return lang.sum(x * d[di, dj, qq, rr] * p[r * qq + rr, kk], (di, dj, qq, rr))

    return program([a, d, p], lang.compute((b, size, size, k), term, name="C"))


def sized(bound=16):
    """A product of matrices of any sizes up to a bound, as a machine's file has it."""
    m, n, k = (lang.param(name, hi=bound) for name in ("M", "N", "K"))
    a, b, kk = (
        lang.placeholder((m, k), name="A"),
        lang.placeholder((k, n), name="B"),
        lang.reduce_axis(k, "k"),
    )
    return lang.program(
        [a, b], [lang.compute((m, n), lambda i, j: lang.sum(a[i, kk] * b[kk, j], kk), name="C")]
    )
