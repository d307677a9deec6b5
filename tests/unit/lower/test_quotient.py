"""Quotients by constants: as exact as divisions, without one."""

import numpy as np
import pytest

from native_expression import inputs, native
from tilewright.ir import DTYPES, F16, F32, I32, Binary, Const, children
from tilewright.lower import expand_math

CONSTANTS = (3.0, -7.0, 2**0.5, 0.1, 1e-20, 768.0, 4095.0, 5e18)


def quotient(c, dtype=F32):
    return Binary("div", inputs(dtype)[0], Const(dtype.numpy.type(c).item(), dtype))


def divides(e):
    return (isinstance(e, Binary) and e.op == "div") or any(divides(k) for k in children(e))


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("c", CONSTANTS)
def test_quotients_are_those_of_a_division(name, c):
    dtype = DTYPES[name]
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(4000) * 10.0 ** rng.integers(-15, 15, 4000)).astype(dtype.numpy)
    multiples = np.arange(-500, 500).astype(dtype.numpy)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype.numpy)
    x = np.concatenate([x, multiples * dtype.numpy.type(c), edges]).astype(dtype.numpy)
    e = quotient(c, dtype)
    assert not divides(expand_math(e))
    got = native(expand_math(e))(x)
    with np.errstate(all="ignore"):
        wanted = x / dtype.numpy.type(c)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("c", [0.25, -64.0, 0.0, float("inf"), float("nan"), 1e-38, 3e38])
def test_other_divisions_stay(c):
    assert divides(expand_math(quotient(c)))


def test_other_types_stay():
    assert divides(expand_math(quotient(3.0, F16)))
    whole = Binary("div", inputs(I32)[0], Const(3, I32))
    assert expand_math(whole) is whole
