"""Copies that threads share, tiles copied ahead, banks, virtual threads, warps and lanes."""

import itertools

import numpy as np
import pytest

from tilewright.ir import Barrier, Index, locate, run_function
from tilewright.lower import insert_barriers, lower, shrink_private
from tilewright.poly import check_legal
from tilewright.schedule import Schedule, replay
from tilewright.support import ScheduleError
from unit.schedule.gpu_programs import matmul, shared_matmul, threaded

SIZES = (7, 9, 10)


def judged(s, sizes=SIZES):
    """The function with barriers, after both judges have seen it and the trace gave it once more."""
    n, m, k = sizes
    before, func = matmul(*sizes).func, shrink_private(insert_barriers(s.func))
    assert not check_legal(before, func)
    rng = np.random.default_rng(0)
    a, b = rng.random((n, k), np.float32), rng.random((k, m), np.float32)
    for seed in range(2):
        np.testing.assert_allclose(run_function(func, {"A": a, "B": b}, seed=seed)["C"], a @ b, rtol=1e-5)
    assert replay(s.source, s.trace.to_json()).func == s.func
    assert lower(s.func).body.has_threads
    return func


def tiles(block=4, depth=3):
    return threaded(shared_matmul(*SIZES, block=block, depth=depth), 2)


def barriers(func):
    return list(locate(func.body, Barrier))


@pytest.mark.few(3)
@pytest.mark.parametrize("vector", [1, 2])
@pytest.mark.parametrize("threads", [(2, 2), (4,), (1, 3)])
def test_threads_share_copies(threads, vector):
    s = tiles(depth=4).cooperative_copy("As", threads, vector=vector)
    s = s.cooperative_copy("Bs", threads, vector=vector)
    kinds = [str(s.loop(v).kind) for v in s.loops("As")]
    assert f"thread(thread.{'y' if len(threads) == 2 else 'x'})" in kinds
    assert (kinds[-1] == "vector") == (vector > 1)
    judged(s)


def test_conditions_of_a_tail_do_not_mention_lanes():
    s = tiles(depth=4).cooperative_copy("As", (3,), vector=2)
    (place,) = [p for p in locate(s.func.body, type(s.block("As"))) if p.node.name == "As"]
    tail = [c for c in place.node.where if "As_x" in c.vars and "As_s" in c.vars and "i_o" not in c.vars]
    assert all("As_v" not in c.vars for c in tail if c.vars == {"As_x", "As_s"})


@pytest.mark.few(2)
@pytest.mark.parametrize(("stages", "count"), [(2, 1), (3, 1), (5, 0)])
def test_tiles_are_copied_ahead(stages, count):
    s = tiles().cooperative_copy("As", (2, 2)).cooperative_copy("Bs", (2, 2))
    once = judged(s)
    func = judged(s.pipeline("k_o", stages))
    # two tiles in turn: what waits for the copy and what waits for the readers is one barrier
    inside = [p for p in barriers(func) if any(f.var == "k_o" for f in p.loops)]
    assert len(inside) == count  # with more stages than iterations all is copied before the loop
    assert len(barriers(once)) == 2
    (ring,) = [b for b in func.body.allocated if b.name == "As"]
    assert ring.physical_shape[1] == Index(3 * stages)


def test_a_pipeline_of_few_iterations():
    s = shared_matmul(5, 5, 5, block=4, depth=3)
    judged(threaded(s, 2).pipeline("k_o", 4), (5, 5, 5))


def test_rows_are_padded_and_swizzled():
    padded = tiles(depth=4).pad_stride("As", 1)
    assert padded.buffers()["As"].layout.shape == (Index(4), Index(5))
    judged(padded)
    for vector, rows in itertools.product((1, 2), (1, 2)):
        s = tiles(depth=4).swizzle("As", 2, vector=vector, rows=rows).swizzle("Bs", 2, vector=vector)
        judged(s)
        judged(s.pad_stride("As", 4))
    judged(tiles(depth=4).swizzle("Bs", 4))


def test_a_swizzle_is_the_exclusive_or():
    s = tiles(block=8, depth=8).swizzle("As", 4, vector=2, rows=2)
    layout = s.buffers()["As"].layout
    for r, c in itertools.product(range(8), range(8)):
        at = [
            e.const for e in layout.substitute({"i_o": Index(0), "k_o": Index(0)}).apply((Index(r), Index(c)))
        ]
        assert at == [r, 2 * ((c // 2) ^ (r // 2 % 4)) + c % 2]


def test_virtual_threads_spread_what_a_thread_has():
    s = shared_matmul(*SIZES, block=4, depth=3)
    s = s.virtual_threads(("acc_init_i", "i_i", "acc_out_i"), "thread.y", 2)
    s = s.virtual_threads(("acc_init_j", "j_i", "acc_out_j"), "thread.x", 2)
    func = judged(s)
    (acc,) = [b for b in func.body.allocated if b.name == "acc"]
    assert acc.physical_shape == (Index(2), Index(2))
    assert str(s.loop("i_i_v").kind) == "unroll"


def test_warps_and_lanes():
    s = shared_matmul(*SIZES, block=4, depth=3)
    s = s.bind(("acc_init_i", "i_i", "acc_out_i"), "thread.warp")
    judged(s.bind(("acc_init_j", "j_i", "acc_out_j"), "thread.lane"))


def test_a_condition_on_the_iteration_ahead():
    s = tiles().pipeline("k_o", 2)
    where = Schedule(s.func).block("As").where
    assert any(c.vars == {"k_o"} for c in where)


def test_virtual_threads_need_loops():
    with pytest.raises(ScheduleError, match="no loop is given"):
        tiles().virtual_threads((), "thread.x", 2)
