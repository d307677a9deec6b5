"""Accuracy of the expansions, evaluated natively: f32 against f64, f64 against extended precision."""

import itertools
import math

import numpy as np
import pytest

from native_expression import inputs, native
from tilewright.build import build
from tilewright.ir import (
    BF16,
    CALLS,
    F16,
    F32,
    F64,
    VECTOR,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    For,
    Load,
    LoopFunction,
    Select,
    buffer,
    children,
    index,
    store,
    var,
)
from tilewright.lower import expand_math, expand_math_calls

BOUND = 4.0  # units in the last place
EXTENDED = np.finfo(np.longdouble).nmant > 60

ONE_ARGUMENT = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}
TWO_ARGUMENTS = {"pow": np.power, "atan2": np.arctan2}
EDGES = [0.0, math.inf, math.nan, 1.0, 0.5, 2.0, 3.0, 9.0, 20.0, 2.0**24, 2.0**24 + 1, 1 / 3, 2.5]
# fmt: off
EDGES_OF = {
    F32: [
        1e-45, 1.1754942e-38, 1.17549435e-38, 3.4028235e38, 88.72283, 88.72284, 103.97, 104.1, 89.41, 3.9,
        0.99999994, 1.0000001, 126.0, 127.99, 128.0, 149.0, 150.1, 8192.0, 8193.0, 0.70710677, 1.4142135,
    ],
    F64: [
        5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 709.782, 709.783, 745.13, 745.14, 710.47,
        math.nextafter(1, 0), math.nextafter(1, 2), 1022.0, 1023.99, 1024.0, 1074.0, 1075.1, 2.0**28,
    ],
}
# fmt: on


def edges(dtype):
    values = np.array(EDGES + EDGES_OF[dtype]).astype(dtype.numpy)
    return np.concatenate([values, -values])


def every(dtype, count):
    """Bit patterns spread over all there are."""
    bits = 32 if dtype == F32 else 64
    step = 2**bits // count | 1
    pattern = np.arange(count, dtype=np.uint64) * np.uint64(step)
    return pattern.astype(f"uint{bits}").view(dtype.numpy)


def errors(got, exact, dtype):
    """Errors in units in the last place of the exact results; infinite for a wrong NaN, infinity or sign."""
    digits, least, largest = (23, -126, 3.4028234e38) if dtype == F32 else (52, -1022, 1.797693134862315e308)
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        exponent = np.floor(np.log2(np.maximum(np.abs(exact), exact.dtype.type(2.0) ** (least - digits))))
        ulp = exact.dtype.type(2.0) ** (np.maximum(exponent, least) - digits)
        far = np.abs(got.astype(exact.dtype) - exact) / ulp
        close = np.where(np.isfinite(got) & np.isfinite(rounded), far, np.inf)
        # at the end of the range, infinity and the largest numbers are neighbours
        top = (np.abs(got) >= largest) & (np.abs(rounded) >= largest)
        close = np.where(top | (np.isnan(got) & np.isnan(exact)), 0.0, close)
        wrong_sign = (np.signbit(got) != np.signbit(rounded)) & ~np.isnan(exact)
    return np.where(wrong_sign, np.inf, close)


def check(fn, reference, dtype, *arguments, bound=BOUND):
    wide = np.float64 if dtype == F32 else np.longdouble
    with np.errstate(all="ignore"):
        exact = np.asarray(reference(*(a.astype(wide) for a in arguments))).astype(wide)
    expanded = expand_math(Call(fn, tuple(inputs(*[dtype] * len(arguments)))))
    for contract in (False, True):
        got = native(expanded, contract=contract)(*arguments)
        found = errors(got, exact, dtype)
        worst = int(np.argmax(found))
        at = [a[worst] for a in arguments]
        assert found[worst] <= bound, (
            f"{fn}{at}: {got[worst]!r}, exact {exact[worst]!r}: {found[worst]:.3g} ulp"
        )


@pytest.mark.parametrize("fn", ONE_ARGUMENT)
def test_one_argument_in_f32(fn):
    near = np.linspace(-10, 10, 40_001, dtype=np.float32)
    # where results lie just below a power of two, and around the joints of two formulas
    joints = (np.array([0.0311, 0.0625, 0.125, 0.25, 0.5, 0.5493, 1, 2, 4]) * np.ones((400, 1))).ravel()
    joints = (joints * np.linspace(0.99, 1.01, joints.size)).astype(np.float32)
    check(fn, ONE_ARGUMENT[fn], F32, np.concatenate([every(F32, 100_003), near, joints, edges(F32)]))


@pytest.mark.slow
@pytest.mark.parametrize("fn", ONE_ARGUMENT)
def test_one_argument_in_f32_densely(fn):
    for start in range(0, 4):
        bits = np.arange(start * 2**30, (start + 1) * 2**30, 1009, dtype=np.uint64).astype(np.uint32)
        check(fn, ONE_ARGUMENT[fn], F32, bits.view(np.float32))


