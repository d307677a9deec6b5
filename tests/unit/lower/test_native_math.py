"""Elementary functions through the whole compiler: vector code, at most 4 units in the last place."""

import itertools
import math

import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright import lang
from tilewright.ir import (  # fmt: skip
    DTYPES,
    F32,
    VECTOR,
    ZERO,
    Call,
    For,
    Load,
    LoopFunction,
    buffer,
    index,
    run_function,
    store,
    var,
)
from tilewright.lower import PIPELINE, expand_math_calls
from tilewright.schedule import Schedule

BOUND = 4.0
FUNCTIONS = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "pow": np.power,
    "sin": np.sin,
    "log1p": np.log1p,
}


def test_functions_are_expanded_last():
    assert PIPELINE[-1].name == "expand_math"


def arguments(fn, dtype, count):
    rng = np.random.default_rng(11)
    x = rng.standard_normal(count) * 8
    if fn in ("log", "pow", "log1p"):
        x = np.abs(x) + 1e-3
    return x.astype(dtype.numpy), rng.uniform(-5, 5, count).astype(dtype.numpy)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("fn", sorted(FUNCTIONS))
def test_vector_code_is_accurate(fn, name):
    dtype, count = DTYPES[name], 2003
    x, y = arguments(fn, dtype, count)
    i = var("i")
    loads = [Load(b, (i,), dtype) for b in (("x", "y") if fn == "pow" else ("x",))]
    body = For("i", ZERO, index(count), store("z", (i,), Call(fn, tuple(loads))), VECTOR)
    func = LoopFunction("f", (), tuple(buffer(b, (count,), dtype) for b in "xyz"), ("z",), body)
    got = Native(func)({"x": x, "y": y})["z"]
    wide = np.float64 if name == "f32" else np.longdouble
    given = [a.astype(wide) for a in ((x, y) if fn == "pow" else (x,))]
    if fn == "erf":
        given = [a.astype(np.float64) for a in given]
    want = FUNCTIONS[fn](*given)
    spacing = np.spacing(np.abs(want.astype(dtype.numpy))).astype(wide)
    # math.erf is itself off by up to one unit in f64
    allowed = BOUND + (1.0 if fn == "erf" and name == "f64" else 0.0)
    assert float(np.max(np.abs(got.astype(wide) - want) / spacing)) <= allowed


def test_functions_of_functions_of_conditions_stay_small():
    """Expansions share their parts; a load behind a condition inside of them is made where it holds only."""
    x = lang.placeholder((30,), "f64", "x")

    def inner(i):
        return lang.select(i >= 3, x[i - 3], 1.0)

    y = lang.compute((33,), lambda i: lang.pow(lang.exp(lang.tanh(inner(i))), lang.erf(inner(i))), name="y")
    s = Schedule(lang.program([x], [y]))
    n = Native(s.vectorize(s.loops("y")[0]).func)
    assert len(n.text.text) < 400_000
    given = np.random.default_rng(2).standard_normal(30)
    padded = np.concatenate([np.ones(3), given])
    want = np.exp(np.tanh(padded)) ** np.vectorize(math.erf)(padded)
    np.testing.assert_allclose(n({"x": given})["y"], want, rtol=1e-14)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_narrow_floats_compute_in_f32(name):
    x = lang.placeholder((50,), name, "x")
    y = lang.compute((50,), lambda i: lang.exp(x[i]), name="y")
    s = Schedule(lang.program([x], [y]))
    given = np.random.default_rng(2).standard_normal(50).astype(DTYPES[name].numpy)
    got = Native(s.vectorize(s.loops("y")[0]).func)({"x": given})["y"]
    want = np.exp(given.astype(np.float64))
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8}[name]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=1.001 * unit)


@pytest.mark.skipif("ldexp" not in HOST.functions, reason="this machine has no instruction for it")
@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_scaling_by_the_machine_is_that_of_the_formula(name, bits):
    """All ends: subnormal numbers, overflow, infinite and fractional powers, NaN; tails of vectors."""
    dtype = DTYPES[name]
    tiny, huge = float(dtype.numpy.type(2.0) ** (-140 if name == "f32" else -1070)), 1.5e38
    values = [1.0, -1.375, 0.0, -0.0, tiny, huge, math.inf, -math.inf, math.nan]
    powers = [0, 1, -1, 0.5, -0.5, 127, 128, 300, 1023, 2000, -126, -149, -150, -300, -1074, -3000]
    powers = [*map(float, powers), math.inf, -math.inf, math.nan]
    cases = [c for c in itertools.product(values, powers) if not (math.isnan(c[0]) and math.isinf(c[1]))]
    x, n = (np.array(a, dtype.numpy) for a in zip(*cases, strict=True))
    i, count = var("i"), len(x)
    e = Call("ldexp", (Load("x", (i,), dtype), Load("n", (i,), dtype)))
    body = For("i", ZERO, index(count), store("z", (i,), e), VECTOR)
    func = LoopFunction("f", (), tuple(buffer(b, (count,), dtype) for b in "xnz"), ("z",), body)
    by_machine = Native(func, bits)
    assert "scalef" in by_machine.text.text
    expanded = expand_math_calls(func)
    assert expanded != func
    with np.errstate(all="ignore"):
        exact = np.ldexp(
            x.astype(np.longdouble), np.clip(np.floor(np.nan_to_num(n)), -9999, 9999).astype(int)
        )
        wanted = np.where(np.isfinite(n), exact.astype(dtype.numpy), x * np.exp2(n))
    for kernel in (by_machine, Native(expanded, bits)):
        np.testing.assert_array_equal(kernel({"x": x, "n": n})["z"], wanted)
    np.testing.assert_array_equal(run_function(func, {"x": x, "n": n})["z"], wanted)


