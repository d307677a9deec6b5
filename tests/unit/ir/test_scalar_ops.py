"""Scalar operations: every type and operation against numpy or exact arithmetic, and what is undefined."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tilewright.ir import (
    BF16,
    BOOL,
    CALLS,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    UndefinedError,
)
from tilewright.ir.scalar_ops import (
    CALL_ARITY,
    binary,
    call,
    cast,
    comparison,
    constant,
    from_array,
    rounder,
    unary,
)

FLOATS, INTS = (F64, F32, F16, BF16), (I64, I32, I16, I8, U64, U32, U16, U8)
NO_WARNINGS = {"all": "ignore"}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(**NO_WARNINGS):
        yield


def floats(dtype):
    """Numbers of the type, special ones included."""
    return st.floats(width={64: 64, 32: 32, 16: 16}[dtype.bits]).map(lambda x: constant(x, dtype))


def ints(dtype):
    return st.integers(int(dtype.min_value), int(dtype.max_value))


def same(a, b):
    return type(a) is type(b) and (a == b or (a != a and b != b))


def nearest(exact, dtype):
    """The number of a float type nearest to a fraction, ties to even: by search among its neighbours."""
    word = np.dtype(np.uint16 if dtype.bits == 16 else np.uint32)
    bits = int(np.array(float(exact), dtype.numpy).view(word))
    near = [np.array(bits + d, word).view(dtype.numpy)[()] for d in (-2, -1, 0, 1, 2) if bits + d >= 0]
    near = [x for x in near if math.isfinite(float(x))]
    return min(near, key=lambda x: (abs(Fraction(float(x)) - exact), int(np.array(x).view(word)) % 2))


# ---- rounding ----


@pytest.mark.parametrize("dtype", (F32, F16, BF16), ids=str)
@given(data=st.data())
def test_rounding_is_to_nearest_even_in_one_step(dtype, data):
    x = data.draw(st.floats(-60000, 60000).filter(lambda v: abs(v) > 1e-3))
    assert same(rounder(dtype)(x), nearest(Fraction(x), dtype))
    n = data.draw(st.integers(-60000, 60000))
    assert same(rounder(dtype)(n), nearest(Fraction(n), dtype))


def test_known_double_roundings():
    # f64 -> f32 -> bf16 would give 1.0
    assert float(rounder(BF16)(1 + 2**-8 + 2**-40)) == 1 + 2**-7
    # i64 -> f64 -> f32 would give 2**60
    assert float(rounder(F32)(2**60 + 2**36 + 1)) == 2**60 + 2**37
    assert float(rounder(BF16)(2**60 + 2**52 + 1)) == 2**60 + 2**53


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@given(data=st.data())
def test_float_arithmetic_is_numpy_s_in_the_type(dtype, data):
    a, b = data.draw(floats(dtype)), data.draw(floats(dtype))
    x, y = np.array([a], dtype.numpy), np.array([b], dtype.numpy)
    for op, ufunc in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}.items():
        assert same(binary(op, dtype)(a, b), ufunc(x, y)[0]), op
    assert same(unary("neg", dtype)(a), (-x)[0])
    assert same(unary("abs", dtype)(a), np.abs(x)[0])
    for op in ("lt", "le", "eq", "ne", "gt", "ge"):
        names = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal}
        names |= {"gt": np.greater, "ge": np.greater_equal}
        assert bool(comparison(op)(a, b)) == bool(names[op](x, y)[0]), op


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@given(data=st.data())
def test_min_and_max_propagate_nan(dtype, data):
    a, b = data.draw(floats(dtype)), data.draw(floats(dtype))
    low, high = binary("min", dtype)(a, b), binary("max", dtype)(a, b)
    if a != a or b != b:
        assert low != low
        assert high != high
    else:
        assert float(low) == min(float(a), float(b))
        assert float(high) == max(float(a), float(b))


@pytest.mark.parametrize("dtype", INTS, ids=str)
@given(data=st.data())
def test_integer_arithmetic_wraps(dtype, data):
    a, b = data.draw(ints(dtype)), data.draw(ints(dtype))
    span = 1 << dtype.bits

    def wrapped(x):
        x %= span
        return x - span if dtype.kind == "int" and x >= span // 2 else x

    exact = {"add": a + b, "sub": a - b, "mul": a * b, "and": a & b, "or": a | b, "xor": a ^ b}
    exact |= {"min": min(a, b), "max": max(a, b)}
    if b:
        q = Fraction(a, b)
        exact |= {"floordiv": math.floor(q), "truncdiv": math.trunc(q)}
        exact |= {"mod": a - b * math.floor(q), "rem": a - b * math.trunc(q)}
    shift = b % dtype.bits
    assert binary("shl", dtype)(a, shift) == wrapped(a << shift)
    assert binary("shr", dtype)(a, shift) == a >> shift
    for op, value in exact.items():
        assert binary(op, dtype)(a, b) == wrapped(value), op
    assert unary("neg", dtype)(a) == wrapped(-a)
    assert unary("abs", dtype)(a) == wrapped(abs(a))
    assert unary("not", dtype)(a) == wrapped(~a)


def test_rounding_of_the_divisions():
    cases = {"floordiv": (-4, -4), "mod": (1, -1), "truncdiv": (-3, -3), "rem": (-1, 1)}
    for op, (left, right) in cases.items():
        assert binary(op, I32)(-7, 2) == left
        assert binary(op, I32)(7, -2) == right
    assert binary("truncdiv", I8)(-128, -1) == -128  # wraps
    assert float(binary("mod", F32)(np.float32(-7), np.float32(2))) == 1
    assert float(binary("rem", F32)(np.float32(-7), np.float32(2))) == -1


def test_booleans():
    table = {
        "and": [0, 0, 0, 1],
        "or": [0, 1, 1, 1],
        "xor": [0, 1, 1, 0],
        "min": [0, 0, 0, 1],
        "max": [0, 1, 1, 1],
    }
    for op, expected in table.items():
        found = [binary(op, BOOL)(a, b) for a in (False, True) for b in (False, True)]
        assert found == [bool(e) for e in expected]
        assert all(type(x) is bool for x in found)
    assert unary("not", BOOL)(True) is False


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: binary("floordiv", I32)(1, 0), "division of 1 by zero"),
        (lambda: binary("rem", U8)(1, 0), "division of 1 by zero"),
        (lambda: binary("shl", I8)(1, 8), "shift of a 8-bit value by 8"),
        (lambda: binary("shr", I8)(1, -1), "shift of a 8-bit value by -1"),
        (lambda: binary("div", I32), "div has no meaning on i32"),
        (lambda: binary("and", F32), "and has no meaning on f32"),
        (lambda: binary("add", BOOL), "add has no meaning on bool"),
        (lambda: unary("not", F32), "not has no meaning on f32"),
        (lambda: unary("neg", BOOL), "neg has no meaning on bool"),
        (lambda: call("exp", I32), "exp has no meaning on i32"),
        (lambda: cast(F32, I8, "wrap")(np.float32(128)), "cast of 128.0 to i8 is out of range"),
        (lambda: cast(F32, U8, "wrap")(np.float32(-1)), "cast of -1.0 to u8 is out of range"),
        (lambda: cast(F32, I32, "wrap")(np.float32("nan")), "cast of nan to i32 is out of range"),
        (lambda: cast(F32, F64, "bits"), "the bits of a f32 do not fit a f64"),
    ],
)
def test_undefined(run, message):
    with pytest.raises(UndefinedError, match=message):
        run()


# ---- casts ----


@pytest.mark.few(25)
@pytest.mark.parametrize("source", (*INTS, BOOL), ids=str)
@pytest.mark.parametrize("target", (*INTS, BOOL, F32, F64), ids=str)
@given(data=st.data())
def test_casts_of_integers(source, target, data):
    a = data.draw(st.booleans() if source == BOOL else ints(source))
    with np.errstate(all="ignore"):
        expected = np.array([a], source.numpy).astype(target.numpy)[0]
    assert cast(source, target, "wrap")(a) == expected
    if target.is_integer:
        assert cast(source, target, "saturate")(a) == min(max(int(a), target.min_value), target.max_value)


@pytest.mark.parametrize("target", INTS, ids=str)
def test_casts_of_floats_to_integers(target):
    wrap, saturate = cast(F64, target, "wrap"), cast(F64, target, "saturate")
    assert wrap(np.float64(2.9)) == saturate(np.float64(2.9)) == 2
    assert wrap(np.float64(-0.9)) == saturate(np.float64(-0.9)) == 0
    assert saturate(np.float64("inf")) == target.max_value
    assert saturate(np.float64("-inf")) == target.min_value
    assert saturate(np.float64("nan")) == 0


def test_casts_to_bool_and_back():
    assert cast(F32, BOOL, "wrap")(np.float32(0.5)) is True
    assert cast(F32, BOOL, "wrap")(np.float32(-0.0)) is False
    assert cast(F32, BOOL, "wrap")(np.float32("nan")) is True
    assert same(cast(BOOL, F16, "wrap")(True), np.float16(1))


@pytest.mark.parametrize(
    ("a", "b"), [(F32, I32), (F32, U32), (F64, I64), (F16, U16), (BF16, I16), (I8, U8)], ids=str
)
@given(data=st.data())
def test_bits_go_there_and_back(a, b, data):
    x = data.draw(floats(a).filter(lambda v: v == v) if a.is_float else ints(a))
    there = cast(a, b, "bits")(x)
    assert type(there) is int
    assert same(cast(b, a, "bits")(there), x)


def test_known_bits():
    assert cast(F32, U32, "bits")(np.float32(1)) == 0x3F800000
    assert cast(BF16, U16, "bits")(ml_dtypes.bfloat16(1)) == 0x3F80
    assert cast(U8, I8, "bits")(255) == -1


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, BOOL], ids=str)
def test_arrays_become_values_and_constants_are_values(dtype):
    array = np.array([[0, 1], [1, 0]], dtype.numpy)
    found = from_array(array.T, dtype)
    assert found == [constant(v, dtype) for v in (0, 1, 1, 0)]
    assert {type(v) for v in found} == {type(constant(1, dtype))}


# ---- functions ----


@pytest.mark.parametrize("fn", [f for f in CALLS if f not in ("isnan", "isinf", "fma")])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_functions_are_rounded_once_from_f64(fn, dtype):
    arity = CALL_ARITY.get(fn, 1)
    for x in (0.25, 0.75, -0.5, 1.5, 0.0, -2.0, float("inf"), float("nan")):
        args = [constant(x, dtype), constant(0.5, dtype)][:arity]
        found = call(fn, dtype)(*args)
        assert type(found) is dtype.numpy.type
        reference = {"erf": math.erf, "round": np.rint, "rsqrt": lambda v: 1 / np.sqrt(v), "pow": np.power}
        reference |= {"ldexp": lambda v, n: v * 2.0 ** np.floor(n)}
        reference |= {"exp_nonpositive": np.exp}
        reference |= {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2}
        reference |= {"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh}
        exact = reference.get(fn, getattr(np, fn, None))(*[np.float64(a) for a in args])
        assert same(found, rounder(dtype)(exact))


def test_rounding_functions_and_tests():
    assert [float(call("round", F32)(np.float32(x))) for x in (0.5, 1.5, 2.5, -0.5)] == [0, 2, 2, 0]
    assert call("isnan", F32)(np.float32("nan")) is True
    assert call("isinf", F16)(np.float16("-inf")) is True
    assert call("isinf", F16)(np.float16(1)) is False


@pytest.mark.parametrize("dtype", (F64, F32, F16, BF16), ids=str)
@given(data=st.data())
def test_fma_rounds_once(dtype, data):
    near = st.floats(-100, 100, width=16).map(lambda x: constant(x * 1.0009765, dtype))
    a, b, c = (data.draw(near) for _ in "abc")
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    found = call("fma", dtype)(a, b, c)
    if dtype == F64:
        assert float(found) == float(exact)
    elif abs(exact) > 2**-10:
        assert same(found, nearest(exact, dtype))


def test_fma_of_special_values():
    fma = call("fma", F64)
    inf, one, big = np.float64("inf"), np.float64(1), np.float64(1e308)
    assert fma(inf, one, one) == inf
    assert np.isnan(fma(inf, np.float64(0), one))
    assert fma(big, np.float64(10), one) == inf
    assert fma(big, np.float64(-10), one) == -inf
    # 2**-30 is lost where the product is rounded first
    x = np.float32(1 + 2**-15)
    assert float(call("fma", F32)(x, x, np.float32(-1 - 2**-14))) == 2**-30
