"""Small programs for the tests of producers, consumers, storage and layouts, and the check against them."""

import numpy as np

from tilewright import lang
from tilewright.ir import evaluate_index, parse_function, print_function, run_function, to_function, verify


def gemm(m, n, k, *, epilogue=False):
    A = lang.placeholder((m, k), name="A")
    B = lang.placeholder((k, n), name="B")
    kk = lang.reduce_axis(k, "k")
    C = lang.compute((m, n), lambda i, j: lang.sum(A[i, kk] * B[kk, j], axis=kk), name="C")
    if not epilogue:
        return lang.program([A, B], [C], name="gemm")
    b = lang.placeholder((n,), name="b")
    D = lang.compute((m, n), lambda i, j: lang.relu(C[i, j] + b[j]), name="D")
    return lang.program([A, B, b], [D], name="gemm")


def blur(n, *, taps=3):
    """T[i] = sum of two neighbours, C[i] = product of ``taps`` neighbours of T."""
    X = lang.placeholder((n + taps,), name="X")
    T = lang.compute((n + taps - 1,), lambda i: X[i] + X[i + 1], name="T")

    def product(i):
        out = T[i]
        for t in range(1, taps):
            out = out * T[i + t]
        return out

    C = lang.compute((n,), product, name="C")
    return lang.program([X], [C], name="blur")


def stencil(h, w):
    """Two 3x3 sums after one another."""
    X = lang.placeholder((h + 4, w + 4), name="X")
    r, s = lang.reduce_axis(3, "r"), lang.reduce_axis(3, "s")
    T = lang.compute((h + 2, w + 2), lambda y, x: lang.sum(X[y + r, x + s], axis=(r, s)), name="T")
    u, v = lang.reduce_axis(3, "r"), lang.reduce_axis(3, "s")
    C = lang.compute((h, w), lambda y, x: lang.sum(T[y + u, x + v], axis=(u, v)), name="C")
    return lang.program([X], [C], name="stencil")


def conv(oc, ic, h, w):
    """Padded 3x3 convolution, bias, ReLU."""
    X = lang.placeholder((ic, h, w), name="X")
    W = lang.placeholder((oc, ic, 3, 3), name="W")
    b = lang.placeholder((oc,), name="b")
    P = lang.boundary(X)
    c, r, s = lang.reduce_axis(ic, "ic"), lang.reduce_axis(3, "kh"), lang.reduce_axis(3, "kw")
    Y = lang.compute(
        (oc, h, w),
        lambda o, y, x: lang.sum(P[c, y + r - 1, x + s - 1] * W[o, c, r, s], axis=(c, r, s)),
        name="Y",
    )
    Z = lang.compute((oc, h, w), lambda o, y, x: lang.relu(Y[o, y, x] + b[o]), name="Z")
    return lang.program([X, W, b], [Z], name="conv")


def arguments(func, seed=0, **params):
    """Small whole numbers, so that any order of summation gives the same result."""
    rng = np.random.default_rng(seed)
    return {
        b.name: rng.integers(-3, 4, [evaluate_index(s, params) for s in b.physical_shape]).astype(
            b.dtype.numpy
        )
        for b in func.buffers
        if b.name not in func.outputs
    }


def assert_same(program, func, *, seeds=(0, 1), **params):
    """The scheduled function is sound, and computes what the program does in any order of parallel loops."""
    verify(func)
    text = print_function(func)
    assert print_function(parse_function(text)) == text
    reference = to_function(program)
    arrays = arguments(reference, **params)
    expected = run_function(reference, arrays, params)
    for seed in seeds:
        got = run_function(func, arrays, params, seed=seed)
        for name, value in expected.items():
            np.testing.assert_array_equal(got[name], value)
