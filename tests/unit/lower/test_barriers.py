"""Barriers stand where dependences between threads ask for them, where all threads come, and nowhere else."""

import itertools

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import (
    Barrier,
    ExecutionError,
    locate,
    parse_function,
    replace_at,
    run_function,
    seq,
    simplify_seqs,
)
from tilewright.lower import insert_barriers
from tilewright.poly import check_legal
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from unit.schedule.gpu_programs import matmul, tiled_matmul


def barriers(func):
    return list(locate(func.body, Barrier))


def without(func, place):
    """The function without one barrier."""
    return func.with_body(simplify_seqs(replace_at(func.body, place.path, seq())))


def arrays_of(func, seed=0):
    rng = np.random.default_rng(seed)
    inputs = [b for b in func.buffers if b.name not in func.outputs]
    return {b.name: rng.random([n.as_int() for n in b.shape], np.float32) for b in inputs}


def races(before, after):
    """Whether some judge objects."""
    if check_legal(before, after):
        return True
    arrays = arrays_of(after)
    for seed in range(3):
        try:
            run_function(after, arrays, seed=seed)
        except ExecutionError:
            return True
    return False


def check(before, func, count):
    """Both judges accept the function with its barriers, and miss every one of them that is taken away."""
    done = insert_barriers(func)
    assert len(barriers(done)) == count, done
    assert not check_legal(before, done)
    assert not check_legal(before, done, mode="isl")
    arrays = arrays_of(func)
    wanted = run_function(before, arrays)
    for seed in range(3):
        actual = run_function(done, arrays, seed=seed)
        for name, want in wanted.items():
            np.testing.assert_allclose(actual[name], want, rtol=1e-5)
    for place in barriers(done):
        assert races(before, without(done, place))
    assert insert_barriers(done) is done  # what stands there is enough
    return done


@pytest.mark.parametrize("sizes", [(8, 8, 4), (5, 7, 3), (11, 9, 10)])
def test_a_matmul_in_shared_tiles_needs_two(sizes):
    once = sizes[2] <= 4
    s = tiled_matmul(*sizes, block=4, depth=4, tile=2)
    check(matmul(*sizes).func, s.func, 1 if once else 2)
    assert check_legal(matmul(*sizes).func, s.func)


EXCHANGE = """
function("f", outputs=[Y, Z])
X = f32[12]
Y = f32[12]
Z = f32[6]
for o in thread("block.x", 3):
    T = alloc(f32[4], scope="shared")
    for i in thread("thread.x", 4):
        with block("T"):
            a = par(0, 4, i)
            b = par(0, 12, i + 4*o)
            T[a] = X[b]
        with block("Y"):
            a = par(0, 4, i)
            b = par(0, 12, i + 4*o)
            Y[b] = T[a] + T[-a + 3]
    for n in thread("thread.x", {others}):
        with block("Z"):
            c = par(0, 6, {others}*o + n)
            Z[c] = X[c]
"""
EXCHANGED = """
function("f", outputs=[Y, Z])
X = f32[12]
Y = f32[12]
Z = f32[6]
for o in range(3):
    for i in range(4):
        with block("Y"):
            a = par(0, 4, i)
            b = par(0, 12, i + 4*o)
            Y[b] = X[b] + X[b - 2*a + 3]
for n in range(6):
    with block("Z"):
        c = par(0, 6, n)
        Z[c] = X[c]
"""


def test_threads_exchange_values_inside_of_their_loop():
    done = check(parse_function(EXCHANGED.lstrip()), parse_function(EXCHANGE.lstrip().format(others=2)), 1)
    (place,) = barriers(done)
    assert [f.var for f in place.loops] == ["o", "i"]


