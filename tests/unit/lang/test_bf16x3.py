"""Products of f32 by products of bf16 pieces as a rewrite: how exact it is, and what it is refused for."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import CONST
from tilewright.lang import ops
from tilewright.schedule import Schedule, derived_constants

#: What is left out of a product, relative to it, and what the low pieces add where both are there.
LEFT_OUT, LOW = 2.0**-15, 2.0**-9


def constant(program, name):
    inputs = tuple(b.with_(scope=CONST) if b.name == name else b for b in program.inputs)
    return replace(program, inputs=inputs)


def product(m, n, k, dtype="f32"):
    a, b = lang.placeholder((m, k), dtype, name="A"), lang.placeholder((k, n), dtype, name="B")
    return lang.program([a, b], [ops.matmul(a, b, name="C")])


def convolution(pads):
    x, w = lang.placeholder((2, 3, 7, 6), name="A"), lang.placeholder((5, 3, 3, 2), name="B")
    return lang.program([x, w], [ops.conv(x, w, strides=(2, 1), padding=pads, name="C")])


def matched(program):
    return lang.match_sum(program, program.stage("C"))


def errors(program, rewritten, weights=None, seed=0):
    """The errors in parts of the sums of absolute products."""
    rng = np.random.default_rng(seed)
    arrays = {
        b.name: rng.standard_normal([e.as_int() for e in b.shape]).astype(np.float32) for b in program.inputs
    }
    given = {name: a for name, a in arrays.items() if name != "B" or weights is None}
    if weights is not None:
        given[weights] = lang.pieces_of(arrays["B"])
    wanted = lang.evaluate(program, arrays, dtype_override="f64")["C"]
    size = lang.evaluate(program, {name: np.abs(a) for name, a in arrays.items()}, dtype_override="f64")["C"]
    return np.abs(lang.evaluate(rewritten, given)["C"] - wanted) / size


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "program",
    [product(5, 7, 11), product(1, 1, 1), product(33, 2, 97), convolution(((0, 0), (0, 0)))],
    ids=["5x7x11", "1x1x1", "33x2x97", "conv"],
)
def test_errors_are_those_of_the_method(program, known):
    given = constant(program, "B") if known else program
    rewritten = lang.bf16x3(given, matched(given), "W")
    found = errors(program, rewritten, "W" if known else None)
    assert found.max() <= LEFT_OUT + 1e-6


def test_padding_is_left_out_as_before():
    program = convolution(((1, 1), (1, 0)))
    s = Schedule(program)
    for stage in program.stages[:-1]:
        s = s.inline_stage(stage.name)
    s = s.skip_padding("C")
    assert matched(s.program) is not None
    found = errors(program, s.bf16x3("C").program)
    assert found.max() <= LEFT_OUT + 1e-6


@pytest.mark.parametrize("which", range(3))
def test_each_product_of_pieces_matters(which):
    """Left out, any of the three makes an error that the test above would find."""
    program = product(4, 4, 8)
    rewritten = lang.bf16x3(program, matched(program))
    sum_ = rewritten.stage("C")
    piece = sum_.iters[-1]
    lo, hi = (1, 3) if which == 0 else (0, 2) if which == 2 else (0, 1)
    short = replace(sum_, iters=(*sum_.iters[:-1], replace(piece, lo=piece.lo + lo, hi=piece.lo + hi)))
    stages = tuple(short if x.name == "C" else x for x in rewritten.stages)
    found = errors(program, replace(rewritten, stages=stages))
    assert found.max() > 4 * LEFT_OUT


def test_pieces_hold_sixteen_digits():
    x = np.random.default_rng(1).standard_normal((100, 3)).astype(np.float32)
    x[0] = [0.0, 1.0, -2.0]
    pieces = lang.pieces_of(x).astype(np.float64)
    assert pieces.shape == (100, 3, 2)
    assert np.all(np.abs(pieces.sum(axis=-1) - x) <= 2.0**-17 * np.abs(x))
    assert np.all(np.abs(pieces[..., 1]) <= 2.0**-8 * np.abs(x))


def test_small_integers_stay_exact():
    program = product(6, 5, 40)
    rng = np.random.default_rng(2)
    arrays = {b.name: rng.integers(-200, 200, [e.as_int() for e in b.shape]) for b in program.inputs}
    arrays = {name: a.astype(np.float32) for name, a in arrays.items()}
    got = lang.evaluate(lang.bf16x3(program, matched(program)), arrays)["C"]
    np.testing.assert_array_equal(got, arrays["A"] @ arrays["B"])


def maximum_of_products():
    a, b = lang.placeholder((4, 6), name="A"), lang.placeholder((6, 4), name="B")
    k = lang.reduce_axis(6, "k")
    return lang.program(
        [a, b], [lang.compute((4, 4), lambda i, j: lang.max(a[i, k] * b[k, j], axis=k), name="C")]
    )


def squares():
    a, k = lang.placeholder((4, 6), name="A"), lang.reduce_axis(6, "k")
    return lang.program([a], [lang.compute((4,), lambda i: lang.sum(a[i, k] * a[i, k], axis=k), name="C")])


def open_sizes():
    n = lang.param("n")
    a, b = lang.placeholder((n, 6), name="A"), lang.placeholder((6, 4), name="B")
    return lang.program([a, b], [ops.matmul(a, b, name="C")])


@pytest.mark.parametrize(
    "program",
    [product(4, 4, 4, "f64"), product(4, 4, 4, "i32"), maximum_of_products(), squares(), open_sizes()],
    ids=["f64", "i32", "max", "squares", "open"],
)
def test_other_stages_do_not_match(program):
    assert matched(program) is None


def test_weights_that_others_read_are_split_as_they_run():
    a, b = lang.placeholder((4, 6), name="A"), lang.placeholder((6, 4), name="B")
    c = ops.matmul(a, b, name="C")
    program = constant(lang.program([a, b], [c, ops.add(b, b, name="D")]), "B")
    match = matched(program)
    assert match.other.buffer == "B"
    assert not match.constant


def test_derived_constants_and_their_errors():
    program = constant(product(8, 16, 64), "B")
    s = Schedule(program).bf16x3("C", "W")
    (made,) = derived_constants(s).values()
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((64, 16)).astype(np.float32)
    assert made.sources == ("B",)
    np.testing.assert_array_equal(made.compute(weights), lang.pieces_of(weights))
    assert 1e-7 < made.error(weights) < 2e-5
    # one factor that bf16 holds: only what the other one's pieces do not hold is left out
    assert made.error(np.ones_like(weights)) < 1e-5
    weights[3, 5] = np.inf
    assert not made.error(weights) <= 5e-5
