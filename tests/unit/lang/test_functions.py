"""Scalar functions and operators against numpy, on every type they take."""

import math

import numpy as np
import pytest

from tilewright import ir, lang

RNG = np.random.default_rng(11)
NAMES = [
    "exp",
    "exp2",
    "log",
    "log2",
    "log1p",
    "expm1",
    "sqrt",
    "tanh",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "floor",
    "ceil",
    "trunc",
    "isnan",
    "isinf",
]
OTHER = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "exp_nonpositive": np.exp, "round": np.rint,
    "erf": np.vectorize(math.erf), "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip


def apply(fn, *arrays):
    inputs = [lang.placeholder(a.shape, ir.dtype_of(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    out = lang.compute(arrays[0].shape, lambda i: fn(*(x[i] for x in inputs)), name="y")
    return lang.evaluate(lang.program(inputs, out), arrays)["y"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*NAMES, *OTHER])
def test_calls(name, dtype):
    x = RNG.uniform(0.1, 0.9, 50).astype(dtype) + (1 if name == "acosh" else 0)
    with np.errstate(all="ignore"):
        expected = OTHER[name](x) if name in OTHER else getattr(np, name)(x)
    found = apply(getattr(lang, name), x)
    assert found.dtype == (np.bool_ if name.startswith("is") else dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == np.float32 else 1e-14)


def test_all_calls_of_the_representation_have_a_function():
    assert [name for name in ir.CALLS if not hasattr(lang, name)] == []


def test_functions_of_several_arguments():
    x, y, z = (RNG.uniform(0.5, 2, 20).astype(np.float32) for _ in range(3))
    np.testing.assert_allclose(apply(lang.pow, x, y), x**y, rtol=1e-6)
    np.testing.assert_allclose(apply(lang.atan2, x, -y), np.arctan2(x, -y), rtol=1e-6)
    np.testing.assert_array_equal(apply(lang.copysign, x, -y), -x)
    wide = x.astype(np.float64) * y + z
    np.testing.assert_array_equal(apply(lang.fma, x, y, z), wide.astype(np.float32))


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_integer_arithmetic(dtype):
    t = ir.dtype_of(dtype).numpy
    lo = -100 if t.kind == "i" else 0
    x, y = RNG.integers(lo, 101, (2, 200)).astype(t)
    y[y == 0] = 3
    exact_x, exact_y = x.astype(object), y.astype(object)
    trunc = np.array([math.trunc(a / b) for a, b in zip(exact_x, exact_y, strict=True)])
    np.testing.assert_array_equal(apply(lambda a, b: a // b, x, y), exact_x // exact_y)
    np.testing.assert_array_equal(apply(lambda a, b: a % b, x, y), exact_x % exact_y)
    np.testing.assert_array_equal(apply(lang.truncdiv, x, y), trunc)
    np.testing.assert_array_equal(apply(lang.rem, x, y), exact_x - trunc * exact_y)
    for fn in (lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b):
        np.testing.assert_array_equal(apply(fn, x, y), fn(x, y))
    np.testing.assert_array_equal(apply(lambda a: ~a, x), ~x)
    np.testing.assert_array_equal(apply(lambda a: (a << 1) >> 1, x), (x << t.type(1)) >> t.type(1))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(apply(lambda a, b: a * b + 1, x, y), (x * y + t.type(1)).astype(t))


def test_floats_of_sixteen_bits():
    x = RNG.standard_normal(64)
    for dtype in ("f16", "bf16"):
        t = ir.dtype_of(dtype).numpy
        a = x.astype(t)
        assert apply(lambda v: v * v + 1, a).dtype == t
        np.testing.assert_array_equal(apply(lambda v: v * v + 1, a), (a * a + t.type(1)).astype(t))
        wide = apply(lambda v: lang.cast(v, "f32"), a)
        np.testing.assert_array_equal(wide, a.astype(np.float32))


def test_minimum_and_maximum_propagate_nan():
    x = np.array([1, np.nan, 3], np.float32)
    y = np.array([2, 2, np.nan], np.float32)
    np.testing.assert_array_equal(apply(lang.minimum, x, y), np.minimum(x, y))
    np.testing.assert_array_equal(apply(lang.maximum, x, y), np.maximum(x, y))
    np.testing.assert_array_equal(apply(lambda a: lang.clamp(a, 0, 2), x), [1, np.nan, 2])


def test_casts():
    x = np.array([-1.7, 1.7, 300.2, -1e9, np.nan], np.float32)
    np.testing.assert_array_equal(apply(lambda v: lang.cast(v, "i32"), x)[:4], [-1, 1, 300, -1000000000])
    np.testing.assert_array_equal(apply(lambda v: lang.cast(v, "u8", "saturate"), x), [0, 1, 255, 0, 0])
    np.testing.assert_array_equal(apply(lambda v: lang.cast(v, "i64", "saturate"), x * np.float32(1e25))[:4],
                                  [-(2**63), 2**63 - 1, 2**63 - 1, -(2**63)])  # fmt: skip
    np.testing.assert_array_equal(apply(lambda v: lang.cast(v, "u32", "bits"), x), x.view(np.uint32))
    np.testing.assert_array_equal(
        apply(lambda v: lang.cast(v, "bool"), np.array([0, 2], np.int32)), [False, True]
    )
    i = np.array([-1, 300], np.int32)
    np.testing.assert_array_equal(apply(lambda v: lang.cast(v, "u8"), i), [255, 44])


def test_conditions():
    x = RNG.standard_normal(40).astype(np.float32)
    y = RNG.standard_normal(40).astype(np.float32)
    found = apply(lambda a, b: ((a > 0) & (b > 0)) | ~(a < b), x, y)
    np.testing.assert_array_equal(found, ((x > 0) & (y > 0)) | ~(x < y))
    found = apply(lambda a, b: lang.logical_and(a > 0, b > 0, lang.logical_not(a > b)), x, y)
    np.testing.assert_array_equal(found, (x > 0) & (y > 0) & ~(x > y))
    np.testing.assert_array_equal(apply(lambda a, b: lang.select(a >= b, a, 0), x, y), np.where(x >= y, x, 0))


def test_literals_adopt_the_type_of_the_other_side():
    for dtype in ("f16", "f32", "f64", "i8", "u16"):
        x = lang.placeholder((2,), dtype, name="x")
        for e in (x[0] + 1, 1 + x[0], 2 * x[0], x[0] - 1, lang.maximum(x[0], 0), 1 - x[0]):
            assert e.dtype == ir.dtype_of(dtype)
    assert lang.const(1, "u8").dtype == ir.U8
    assert lang.to_scalar(lang.axis(3, "i"), "f32").dtype == ir.F32


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "square": np.square,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    x = np.concatenate([RNG.standard_normal(50) * 4, [0, -200, 200]])
    with np.errstate(over="ignore"):
        expected = ACTIVATIONS[name](x)
    np.testing.assert_allclose(apply(getattr(lang, name), x), expected, rtol=1e-12, atol=1e-14)
