"""reorder, fuse and tile."""

import pytest

from tilewright import lang
from unit.schedule.loop_programs import check, elementwise, matmul, scheduled


@pytest.mark.parametrize("order", ["jik", "kij", "kji", "ikj", "jki"])
def test_parallel_and_reduction_loops_go_anywhere(order):
    s = check(scheduled(matmul()).reorder(*order))
    assert s.loops() == tuple(order)


def test_a_subset_takes_its_own_places():
    s = scheduled(matmul()).split("i", 2).reorder("k", "i_i")
    assert s.loops() == ("i_o", "k", "j", "i_i")
    check(s)


def test_reordering_to_the_same_order_changes_nothing():
    s = scheduled(matmul())
    assert s.reorder("i", "k").func is s.func


def test_blocks_that_share_loops_reorder_where_each_iteration_is_its_own():
    s = scheduled(matmul()).reorder("i", "j", "k").decompose_init("C", "k")
    check(s.reorder("j", "i"))


def test_an_ordered_axis_keeps_its_order_but_parallel_ones_pass():
    X = lang.placeholder((4, 6), name="X")
    Y = lang.scan((4, 6), lambda y, b, t: lang.select(t == 0, 0.0, y[b, t - 1]) + X[b, t], axis=1, name="Y")
    s = check(scheduled(lang.program([X], [Y])).reorder("t", "b").split("t", 4))
    assert s.loops() == ("t_o", "t_i", "b")
    check(s.reorder("b", "t_o", "t_i").parallel("b"))


def test_fuse_keeps_the_order_of_execution():
    s = check(scheduled(elementwise(4, 5)).fuse("i", "j"))
    assert s.loops() == ("i_j",)
    assert s.loop("i_j").extent.const == 20


def test_fuse_keeps_one_hint_of_each_name():
    s = scheduled(elementwise(4, 5)).annotate("i", "unroll", "2")
    s = s.annotate("j", "unroll", "4").annotate("j", "outline").fuse("i", "j")
    assert s.loop("i_j").hints == (("unroll", "2"), ("outline", ""))


def test_fuse_undoes_split():
    s = scheduled(elementwise(12, 5))
    again = s.split("i", 4).fuse("i_o", "i_i", names=("i",))
    assert again.func == s.func


def test_fuse_of_a_symbolic_outer_loop():
    n = lang.param("n")
    s = scheduled(elementwise(n, 3)).fuse("i", "j").split("i_j", 4)
    for size in (1, 2, 5):
        check(s, {"n": size})


def test_parallel_after_fuse_and_split_sees_through_the_divisions():
    s = scheduled(elementwise(4, 5)).fuse("i", "j").split("i_j", 8).parallel("i_j_o").vectorize("i_j_i")
    check(s)


def test_tile_is_split_and_reorder():
    s = scheduled(elementwise(9, 7)).tile(("i", "j"), (4, 3))
    t = scheduled(elementwise(9, 7)).split("i", 4).split("j", 3).reorder("i_o", "j_o", "i_i", "j_i")
    assert s.func == t.func
    assert len(s.trace) == 1
    check(s)
