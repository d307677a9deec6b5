"""Programs and machines for the tests of managed machines."""

import json

import numpy as np

from tilewright import lang
from tilewright.ir import evaluate_index
from tilewright.mapping.system import execute, parse_machine, parse_streams, print_streams, time_streams

RULES = {"gemmini": ("i8", "i32", 16), "davinci": ("f16", "f32", 64), "clusters": ("bf16", "f32", 64)}
"""Of each shipped machine: operands' type, results' type, and how far an instruction goes along an axis."""


def gemm(M, N, K, narrow="f32", wide="f32"):
    a, b = lang.placeholder((M, K), narrow, name="A"), lang.placeholder((K, N), narrow, name="B")
    k = lang.reduce_axis(K, "k")
    return lang.program([a, b], [product(a, b, M, N, k, wide, "C")], name="gemm")


def product(a, b, M, N, k, wide, name):
    same = a.dtype.name == wide

    def term(i, j):
        x, y = a[i, k], b[k, j]
        return lang.sum(x * y if same else lang.cast(x, wide) * lang.cast(y, wide), axis=k)

    return lang.compute((M, N), term, name=name)


def layer(M, N, K, narrow, wide):
    """max(A B + b, 0)"""
    a, b = lang.placeholder((M, K), narrow, name="A"), lang.placeholder((K, N), narrow, name="B")
    bias = lang.placeholder((N,), wide, name="bias")
    c = product(a, b, M, N, lang.reduce_axis(K, "k"), wide, "C")
    zero = lang.const(0, wide)
    d = lang.compute((M, N), lambda i, j: lang.maximum(c[i, j] + bias[j], zero), name="D")
    return lang.program([a, b, bias], [d], name="layer")