@pytest.mark.skipif("ldexp" not in HOST.functions, reason="this machine has no instruction for it")
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_exponentials_by_scaling_at_all_ends(name):
    dtype = DTYPES[name]
    wide = np.float64 if name == "f32" else np.longdouble
    ends = [88.72283, 88.72284, 89.0, -87.3, -87.4, -103.9, -104.1, -105.0, 709.7, 709.8, -745.0, -746.0]
    x = np.array([*ends, 0.0, -0.0, 1e9, -1e9, math.inf, -math.inf, math.nan, *np.linspace(-110, 95, 9001)])
    x = x.astype(dtype.numpy)
    i, count = var("i"), len(x)
    body = For("i", ZERO, index(count), store("z", (i,), Call("exp", (Load("x", (i,), dtype),))), VECTOR)
    func = LoopFunction("f", (), tuple(buffer(b, (count,), dtype) for b in "xz"), ("z",), body)
    kernel = Native(func)
    assert "scalef" in kernel.text.text
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(wide))
        rounded = exact.astype(dtype.numpy)
    got = kernel({"x": x})["z"]
    special = ~np.isfinite(rounded) | (rounded == 0)
    np.testing.assert_array_equal(got[special], rounded[special])
    ulp = np.spacing(rounded[~special]).astype(wide)
    assert (np.abs(got[~special].astype(wide) - exact[~special]) / ulp).max() <= 2.5


@pytest.mark.skipif("exp2_fraction" not in HOST.functions, reason="this machine has no instruction for it")
@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("count", [1, 3, 16, 300])
def test_powers_from_the_table_are_those_of_the_formula(count, bits):
    x = (2.0**18 + np.linspace(0, 2**18 - 1 / 32, count)).astype(np.float32)
    i = var("i")
    e = Call("exp2_fraction", (Load("x", (i,), F32),))
    body = For("i", ZERO, index(count), store("z", (i,), e), VECTOR)
    func = LoopFunction("f", (), tuple(buffer(b, (count,), F32) for b in "xz"), ("z",), body)
    by_machine = Native(func, bits)
    assert "vpermi2var" in by_machine.text.text
    wanted = run_function(func, {"x": x})["z"]
    fractions = (x - np.floor(x)).astype(np.float64)
    np.testing.assert_array_equal(wanted, np.exp2(fractions).astype(np.float32))
    np.testing.assert_array_equal(by_machine({"x": x})["z"], wanted)
    np.testing.assert_allclose(Native(expand_math_calls(func), bits)({"x": x})["z"], wanted, rtol=2e-7)


@pytest.mark.skipif("exp2_fraction" not in HOST.functions, reason="this machine has no instruction for it")
@pytest.mark.parametrize("count", [5, 16, 100, 4000])
def test_exponentials_by_the_table(count):
    """All exponents, subnormal results among them; ``e**0`` is exact."""
    powers = np.linspace(-149, 127.9, count).astype(np.float32) * np.float32(np.log(2))
    x = np.concatenate([np.zeros(2, np.float32), powers])
    i, count = var("i"), len(x)
    body = For("i", ZERO, index(count), store("z", (i,), Call("exp", (Load("x", (i,), F32),))), VECTOR)
    func = LoopFunction("f", (), tuple(buffer(b, (count,), F32) for b in "xz"), ("z",), body)
    kernel = Native(func)
    assert "vpermi2var" in kernel.text.text
    got, exact = kernel({"x": x})["z"], np.exp(x.astype(np.float64))
    assert (np.abs(got - exact) / np.spacing(exact.astype(np.float32)).astype(np.float64)).max() <= 2.5
    assert (got[:2] == 1).all()
    # the same formula evaluated by the interpreter, up to the rounding of the table's powers
    by_table = run_function(expand_math_calls(func, HOST.functions), {"x": x})["z"]
    np.testing.assert_array_equal(got, by_table)


@pytest.mark.skipif("ldexp" not in HOST.functions, reason="this machine has no instruction for it")
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_exponentials_of_what_is_not_positive_are_those_of_all(name):
    """But for results below the least normal number, which are zero."""
    dtype = DTYPES[name]
    ends = [0.0, -0.0, -87.4, -103.9, -104.1, -745.0, -746.0, -1e9, -1e38, -math.inf, math.nan]
    x = np.array([*ends, *np.linspace(-110, 0, 3001)], dtype.numpy)
    i, count = var("i"), len(x)

    def kernel(fn):
        body = For("i", ZERO, index(count), store("z", (i,), Call(fn, (Load("x", (i,), dtype),))), VECTOR)
        func = LoopFunction("f", (), tuple(buffer(b, (count,), dtype) for b in "xz"), ("z",), body)
        return func, Native(func)

    (func, limited), (nonpositive, unlimited) = kernel("exp"), kernel("exp_nonpositive")
    wanted = limited({"x": x})["z"]
    few = x < (-87.3 if name == "f32" else -708.3)
    assert few.sum() > 4 and wanted[~few & (x == x)].min() > np.finfo(x.dtype).tiny

    def compare(found, wanted):
        np.testing.assert_array_equal(found[~few], wanted[~few])
        assert not found[few].any()

    compare(unlimited({"x": x})["z"], wanted)
    compare(
        Native(expand_math_calls(nonpositive))({"x": x})["z"], Native(expand_math_calls(func))({"x": x})["z"]
    )
    np.testing.assert_array_equal(run_function(nonpositive, {"x": x})["z"], run_function(func, {"x": x})["z"])
