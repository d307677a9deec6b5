"""Elementary functions through the whole compiler: vector code, at most 4 units in the last place."""

import math

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.ir import (  # fmt: skip
    DTYPES,
    VECTOR,
    ZERO,
    Call,
    For,
    Load,
    LoopFunction,
    buffer,
    index,
    store,
    var,
)
from tilewright.lower import PIPELINE
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
    inner = lambda i: lang.select(i >= 3, x[i - 3], 1.0)  # noqa: E731
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
