"""bind: several loops at once, buffers of one thread allocated outside, the order of axes."""

import numpy as np
import pytest

from tilewright.ir import run_function
from tilewright.lower import insert_barriers
from tilewright.poly import check_legal
from tilewright.support import ScheduleError
from unit.schedule.gpu_programs import matmul, shared_matmul, threaded, tiled_matmul

NESTS = ("acc_init_i", "i_i", "acc_out_i")


def judged(s, sizes):
    """The schedule, right to both judges."""
    n, m, k = sizes
    before, func = matmul(*sizes).func, insert_barriers(s.func)
    assert not check_legal(before, func)
    rng = np.random.default_rng(0)
    a, b = rng.random((n, k), np.float32), rng.random((k, m), np.float32)
    np.testing.assert_allclose(run_function(func, {"A": a, "B": b})["C"], a @ b, rtol=1e-5)
    return s


def prepared(tile=2):
    s = shared_matmul(7, 5, 6, block=4, depth=3)
    for i in NESTS:
        s = s.split(i, tile)
    return s


@pytest.mark.parametrize("tile", [1, 2, 4])
def test_sums_in_registers_belong_to_the_same_threads_in_all_loops(tile):
    judged(threaded(shared_matmul(7, 5, 6, block=4, depth=3), tile), (7, 5, 6))


def test_every_thread_copies_a_part_of_the_operands():
    sizes = (7, 9, 10)
    s = judged(tiled_matmul(*sizes, block=4, depth=3, tile=2), sizes)
    assert [str(s.loop(v).kind) for v in s.loops("C")[:5]] == [
        *("thread(block.y)", "thread(block.x)", "serial", "thread(thread.y)", "thread(thread.x)")
    ]


def test_threads_may_take_every_other_row():
    s = prepared()
    judged(s.bind(tuple(f"{i}_o" for i in NESTS), "thread.y"), (7, 5, 6))
    cyclic = [f"{i}_i" for i in NESTS]
    judged(prepared().bind(cyclic, "thread.y"), (7, 5, 6))


def test_one_loop_alone_would_leave_the_others_to_other_threads():
    with pytest.raises(ScheduleError, match=r"'acc' would have several threads of thread\.y") as error:
        prepared().bind("i_i_o", "thread.y")
    assert "bind all loops" in str(error.value)


def test_every_loop_must_give_an_element_to_the_same_thread():
    with pytest.raises(ScheduleError, match="by blocks 'acc_init' and 'C'"):
        prepared().bind(("acc_init_i_i", "i_i_o", "acc_out_i_o"), "thread.y")
    with pytest.raises(ScheduleError, match="'acc' would have several threads"):
        # rows of the sums, columns of the results
        prepared().bind(("acc_init_i_o", "i_i_o", "acc_out_j"), "thread.y")


def test_a_buffer_becomes_private_once_every_element_has_its_thread():
    s = prepared().set_scope("acc", "shared")
    bound = s
    for i in NESTS:
        bound = bound.bind(f"{i}_o", "thread.y")
    judged(bound.set_scope("acc", "register"), (7, 5, 6))
    with pytest.raises(ScheduleError, match="'acc' would have several threads"):
        s.bind("i_i_o", "thread.y").set_scope("acc", "register")


def test_no_loop_at_all():
    with pytest.raises(ScheduleError, match="no loop is given"):
        prepared().bind((), "thread.x")
