import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tilewright.runtime import PlanBuilder, PoolOptions, ThreadPool, default_pool, shared_pool
from tilewright.runtime.pool import ACTIVE_SPIN_NS, PASSIVE_SPIN_NS
from tilewright.support import ResourceError, available_cpus, read_settings

MARK = np.dtype([("begin", np.int64), ("end", np.int64), ("thread", np.int64), ("scratch", np.int64)])


def trace_plan(pool, kernels, n, loops=1, scratch_bytes=0):
    """A plan whose outputs are the chunk that ran each iteration, and how often it ran."""
    builder = PlanBuilder(pool)
    outputs = [builder.output(n * MARK.itemsize), builder.output(n * 8)]
    builder.step(kernels["trace_loop"], outputs, [n, loops], scratch_bytes=scratch_bytes)
    return builder.build(keep_alive=[kernels])


def run_trace(plan, n):
    marks, counts = np.zeros(n, MARK), np.zeros(n, np.int64)
    plan.run([], [marks, counts])
    return marks, counts


def spin_plan(pool, kernels, ns):
    builder = PlanBuilder(pool)
    builder.step(kernels["spin"], [], [ns])
    return builder.build(keep_alive=[kernels])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 6, 7, 64, 1001])
def test_every_iteration_runs_once_in_even_contiguous_chunks(pool, kernels, n):
    marks, counts = run_trace(trace_plan(pool, kernels, n), n)
    assert (counts == 1).all()
    chunks = sorted(set(zip(marks["begin"].tolist(), marks["end"].tolist(), strict=True)))
    assert len(chunks) == min(n, pool.threads)
    assert [begin for begin, _ in chunks] == [0, *(end for _, end in chunks)][: len(chunks)]
    if chunks:
        sizes = [end - begin for begin, end in chunks]
        assert chunks[-1][1] == n
        assert max(sizes) - min(sizes) <= 1
        assert (marks["begin"] <= np.arange(n)).all() and (np.arange(n) < marks["end"]).all()


def test_each_chunk_has_scratch_of_its_own_and_a_worker_or_the_caller(pool, kernels):
    """The caller does what no worker has begun; no worker does two chunks of a loop."""
    n = 10
    marks, _ = run_trace(trace_plan(pool, kernels, n, scratch_bytes=100), n)
    chunks = {(mark["begin"], mark["thread"], mark["scratch"]) for mark in marks}
    caller = threading.get_native_id()
    workers = [thread for _, thread, _ in chunks if thread != caller]
    assert len(set(workers)) == len(workers) < len(chunks) == pool.threads
    scratch = sorted(int(address) for _, _, address in chunks)
    assert all(address % 64 == 0 and address for address in scratch)
    assert all(right - left >= 100 for left, right in itertools.pairwise(scratch))
    assert marks["thread"][0] == caller


def test_scratch_is_null_where_no_kernel_asks_for_it(pool, kernels):
    marks, _ = run_trace(trace_plan(pool, kernels, 10), 10)
    assert not marks["scratch"].any()


def test_many_loops_back_to_back(pool, kernels):
    n, loops = 7, 10_000
    _, counts = run_trace(trace_plan(pool, kernels, n, loops), n)
    assert (counts == loops).all()


def test_loops_far_apart_wake_sleeping_workers(pool, kernels):
    plan = trace_plan(pool, kernels, 16)
    for _ in range(5):
        time.sleep(0.002)  # a hundred times the spin
        _, counts = run_trace(plan, 16)
        assert (counts == 1).all()


def test_a_caller_that_waits_long_falls_asleep_and_is_woken(kernels):
    with ThreadPool(PoolOptions(threads=2, spin_ns=0)) as pool:
        plan = spin_plan(pool, kernels, 3_000_000)
        for _ in range(5):
            plan.run([], [])


@pytest.mark.parametrize("spin_ns", [0, 1_000, ACTIVE_SPIN_NS])
def test_sleeping_and_waking_lose_no_loop(kernels, spin_ns):
    # Gaps around the spin time hit every phase of falling asleep.
    with ThreadPool(PoolOptions(threads=3, spin_ns=spin_ns)) as pool:
        plan = trace_plan(pool, kernels, 9, 3)
        for gap in np.random.default_rng(0).integers(0, 40, 400):
            for _ in range(int(gap) * 10):
                pass
            _, counts = run_trace(plan, 9)
            assert (counts == 3).all()


