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


def test_short_values_and_elements_that_lie_apart_go_one_by_one():
    assert not wide(stored(256, lambda v: 2 * v + 1))
    x = np.random.default_rng(0).normal(size=(3, 512)).astype(np.float32)
    native = stored(256, lang.exp, apart=2)
    assert not wide(native)
    np.testing.assert_allclose(native({"X": x})["Y"], np.exp(x[:, ::2]), rtol=1e-6)
