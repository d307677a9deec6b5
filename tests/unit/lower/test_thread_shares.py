"""Buffers of one thread that stand at block level: each thread gets its own elements, and no more."""

import numpy as np
import pytest

from tilewright.ir import run_function
from tilewright.lower import insert_barriers, shrink_private
from tilewright.poly import check_legal
from unit.schedule.gpu_programs import matmul, shared_matmul, threaded

NESTS = ("acc_init_{}", "{}_i", "acc_out_{}")


def shrunk(s, sizes):
    """The physical shape of the sums a thread, after both judges have seen the function."""
    n, m, k = sizes
    func = shrink_private(insert_barriers(s.func))
    before = matmul(*sizes).func
    assert not check_legal(before, func)
    assert not check_legal(before, func, mode="isl")
    rng = np.random.default_rng(0)
    a, b = rng.random((n, k), np.float32), rng.random((k, m), np.float32)
    np.testing.assert_allclose(run_function(func, {"A": a, "B": b})["C"], a @ b, rtol=1e-5)
    (acc,) = [b for b in func.body.allocated if b.name == "acc"]
    return [x.as_int() for x in acc.physical_shape]


@pytest.mark.parametrize("tile", [1, 2, 4])
def test_tiles(tile):
    s = threaded(shared_matmul(7, 5, 3, block=4, depth=3), tile)
    assert shrunk(s, (7, 5, 3)) == [tile, tile]


def split_all(s, axis, factors):
    for nest in NESTS:
        s = s.split(nest.format(axis), factors)
    return s


def names(axis, part):
    return tuple(nest.format(axis) + part for nest in NESTS)


def test_every_other_row_and_parts_of_columns():
    s = shared_matmul(9, 12, 2, block=6, depth=2)
    s = split_all(s, "i", 2).bind(names("i", "_i"), "thread.y")
    s = split_all(s, "j", 3)
    s = s.bind(names("j", "_o"), "thread.x")
    assert shrunk(s, (9, 12, 2)) == [3, 3]


def test_threads_take_parts_of_several_places():
    s = shared_matmul(3, 9, 2, block=8, depth=2)
    s = split_all(split_all(s, "j", 4), "i", 8)
    for nest in NESTS:
        s = s.split(nest.format("j") + "_i", 2)
    s = s.bind(names("j", "_i_o"), "thread.x")
    assert shrunk(s, (3, 9, 2)) == [3, 4]


def test_a_fused_loop_over_threads():
    s = shared_matmul(7, 5, 2, block=4, depth=2)
    for nest in NESTS:
        i, j = nest.format("i"), nest.format("j")
        s = s.split(i, 2).split(j, 2)
        inner = (f"{i}_o", f"{j}_o", f"{i}_i", f"{j}_i")
        s = s.reorder(*((*inner[:2], "k_i", *inner[2:]) if nest == "{}_i" else inner))
        s = s.fuse(f"{i}_o", f"{j}_o", names=(f"t_{i}",))
    s = s.bind(tuple(f"t_{nest.format('i')}" for nest in NESTS), "thread.x")
    assert shrunk(s, (7, 5, 2)) == [2, 2]


def test_one_row_a_thread():
    s = shared_matmul(4, 4, 2, block=4, depth=2)
    s = s.bind(names("i", ""), "thread.x")
    assert shrunk(s, (4, 4, 2)) == [1, 4]


def test_functions_without_private_buffers_stay_as_they_are():
    func = matmul(4, 4, 4).bind("i", "block.x").bind("j", "thread.x").func
    assert shrink_private(func) is func
    serial = shared_matmul(4, 4, 4, block=2, depth=2).func
    assert shrink_private(serial) == serial