def conv2d(n, h, w, ic, oc, size, step, narrow, wide):
    x = lang.placeholder((n, h, w, ic), narrow, name="X")
    f = lang.placeholder((size, size, ic, oc), narrow, name="W")
    kh, kw, k = (lang.reduce_axis(e, name) for e, name in ((size, "kh"), (size, "kw"), (ic, "k")))

    def term(b, i, j, o):
        return lang.sum(
            lang.cast(x[b, step * i + kh, step * j + kw, k], wide) * lang.cast(f[kh, kw, k, o], wide),
            axis=(kh, kw, k),
        )

    shape = (n, (h - size) // step + 1, (w - size) // step + 1, oc)
    return lang.program([x, f], [lang.compute(shape, term, name="Y")], name="conv2d")


def conv1d(n, w, ic, oc, size, narrow, wide):
    x = lang.placeholder((n, w, ic), narrow, name="X")
    f = lang.placeholder((size, ic, oc), narrow, name="W")
    kw, k = lang.reduce_axis(size, "kw"), lang.reduce_axis(ic, "k")

    def term(b, j, o):
        return lang.sum(lang.cast(x[b, j + kw, k], wide) * lang.cast(f[kw, k, o], wide), axis=(kw, k))

    return lang.program([x, f], [lang.compute((n, w - size + 1, oc), term, name="Y")], name="conv1d")


def arrays_of(program, seed=0, low=-3, high=4):
    """Small integers in the inputs' types: sums of their products are exact in any order."""
    rng = np.random.default_rng(seed)
    return {
        b.name: rng.integers(low, high, [evaluate_index(x, {}) for x in b.shape]).astype(b.dtype.numpy)
        for b in program.inputs
    }


def check(program, streams, machine, seed=0):
    """The streams compute the program exactly, read back equal, and take the same time in both timings."""
    assert parse_streams(print_streams(streams)) == streams
    arrays = arrays_of(program, seed)
    made, wanted = execute(streams, machine, arrays), lang.evaluate(program, arrays)
    for name, value in wanted.items():
        np.testing.assert_array_equal(made[name], value)
    quick, exact = time_streams(streams, machine), time_streams(streams, machine, exact=True)
    assert (quick.cycles, quick.busy, quick.bytes) == (exact.cycles, exact.busy, exact.bytes)
    return quick


MATMUL = [
    'program("matmul")',
    "m = param(1, 4)",
    "n = param(1, 4)",
    "k = param(1, 4)",
    "A = input(f32[m, k])",
    "B = input(f32[k, n])",
    "C = output(f32[m, n])",
    'with stage("C"):',
    "    i = par(0, m)",
    "    j = par(0, n)",
    "    x = red(0, k)",
    "    with init:",
    "        C[i, j] = f32(0.0)",
    "    C[i, j] = C[i, j] + A[i, x] * B[x, j]",
]
"""A product of 4 x 4 matrices that starts a sum."""
GOING_ON = [line for line in MATMUL if "init" not in line and "0.0" not in line]


def small(**changes):
    """The description of a machine with two units of 4 x 4 products and files a, b, c of ``file`` bytes."""
    file = changes.pop("file", 1024)
    places = {"A": ["a"], "B": ["b"], "C": ["c"]}
    moves = [*((f"load_{f}", "dram", f) for f in "abc"), ("store", "c", "dram")]
    data = {
        "schema": "tilewright.machine",
        "version": 1,
        "name": "small",
        "home": "dram",
        "memories": [
            {"name": "dram", "bytes": 1 << 30},
            *({"name": f, "bytes": file, "align": 4, "uses": 1} for f in "abc"),
        ],
        "moves": [
            {
                "name": n,
                "from": f,
                "to": t,
                "bytes_per_cycle": 16,
                "latency": 10,
                "streams": ["s"],
                "transposes": True,
            }
            for n, f, t in moves
        ],
        "instructions": [
            {
                "name": "matmul",
                "semantics": MATMUL,
                "cycles": "4",
                "latency": "m + 8",
                "chained": ["C"],
            },
            {
                "name": "matmul_add",
                "semantics": GOING_ON,
                "cycles": "4",
                "latency": "m + 8",
                "chained": ["C"],
            },
        ],
        "units": [
            {"name": u, "stream": "s", "places": {"matmul": places, "matmul_add": places}}
            for u in ("u0", "u1")
        ],
    }
    data.update(changes)
    return data


def machine_of(data):
    return parse_machine(json.dumps(data))


def gru_step(batch, inputs, hidden, narrow="bf16", wide="f32"):
    """One step of a gated recurrent unit: h2 of x and h, the products in a narrower type."""
    x, h = (
        lang.placeholder((batch, inputs), narrow, name="x"),
        lang.placeholder((batch, hidden), wide, name="h"),
    )
    W = {g: lang.placeholder((inputs, hidden), narrow, name=f"W{g}") for g in "zrn"}
    U = {g: lang.placeholder((hidden, hidden), narrow, name=f"U{g}") for g in "zrn"}
    b = {g: lang.placeholder((hidden,), wide, name=f"b{g}") for g in "zrn"}
    shape = batch, hidden
    hn = lang.compute(shape, lambda i, j: lang.cast(h[i, j], narrow), name="state")
    xs = {g: product(x, W[g], *shape, lang.reduce_axis(inputs, "k"), wide, f"x{g}") for g in "zrn"}
    hs = {g: product(hn, U[g], *shape, lang.reduce_axis(hidden, "k"), wide, f"h{g}") for g in "zrn"}

    def gate(g):
        return lang.compute(shape, lambda i, j: lang.sigmoid(xs[g][i, j] + hs[g][i, j] + b[g][j]), name=g)

    z, r = gate("z"), gate("r")

    def candidate(i, j):
        return lang.tanh(xs["n"][i, j] + r[i, j] * (hs["n"][i, j] + b["n"][j]))

    n = lang.compute(shape, candidate, name="n")
    new = lang.compute(shape, lambda i, j: n[i, j] + z[i, j] * (h[i, j] - n[i, j]), name="h2")
    return lang.program([x, h, *W.values(), *U.values(), *b.values()], [new], name="gru")