def test_nested_loops_run_inline_and_keep_the_outer_scratch(pool, kernels):
    n, m = 6, 5
    builder = PlanBuilder(pool)
    counts = builder.output(n * m * 8)
    builder.step(kernels["nested"], [counts], [n, m], scratch_bytes=8)
    found = np.zeros((n, m), np.int64)
    plan = builder.build(keep_alive=[kernels])
    for _ in range(50):
        plan.run([], [found])
    assert (found == 50).all()


def test_concurrent_callers_share_a_pool(pool, kernels):
    n, rounds, callers = 101, 200, 4
    plan = trace_plan(pool, kernels, n, 5, scratch_bytes=64)
    split = None
    failures = []

    def call():
        nonlocal split
        for _ in range(rounds):
            marks, counts = run_trace(plan, n)
            chunks = tuple(sorted({(int(mark["begin"]), int(mark["end"])) for mark in marks[::10]}))
            split = split or chunks
            if not (counts == 5).all() or chunks != split:
                failures.append((counts.tolist(), chunks))

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_caller_that_finds_the_pool_taken_runs_on_its_own_thread(kernels):
    with ThreadPool(PoolOptions(threads=2)) as pool:
        builder, flags = PlanBuilder(pool), np.zeros(2, np.int64)
        builder.step(kernels["hold"], [builder.output(flags.nbytes)], [])
        holder = threading.Thread(target=builder.build(keep_alive=[kernels]).run, args=([], [flags]))
        holder.start()
        while not flags[0]:
            time.sleep(0.001)
        marks, counts = run_trace(trace_plan(pool, kernels, 8), 8)
        flags[1] = 1
        holder.join()
    assert (counts == 1).all()
    assert set(marks["thread"].tolist()) == {threading.get_native_id()}
    assert set(zip(marks["begin"].tolist(), marks["end"].tolist(), strict=True)) == {(0, 4), (4, 8)}


def test_a_closed_pool_still_runs_on_the_caller(pool, kernels):
    plan = trace_plan(pool, kernels, 8)
    pool.close()
    pool.close()
    marks, counts = run_trace(plan, 8)
    assert (counts == 1).all()
    assert set(marks["thread"].tolist()) == {threading.get_native_id()}


def test_closing_ends_the_threads():
    before = len(os.listdir("/proc/self/task"))
    pool = ThreadPool(PoolOptions(threads=4))
    assert len(os.listdir("/proc/self/task")) == before + 3
    pool.close()
    assert len(os.listdir("/proc/self/task")) == before
    pool = ThreadPool(PoolOptions(threads=4))
    del pool
    assert len(os.listdir("/proc/self/task")) == before


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(pool, kernels):
    plan = trace_plan(pool, kernels, 40)
    run_trace(plan, 40)

    def child(queue):
        marks, counts = run_trace(plan, 40)
        tasks = len(os.listdir("/proc/self/task"))
        pool.close()
        ended = tasks - len(os.listdir("/proc/self/task"))
        queue.put((counts.tolist(), set(marks["thread"].tolist()), ended, os.getpid()))

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    process.join(20)
    alive = process.is_alive()
    if alive:
        process.kill()
    assert not alive, "the child hangs"
    counts, threads, ended, pid = queue.get()
    assert counts == [1] * 40
    assert ended == pool.threads - 1
    assert pid in threads
    # And the parent's threads are as they were.
    _, counts = run_trace(plan, 40)
    assert (counts == 1).all()


def test_workers_leave_signals_to_the_program(pool):
    masks = {}
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as status:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
        masks[int(task)] = int(fields["SigBlk"], 16)
    interrupt = 1 << (signal.SIGINT - 1)
    blocked = [task for task, mask in masks.items() if mask & interrupt]
    assert len(blocked) >= pool.threads - 1
    assert threading.get_native_id() not in blocked


