"""Windows by sums of neighbours: what is summed stays what it was; what is no window is refused."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import Const, run_program, store
from tilewright.schedule import Schedule, window_of
from tilewright.support import ScheduleError

FOLDS = {"sum": lang.sum, "max": lang.max, "min": lang.min, "prod": lang.prod}


def windowed(fold, terms, element="i32", first=0, rows=1, border="clamp"):
    """Rows of ``terms`` neighbours, and of ``rows`` of such, with a border around them."""
    image = lang.placeholder((6, 9), element, name="X")
    near = lang.boundary(image, mode=border)
    j, k = lang.reduce_axis((first, first + terms), "j"), lang.reduce_axis((first, first + rows), "k")
    out = lang.compute((6, 9), lambda y, x: FOLDS[fold](near[y + k, x + j], axis=(k, j)), name="S")
    return lang.program([image], [out])


@pytest.mark.parametrize("border", ["clamp", "reflect", "constant", "wrap"])
@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("terms", [2, 3, 5, 7, 8, 11])
@pytest.mark.parametrize("element", ["i32", "u8", "f32"])
@pytest.mark.few(30)
def test_windows_are_what_they_were(terms, fold, element, border):
    program = windowed(fold, terms, element, -(terms // 2), 3, border)
    s = Schedule(program, verify=True).split_window("S", "x", "j")
    s = s.split_window("S_1", "y", "k")
    assert not any(stage.is_reduction for stage in s.program.stages)
    x = np.random.default_rng(terms).integers(0, 3, (6, 9)).astype(program.inputs[0].dtype.numpy)
    np.testing.assert_array_equal(run_program(s.program, {"X": x})["S"], run_program(program, {"X": x})["S"])


def test_operations_are_few():
    """15 terms: sums of 2, 4 and 8, and three more for what is left; maxima overlap."""
    assert [st.name for st in Schedule(windowed("sum", 15)).split_window("S", "x", "j").program.stages] == [
        "S_1", "S_2", "S_4", "S_8", "S",
    ]  # fmt: skip
    last = Schedule(windowed("sum", 15)).split_window("S", "x", "j").program.stage("S")
    assert len(last.operands) == 4
    assert len(Schedule(windowed("max", 15)).split_window("S", "x", "j").program.stage("S").operands) == 2


def test_infinite_terms_stay_where_they_are():
    """Nothing is taken away again: an infinite element is in its own windows alone."""
    program = windowed("sum", 5, "f32")
    x = np.zeros((6, 9), np.float32)
    x[2, 0] = np.inf
    found = run_program(Schedule(program).split_window("S", "x", "j").program, {"X": x})["S"]
    np.testing.assert_array_equal(found, run_program(program, {"X": x})["S"])
    assert np.isfinite(found[2, 1:]).all()


def test_windows_are_taken_where_they_save_operations():
    assert window_of(windowed("sum", 3).stages[0]) == ("x", "j")
    assert window_of(windowed("sum", 2, rows=2).stages[0]) is not None
    image = lang.placeholder((40,), name="X")
    k = lang.reduce_axis(33, "k")
    few = lang.program([image], [lang.compute((2,), lambda x: lang.sum(image[x + k], k), name="S")])
    assert window_of(few.stages[0]) is None


def other(value, shape=(6,)):
    image, weights = lang.placeholder((30,), name="X"), lang.placeholder((5,), name="W")
    k = lang.reduce_axis(5, "k")
    return lang.program(
        [image, weights], [lang.compute(shape, lambda x: value(image, weights, x, k), name="S")]
    )


def started(value):
    program = windowed("sum", 5)
    stage = program.stages[0]
    init = store("S", stage.init.writes[0].indices, Const(value, stage.init.writes[0].value.dtype))
    return replace(program, stages=(replace(stage, init=init),))


REFUSED = {
    "weights": other(lambda x, w, i, k: lang.sum(x[i + k] * w[k], k)),
    "strides": other(lambda x, w, i, k: lang.sum(x[2 * i + k], k)),
    "no window": other(lambda x, w, i, k: lang.sum(x[i], k)),
    "the same terms": other(lambda x, w, i, k: lang.sum(x[k], k)),
    "backwards": other(lambda x, w, i, k: lang.sum(x[i - k + 5], k)),
    "other numbers": other(lambda x, w, i, k: lang.sum(x[i + k] * lang.to_scalar(i, "f32"), k)),
    "a start": started(3),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_window_is_refused(case):
    program = REFUSED[case]
    stage = program.stages[0]
    axis, window = stage.iters[-2 if case != "a start" else 1].name, stage.iters[-1].name
    with pytest.raises(ScheduleError, match="does not reduce neighbours along"):
        Schedule(program).split_window("S", axis, window)
    assert window_of(stage) is None
