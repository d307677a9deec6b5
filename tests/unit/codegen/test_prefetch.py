"""The hint ``prefetch``: every line that a tile's epilogue touches is asked for ahead of its reduction."""

import numpy as np
from tests.native_kernel import Native

from tilewright import lang
from tilewright.lang import ops
from tilewright.schedule import Schedule


def tiled(wanted):
    a, b = lang.placeholder((8, 16), name="A"), lang.placeholder((16, 32), name="B")
    r = lang.placeholder((8, 32), name="R")
    c = ops.matmul(a, b, name="C")
    y = lang.compute((8, 32), lambda i, j: c[i, j] + r[i, j], name="Y")
    s = Schedule(lang.program([a, b, r], [y]))
    row, col = s.loops("Y")
    s = s.split(row, 4, names=["io", "ii"]).compute_at("C", "io").set_scope("C", "register")
    i, j, k = s.loops("C")[1:]
    s = s.reorder(k, i, j).decompose_init("C", k)
    for block in ("C", "C_init"):
        rows, lanes = [loop for loop in s.loops(block)[1:] if loop != k]
        s = s.unroll(rows).vectorize(lanes)
    return s.unroll("ii").vectorize(col).annotate("io", "outline").annotate("io", "prefetch", wanted)


def prefetches(kernel):
    return kernel.text.text.count("call void @llvm.prefetch")


def test_each_line_of_the_named_buffers_is_prefetched_once_a_tile():
    # four rows of two lines each
    assert prefetches(Native(tiled("Y").func)) == 8
    assert prefetches(Native(tiled("Y,R").func)) == 16
    assert prefetches(Native(tiled("A").func)) == 0  # read in the reduction only


def test_results_stay_the_same():
    rng = np.random.default_rng(0)
    arrays = {
        n: rng.standard_normal(s).astype(np.float32)
        for n, s in (("A", (8, 16)), ("B", (16, 32)), ("R", (8, 32)))
    }
    got = Native(tiled("Y,R").func)(arrays)["Y"]
    np.testing.assert_allclose(got, arrays["A"] @ arrays["B"] + arrays["R"], rtol=1e-5, atol=1e-5)
