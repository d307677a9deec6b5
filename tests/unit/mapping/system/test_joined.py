"""Instructions of several stages: selected, scheduled, simulated; what lies between is inside of the unit."""

import pytest

from machine_programs import check, layer, product
from tilewright import lang
from tilewright.ir import verify_program
from tilewright.mapping.system import Heuristics, load_machine, schedule, select

FUSED = load_machine("fused")
M, N, K = 21, 19, 40


def after(narrow, wide, value, *more, depth=K):
    """A product, and what comes after it."""
    a, b = lang.placeholder((M, depth), narrow, name="a"), lang.placeholder((depth, N), narrow, name="b")
    c = product(a, b, M, N, lang.reduce_axis(depth, "k"), wide, "c")
    return lang.program([a, b, *more], [lang.compute((M, N), lambda i, j: value(c[i, j], i, j), name="d")])


def rows(fold, init, value, post):
    x, y, k = lang.placeholder((M, N), name="x"), lang.placeholder((M,), name="y"), lang.reduce_axis(N, "k")
    s = lang.compute((M,), lambda i: fold(value(x[i, k]), axis=k), name="s")
    made = lang.compute((M,), lambda i: post(s[i], y[i]), name="z")
    return lang.program([x] + [y] * (init == "y"), [made])


ZERO, NONE = lang.const(0, "f32"), lang.const(0, "i32")
X, Y, BIAS = (
    lang.placeholder((M, N), name="x"),
    lang.placeholder((N,), name="y"),
    lang.placeholder((N,), "i32", name="y"),
)


def in_steps():
    """The sum and its maximum as two stages, done as one."""
    s = lang.compute((M, N), lambda i, j: X[i, j] + Y[j], name="s")
    return lang.program([X, Y], [lang.compute((M, N), lambda i, j: lang.maximum(ZERO, s[i, j]), name="z")])


PROGRAMS = {
    "product_relu": after("f32", "f32", lambda c, i, j: lang.maximum(c, ZERO)),
    "layer_relu": layer(M, N, K, "f32", "f32"),
    "product_residual": after("f32", "f32", lambda c, i, j: X[i, j] + c, X),
    "product_to_bf16": after("bf16", "f32", lambda c, i, j: lang.cast(c, "bf16")),
    "dot_saturated": after("i8", "i32", lambda c, i, j: lang.cast(c, "i8", "saturate")),
    "layer_requantized": after(
        "i8", "i32", lambda c, i, j: lang.cast(lang.maximum(c + BIAS[j], NONE), "u8", "saturate"), BIAS
    ),
    "row_norms": rows(lang.sum, "", lambda x: x * x, lambda s, y: lang.sqrt(s)),
    "row_sums_scaled": rows(lang.sum, "y", lambda x: x, lambda s, y: y * s),
    "row_maxima_relu": rows(lang.max, "", lambda x: x, lambda s, y: lang.maximum(s, ZERO)),
    "biased_relu": in_steps(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_fused_instruction_of_the_shipped_machine(name):
    program = PROGRAMS[name]
    selection = select(program, FUSED, Heuristics())
    verify_program(selection.program)
    assert [u.instruction for u in selection.uses] == [name] and not selection.uncovered
    check(program, schedule(program, FUSED), FUSED)


def test_all_of_them_are_tried():
    assert set(PROGRAMS) == set(FUSED.instructions)


def test_conversions_of_other_modes_are_other_instructions():
    program = after("i8", "i32", lambda c, i, j: lang.cast(c, "i8"))
    assert not any(u.instruction == "dot_saturated" for u in select(program, FUSED, Heuristics()).uses)


def test_a_sum_that_an_instruction_cannot_finish_in_one_call_is_not_fused():
    assert not select(
        after("f32", "f32", lambda c, i, j: lang.maximum(c, ZERO), depth=300), FUSED, Heuristics()
    ).uses