@pytest.mark.skipif(not EXTENDED, reason="numpy has no longer floating-point type here")
@pytest.mark.parametrize("fn", ONE_ARGUMENT)
def test_one_argument_in_f64(fn):
    rng = np.random.default_rng(0)
    near = [rng.uniform(-size, size, 4_000) for size in (1e-3, 0.5, 1, 1.5, 3, 10, 50, 750)]
    x = np.concatenate([every(F64, 40_009), *near, 1 + rng.uniform(-1e-3, 1e-3, 4_000), edges(F64)])
    if fn in ("sin", "cos", "tan"):
        x = x[(np.abs(x) <= 2.0**45) | ~np.isfinite(x)]
    # math.erf itself is good to 1 ulp
    check(fn, ONE_ARGUMENT[fn], F64, x, bound=BOUND - 1 if fn == "erf" else BOUND)


@pytest.mark.parametrize("fn", ["sin", "cos", "tan"])
def test_f64_arguments_too_large_to_reduce_give_nan(fn):
    f = native(expand_math(Call(fn, tuple(inputs(F64)))))
    assert np.isnan(f(np.array([2.0**45 * 1.01, -1e300, np.inf, np.nan]))).all()


def test_f32_arguments_of_any_size_are_reduced():
    # the f32 numbers nearest to multiples of pi/2, among them the very closest
    k = np.concatenate([np.arange(1, 20_000), 2 ** np.arange(15, 62, dtype=np.float64)])
    x = np.concatenate([(k * (np.pi / 2)).astype(np.float32), [np.float32(16367173.0 * 2.0**72)]])
    for fn in ("sin", "cos", "tan"):
        check(fn, ONE_ARGUMENT[fn], F32, x)


def pairs(dtype):
    rng = np.random.default_rng(1)
    count = 20_000
    grid = np.meshgrid(edges(dtype), edges(dtype))
    spread = every(dtype, 4 * count)
    positive = np.abs(spread[np.isfinite(spread) & (spread != 0)])[:count]
    # powers over the whole range of results, and near 1 where the exponent is large
    scale = 90 if dtype == F32 else 720
    exponents = rng.uniform(-scale, scale, positive.size) / np.log(positive.astype(np.float64))
    groups = [
        (rng.permutation(spread), rng.permutation(spread)),
        (positive, exponents),
        (1 + rng.uniform(-1e-3, 1e-3, count), rng.uniform(-5e4, 5e4, count)),
        (rng.uniform(-10, 10, count), rng.integers(-40, 40, count)),
        (grid[0].ravel(), grid[1].ravel()),
    ]
    return [np.concatenate([group[n].astype(dtype.numpy) for group in groups]) for n in (0, 1)]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", TWO_ARGUMENTS)
def test_two_arguments(fn, dtype):
    if dtype == F64 and not EXTENDED:
        pytest.skip("numpy has no longer floating-point type here")
    check(fn, TWO_ARGUMENTS[fn], dtype, *pairs(dtype))


def test_whole_powers_of_small_numbers_are_exact():
    x, y = (g.ravel() for g in np.meshgrid(np.arange(-12.0, 13.0), np.arange(0.0, 7.0)))
    for dtype in (F32, F64):
        f = native(expand_math(Call("pow", tuple(inputs(dtype, dtype)))))
        got = f(x.astype(dtype.numpy), y.astype(dtype.numpy))
        np.testing.assert_array_equal(got.astype(np.float64), x**y)


def unique(e):
    found, todo = {}, [e]
    while todo:
        node = todo.pop()
        if id(node) not in found:
            found[id(node)] = node
            todo.extend(children(node))
    return found.values()


def work(e):
    return sum(not isinstance(node, Const) and bool(children(node)) for node in unique(e))


@pytest.mark.parametrize(
    ("fn", "most"), [("exp", 20), ("exp2", 20), ("tanh", 26), ("erf", 32), ("log", 36), ("expm1", 24)]
)
def test_expansions_stay_short(fn, most):
    # operations of a vector loop's body, casts of bits included: what softmax and GELU pay an element
    assert work(expand_math(Call(fn, tuple(inputs(F32))))) <= most


def test_shared_and_nested_calls_expand_once():
    (x,) = inputs(F32)
    single = work(expand_math(Call("exp", (x,))))
    y = Call("exp", (x,))
    assert work(expand_math(Binary("mul", y, Binary("add", y, y)))) == single + 2
    deep = x
    for _ in range(30):
        deep = Binary("mul", Call("tanh", (deep,)), deep)
    tanh = work(expand_math(Call("tanh", (x,))))
    assert work(expand_math(deep)) == 30 * (tanh + 1)


def test_what_has_no_call_stays_itself():
    (x,) = inputs(F32)
    e = Select(Compare("lt", x, Const(0.0, F32)), Call("sqrt", (x,)), Call("fma", (x, x, x)))
    assert expand_math(e) is e


