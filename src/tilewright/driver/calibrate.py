"""Measuring what decisions ask of this machine: clock, products, caches, pages, requests, threads, lines.

Each quantity is read off kernels that differ in it alone, in turns, so that a machine whose speed changes
meanwhile changes both; minima count, as what else runs only adds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from tilewright import lang
from tilewright.build import Array, build
from tilewright.cost import PAGE, Machine, last_cache, whole_cache
from tilewright.driver.limits import reading
from tilewright.driver.peak import chain_rate, peak_gflops
from tilewright.driver.progress import Progress, no_progress
from tilewright.ir import F32, Program
from tilewright.runtime import aligned_copy
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule
from tilewright.target import CpuTarget, Quantities

#: Part of a cache level that is read to measure it: the rest is for what else lies there.
PART: Final = 0.5
#: Main memory is read by so many times the last level, or this many bytes where that is unknown or small.
BEYOND, BEYOND_BYTES = 4, 1 << 27
#: Pages whose lines are read in random order: more than a second-level table of addresses has entries.
PAGES: Final = 16384
#: Rows of a thread that two and one of them double, to see what starting threads costs.
FORK_ROW: Final = 16384
#: How often a line may be asked for, near memory and far; the fewest within ``SAME`` of the best are taken.
NEAR_REQUESTS, FAR_REQUESTS = (0, 1, 2), (0, 1, 2, 4)
#: Parts of the last level from which results may go past the caches, and what is stored to decide.
PAST_SHARES, PAST_PART = (1.0, 0.5), 0.75
SAME: Final = 0.03
#: Elements of a row of what is read or stored as a matrix.
COLUMNS: Final = 4096

_Run = Callable[[], object]


def measure_quantities(
    target: CpuTarget, threads: int, seconds: float = 1.0, progress: Progress = no_progress
) -> Quantities:
    """Measure the quantities of this machine with so many threads, each for about so many seconds.

    ``target`` is the machine with its table's quantities. What is returned is as measured, not rounded.
    """
    steps: tuple[tuple[str, Callable[[CpuTarget], CpuTarget]], ...] = (
        ("products", lambda t: _products(t, seconds)),
        ("memory levels", lambda t: _levels(t, threads, seconds)),
        ("pages", lambda t: replace(t, page_walk=_page_walk(t, seconds))),
        ("threads", lambda t: replace(t, fork_seconds=_fork_seconds(t, threads, seconds))),
        ("lines", lambda t: replace(t, line_seconds=line_seconds(t, threads, seconds))),
        ("streams", lambda t: replace(t, stream_gain=_stream_gain(t, seconds))),
        ("requests", lambda t: replace(t, far_requests=_far_requests(t, threads, seconds))),
        ("stores", lambda t: replace(t, past_share=_past_share(t, threads, seconds))),
    )
    for n, (name, step) in enumerate(steps):
        progress(name, n, len(steps))
        target = step(target)
    progress("done", len(steps), len(steps))
    return target.quantities


def _in_turns(runs: Mapping[str, _Run] | Mapping[int, _Run], seconds: float) -> dict[object, float]:
    """The least seconds of each, run one after the other as often as time allows, at least three times."""
    best: dict[object, float] = {}
    begin, rounds = time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - begin < seconds:
        for key, run in runs.items():
            start = time.perf_counter()
            run()
            taken = time.perf_counter() - start
            best[key] = min(best.get(key, taken), taken)
        rounds += 1
    return best


def _products(target: CpuTarget, seconds: float) -> CpuTarget:
    """The clock, from sums that wait for one another, and how many start meanwhile in each cycle."""
    lanes = target.lanes(F32)
    clock = 1e9 * chain_rate(target, seconds) / (2 * lanes) * target.fma_latency
    per_cycle = 1e9 * peak_gflops(target, seconds) / (2 * lanes) / clock
    return replace(target, clock_hz=clock, fma_per_cycle=per_cycle)


def _levels(target: CpuTarget, threads: int, seconds: float) -> CpuTarget:
    """Bytes a cycle and thread of the levels from the second on, all threads reading."""
    clock = target.clock_hz or 1.0
    found = [target.memory[0]]
    for level in target.memory[1:]:
        if level.size is None:
            nbytes = max(BEYOND_BYTES, BEYOND * whole_cache(target))
        else:
            nbytes = int(PART * level.size) * max(1, threads // level.shared_by)
        run = reading(target, threads, nbytes)
        rate = nbytes / _in_turns({"read": run}, seconds)["read"]
        found.append(replace(level, bandwidth=rate / clock / threads))
    return replace(target, memory=tuple(found))


def _page_walk(target: CpuTarget, seconds: float) -> float:
    """Cycles that a line costs more in a page of its own than among neighbours, both in random order."""
    order = np.random.default_rng(16).permutation(PAGES).astype(np.int32)
    # an odd number of lines apart: other sets of the caches
    line = target.memory[0].line
    runs = {
        "apart": _gathering(target, order, (PAGE + line) // 4),
        "together": _gathering(target, order, line // 4),
    }
    best = _in_turns(runs, seconds)
    return max(0.0, best["apart"] - best["together"]) / PAGES * (target.clock_hz or 1.0)


def _gathering(target: CpuTarget, order: Array, apart: int) -> _Run:
    """Reads the first element of each row in the given order; rows are so many elements long."""
    count = len(order)
    X, P = lang.placeholder((count, apart), "f32", name="X"), lang.placeholder((count,), "i32", name="P")
    Y = lang.compute((count,), lambda i: X[lang.clamp(P[i], 0, count - 1), 0], name="Y")
    return _kernel(lang.program([X, P], [Y]), target, 1, {"P": aligned_copy(order)})


def _fork_seconds(target: CpuTarget, threads: int, seconds: float) -> float:
    """What a row for each of two threads takes longer than half of what one thread takes for both."""
    if threads < 2:
        return target.fork_seconds
    X = lang.placeholder((2, FORK_ROW), name="X")
    s = Schedule(lang.program([X], [lang.compute((2, FORK_ROW), lambda i, j: X[i, j] * 2 + 1, name="Y")]))
    row, column = s.loops("Y")
    s = s.vectorize(column)
    runs = {"one": _scheduled(s, target, 1), "two": _scheduled(s.parallel(row), target, 2)}
    best = _in_turns(runs, seconds)
    return max(1e-8, best["two"] - best["one"] / 2)


def line_seconds(target: CpuTarget, threads: int, seconds: float) -> float:
    """Seconds that a line costs more which the other of two threads has just written than one of its own.

    ``target``'s own with fewer than two ``threads``. ``seconds`` is how long to measure, about.
    """
    if threads < 2:
        return target.line_seconds
    runs: dict[str, _Run] = {}
    for name, other in (("own", False), ("other", True)):
        X = lang.placeholder((2, FORK_ROW), name="X")
        Y = lang.compute((2, FORK_ROW), lambda i, j, X=X: X[i, j] * 2 + 1, name="Y")
        Z = lang.compute((2, FORK_ROW), lambda i, j, Y=Y, o=other: Y[1 - i if o else i, j] + 1, name="Z")
        s = Schedule(lang.program([X], [Y, Z]))
        for stage in ("Y", "Z"):
            row, column = s.loops(stage)
            s = s.vectorize(column).parallel(row)
        runs[name] = _scheduled(s, target, 2)
    best = _in_turns(runs, seconds)
    lines = FORK_ROW * F32.bytes // target.memory[0].line
    return max(1e-9, (best["other"] - best["own"]) / lines)


def _stream_gain(target: CpuTarget, seconds: float) -> float:
    """How much faster the second level is read line after line than by several streams in turns."""
    size = target.level("l2").size or (1 << 20)
    runs = {
        "one": reading(target, 1, int(PART * size)),
        "several": reading(target, 1, int(PART * size), apart=True),
    }
    best = _in_turns(runs, seconds)
    return best["several"] / best["one"]


def _far_requests(target: CpuTarget, threads: int, seconds: float) -> tuple[int, int]:
    """The fewest requests a line with which rows from memory come about as fast as with any number."""
    whole = max(whole_cache(target), 1 << 22)
    found = []
    for times, options in ((1.5, NEAR_REQUESTS), (3.0, FAR_REQUESTS)):
        rows = int(times * whole) // (4 * COLUMNS)
        X = lang.placeholder((rows, COLUMNS), "f32", name="X")
        V = lang.placeholder((COLUMNS,), "f32", name="V")
        k = lang.reduce_axis(COLUMNS, "k")
        Y = lang.compute((rows,), lambda i, X=X, V=V, k=k: lang.sum(X[i, k] * V[k], axis=k), name="Y")
        program, given = lang.program([X, V], [Y]), {"X": aligned_copy(np.ones((rows, COLUMNS), np.float32))}
        runs = {n: _kernel(program, replace(target, far_requests=(n, n)), threads, given) for n in options}
        found.append(_fewest(_in_turns(runs, seconds), options))
    return found[0], found[1]


def _past_share(target: CpuTarget, threads: int, seconds: float) -> float:
    """From which part of the last level on it pays to store past the caches: stored, then read again."""
    shape = (max(threads, int(PAST_PART * last_cache(target)) // (4 * COLUMNS)), COLUMNS)
    X, Y = lang.placeholder((1, COLUMNS), "f32", name="X"), lang.placeholder(shape, "f32", name="Y")
    j = lang.reduce_axis(COLUMNS, "j")
    stored = lang.program([X], [lang.compute(shape, lambda i, j: X[0, j] + 1, name="Y")])
    summed = lang.program([Y], [lang.compute(shape[:1], lambda i: lang.sum(Y[i, j], axis=j), name="S")])
    given = {"Y": aligned_copy(np.ones(shape, np.float32))}
    read = _kernel(summed, target, threads, given)
    stores = [_kernel(stored, replace(target, past_share=share), threads, given) for share in PAST_SHARES]
    runs = {n: partial(_both, store, read) for n, store in enumerate(stores)}
    return PAST_SHARES[_fewest(_in_turns(runs, seconds), range(len(PAST_SHARES)))]


def _both(first: _Run, second: _Run) -> None:
    first()
    second()


def _fewest(best: Mapping[object, float], options: Sequence[int]) -> int:
    """The first option that is about as fast as the best."""
    least = min(best.values())
    return next(n for n in options if best[n] <= (1 + SAME) * least)


def _kernel(
    program: Program, target: CpuTarget, threads: int, given: Mapping[str, Array] | None = None
) -> _Run:
    return _scheduled(default_schedule(program, Machine(target, threads)), target, threads, given)


def _scheduled(
    s: Schedule, target: CpuTarget, threads: int, given: Mapping[str, Array] | None = None
) -> _Run:
    kernel = build(s, target=target, threads=threads)
    known = given or {}
    plan = kernel.plan(
        [
            known[b.name]
            if b.name in known
            else aligned_copy(np.ones([e.as_int() for e in b.shape], b.dtype.numpy))
            for b in s.func.buffers
        ]
    )
    return plan.bind([], []).run
