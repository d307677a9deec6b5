"""split: extents, tails, names, symbolic sizes."""

import pytest

from tilewright import lang
from tilewright.schedule import Schedule
from unit.schedule.loop_programs import chain, check, elementwise, matmul, scheduled

TAILS = ("guard", "mask", "peel", "shift")


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("n", range(1, 10))
def test_every_extent_up_to_two_tiles(n, tail):
    check(scheduled(elementwise(n, 3)).split("i", 4, tail=tail))


@pytest.mark.parametrize("tail", ("guard", "mask", "peel"))
@pytest.mark.parametrize("n", (1, 3, 4, 5, 8, 9))
def test_reductions_split_too(n, tail):
    check(scheduled(matmul(2, 3, n)).split("k", 4, tail=tail))


def test_a_divisible_extent_has_no_condition():
    for tail in ("guard", "mask", "peel", "shift", "roundup"):
        s = scheduled(elementwise(12, 3)).split("i", 4, tail=tail)
        assert s.loops() == ("i_o", "i_i", "j")
        assert s.block("Y").where == ()
        assert s.loop("i_i").hints == ()


def test_a_factor_above_the_extent_is_cut():
    s = scheduled(elementwise(3, 3)).split("i", 32)
    assert (s.loop("i_o").extent.const, s.loop("i_i").extent.const) == (1, 3)
    assert s.block("Y").where == ()
    masked = scheduled(elementwise(3, 3)).split("i", 32, tail="mask")
    assert masked.loop("i_i").extent.const == 32
    check(masked)


def test_several_factors_make_a_deeper_nest():
    s = check(scheduled(elementwise(23, 2)).split("i", (3, 2)))
    assert s.loops() == ("i_0", "i_1", "i_2", "j")
    assert [s.loop(v).extent.const for v in ("i_0", "i_1", "i_2")] == [4, 3, 2]


def test_peel_copies_the_rest_under_new_names():
    s = check(scheduled(matmul(5, 6, 7)).split("i", 2, tail="peel"))
    assert s.blocks() == ("C", "C_t")
    assert s.loops("C_t") == ("i_t", "j_t", "k_t")
    assert s.block("C_t").stage == "C"


def test_a_peeled_rest_of_a_reduction_has_no_initialisation():
    s = check(scheduled(matmul(5, 6, 7)).split("k", 2, tail="peel"))
    assert s.block("C").init is not None
    assert s.block("C_t").init is None


def test_symbolic_extents():
    n = lang.param("n")
    for tail in ("guard", "mask", "peel"):
        s = scheduled(elementwise(n, 2)).split("i", 4, tail=tail)
        for size in range(1, 10):
            check(s, {"n": size})


def test_a_symbolic_multiple_needs_no_condition():
    n = lang.param("n", 8, 64, multiple_of=8)
    s = scheduled(elementwise(n, 2)).split("i", 4)
    assert s.block("Y").where == ()
    check(s, {"n": 16})


def test_shift_of_a_symbolic_extent_needs_a_large_enough_one():
    n = lang.param("n", 4, 64)
    s = scheduled(elementwise(n, 2)).split("i", 4, tail="shift")
    assert s.block("Y").where == ()
    for size in range(4, 12):
        check(s, {"n": size})


def test_triangular_extents():
    X = lang.placeholder((9, 9), name="X")
    k = lang.reduce_axis(9, "k")
    program = lang.program(
        [X], [lang.compute((9, 9), lambda i, j: lang.sum(X[i, k], axis=k, where=k <= j), name="Y")]
    )
    for tail in ("guard", "peel"):
        check(scheduled(program).split("k", 4, tail=tail).split("j", 2, tail=tail))


def test_roundup_grows_the_written_allocation():
    X = lang.placeholder((10,), name="X")
    T = lang.compute((10,), lambda i: X[lang.clamp(i + 1, 0, 9)] + 1, name="T")
    s = scheduled(lang.program([X], [lang.compute((10,), lambda i: T[i] * 2, name="Y")]))
    s = check(s.split("i", 4, tail="roundup"))
    assert s.buffers()["T"].shape[0].const == 12
    assert s.block("T").where == ()
    assert s.block("T").iters[0].hi.const == 12


def test_kinds_and_hints_stay_on_the_outer_loop():
    s = scheduled(elementwise(8, 2)).annotate("i", "outline").parallel("i").split("i", 4)
    assert (str(s.loop("i_o").kind), str(s.loop("i_i").kind)) == ("parallel", "serial")
    assert dict(s.loop("i_o").hints) == {"outline": ""}
    peeled = scheduled(elementwise(10, 2)).annotate("i", "outline").split("i", 4, tail="peel")
    outer = [peeled.loop(peeled.loops(block)[0]) for block in peeled.blocks()]
    # of the whole tiles and of what is left
    assert [dict(loop.hints) for loop in outer] == [{"outline": ""}] * 2
    s = scheduled(elementwise(8, 2)).unroll("i").split("i", 4)
    assert str(s.loop("i_i").kind) == "unroll"


def test_names_are_deterministic_unique_and_overridable():
    s = scheduled(elementwise(8, 4)).split("j", 2, names=("i_o", "lane"))
    assert s.loops() == ("i", "i_o", "lane")
    assert s.split("i", 2).loops() == ("i_o_1", "i_i", "i_o", "lane")


def test_schedules_do_not_change():
    s = Schedule(chain())
    before = s.func
    s.split("i", 4)
    assert s.func is before
