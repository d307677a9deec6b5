"""Every scalar operation of the IR as native code, on scalars and on lanes, against the interpreter."""

import itertools
import re

import numpy as np
import pytest

from native_kernel import Native
from tilewright.ir import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    F64,
    SERIAL,
    VECTOR,
    ZERO,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    For,
    Load,
    LoopFunction,
    Unary,
    buffer,
    index,
    run_function,
    store,
    var,
)

INTEGERS = [t for t in DTYPES.values() if t.is_integer and not t.small]
FLOATS = [F32, F64]


def function(e, count, kind, inputs):
    """``y[i] = e`` over ``count`` elements."""
    y = buffer("y", (count,), e.dtype)
    loop = For("i", ZERO, index(count), store("y", (var("i"),), e), kind)
    return LoopFunction("f", (), (*inputs, y), ("y",), loop)


def check(make, dtypes, arrays, *, isolated=False):
    """An expression of loads ``a``, ``b`` … at equal places, natively in both kinds of loops."""
    names = "abc"[: len(dtypes)]
    loads = [Load(n, (var("i"),), t) for n, t in zip(names, dtypes, strict=True)]
    count = len(arrays[0])
    inputs = tuple(buffer(n, (count,), t) for n, t in zip(names, dtypes, strict=True))
    given = dict(zip(names, arrays, strict=True))
    e = make(*loads)
    want = run_function(function(e, count, SERIAL, inputs), given)["y"]
    for kind in (SERIAL, VECTOR):
        got = Native(function(e, count, kind, inputs))(given, isolated=isolated)["y"]
        if e.dtype.is_float:  # numpy's comparison does not know the NaN of bf16
            got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(got, want, err_msg=f"{e} in a {kind} loop")


def numbers(dtype):
    """Values of a type with its extremes, small ones of both signs, and some at random."""
    if dtype.is_float:
        special = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.5, 7.0, -7.0, 1e10, np.inf, -np.inf, np.nan, 1e-40]
        return np.array(special, dtype.numpy)
    low, high = int(dtype.min_value), int(dtype.max_value)
    near = [v for v in range(-9, 10) if low <= v]
    return np.array(sorted({low, low + 1, high - 1, high, *near}), dtype.numpy)


def pairs(dtype, second=None):
    a = list(itertools.product(numbers(dtype), numbers(dtype) if second is None else second))
    return np.array([p for p, _ in a], dtype.numpy), np.array([q for _, q in a], dtype.numpy)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "min", "max", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_around(op, dtype):
    check(lambda a, b: Binary(op, a, b), (dtype, dtype), pairs(dtype))


