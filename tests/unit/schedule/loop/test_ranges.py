"""partition and peel: index-set splitting."""

import pytest

from tilewright import lang
from unit.schedule.loop_programs import check, elementwise, matmul, scheduled


def test_partition_decides_conditions():
    s = scheduled(elementwise(10, 2)).split("i", 4).partition("i_o", -1)
    assert s.block("Y").where == ()
    assert len(s.block("Y_1").where) == 1
    assert s.loops("Y_1") == ("i_o_1", "i_i_1", "j_1")
    check(s)


def test_a_cut_at_the_first_iteration_leaves_nothing_before_it():
    s = check(scheduled(elementwise(10, 2)).partition("i", 0))
    assert s.blocks() == ("Y_1",)
    assert s.loops("Y_1") == ("i_1", "j_1")


def test_partition_at_several_places():
    s = check(scheduled(elementwise(10, 2)).partition("i", (2, 7), names=("mid", "end")))
    assert [(s.loop(v).lo.const, s.loop(v).hi.const) for v in ("i", "mid", "end")] == [
        (0, 2),
        (2, 7),
        (7, 10),
    ]


def test_cuts_outside_of_the_range_leave_nothing():
    assert check(scheduled(elementwise(3, 2)).partition("i", 8)).blocks() == ("Y",)
    assert check(scheduled(elementwise(3, 2)).partition("i", -8)).blocks() == ("Y_1",)


@pytest.mark.parametrize("extent", [1, 2, 3, 10])
def test_partition_at_both_ends(extent):
    s = check(scheduled(elementwise(extent, 2)).partition("i", (1, -1)))
    parts = [(loop, s.loop(loop).extent.as_int()) for loop in (s.loops(b)[0] for b in s.blocks())]
    want = {1: [("i", 1)], 2: [("i", 1), ("i_2", 1)]}
    assert parts == want.get(extent, [("i", 1), ("i_1", extent - 2), ("i_2", 1)])


def test_partition_of_symbolic_ranges():
    n = lang.param("n")
    for cut in (2, -2, (1, 3)):
        s = scheduled(elementwise(n, 2)).partition("i", cut)
        for size in range(1, 6):
            check(s, {"n": size})


def test_later_parts_of_a_reduction_do_not_start_it():
    s = check(scheduled(matmul()).partition("k", 3))
    assert s.block("C").init is not None
    assert s.block("C_1").init is None


def test_peel_first_and_last():
    first = check(scheduled(elementwise(5, 2)).peel("i", "first"))
    assert first.blocks() == ("Y_first", "Y")
    assert first.loops("Y_first") == ("j_first",)
    last = check(scheduled(matmul()).peel("k", "last"))
    assert last.blocks() == ("C", "C_last")
    assert last.block("C_last").init is None


@pytest.mark.parametrize("which", ["first", "last"])
def test_peel_of_a_loop_that_may_be_empty_keeps_a_loop(which):
    n = lang.param("n", 1, 9)
    s = scheduled(elementwise(n, 2)).partition("i", 1).peel("i_1", which)
    assert f"i_1_{which}" in s.loops()
    for size in range(1, 4):
        check(s, {"n": size})


@pytest.mark.parametrize("which", ["first", "last"])
def test_peel_of_a_loop_with_one_iteration_at_least_keeps_none(which):
    n = lang.param("n", 1, 9)
    s = scheduled(elementwise(n, 2)).peel("i", which)
    assert f"i_{which}" not in s.loops()
    for size in range(1, 4):
        check(s, {"n": size})


def test_the_epilogue_of_the_last_reduction_step():
    A = lang.placeholder((4, 6), name="A")
    k = lang.reduce_axis(6, "k")
    C = lang.compute((4,), lambda i: lang.sum(A[i, k], axis=k), name="C")
    D = lang.compute((4,), lambda i: lang.maximum(C[i], 0.0), name="D")
    s = scheduled(lang.program([A], [D])).split("k", 3).partition("k_o", -1)
    check(s)
    assert s.block("C").init is not None
    assert s.block("C_1").init is None


def test_copies_have_their_own_allocations():
    X = lang.placeholder((9,), name="X")
    T = lang.compute((9,), lambda i: X[i] + 1, name="T")
    s = scheduled(lang.program([X], [lang.compute((9,), lambda i: T[i] * 2, name="Y")]))
    s = check(s.split("Y_i", 4).compute_at("T", "Y_i_o").partition("Y_i_o", 1).partition("Y_i_o_1", 2))
    assert {"T", "T_1", "T_1_1"} <= set(s.buffers())
