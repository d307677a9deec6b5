"""parallel, vectorize, unroll, bind, annotate, set_scope."""

import pytest

from tilewright import lang
from tilewright.ir import index, parse_function
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from unit.schedule.loop_programs import chain, check, elementwise, matmul, scheduled


def test_kinds():
    s = scheduled(elementwise(8, 6)).split("j", 3).parallel("i").unroll("j_o").vectorize("j_i")
    assert [str(s.loop(v).kind) for v in s.loops()] == ["parallel", "unroll", "vector"]
    check(s)


def test_a_reduction_runs_in_lanes_once_it_is_decomposed():
    s = scheduled(matmul()).decompose_init("C", "k").vectorize("k")
    check(s)


def test_private_buffers_may_be_rewritten_in_every_iteration():
    s = scheduled(chain(9)).split("Y_i", 3).compute_at("T", "Y_i_o").parallel("Y_i_o")
    check(s)


def test_the_second_level_of_a_tile_may_be_parallel_and_the_first_not():
    s = scheduled(matmul(6, 6, 5)).tile(("i", "j"), (2, 3)).parallel("j_o")
    check(s)


@pytest.mark.parametrize("factors", [(4, 3), (4, 3, 2), (5, 4, 3)])
@pytest.mark.parametrize("n", [1, 3, 10, 12, 13])
def test_tiles_of_tiles_that_do_not_divide_them_are_independent(n, factors):
    s, loop = scheduled(elementwise(n, 2)), "i"
    for factor in factors:
        s = s.split(loop, factor)
        loop += "_i"
    for name in s.loops()[:-1]:
        check(s.parallel(name))
        check(s.bind(name, "block.x"))
        check(s.vectorize(name))


def test_without_the_guard_of_the_inner_tile_the_outer_ones_overlap():
    """A hand-written nest whose guard is too weak by one is refused."""
    text = """
function("f", outputs=[Y])
Y = f32[16]
for o in range(3):
    for a in range(2):
        for b in range(3):
            with block("Y"):
                i = par(0, 16, 4*o + 3*a + b)
                where({} - 3*a - b >= 0)
                Y[i] = f32(1.0)
"""
    assert Schedule(parse_function(text.lstrip().format(3))).parallel("o")
    with pytest.raises(ScheduleError, match="iterations of 'o' may touch the same elements of 'Y'"):
        Schedule(parse_function(text.lstrip().format(4))).parallel("o")


@pytest.mark.parametrize("kind", ["parallel", "block.x"])
def test_a_loop_of_one_iteration_meets_no_other(kind):
    s = scheduled(matmul(3, 4, 5)).split("k", (1, 5))
    one = s.loops()[2]
    assert s.loop(one).extent == index(1)
    check(s.parallel(one) if kind == "parallel" else s.bind(one, kind))
    X = lang.placeholder((6,), name="X")
    Y = lang.scan((1, 6), lambda y, b, t: lang.select(t == 0, 0.0, y[b, t - 1]) + X[t], axis=1, name="Y")
    scan = scheduled(lang.program([X], [Y]))
    check(scan.parallel("b"))


def test_blocks_and_threads():
    s = (
        scheduled(elementwise(4, 6))
        .split("j", 3)
        .bind("i", "block.x")
        .bind("j_o", "thread.y")
        .bind("j_i", "thread.x")
    )
    assert str(s.loop("j_i").kind) == "thread(thread.x)"
    check(s)


def test_hints_replace_one_another():
    s = (
        scheduled(elementwise())
        .annotate("i", "unroll", "2")
        .annotate("i", "outline")
        .annotate("i", "unroll", "4")
    )
    assert dict(s.loop("i").hints) == {"unroll": "4", "outline": ""}
    assert check(s).func != scheduled(elementwise()).func


def test_set_scope():
    s = scheduled(chain()).set_scope("T", "local")
    assert s.buffers()["T"].scope == "local"
    assert s.set_scope("T", "local").func is s.func
    check(s)


def test_parallel_with_symbolic_extents():
    n = lang.param("n")
    s = scheduled(elementwise(n, 3)).split("i", 4).parallel("i_o").vectorize("i_i")
    for size in (1, 4, 7):
        check(s, {"n": size})


def test_a_tile_is_laid_out_from_its_own_origin():
    s = scheduled(chain(12)).split("Y_i", 4).compute_at("T", "Y_i_o")
    tile = s.buffers()["T"].layout
    s = s.set_layout("T", ("d0//2", "d0%2"))
    packed = s.buffers()["T"].layout
    assert tile is not None
    assert packed is not None
    assert [extent.as_int() for extent in packed.shape] == [-(-tile.shape[0].as_int() // 2), 2]
    check(s)
