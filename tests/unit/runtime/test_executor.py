import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime import ALIGNMENT, PlanBuilder, aligned_copy, guarded_array, return_free_memory
from tilewright.support import InputError, InternalError, ResourceError


def f32(count):
    return count * 4


@pytest.fixture
def builder(pool):
    return PlanBuilder(pool)


def test_a_chain_through_the_arena(builder, kernels):
    n = 1000
    x, y = builder.input(f32(n)), builder.output(f32(n))
    a, b = builder.arena(0, f32(n)), builder.arena(4032, f32(n))
    for source, target in [(x, a), (a, b), (b, a), (a, y)]:
        builder.step(kernels["double_all"], [source, target], [n])
    plan = builder.build(keep_alive=[kernels])
    assert plan.arena_bytes == 4032 + f32(n)
    values, result = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    plan.run([values], [result])
    assert (result == 16 * values).all()


def test_constants_and_parts(builder, kernels):
    weights = aligned_copy(np.arange(64, dtype=np.float32))
    constant, y = builder.constant(weights), builder.output(f32(64))
    for at in (32, 0):
        part = constant.part(f32(at), f32(32))
        builder.step(kernels["double_all"], [part, y.part(f32(at), f32(32))], [32])
    plan = builder.build(keep_alive=[kernels])
    del constant, builder
    result = np.zeros(64, np.float32)
    plan.run([], [result])
    assert (result == 2 * np.arange(64)).all()


def test_parameters_of_a_run(builder, kernels):
    x, y, n = builder.input(f32(10)), builder.output(f32(10)), builder.param()
    builder.step(kernels["double_all"], [x, y], [n])
    plan = builder.build(keep_alive=[kernels])
    for count in (0, 3, 10):
        result = np.zeros(10, np.float32)
        plan.run([np.ones(10, np.float32)], [result], [count])
        assert result.tolist() == [2] * count + [0] * (10 - count)
    with pytest.raises(InputError, match="expected 1 parameters, got 0"):
        plan.run([result], [result])


def test_kernels_stay_within_guarded_arrays(builder, kernels):
    n = 37
    x, y = builder.input(f32(n)), builder.output(f32(n))
    builder.step(kernels["double_all"], [x, y], [n])
    plan = builder.build(keep_alive=[kernels])
    for at_end in (True, False):
        source, target = (guarded_array(n, np.float32, at_end=at_end) for _ in range(2))
        source[...] = 3
        plan.run([source], [target])
        assert (target == 6).all()


def test_workspace_and_scratch(builder, kernels):
    n = 500
    x, y = builder.input(n * 8), builder.output(8)
    builder.step(kernels["sum_all"], [x, y], [n], workspace_bytes=n * 8, scratch_bytes=8)
    plan = builder.build(keep_alive=[kernels])
    values, total = np.arange(n), np.zeros(1, np.int64)
    plan.run([values], [total])
    assert total[0] == values.sum()