def test_what_a_thread_reads_back_itself_needs_none():
    X = lang.placeholder((12,), name="X")
    T = lang.compute((12,), lambda i: X[i] * 2, name="T")
    Y = lang.compute((12,), lambda i: T[i] + 1, name="Y")
    s = Schedule(lang.program([X], [Y])).split("Y_i", 4)
    before = s.func
    s = s.compute_at("T", "Y_i_o").set_scope("T", "shared")
    copy = s.loops("T")[-1]
    s = s.bind("Y_i_o", "block.x").bind(("Y_i_i", copy), "thread.x")
    check(before, s.func, 0)


def test_threads_that_share_a_sum():
    X = lang.placeholder((3, 8), name="X")
    k = lang.reduce_axis(8, "k")
    Y = lang.compute((3,), lambda i: lang.sum(X[i, k], axis=k), name="Y")
    s = Schedule(lang.program([X], [Y])).rfactor("Y", "k", 2)
    before = s.func
    part = next(b for b in s.blocks() if b != "Y")
    s = s.compute_at(part, s.loops("Y")[0])
    s = s.bind(s.loops("Y")[0], "block.x").bind(s.loops(part)[1], "thread.x")
    done = check(before, s.func, 1)
    # the partial sums are in memory of the caller's kind: what is ordered is more than shared memory
    assert [p.node.scope for p in barriers(done)] == ["global"]


TEXT = """
function("f", outputs=[Y])
X = f32[{blocks}, 4, 6]
Y = f32[{blocks}, 4, 6]
for b in thread("block.x", {blocks}):
    S = alloc(f32[2, 4], scope="shared")
    for t in range(6):
        for i in thread("thread.x", 4):
            with block("S"):
                n = par(0, {blocks}, b)
                a = par(0, 4, i)
                s = par(0, 6, t)
                S[{slot}, a] = X[n, a, s]
        for j in thread("thread.x", 4):
            with block("Y"):
                n = par(0, {blocks}, b)
                a = par(0, 4, j)
                s = par(0, 6, t)
                Y[n, a, s] = S[{slot}, -a + 3]
"""
PLAIN = """
function("f", outputs=[Y])
X = f32[{blocks}, 4, 6]
Y = f32[{blocks}, 4, 6]
for b in range({blocks}):
    for t in range(6):
        for j in range(4):
            with block("Y"):
                n = par(0, {blocks}, b)
                a = par(0, 4, j)
                s = par(0, 6, t)
                Y[n, a, s] = X[n, -a + 3, s]
"""


@pytest.mark.parametrize(("slot", "count"), [("0", 2), ("s%2", 1)])
def test_two_buffers_in_turn_save_a_barrier(slot, count):
    func = parse_function(TEXT.lstrip().format(blocks=2, slot=slot))
    check(parse_function(PLAIN.lstrip().format(blocks=2)), func, count)


def test_barriers_by_hand_are_enough():
    by_hand = TEXT.replace("        for j in", '        barrier("shared")\n        for j in')
    func = parse_function(by_hand.lstrip().format(blocks=1, slot="s%2"))
    assert insert_barriers(func) is func


def test_none_is_placed_where_some_threads_do_not_come():
    func = parse_function(EXCHANGE.lstrip().format(others=6).replace('block.x", 3', 'block.x", 1'))
    with pytest.raises(ScheduleError, match="threads of one block touch the same elements of 'T'") as error:
        insert_barriers(func)
    assert "'T' and 'Y'" in str(error.value)


def test_functions_without_threads_stay_as_they_are():
    func = matmul(4, 5, 6).func
    assert insert_barriers(func) is func
    func = matmul(4, 5, 6).bind("i", "block.x").func
    assert insert_barriers(func) is func


def test_every_barrier_is_in_reach_of_all_threads():
    """Where a loop over threads is shorter than its axis, barriers stand beside it."""
    for block, depth in itertools.product((4, 6), (2, 3)):
        s = tiled_matmul(12, 12, 6, block=block, depth=depth, tile=2)
        done = insert_barriers(s.func)
        for p in barriers(done):
            assert not any(f.kind.axis.startswith("thread") for f in p.loops if f.kind.name == "thread")