def test_pinned_workers_are_bound_and_the_caller_is_not(kernels):
    before, tasks = os.sched_getaffinity(0), set(os.listdir("/proc/self/task"))
    with ThreadPool(PoolOptions(threads=3, pin=True)) as pool:
        run_trace(trace_plan(pool, kernels, 3), 3)
        workers = set(os.listdir("/proc/self/task")) - tasks
        assert len(workers) == 2
        for thread in workers:
            assert len(os.sched_getaffinity(int(thread))) == 1
        assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(available_cpus() < 2, reason="needs two CPUs")
def test_a_sleeping_worker_is_woken_away_from_its_caller(kernels):
    allowed, tasks = os.sched_getaffinity(0), set(os.listdir("/proc/self/task"))
    with ThreadPool(PoolOptions(threads=2, spin_ns=1_000)) as pool:
        (worker,) = set(os.listdir("/proc/self/task")) - tasks
        plan = trace_plan(pool, kernels, 2)
        try:
            for cpu in sorted(allowed)[:2]:
                os.sched_setaffinity(0, {cpu})
                time.sleep(0.01)
                run_trace(plan, 2)
                assert os.sched_getaffinity(int(worker)) == allowed - {cpu}
        finally:
            os.sched_setaffinity(0, allowed)


def test_a_process_with_live_pools_ends_in_order():
    code = (
        "from tilewright.runtime import default_pool, PoolOptions, ThreadPool\n"
        "kept = ThreadPool(PoolOptions(threads=3)); default_pool(2).fork_join_ns(10)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_a_thread_that_lost_its_cpu_while_it_span_sleeps_soon():
    """The process is stopped for a while, as if another had its CPUs; then its idle worker falls asleep."""
    code = (
        "import os, signal, time\n"
        "from pathlib import Path\n"
        "from tilewright.runtime import PoolOptions, ThreadPool\n"
        "tasks = set(os.listdir('/proc/self/task'))\n"
        "pool = ThreadPool(PoolOptions(threads=2, spin_ns=10**11))\n"
        "(worker,) = set(os.listdir('/proc/self/task')) - tasks\n"
        "pool.fork_join_ns(10); stopped = os.getpid()\n"
        "if not os.fork():\n"
        "    os.kill(stopped, signal.SIGSTOP); time.sleep(0.05)\n"
        "    os.kill(stopped, signal.SIGCONT); os._exit(0)\n"
        "os.wait(); pool.fork_join_ns(10)\n"
        "status = Path(f'/proc/self/task/{worker}/status')\n"
        "while 'State:\\tS' not in status.read_text(): time.sleep(0.001)\n"
    )
    # one that spins on does so for 100 seconds
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_fork_join_is_measured(pool):
    assert pool.fork_join_ns(100) > 0


def test_options_follow_the_settings():
    quiet = {"HOME": "/", "TILEWRIGHT_THREADS": "1", "TILEWRIGHT_WAIT_POLICY": "passive"}
    assert PoolOptions.of(read_settings(quiet)) == PoolOptions(1, PASSIVE_SPIN_NS, pin=False)
    settings = read_settings({"HOME": "/", "TILEWRIGHT_PIN_THREADS": "1"})
    assert PoolOptions.of(settings) == PoolOptions(available_cpus(), ACTIVE_SPIN_NS, pin=True)
    assert PoolOptions.of(settings, available_cpus() + 1).spin_ns == PASSIVE_SPIN_NS


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="got 0"):
        PoolOptions(threads=0)
    with pytest.raises(ValueError, match="-1"):
        PoolOptions(threads=1, spin_ns=-1)


def test_shared_pools_are_one_for_equal_options():
    assert shared_pool(PoolOptions(threads=1)) is shared_pool(PoolOptions(threads=1))
    assert default_pool(1) is default_pool(1)
    assert default_pool(2).threads == 2


def test_threads_that_cannot_be_had_are_an_error(monkeypatch):
    class Refusing:
        def tw_pool_create(self, *_):
            return None

    monkeypatch.setattr("tilewright.runtime.pool.library", Refusing)
    with pytest.raises(ResourceError, match="pool of 2 threads"):
        ThreadPool(PoolOptions(threads=2))
