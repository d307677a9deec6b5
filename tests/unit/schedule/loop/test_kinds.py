"""parallel, vectorize, unroll, bind, annotate, set_scope."""

from tilewright import lang
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