@pytest.mark.few(11)
@pytest.mark.parametrize("op", ["floordiv", "mod", "truncdiv", "rem"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_rounds_as_stated_for_all_signs(op, dtype):
    # the smallest number by -1 too
    divisors = [v for v in numbers(dtype) if v != 0]
    check(lambda a, b: Binary(op, a, b), (dtype, dtype), pairs(dtype, divisors), isolated=True)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts(dtype):
    for op in ("shl", "shr"):
        check(lambda a, b, op=op: Binary(op, a, b), (dtype, dtype), pairs(dtype, range(dtype.bits)))


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "min", "max"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_floats(op, dtype):
    x, y = pairs(dtype)
    if op in ("min", "max"):  # of zeros with different signs either may come out
        keep = ~((x == 0) & (y == 0))
        x, y = x[keep], y[keep]
    check(lambda a, b: Binary(op, a, b), (dtype, dtype), (x, y))


@pytest.mark.parametrize("op", ["rem", "mod", "floordiv"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float_division_with_remainder(op, dtype):
    values = [0.0, -0.0, 1.0, -1.0, 0.5, 0.25, 2.5, -2.5, 7.0, -7.0, 1e10, np.inf, -np.inf, np.nan]
    x = np.array([p for p, _ in itertools.product(values, values)], dtype.numpy)
    y = np.array([q for _, q in itertools.product(values, values)], dtype.numpy)
    check(lambda a, b: Binary(op, a, b), (dtype, dtype), (x, y))


@pytest.mark.parametrize("op", ["lt", "le", "eq", "ne", "gt", "ge"])
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_comparisons(op, dtype):
    check(lambda a, b: Compare(op, a, b), (dtype, dtype), pairs(dtype))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_unary(dtype):
    for op in ("neg", "abs") if dtype.is_float else ("neg", "abs", "not"):
        check(lambda a, op=op: Unary(op, a), (dtype,), (numbers(dtype),))


def test_truth_values():
    x = np.array([False, False, True, True])
    y = np.array([False, True, False, True])
    for op in ("and", "or", "xor", "min", "max"):
        check(lambda a, b, op=op: Binary(op, a, b), (BOOL, BOOL), (x, y))
    check(lambda a: Unary("not", a), (BOOL,), (x,))


@pytest.mark.few(4)
@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS, BOOL], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_casts(source):
    for target in (*INTEGERS, *FLOATS, BOOL):
        x = np.array([False, True]) if source == BOOL else numbers(source)
        if source.is_float and target.is_integer:
            check(lambda a, t=target: Cast(a, t, "saturate"), (source,), (x,))
            low, high = float(target.min_value), float(target.max_value)
            x = x[np.isfinite(x) & (np.trunc(x) >= low) & (np.trunc(x) <= high)]
        elif source.is_integer and target.is_integer:
            check(lambda a, t=target: Cast(a, t, "saturate"), (source,), (x,))
        check(lambda a, t=target: Cast(a, t), (source,), (x,))


@pytest.mark.parametrize("source, target", [("f32", "i32"), ("u32", "f32"), ("f64", "i64"), ("i8", "u8")])
def test_bit_casts(source, target):
    source, target = DTYPES[source], DTYPES[target]
    check(lambda a: Cast(a, target, "bits"), (source,), (numbers(source),))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_the_machine(dtype):
    x = numbers(dtype)
    for fn in ("floor", "ceil", "round", "trunc", "sqrt", "isnan", "isinf"):
        check(lambda a, fn=fn: Call(fn, (a,)), (dtype,), (x,))
    check(lambda a, b: Call("copysign", (a, b)), (dtype, dtype), pairs(dtype))
    rng = np.random.default_rng(3)
    three = [rng.standard_normal(50).astype(dtype.numpy) for _ in range(3)]
    check(lambda a, b, c: Call("fma", (a, b, c)), (dtype,) * 3, three)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_narrow_floats(dtype):
    x, y = pairs(dtype)
    keep = ~((x == 0) & (y == 0)) & (x == x) & (y == y)
    if dtype == BF16:  # LLVM moves subnormal numbers through instructions that take them for zero
        keep &= (abs(x.astype(np.float64)) > 1e-37) & (abs(y.astype(np.float64)) > 1e-37)
    for op in ("add", "sub", "mul", "div", "min", "max"):
        check(lambda a, b, op=op: Binary(op, a, b), (dtype, dtype), (x[keep], y[keep]))
    for other in (F16, BF16, F32, F64, *INTEGERS):
        if other == dtype:
            continue
        values = numbers(other)
        close = [1 + 2.0**-9, 1 + 2.0**-8, 1 + 3 * 2.0**-9 + 2.0**-40, 65519.99, 65520.0, 3.39e38, 1e-7]
        if other == F64:  # near ties, where rounding twice would err
            values = np.array([*values, *close, *(-v for v in close)])
        values = values[values == values]
        if dtype == BF16 and other.is_float:  # vectors by an instruction that takes subnormals for zero
            size = abs(values.astype(np.float64))
            values = values[(size == 0) | (size > 1e-37)]
        check(lambda a: Cast(a, dtype), (other,), (values,))
    rng = np.random.default_rng(3)
    three = [rng.standard_normal(50).astype(dtype.numpy) for _ in range(3)]
    check(lambda a, b, c: Call("fma", (a, b, c)), (dtype,) * 3, three)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_extremes_with_constants_keep_nan(dtype):
    x = np.array([np.nan, -1.0, 2.0, np.inf], dtype.numpy)
    for op in ("min", "max"):
        check(lambda a, op=op: Binary(op, a, Const(0.5, a.dtype)), (dtype,), (x,))
        check(lambda a, op=op: Binary(op, Const(0.5, a.dtype), a), (dtype,), (x,))


@pytest.mark.parametrize("source", [F32, F64], ids=str)
def test_vectors_are_rounded_to_bf16_without_an_instruction_for_it(source):
    """Compilers call a function for it, which no kernel has."""
    bits = np.random.default_rng(5).integers(0, 1 << 32, 61, dtype=np.uint32)
    ends = np.float32([np.nan, np.inf, -np.inf, 0, -0.0, 1e-40, 3.4e38, 1 + 2**-8, 1 + 3 * 2**-8, -1e-45])
    x = np.concatenate([ends, bits.view(np.float32)]).astype(source.numpy)
    buffers = (buffer("a", x.shape, source),)
    func = function(Cast(Load("a", (var("i"),), source), BF16), x.size, VECTOR, buffers)
    native = Native(func, operations={})
    assert not re.search(r"fptrunc .* to <\d+ x bfloat>", native.text.text)
    want = run_function(func, {"a": x})["y"].view(np.uint16)
    got = native({"a": x}, isolated=False)["y"].view(np.uint16)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(got[number], want[number])
    assert np.isnan(got.view(BF16.numpy)[~number].astype(np.float32)).all()
