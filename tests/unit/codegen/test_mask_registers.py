"""Accumulators of which some lanes are off: literal masks are registers, where vectors have 512 bits."""

import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright import lang
from tilewright.codegen import assembly
from tilewright.schedule import Schedule


def edges(count, dtype="f32"):
    """Sums of three neighbours with zeros around the row, all taps expanded, in registers."""
    X, W = lang.placeholder((5, count), dtype, name="X"), lang.placeholder((5, 3), dtype, name="W")
    P = lang.boundary(X, 0.0)
    c, k = lang.reduce_axis(5, "c"), lang.reduce_axis(3, "k")
    Y = lang.compute((count,), lambda i: lang.sum(P[c, i + k - 1] * W[c, k], axis=[c, k]), name="Y")
    s = Schedule(lang.program([X, W], [Y])).skip_padding("Y").split("i", count, names=["all", "i"])
    s = s.reorder("all", "c", "k", "i").cache("Y", at="all", scope="register", mode="accumulate", name="A")
    for name in s.blocks():
        s = s.vectorize(s.loops(name)[-1])
    return s.unroll("k")


@pytest.mark.few(12)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("count", [3, 16, 17, 31])
@pytest.mark.parametrize("bits", [256, 512])
def test_sums_at_the_edges(count, dtype, bits):
    run = Native(edges(count, dtype).func, vector_bits=bits)
    rng, kind = np.random.default_rng(count), run.func.buffers[0].dtype.numpy
    x, w = rng.standard_normal((5, count)).astype(kind), rng.standard_normal((5, 3)).astype(kind)
    padded = np.pad(x, ((0, 0), (1, 1)))
    wanted = sum(padded[:, k : k + count] * w[:, k, None] for k in range(3)).sum(0)
    np.testing.assert_allclose(run({"X": x, "W": w})["Y"], wanted, rtol=0, atol=1e-5)
    # a shorter row is one shorter vector
    assert ('asm ""' in run.text.text) == (bits == 512 and count > 3)


@pytest.mark.skipif("avx512f" not in HOST.features, reason="masks are registers with AVX-512")
def test_masks_are_parts_of_the_operations():
    text = assembly(Native(edges(32).func, vector_bits=512).text.text, HOST)
    masked = [line for line in text.splitlines() if "vfmadd" in line and "{%k" in line]
    assert masked and not any("vmovaps" in line and "{%k" in line for line in text.splitlines())
