"""cache with keep=False: what nobody reads afterwards is not copied out."""

import pytest

from tilewright import lang
from tilewright.ir import LoopFunction, parse_function
from tilewright.schedule import Schedule
from tilewright.schedule.dead import without_dead_store
from tilewright.support import ScheduleError
from unit.schedule.storage_programs import assert_same


def sums_of_doubles(rows=6, columns=5):
    """Each row's elements doubled, then the sums of pairs of neighbours in it."""
    x = lang.placeholder((rows, columns), "f32", "X")
    t = lang.compute((rows, columns), lambda i, j: x[i, j] * 2, name="T")
    y = lang.compute((rows, columns - 1), lambda i, j: t[i, j] + t[i, j + 1], name="Y")
    return lang.program([x], [y])


def fused():
    """Both stages in one loop over rows; ``T`` is still stored as a whole."""
    s = Schedule(sums_of_doubles())
    y, _ = s.loops("Y")
    return s.reverse_compute_at("Y", s.loops("T")[0], keep_storage=True), y


def test_what_is_read_below_the_loop_alone_is_not_copied_out():
    s, _ = fused()
    row = s.loops("T")[0]
    kept = s.cache("T", row, mode="write", name="part")
    dropped = s.cache("T", row, mode="write", name="part", keep=False)
    assert "part_out" in kept.blocks()
    assert set(kept.blocks()) - set(dropped.blocks()) == {"part_out"}
    assert all("T" not in dict(dropped.block(b).writes) for b in dropped.blocks())
    assert_same(sums_of_doubles(), dropped.func)


def test_the_trace_says_so_and_replays():
    s, _ = fused()
    s = s.cache("T", s.loops("T")[0], mode="write", name="part", keep=False)
    assert "keep=False" in str(s.trace)
    again = Schedule(s.source).replay(s.trace)
    assert again.func == s.func


def test_refused_where_a_later_block_reads_it():
    s = Schedule(sums_of_doubles())
    with pytest.raises(ScheduleError, match="'Y' may read what 'part_out' stores in 'T'"):
        s.cache("T", s.loops("T")[0], mode="write", name="part", keep=False)


def function(place: str) -> LoopFunction:
    """A loop that reads ``T`` at a place, then stores the iteration's element of it."""
    return parse_function(
        f"""
function("main", outputs=[Y])
Y = f32[6]
T = alloc(f32[7])
for z in range(7):
    with block("zero"):
        i = par(0, 7, z)
        T[i] = f32(0.0)
for r in range(1, 7):
    with block("before"):
        i = par(1, 7, r)
        Y[i - 1] = {place}
    with block("late"):
        i = par(1, 7, r)
        T[i] = f32(1.0)
"""
    )


def test_refused_where_the_next_iteration_reads_it():
    func = function("T[i - 1]")
    with pytest.raises(ScheduleError, match="'before' may read what 'late' stores in 'T'"):
        without_dead_store(func, "late")


def test_iterations_that_read_elements_of_their_own_do_not_meet():
    func = function("T[i]")
    assert "late" not in without_dead_store(func, "late").body.names


def test_refused_for_results():
    s = Schedule(sums_of_doubles())
    with pytest.raises(ScheduleError, match="stores in 'Y' is not for this function alone"):
        s.cache("Y", s.loops("Y")[0], mode="write", keep=False)


def test_refused_for_copies_in():
    s = Schedule(sums_of_doubles())
    with pytest.raises(ScheduleError, match="'read' copies nothing out"):
        s.cache("X", s.loops("T")[0], keep=False)
