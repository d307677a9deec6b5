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


def test_refusals(same_text):
    s = Schedule(blur(8))
    at = s.compute_at("T", "C_i")
    with pytest.raises(ScheduleError, match="an argument") as caught:
        s.hoist_alloc("X")
    same_text(caught.value)
    with pytest.raises(ScheduleError, match="not allocated inside") as caught:
        s.hoist_alloc("T", "C_i")
    same_text(caught.value)
    with pytest.raises(ScheduleError, match=r"compute_at\('T', 'C_i'\) first") as caught:
        s.slide("T", "C_i")
    same_text(caught.value)
    with pytest.raises(ScheduleError, match="touches 3 indices") as caught:
        at.slide("T", "C_i").roll("T", 0, 2)
    same_text(caught.value)
    with pytest.raises(ScheduleError, match="no dimension 1") as caught:
        at.slide("T", "C_i").roll("T", 1, 3)
    same_text(caught.value)
    with pytest.raises(ScheduleError, match="which is more than 3 rows") as caught:
        s.roll("T", 0, 3)
    same_text(caught.value)
    with pytest.raises(ScheduleError, match="do not move by a constant") as caught:
        Schedule(blur(8, taps=1)).compute_at("T", "C_i").slide("T", "C_i")
    same_text(caught.value)
    with pytest.raises(ScheduleError, match="nothing is left to reuse") as caught:
        at.parallel("C_i").slide("T", "C_i")
    same_text(caught.value)


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


def test_a_dimension_that_does_not_move_may_be_rolled_as_a_whole():
    s = Schedule(lines(7, 4)).compute_at("b", "out_y").compute_at("c", "out_y").compute_at("a", "out_y")
    s = s.slide("a", "out_y").slide("b", "out_y").roll("b", 1, 6)
    assert _rows(s, "b") == ["9", "6"]
    assert_same(s.source, s.func)


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


def counts(rows=8, columns=6):
    """A histogram of each row, sums of neighbours, running sums along them: made in order, read by rows."""
    X = lang.placeholder((rows, columns), "i32", name="X")
    zero = lang.stage(lambda b, y: lang.const(0, "i32"), name="zero")

    def count(t, y, x):
        b = lang.clamp(X[y, x], 0, 3)
        return lang.write((b, y), t[b, y] + 1)

    hist = lang.update(zero, [lang.axis(rows, "y"), lang.ordered_axis(columns, "x")], count, name="hist")
    blur = lang.stage(lambda y, b: hist[b, y] + hist[b, y + 1], name="blur")
    upto = lang.scan(
        (rows - 1, 4),
        lambda t, y, b: lang.select(b == 0, 0, t[y, b - 1]) + blur[y, b],
        axis=1,
        dtype="i32",
        name="upto",
    )
    out = lang.stage(lambda y, b: upto[y, b] * 2 + upto[y, 3], name="out")
    return lang.program([X], [out], region=[rows - 1, 4])


@pytest.mark.parametrize("strip", [1, 2, 3])
def test_what_changes_in_order_is_computed_in_tiles(strip):
    p = counts()
    s = Schedule(p).split("out_y", strip)
    for name in ("upto", "blur", "hist_update"):
        s = s.compute_at(name, "out_y_o")
    assert_same(p, s.func)
    assert _rows(s, "hist") == ["4", str(strip + 1)]
    assert _rows(s, "upto") == [str(strip), "4"]
    assert_same(p, s.parallel("out_y_o").func)


def test_what_changes_in_order_is_cut_along_parallel_iterators_only():
    with pytest.raises(ScheduleError, match="'upto' in order, and in dimension 0, of which a part is needed"):
        Schedule(lang.program(*along_rows())).compute_at("upto", "out_y")
    s = Schedule(counts())
    for name in ("upto", "blur", "hist_update"):
        s = s.compute_at(name, "out_y")
    with pytest.raises(ScheduleError, match="'hist' changes in order: what an iteration leaves"):
        s.slide("hist", "out_y")


def along_rows():
    X = lang.placeholder((6, 4), "i32", name="X")
    upto = lang.scan(
        (6, 4),
        lambda t, y, x: lang.select(y == 0, 0, t[y - 1, x]) + X[y, x],
        dtype="i32",
        name="upto",
    )
    out = lang.compute((6, 4), lambda y, x: upto[y, x] * 2, name="out")
    return [X], [out]


def test_rows_that_change_in_order_do_not_share_memory():
    X = lang.placeholder((5, 3), "i32", name="X")
    upto = lang.scan(
        (5, 3),
        lambda t, y, x: lang.select(x == 0, 0, t[y, x - 1]) + X[y, x],
        axis=1,
        dtype="i32",
        name="upto",
    )
    p = lang.program([X], [lang.compute((5, 3), lambda y, x: upto[y, x] - X[y, x], name="out")])
    s = Schedule(p).compute_at("upto", "out_y").hoist_alloc("upto")
    assert_same(p, s.func)
    with pytest.raises(ScheduleError, match="changes 'upto' in order, for each index of dimension 0 anew"):
        s.roll("upto", 0, 2)


def test_a_result_that_nobody_reads_does_not_slide():
    p = blur(8)
    s = Schedule(p).compute_at("T", "C_i").cache("T", "C_i", mode="write").inline("T")
    with pytest.raises(ScheduleError, match="nothing inside loop 'C_i' reads what 'T_local_out' computes"):
        s.slide("T_local_out", "C_i")


@pytest.mark.parametrize(("rows", "wanted"), [(4, 4), (9, 9), (9, 6), (6, 9)])
@pytest.mark.parametrize("taps", [(-1, 1), (-2, 0), (0, 3), (-4, -2)])
@pytest.mark.parametrize("strip", [0, 2, 3])
def test_clamped_windows_slide_or_are_refused(rows, wanted, taps, strip):
    X = lang.placeholder((rows, 3), "i32", name="X")
    T = lang.compute((rows, 3), lambda y, x: X[y, x] * 2, name="T")
    near = lang.boundary(T, mode="clamp")
    first, last = taps

    def value(y, x):
        return sum(near[y + k, x] * (k + 5) for k in range(first, last + 1))

    p = lang.program([X], [lang.compute((wanted, 3), value, name="C")])
    s, loop = (Schedule(p).split("C_y", strip), "C_y_i") if strip else (Schedule(p), "C_y")
    s = s.compute_at("T", loop)
    slides = wanted <= rows and taps in ((-1, 1), (-2, 0)) and (rows, taps, strip) != (4, (-1, 1), 3)
    if slides:
        s = s.slide("T", loop).roll("T", 0, last - first + 1)
        assert _rows(s)[0] == str(last - first + 1)
    elif rows < wanted or rows == 4 or taps == (-4, -2):
        # a window above or below all rows does not hold the row that the clamp leads to
        with pytest.raises(ScheduleError, match="do not move by a constant"):
            s.slide("T", loop)
    assert_same(p, s.func)
