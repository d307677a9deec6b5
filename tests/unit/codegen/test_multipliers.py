"""Products by constants of vectors of 16 bits are one instruction each, whatever the constant."""

import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright import lang
from tilewright.codegen import assembly
from tilewright.schedule import Schedule

FACTORS = (0, 1, 2, 3, 15, 20, 25, 16384, 21845)


def weighted(dtype, count=77):
    factors = FACTORS if dtype.startswith("u") else (*FACTORS, -1, -3, -32768)
    X = lang.placeholder((len(factors), count), dtype, name="X")
    Y = lang.compute(
        (count,),
        lambda i: sum((X[n, i] * lang.const(f, dtype) for n, f in enumerate(factors)), lang.const(0, dtype)),
        name="Y",
    )
    s = Schedule(lang.program([X], [Y]))
    return factors, s.vectorize(s.loops("Y")[-1])


@pytest.mark.parametrize("dtype", ["u16", "i16", "i32"])
def test_products_wrap_around(dtype):
    factors, s = weighted(dtype)
    run = Native(s.func)
    kind = run.func.buffers[0].dtype.numpy
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x = np.random.default_rng(7).integers(low, high, (len(factors), 77), kind, endpoint=True)
    x[:, :2] = low, high
    with np.errstate(over="ignore"):
        wanted = sum(x[n] * np.array(f).astype(kind) for n, f in enumerate(factors)).astype(kind)
    np.testing.assert_array_equal(run({"X": x})["Y"], wanted)


@pytest.mark.skipif("avx2" not in HOST.features, reason="elsewhere LLVM writes what it likes")
def test_no_product_is_shifts_and_additions():
    factors, s = weighted("u16", 64)
    text = assembly(Native(s.func).text.text, HOST)
    products = [f for f in factors if f.bit_count() > 1]
    assert text.count("vpmullw") >= len(products) and text.count("vpsubw") == 0
