"""decompose_init: where the new block stands and what it covers."""

import pytest

from tilewright import lang
from unit.schedule.loop_programs import check, matmul, scheduled


@pytest.mark.parametrize("loop, spatial", [("k", ()), ("j", ("j_init",)), ("i", ("i_init", "j_init"))])
def test_the_block_runs_for_what_varies_inside(loop, spatial):
    s = check(scheduled(matmul()).decompose_init("C", loop))
    assert s.blocks() == ("C_init", "C")
    assert s.loops("C_init")[-len(spatial) :] == spatial or not spatial
    assert s.block("C").init is None
    assert s.block("C_init").stage == "C"


def test_only_spatial_conditions_remain():
    s = scheduled(matmul()).split("i", 2).split("k", 2).reorder("i_o", "k_o", "k_i", "i_i", "j")
    s = check(s.decompose_init("C", "k_o"))
    (condition,) = s.block("C_init").where
    assert condition.vars == {"i_o", "i_i_init"}


def test_a_peeled_rest_is_covered():
    n = lang.param("n")
    s = scheduled(matmul(3, 4, n)).split("k", 4, tail="peel")
    assert s.block("C_t").init is not None  # n may be less than 4
    s = s.decompose_init("C", "k_o")
    assert s.block("C_t").init is None
    for size in (1, 3, 4, 6, 9):
        check(s, {"n": size})


def test_copies_below_the_loop_are_covered():
    n = lang.param("n")
    s = scheduled(matmul(3, 4, n)).split("k", 4, tail="peel").decompose_init("C", "i")
    assert s.block("C_t").init is None
    for size in (1, 5):
        check(s, {"n": size})


def test_a_copy_over_other_elements_is_not():
    s = scheduled(matmul(5, 4, 3)).split("i", 2, tail="peel").decompose_init("C", "k")
    assert s.block("C_t").init is not None
    s = s.decompose_init("C_t", "k_t")
    assert s.blocks() == ("C_init", "C", "C_t_init", "C_t")
    check(s)


def test_vector_and_unrolled_loops_keep_their_kinds():
    s = scheduled(matmul()).reorder("i", "k", "j").vectorize("j").decompose_init("C", "k")
    assert str(s.loop("j_init").kind) == "vector"
    check(s)