def test_lanes_of_a_section_run_their_steps_in_order(builder, kernels):
    n = 64
    x, y = builder.input(f32(n)), builder.output(f32(n))
    half = f32(n) // 2
    builder.step(kernels["double_all"], [x, builder.arena(0, f32(n))], [n])
    for lane in (1, 0):
        source = builder.arena(lane * half, half)
        own = builder.arena(4096 * (1 + lane), half)
        for at, (a, b) in enumerate([(source, own), (own, y.part(lane * half, half))]):
            builder.step(kernels["double_all"], [a, b], [n // 2], section=1, lane=lane, name=f"{lane}.{at}")
    builder.step(kernels["double_all"], [y, y], [n])
    plan = builder.build(keep_alive=[kernels])
    values, result = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    for _ in range(50):
        plan.run([values], [result])
        assert (result == 16 * values).all()
    assert (plan.measure([values], [result], repeats=3) > 0).all()


def test_a_failure_in_a_lane_names_its_step(builder, kernels):
    builder.step(kernels["refuse"], [], [0], section=1, lane=0, name="fine")
    builder.step(kernels["refuse"], [], [2], section=1, lane=1, name="broken", checks=["one", "two"])
    with pytest.raises(InputError, match="'broken' cannot run: two"):
        builder.build(keep_alive=[kernels]).run([], [])
    with pytest.raises(ValueError, match="lanes count from 0"):
        builder.step(kernels["refuse"], [], [0], section=1, lane=-1)


def test_memory_given_to_kernels_is_aligned(builder, kernels):
    out, arena = builder.output(6 * 8), builder.arena(ALIGNMENT, 3)
    builder.step(kernels["describe"], [out, arena], [1000], workspace_bytes=1, scratch_bytes=1)
    plan = builder.build(keep_alive=[kernels])
    found = np.zeros(6, np.int64)
    plan.run([], [found])
    assert found[:4].all()
    assert (found[:4] % ALIGNMENT == 0).all()
    assert len(set(found[:4].tolist())) == 4


def test_large_runs_lie_on_huge_pages(builder, kernels):
    out, arena = builder.output(6 * 8), builder.arena(0, 3 << 20)
    builder.step(kernels["describe"], [out, arena], [1000])
    plan = builder.build(keep_alive=[kernels])
    found = np.zeros(6, np.int64)
    plan.run([], [found])
    assert found[3] % (2 << 20) == 0


def test_kernels_run_in_the_default_floating_point_environment(builder, kernels):
    out = builder.output(6 * 8)
    builder.step(kernels["describe"], [out, out], [1], workspace_bytes=1, scratch_bytes=1)
    plan = builder.build(keep_alive=[kernels])
    normal, found = np.zeros(6, np.int64), np.zeros(6, np.int64)
    plan.run([], [normal])
    flush_to_zero = 0x9FC0
    before = kernels.library.set_control(flush_to_zero)
    try:
        plan.run([], [found])
    finally:
        after = kernels.library.set_control(before)
    assert found[4:].tolist() == normal[4:].tolist()
    assert found[4] != flush_to_zero
    assert after & 0x8040 == flush_to_zero & 0x8040, "the caller's own environment is kept"


def test_concurrent_runs_have_memory_of_their_own(builder, kernels):
    n = 5000
    x, y, a = builder.input(f32(n)), builder.output(f32(n)), builder.arena(0, f32(n))
    for source, target in [(x, a), (a, a), (a, y)]:
        builder.step(kernels["double_all"], [source, target], [n])
    plan = builder.build(keep_alive=[kernels])
    wrong = []

    def call(seed):
        values, result = np.full(n, seed, np.float32), np.zeros(n, np.float32)
        for _ in range(200):
            result[...] = 0
            plan.run([values], [result])
            if not (result == 8 * seed).all():
                wrong.append(seed)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    plan.trim()
    call(9)
    assert wrong == []


def test_a_run_leaves_the_gil_to_others(builder, kernels):
    builder.step(kernels["spin"], [], [200_000_000])
    plan = builder.build(keep_alive=[kernels])
    running = threading.Thread(target=plan.run, args=([], []))
    running.start()
    turns = 0
    while running.is_alive():
        turns += 1
    running.join()
    # With the GIL held there would be a turn or two.
    assert turns > 100


def test_measure_gives_nanoseconds_of_each_step(builder, kernels):
    for ns in (2_000_000, 200_000):
        builder.step(kernels["spin"], [], [ns], name=f"spin {ns}")
    plan = builder.build(keep_alive=[kernels])
    times = plan.measure([], [], repeats=3)
    assert plan.step_names == ("spin 2000000", "spin 200000")
    assert times.shape == (3, 2)
    assert (times >= [2_000_000, 200_000]).all()
    assert (times < 1_000_000_000).all()
    with pytest.raises(InputError, match="repeats must be a whole number from 1, not 0"):
        plan.measure([], [], repeats=0)


def test_an_empty_plan_runs(builder):
    plan = builder.build()
    plan.run([], [])
    assert plan.measure([], [], repeats=2).shape == (2, 0)


def test_a_bound_plan_runs_on_its_arrays(builder, kernels):
    x, y = builder.input(16), builder.output(16)
    builder.step(kernels["double_all"], [x, y], [4])
    plan = builder.build(keep_alive=[kernels])
    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    bound = plan.bind([a], [b])
    bound.run()
    np.testing.assert_array_equal(b, [0, 2, 4, 6])
    a += 1
    bound.run()
    np.testing.assert_array_equal(b, [2, 4, 6, 8])
    with pytest.raises(InputError, match="input 0 has 20 bytes, expected 16"):
        plan.bind([np.zeros(5, np.float32)], [b])


def test_a_bound_plan_explains_failures(builder, kernels):
    builder.step(kernels["refuse"], [], [1], name="conv", checks=["N must be a multiple of 4"])
    with pytest.raises(InputError, match="'conv' cannot run: N must be a multiple of 4"):
        builder.build(keep_alive=[kernels]).bind([], []).run()


def test_a_failed_entry_check_is_explained(builder, kernels):
    x, y, code = builder.input(4), builder.output(4), builder.param()
    builder.step(kernels["double_all"], [x, y], [1])
    builder.step(kernels["refuse"], [], [code], name="conv\n1", checks=["N must be a multiple of 4"])
    plan = builder.build(keep_alive=[kernels])
    arrays = [np.zeros(1, np.float32)], [np.zeros(1, np.float32)]
    plan.run(*arrays, [0])
    with pytest.raises(InputError, match=r"'conv\\n1' cannot run: N must be a multiple of 4"):
        plan.run(*arrays, [1])
    with pytest.raises(InputError, match=r"'conv\\n1' cannot run: N must be a multiple of 4"):
        plan.run_within(*arrays, [1])
    with pytest.raises(InternalError, match="returned 2"):
        plan.run(*arrays, [2])
    plan.run(*arrays, [0])


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ([], [np.zeros(4, np.float32)], "expected 1 inputs, got 0"),
        ([np.zeros(4, np.float32)], [], "expected 1 outputs, got 0"),
        ([np.zeros(5, np.float32)], [np.zeros(4, np.float32)], "input 0 has 20 bytes, expected 16"),
        ([np.zeros(8, np.float32)[::2]], [np.zeros(4, np.float32)], "input 0 is not row-major"),
        ([np.zeros(4, np.float32)], [np.zeros(3, np.float32)], "output 0 has 12 bytes, expected 16"),
        ([np.zeros(4, np.float32)], [np.broadcast_to(np.zeros(4, np.float32), 4)], "output 0 is read-only"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(builder, kernels, inputs, outputs, message):
    x, y = builder.input(16), builder.output(16)
    builder.step(kernels["double_all"], [x, y], [4])
    plan = builder.build(keep_alive=[kernels])
    with pytest.raises(InputError, match=message):
        plan.run(inputs, outputs)


def test_plans_that_cannot_be_right_are_refused(builder, kernels):
    with pytest.raises(ValueError, match="multiple of 64, got 4"):
        builder.arena(4, 8)
    with pytest.raises(ValueError, match="not within 16"):
        builder.input(16).part(8, 9)
    with pytest.raises(ValueError, match="row-major and aligned"):
        builder.constant(aligned_copy(np.zeros((4, 4))).T[1:])
    with pytest.raises(ValueError, match="no address"):
        builder.step(0, [])
    with pytest.raises(ResourceError, match="between 0 and"):
        builder.arena(0, 1 << 60)
    with pytest.raises(ResourceError, match="-1 bytes"):
        builder.input(-1)


def test_a_run_that_finds_no_memory_says_so(builder, kernels):
    builder.arena(0, 1 << 46)
    plan = builder.build()
    with pytest.raises(ResourceError, match=r"no memory to run the plan \(64.0 TiB\)"):
        plan.run([], [])
    with pytest.raises(ResourceError, match="no memory to run the plan"):
        plan.reserve()


def test_memory_that_is_reserved_has_its_pages(builder, kernels):
    """That of the plan, and of slots whose bytes a run says."""
    builder.arena(0, 1 << 24)
    builder.slot(builder.param())
    plan = builder.build(keep_alive=[kernels])
    return_free_memory()
    before = _resident_bytes()
    plan.reserve([1 << 24])
    assert _resident_bytes() - before > 1 << 24
    plan.run([], [], [1 << 20])
    with pytest.raises(ResourceError, match="no memory to run the plan"):
        plan.reserve([1 << 46])
    plan.run([], [], [1 << 20])


def test_a_plan_keeps_what_it_needs_alive(builder, kernels):
    class Owner:
        pass

    owner = Owner()
    count = sys.getrefcount(owner)
    plan = builder.build(keep_alive=[owner])
    assert sys.getrefcount(owner) == count + 1
    del plan
    assert sys.getrefcount(owner) == count


def test_scratch_of_threads_shares_no_page(builder, kernels, pool):
    n = 8 * pool.threads
    marks, counts = builder.output(n * 32), builder.output(n * 8)
    builder.step(kernels["trace_loop"], [marks, counts], [n, 1], scratch_bytes=100)
    plan = builder.build(keep_alive=[kernels])
    made, counted = np.zeros((n, 4), np.int64), np.zeros(n, np.int64)
    plan.run([], [made, counted])
    scratch = dict.fromkeys(made[:, 3].tolist())
    assert len(scratch) == pool.threads
    assert all((at - min(scratch)) % 4096 == 0 for at in scratch)


def test_memory_of_a_run_is_left_for_kernels_to_touch(builder, kernels):
    """A run takes pages only where a kernel writes: 256 MB are planned, a few bytes are used."""
    x, y = builder.input(f32(10)), builder.output(f32(10))
    middle = builder.arena(1 << 27, 1 << 27).part(0, f32(10))
    builder.step(kernels["double_all"], [x, middle], [10], workspace_bytes=1 << 26)
    builder.step(kernels["double_all"], [middle, y], [10])
    plan = builder.build(keep_alive=[kernels])
    before, result = _resident_bytes(), np.zeros(10, np.float32)
    plan.run([np.ones(10, np.float32)], [result])
    assert (result == 4).all()
    assert _resident_bytes() - before < 1 << 25


def _resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
