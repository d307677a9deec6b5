"""hoist_alloc, slide, roll: storage that outlives an iteration."""

import pytest

from tilewright import lang
from tilewright.ir import buffers_of
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from unit.schedule.storage_programs import assert_same, blur, stencil


def _rows(s, name="T"):
    return [str(n) for n in buffers_of(s.func)[name].physical_shape]


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_a_rolling_two_row_buffer(n):
    p = blur(n, taps=2)
    s = Schedule(p).compute_at("T", "C_i").slide("T", "C_i")
    assert_same(p, s.func)
    assert _rows(s) == [str(n + 1)]
    s = s.roll("T", 0, 2)
    assert_same(p, s.func)
    assert _rows(s) == ["2"]


@pytest.mark.parametrize(("h", "w"), [(1, 1), (3, 4), (6, 5)])
def test_rolling_rows_of_symbolic_size(h, w):
    p = stencil(lang.param("H"), lang.param("W"))
    s = Schedule(p).compute_at("T", "C_y").slide("T", "C_y").roll("T", 0, 3)
    assert_same(p, s.func, H=h, W=w)
    assert _rows(s) == ["3", "W + 2"]


@pytest.mark.parametrize(("h", "w"), [(4, 4), (7, 5), (9, 8)])
def test_sliding_tiles_in_parallel_columns(h, w):
    p = stencil(h, w)
    s = Schedule(p).tile(["C_y", "C_x"], [2, 3]).reorder("C_x_o", "C_y_o").parallel("C_x_o")
    s = s.compute_at("T", "C_y_o").slide("T", "C_y_o").roll("T", 0, 4)
    assert_same(p, s.func)
    assert _rows(s)[0] == "4"


def test_storage_at_an_outer_loop():
    p = stencil(5, 6)
    s = Schedule(p).tile(["C_y", "C_x"], [2, 3]).compute_at("T", "C_x_o", keep_storage=False)
    with pytest.raises(ScheduleError, match="holds running values of a reduction"):
        s.hoist_alloc("T", "C_y_o")
    b = Schedule(blur(8)).split("C_i", 4).compute_at("T", "C_i_o")
    out = b.hoist_alloc("T")
    assert_same(blur(8), out.func)
    assert _rows(out) == ["10"]
    with pytest.raises(ScheduleError, match="'C_i_o' would share elements of 'T', and 'C_i_o' is no serial"):
        b.parallel("C_i_o").hoist_alloc("T")


def test_refusals():
    s = Schedule(blur(8))
    at = s.compute_at("T", "C_i")
    with pytest.raises(ScheduleError, match="an argument"):
        s.hoist_alloc("X")
    with pytest.raises(ScheduleError, match="not allocated inside"):
        s.hoist_alloc("T", "C_i")
    with pytest.raises(ScheduleError, match=r"compute_at\('T', 'C_i'\) first"):
        s.slide("T", "C_i")
    with pytest.raises(ScheduleError, match="touches 3 indices"):
        at.slide("T", "C_i").roll("T", 0, 2)
    with pytest.raises(ScheduleError, match="no dimension 1"):
        at.slide("T", "C_i").roll("T", 1, 3)
    with pytest.raises(ScheduleError, match="which is more than 3 rows"):
        s.roll("T", 0, 3)
    with pytest.raises(ScheduleError, match="do not move by a constant"):
        Schedule(blur(8, taps=1)).compute_at("T", "C_i").slide("T", "C_i")
    with pytest.raises(ScheduleError, match="nothing is left to reuse"):
        at.parallel("C_i").slide("T", "C_i")


def test_slide_needs_operands_that_slide():
    X = lang.placeholder((9,), name="X")
    T = lang.compute((8,), lambda i: X[i] + X[i + 1], name="T")
    U = lang.compute((7,), lambda i: T[i] * T[i + 1], name="U")
    V = lang.compute((5,), lambda i: U[i] - U[i + 2], name="V")
    s = Schedule(lang.program([X], [V]))
    (at,) = s.loops("V")
    s = s.compute_at("U", at).compute_at("T", at)
    with pytest.raises(ScheduleError, match=r"'U' reads 'T', which 'T' computes in each .* anew") as caught:
        s.slide("U", at)
    assert "slide('T'," in caught.value.hint
    with pytest.raises(ScheduleError, match=r"ahead of loop .*, of which nothing is computed there"):
        s.hoist_alloc("T").slide("U", at)
    only = s.slide("T", at).roll("T", 0, 4)
    assert_same(s.source, only.func)
    both = s.slide("T", at).slide("U", at)
    assert_same(s.source, both.func)
    rolled = both.roll("T", 0, 3).roll("U", 0, 3)
    assert_same(s.source, rolled.func)
    assert _rows(rolled, "T") == _rows(rolled, "U") == ["3"]
    with pytest.raises(ScheduleError, match="touched before loop"):
        both.roll("T", 0, 2)


def lines(h, w):
    """A diamond of stencils: two stages read one, and are read together."""
    X = lang.placeholder((h + 4, w + 3), "i32", name="X")
    a = lang.stage(lambda y, x: X[y + 2, x + 1] * 2, name="a")
    b = lang.stage(lambda y, x: a[y - 1, x] + a[y + 1, x] * 3 + a[y, x + 1], name="b")
    c = lang.stage(lambda y, x: a[y - 1, x] - a[y, x - 1], name="c")
    out = lang.stage(lambda y, x: b[y - 1, x] * c[y + 1, x] + b[y + 1, x] - a[y, x], name="out")
    return lang.program([X], [out], region=[h, w])


@pytest.mark.parametrize(("h", "w"), [(2, 2), (3, 3), (7, 4)])
def test_a_line_buffered_pipeline(h, w):
    p = lines(h, w)
    s = Schedule(p).compute_at("b", "out_y").compute_at("c", "out_y").compute_at("a", "out_y")
    s = s.slide("a", "out_y").slide("b", "out_y")
    assert_same(p, s.func)
    s = s.roll("a", 0, 5).roll("b", 0, 3)
    assert_same(p, s.func)
    assert _rows(s, "b")[0] == "3"


@pytest.mark.parametrize("strip", [2, 3, 8])
def test_a_line_buffered_pipeline_in_strips(strip):
    p = lines(8, 5)
    s = Schedule(p).split("out_y", strip).parallel("out_y_o")
    for name in ("b", "c", "a"):
        s = s.compute_at(name, "out_y_i")
    s = s.slide("a", "out_y_i").slide("b", "out_y_i").roll("b", 0, 3)
    assert_same(p, s.func)
