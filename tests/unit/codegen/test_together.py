"""Vector loops that store long values: several vectors side by side, the rest one by one."""

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.codegen import vectors
from tilewright.schedule import Schedule
from tilewright.target import detect


def stored(columns, value, *, apart=1):
    x = lang.placeholder((3, columns * apart), name="X")
    y = lang.compute((3, columns), lambda i, j: value(x[i, j * apart]), name="Y")
    return Native(Schedule(lang.program([x], [y])).vectorize("j").func)


def wide(native):
    """Whether values of several vectors occur."""
    return f"<{vectors.VECTORS_TOGETHER * 16} x float>" in native.text.text


@pytest.mark.parametrize("columns", [144, 192, 200, 256, 263, 777])
@pytest.mark.parametrize(("value", "wanted"), [(lang.exp, np.exp), (lang.tanh, np.tanh)])
def test_all_elements_are_right(columns, value, wanted):
    x = np.random.default_rng(columns).normal(size=(3, columns)).astype(np.float32)
    native = stored(columns, value)
    np.testing.assert_allclose(native({"X": x})["Y"], wanted(x), rtol=1e-6)
    assert wide(native) == (detect().preferred_vector_bits >= vectors.TOGETHER_BITS)


def folded(columns, hint=""):
    """Exponentials stored and summed in one loop, as in a softmax of long rows."""
    x = lang.placeholder((3, columns), name="X")
    k = lang.reduce_axis(columns, "k")
    e = lang.compute((3, columns), lambda i, j: lang.exp(x[i, j] * 0.5 - 1.0), name="E")
    y = lang.compute((3,), lambda i: lang.sum(e[i, k], axis=k), name="Y")
    s = Schedule(lang.program([x], [e, y]))
    j = s.loops("E")[1]
    s = s.reverse_compute_at("Y", j).decompose_init("Y", j).vectorize(j)
    return Native((s.annotate(j, "prefetch", hint) if hint else s).func)


@pytest.mark.parametrize("columns", [100, 128, 144, 160, 192, 200, 263, 777])
def test_folded_values_are_computed_side_by_side(columns):
    x = np.random.default_rng(columns).normal(size=(3, columns)).astype(np.float32)
    native = folded(columns)
    got, wanted = native({"X": x}), np.exp(x * np.float32(0.5) - np.float32(1))
    np.testing.assert_allclose(got["E"], wanted, rtol=1e-6)
    np.testing.assert_allclose(got["Y"], wanted.sum(-1), rtol=1e-6)
    together = f"<{vectors.FOLDED_TOGETHER * 16} x float>" in native.text.text
    long = columns >= 16 * (vectors.MAX_EXPANDED_VECTORS + 1)
    assert together == (long and detect().preferred_vector_bits >= vectors.TOGETHER_BITS)


def test_terms_of_few_operations_are_folded_one_by_one():
    x, k = lang.placeholder((3, 777), name="X"), lang.reduce_axis(777, "k")
    y = lang.compute((3,), lambda i: lang.sum(2 * x[i, k] + 1, axis=k), name="Y")
    s = Schedule(lang.program([x], [y])).decompose_init("Y", "k").vectorize("k")
    assert "<32 x float>" not in Native(s.func).text.text


@pytest.mark.skipif(detect().preferred_vector_bits < vectors.TOGETHER_BITS, reason="vectors of 512 bits")
def test_each_line_is_asked_for():
    """A turn takes four lines of X, by two loads of two registers."""
    found = folded(4 * 256, "X+4096").text.text
    assert found.count("call void @llvm.prefetch") == 4


def test_short_values_and_elements_that_lie_apart_go_one_by_one():
    assert not wide(stored(256, lambda v: 2 * v + 1))
    x = np.random.default_rng(0).normal(size=(3, 512)).astype(np.float32)
    native = stored(256, lang.exp, apart=2)
    assert not wide(native)
    np.testing.assert_allclose(native({"X": x})["Y"], np.exp(x[:, ::2]), rtol=1e-6)