@pytest.mark.parametrize("fn", CALLS)
@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
def test_every_function_of_the_ir_ends_in_native_ones(fn, dtype):
    arity = {"fma": 3, "pow": 2, "atan2": 2, "copysign": 2, "ldexp": 2}.get(fn, 1)
    e = Call(fn, tuple(inputs(*[dtype] * arity)))
    expanded = expand_math(e)
    assert expanded.dtype == e.dtype
    native_ones = {"fma", "sqrt", "rsqrt", "floor", "ceil", "round", "trunc", "copysign", "isnan", "isinf"}
    calls = [node for node in unique(expanded) if isinstance(node, Call)]
    assert {node.fn for node in calls} <= native_ones
    # short floats are computed in f32
    assert all(node.args[0].dtype in (F32, F64) for node in calls)
    if dtype in (F16, BF16) and fn not in ("isnan", "isinf"):
        assert isinstance(expanded, Cast)


def test_a_function_is_expanded_everywhere():
    i = var("i")
    x, y = buffer("x", (8,), F32), buffer("y", (8,), F32)
    value = Call("tanh", (Call("exp", tuple(inputs(F32))),))
    func = LoopFunction("f", (), (x, y), ("y",), For("i", index(0), index(8), store("y", (i,), value)))
    expanded = expand_math_calls(func)
    assert isinstance(expanded.body, For)
    (write,) = expanded.body.body.writes
    assert {n.fn for n in unique(write.value) if isinstance(n, Call)} == {"fma"}
    assert expand_math_calls(expanded) is expanded


def test_edges_agree_with_the_c_standard():
    """Annex F of C17, spelt out where numpy's reference could hide a mistake of both."""
    f = native(expand_math(Call("pow", tuple(inputs(F32, F32)))))
    inf, nan = math.inf, math.nan
    cases = [
        (nan, 0, 1), (1, nan, 1), (-1, inf, 1), (-1, -inf, 1), (0.5, inf, 0), (2, inf, inf), (-2, -inf, 0),
        (-0.0, -3, -inf), (-0.0, -2, inf), (-0.0, 3, -0.0), (-inf, 3, -inf), (-inf, 0.5, inf),
        (-inf, -3, -0.0),
        (-8, 1 / 3, nan), (-2, 3, -8), (inf, -1, 0), (nan, 1, nan), (2, nan, nan), (-1, nan, nan),
    ]  # fmt: skip
    for base, exponent, expected in cases:
        (got,) = f(np.array([base], np.float32), np.array([exponent], np.float32))
        same = got == expected and math.copysign(1, got) == math.copysign(1, expected)
        assert same or (math.isnan(got) and math.isnan(expected)), (base, exponent, got)


def test_bounded_functions_stay_bounded_and_grow():
    for fn, dtype in itertools.product(("tanh", "erf"), (F32, F64)):
        f = native(expand_math(Call(fn, tuple(inputs(dtype)))))
        y = f(np.linspace(-25, 25, 200_001).astype(dtype.numpy))
        assert y.min() == -1.0
        assert y.max() == 1.0
        # neighbours may swap by their errors, no more
        assert np.diff(y.astype(np.float64)).min() > -2 * BOUND * np.finfo(dtype.numpy).eps


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", [*ONE_ARGUMENT, *TWO_ARGUMENTS])
def test_the_emitter_gives_the_same_accuracy(fn, dtype):
    count = 16 * 64
    rng = np.random.default_rng(2)
    arity = 2 if fn in TWO_ARGUMENTS else 1
    buffers = [buffer(f"x{n}", (count,), dtype) for n in range(arity)]
    at = (var("i") * 16 + var("lane"),)
    value = Call(fn, tuple(Load(b.name, at, dtype) for b in buffers))
    lanes = For("lane", index(0), index(16), store("y", at, value), VECTOR)
    body = For("i", index(0), index(count // 16), lanes)
    func = LoopFunction("f", (), (*buffers, buffer("y", (count,), dtype)), ("y",), body)
    arguments = [np.concatenate([edges(dtype), 4 * rng.standard_normal(count)])[:count] for _ in buffers]
    arguments = [rng.permutation(a).astype(dtype.numpy) for a in arguments]
    (got,) = build(func)(*arguments)
    reference = {**ONE_ARGUMENT, **TWO_ARGUMENTS}[fn]
    with np.errstate(all="ignore"):
        wide = np.float64 if dtype == F32 else np.longdouble
        exact = np.asarray(reference(*(a.astype(wide) for a in arguments))).astype(wide)
    if fn in ("sin", "cos", "tan") and dtype == F64:
        exact[np.abs(arguments[0]) > 2.0**45] = np.nan
    # without a longer type the reference rounds as well
    assert errors(got, exact, dtype).max() <= (BOUND if dtype == F32 or EXTENDED else BOUND + 1)
