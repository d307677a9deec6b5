"""as_matrices: sums of products as products of matrices, equal to what they were; and what it refuses."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import run_function, run_program
from tilewright.lang import ops
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, assert_close

RNG = np.random.default_rng(8)


def t(name, *shape):
    return lang.placeholder(shape, name=name)


def batched():
    a, b = t("A", 3, 5, 7), t("B", 3, 7, 2)
    return lang.program([a, b], [ops.matmul(a, b)])


def padded():
    x, w = t("X", 2, 3, 5, 4), t("W", 6, 3, 3, 3)
    return lang.program([x, w], [ops.conv(x, w, padding=1, strides=(1, 2), dilations=(1, 2))])


@pytest.mark.parametrize("multiples", [(1, 1, 1), (8, 4, 16)], ids=str)
@pytest.mark.parametrize("make", [batched, padded], ids=lambda f: f.__name__)
def test_results_stay(make, multiples):
    program = make()
    s = Schedule(program)
    for stage in program.stages[:-1]:
        s = s.inline_stage(stage.name)
    (last,) = s.require_program().stages
    if make is padded:
        s = s.skip_padding(last.name)
    made = s.as_matrices(last.name, multiples, "P").require_program()
    assert [stage.name for stage in made.stages] == ["P_a", "P_b", "P", last.name]
    rows, columns = (e.as_int() for e in made.buffer("P").shape[1:])
    assert rows % multiples[0] == 0 and columns % multiples[1] == 0
    given = {
        b.name: RNG.standard_normal([e.as_int() for e in b.shape]).astype(np.float32) for b in program.inputs
    }
    want, got = run_program(program, given), run_program(made, given)
    for name, value in want.items():
        assert_close(got[name], value, magnitude=10.0, terms=64)


def test_what_it_refuses():
    x = t("X", 4, 5)
    k = lang.reduce_axis(5, "k")
    summed = Schedule(lang.program([x], [lang.compute((4,), lambda i: lang.sum(x[i, k], axis=k), name="S")]))
    with pytest.raises(ScheduleError, match="stage 'S' is no product of matrices: it does not sum products"):
        summed.as_matrices("S", (1, 1, 1), "P")
    s = Schedule(batched())
    with pytest.raises(ScheduleError, match="multiples are three numbers"):
        s.as_matrices("matmul", (1, 0, 1), "P")
    with pytest.raises(ScheduleError, match="the name 'A' is taken"):
        s.as_matrices("matmul", (1, 1, 1), "A")
    y = t("Y", 5)
    vector = lang.compute((4,), lambda i: lang.sum(x[i, k] * y[k], axis=k), name="V")
    with pytest.raises(ScheduleError, match="no axis moves the"):
        Schedule(lang.program([x, y], [vector])).as_matrices("V", (1, 1, 1), "P")


def test_a_condition_on_terms_alone_keeps_both_factors_inside_their_arrays():
    A, B = lang.placeholder((4, 1), name="A"), lang.placeholder((1, 3), name="B")
    k = lang.reduce_axis(1, "k")
    C = lang.compute((4, 3), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")
    schedule = Schedule(lang.program([A, B], [C])).rfactor("C", "k", 2)  # a second part that has no terms
    part = next(stage.name for stage in schedule.program.stages if len(stage.iters) > 3)
    done = schedule.as_matrices(part, (1, 1, 1), "P")
    a, b = np.arange(4, dtype=np.float32).reshape(4, 1), np.ones((1, 3), np.float32)
    found = run_function(done.func, {"A": a, "B": b})
    np.testing.assert_array_equal(found["C"], a @ b)
