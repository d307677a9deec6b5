"""Every scalar operation of the IR in C, against the interpreter: many of them a function, each an output."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from c_kernel import CKernel
from tilewright.codegen import emit_c
from tilewright.ir import (
    BF16,
    BOOL,
    CALLS,
    DTYPES,
    F16,
    F32,
    F64,
    I32,
    ZERO,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    For,
    Load,
    LoopFunction,
    OfIndex,
    Select,
    Unary,
    buffer,
    index,
    run_function,
    seq,
    store,
    var,
)

INTEGERS = [t for t in DTYPES.values() if t.is_integer and not t.small]
FLOATS = [F32, F64]
AT = var("i")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def check(makes, arrays, tolerance=0.0):
    """Expressions of loads ``a``, ``b`` … at equal places; all of them by one function."""
    names = "abc"[: len(arrays)]
    dtypes = [next(t for t in DTYPES.values() if t.numpy == x.dtype) for x in arrays]
    loads = [Load(n, (AT,), t) for n, t in zip(names, dtypes, strict=True)]
    count = len(arrays[0])
    inputs = [buffer(n, (count,), t) for n, t in zip(names, dtypes, strict=True)]
    values = [make(*loads) for make in makes]
    outputs = [buffer(f"y{n}", (count,), e.dtype) for n, e in enumerate(values)]
    body = seq(*(store(y.name, (AT,), e) for y, e in zip(outputs, values, strict=True)))
    loop = For("i", ZERO, index(count), body)
    func = LoopFunction("f", (), (*inputs, *outputs), tuple(y.name for y in outputs), loop)
    given = dict(zip(names, arrays, strict=True))
    want, got = run_function(func, given), CKernel(func)(given)
    for y, e in zip(outputs, values, strict=True):
        g, w = got[y.name], want[y.name]
        if e.dtype.is_float:
            g, w = g.astype(np.float64), w.astype(np.float64)
        if tolerance:
            np.testing.assert_allclose(
                g, w, rtol=tolerance, atol=tolerance, err_msg=f"{y.name}: {type(e).__name__}"
            )
        else:
            np.testing.assert_array_equal(g, w, err_msg=f"{y.name}: {type(e).__name__}")


def numbers(dtype):
    if dtype == BOOL:
        return np.array([False, True])
    if dtype.is_float:
        special = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.5, 7.0, -7.0, 1e10, np.inf, -np.inf, np.nan, 1e-40]
        return np.array(special, dtype.numpy)
    low, high = int(dtype.min_value), int(dtype.max_value)
    near = [v for v in range(-9, 10) if low <= v]
    return np.array(sorted({low, low + 1, high - 1, high, *near}), dtype.numpy)


def pairs(dtype, second=None):
    both = list(itertools.product(numbers(dtype), numbers(dtype) if second is None else second))
    return np.array([p for p, _ in both], dtype.numpy), np.array([q for _, q in both], dtype.numpy)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(dtype):
    ops = ["add", "sub", "mul", "min", "max", "and", "or", "xor"]
    compares = ["lt", "le", "eq", "ne", "gt", "ge"]
    check(
        [lambda a, b, op=op: Binary(op, a, b) for op in ops]
        + [lambda a, b, op=op: Compare(op, a, b) for op in compares]
        + [lambda a, b, op=op: Unary(op, a) for op in ("neg", "abs", "not")],
        pairs(dtype),
    )


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_and_shifts(dtype):
    divisors = [v for v in numbers(dtype) if v != 0]
    kinds = ["floordiv", "mod", "truncdiv", "rem"]
    check([lambda a, b, op=op: Binary(op, a, b) for op in kinds], pairs(dtype, divisors))
    check([lambda a, b, op=op: Binary(op, a, b) for op in ("shl", "shr")], pairs(dtype, range(dtype.bits)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats(dtype):
    x, y = pairs(dtype)
    keep = ~((x == 0) & (y == 0))  # of zeros with different signs either may come out
    ops = ["add", "sub", "mul", "div", "min", "max", "rem", "mod", "floordiv"]
    check(
        [lambda a, b, op=op: Binary(op, a, b) for op in ops]
        + [lambda a, b, op=op: Compare(op, a, b) for op in ("lt", "le", "eq", "ne", "gt", "ge")]
        + [lambda a, b, op=op: Unary(op, a) for op in ("neg", "abs")],
        (x[keep], y[keep]),
    )


def test_truth_values():
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    ops = ["and", "or", "xor", "min", "max"]
    check([lambda a, b, op=op: Binary(op, a, b) for op in ops] + [lambda a, b: Unary("not", a)], (x, y))


@pytest.mark.few(5)
@pytest.mark.parametrize("source", [t for t in DTYPES.values() if not t.small], ids=str)
def test_casts(source):
    values = numbers(source)
    if source.is_float:
        close = [1 + 2.0**-9, 1 + 2.0**-8, 1 + 3 * 2.0**-9 + 2.0**-40, 65519.99, 65520.0, 3.39e38, 1e-7]
        values = np.array([*values, *close, *(-v for v in close)], source.numpy)
    saturated = [t for t in INTEGERS if source != BOOL]
    floats = [t for t in (F16, BF16, F32, F64) if t != source]
    check(
        [lambda a, t=t: Cast(a, t, "saturate") for t in saturated]
        + [lambda a, t=t: Cast(a, t) for t in (*floats, BOOL)],
        (values,),
    )
    for target in INTEGERS:
        held = values
        if source.is_float:
            low, high = float(target.min_value), float(target.max_value)
            wide = values.astype(np.float64)
            held = values[np.isfinite(wide) & (np.trunc(wide) >= low) & (np.trunc(wide) < high)]
        check([lambda a, t=target: Cast(a, t)], (held,))


@pytest.mark.parametrize("source, target", [
    ("f32", "i32"), ("u32", "f32"), ("f64", "i64"), ("i64", "f64"), ("i8", "u8"), ("f16", "u16"),
    ("i16", "bf16"), ("bf16", "u16"), ("u16", "f16"), ("f32", "u32"),
])  # fmt: skip
def test_bit_casts(source, target):
    values = numbers(DTYPES[source])
    if DTYPES[source].is_float:
        values = values[values == values]
    check([lambda a: Cast(a, DTYPES[target], "bits")], (values,))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_narrow_floats_round_after_each_operation(dtype):
    x, y = pairs(dtype)
    keep = ~((x == 0) & (y == 0)) & (x == x) & (y == y)
    ops = ["add", "sub", "mul", "div", "min", "max"]
    check(
        [lambda a, b, op=op: Binary(op, a, b) for op in ops]
        + [lambda a, b: Binary("add", Binary("mul", a, b), a), lambda a, b: Unary("neg", a)],
        (x[keep], y[keep]),
    )


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_all_numbers_of_narrow_types_come_and_go(dtype):
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    every = every[every == every]
    check([lambda a: Cast(a, F32), lambda a: Cast(Cast(a, F32), dtype), lambda a: a], (every,))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_functions(dtype):
    x = np.linspace(-0.9, 0.9, 23).astype(dtype.numpy)
    bound = 1e-6 if dtype == F32 else 1e-14
    one = [f for f in CALLS if f not in ("pow", "atan2", "copysign", "ldexp", "fma", "isnan", "isinf")]
    at = {"acosh": 1.5, "log": 1.0, "log2": 1.0, "rsqrt": 1.0, "sqrt": 1.0, "exp_nonpositive": -1.0}

    def make(f):
        return lambda a: Call(f, (Binary("add", a, Const(at.get(f, 0.0) * (1 + (f == "acosh")), dtype)),))

    check([make(f) for f in one], (x,), bound)
    three = lambda a: (a, Binary("mul", a, a), Const(0.25, dtype))  # noqa: E731
    check(
        [
            lambda a: Call("fma", three(a)),
            lambda a: Call("pow", (Unary("abs", a), a)),
            lambda a: Call("atan2", (a, Const(-0.5, dtype))),
            lambda a: Call("copysign", (Const(2.0, dtype), a)),
            lambda a: Call("ldexp", (a, Binary("mul", a, Const(9.0, dtype)))),
        ],
        (x,),
        bound,
    )
    check([lambda a, f=f: Call(f, (a,)) for f in ("isnan", "isinf")], (numbers(dtype),))


def test_shared_parts_are_computed_once_and_selections_stay_lazy():
    x = np.arange(-4, 5, dtype=np.float32)

    def deep(a):
        e = a
        for _ in range(40):  # as a tree 2**40 nodes
            e = Binary("mul", Binary("add", e, e), Const(0.5, F32))
        return e

    def guarded(a):
        # the load of a place that does not exist is not taken, though both sides of a selection share it
        far = Load("a", (AT + 1000000000,), F32)
        both = Binary("add", far, Binary("mul", far, far))
        inner = Select(Compare("gt", a, Const(99.0, F32)), Binary("add", both, both), a)
        return Select(Compare("lt", a, Const(1e9, F32)), inner, both)

    check([deep, guarded], (x,))
    func = LoopFunction(
        "f", (), (buffer("a", (9,), F32), buffer("y", (9,), F32)), ("y",),
        For("i", ZERO, index(9), store("y", (AT,), deep(Load("a", (AT,), F32)))),
    )  # fmt: skip
    assert emit_c(func).text.count("* 0.5f") == 40


def test_indices_divide_towards_minus_infinity():
    shifted = AT - 7
    check(
        [
            lambda a, x=x: OfIndex(x, I32)
            for d in (3, 4)
            for x in (shifted // d, shifted % d, -(AT // d), AT % d)
        ],
        (np.zeros(15, np.float32),),
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_indices_are_compared_in_their_type(dtype):
    """Below zero an unsigned one is large."""
    limits = (OfIndex(index(4), dtype), Const(4, dtype))
    check(
        [
            lambda a, op=op, at=at, limit=limit: Compare(op, OfIndex(at, dtype), limit)
            for op in ("lt", "ge", "eq")
            for at in (AT - 3, AT * 40)
            for limit in limits
        ],
        (np.zeros(9, np.float32),),
    )


def test_entry_functions_are_never_called_main():
    func = LoopFunction("main", (), (buffer("y", (1,), F32),), ("y",), store("y", (ZERO,), Const(1.5, F32)))
    assert CKernel(func)({})["y"][0] == 1.5
    odd = replace(func, name='a"; int x', buffers=(buffer("y", (1,), F32),))
    assert CKernel(odd)({})["y"][0] == 1.5
