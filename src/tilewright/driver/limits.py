"""What this machine can do at most: multiply-adds in registers, and reading, by the size of what is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright import lang
from tilewright.build import build
from tilewright.cost import Machine
from tilewright.driver.peak import dot_gops, peak_gflops
from tilewright.ir import F32
from tilewright.runtime import aligned_copy, aligned_empty
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule
from tilewright.target import Target

Array: TypeAlias = npt.NDArray[Any]

#: Working sets whose reading is timed, in bytes: from the second cache level to main memory.
SIZES: Final = (1 << 19, 1 << 20, 1 << 22, 1 << 24, 1 << 25, 1 << 26, 1 << 28)
#: Vectors that one turn of the reading loop loads, each added to a sum of its own.
STREAMS: Final = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """``gflops`` of f32 on all threads; ``read`` GB/s by the bytes of what is read again and again.

    ``dots`` are the GOP/s of dot-product instructions by name.
    """

    threads: int
    gflops: float
    read: Mapping[int, float] = field(default_factory=dict)
    dots: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, flops: float, nbytes: float, instruction: str | None = None) -> float:
        """The least time for so many operations, by an instruction or in f32, and so many bytes."""
        rate = self.gflops if instruction is None else self.dots.get(instruction, self.gflops)
        return max(flops / (rate * 1e9), nbytes / self.bandwidth(nbytes))

    def bound(self, flops: float, nbytes: float) -> str:
        """What sets the limit: ``compute`` or ``memory``."""
        return "compute" if flops / (self.gflops * 1e9) >= nbytes / self.bandwidth(nbytes) else "memory"

    def bandwidth(self, nbytes: float) -> float:
        """Bytes a second for a working set of ``nbytes``: the rate of the next larger size measured."""
        return 1e9 * next(
            (rate for size, rate in sorted(self.read.items()) if size >= nbytes), min(self.read.values())
        )


def measure_limits(
    target: Target, threads: int, seconds: float = 0.3, instructions: Collection[str] = ()
) -> Limits:
    """The peaks and the bandwidths, each the best of as many runs as fit into so many seconds.

    Besides multiply-adds in f32, ``instructions`` names dot-product instructions to measure.
    """
    gflops = peak_gflops(target, seconds, threads)
    # the first touch of memory takes longer than all that is timed: once for all sizes
    memory = _ones(max(SIZES) // 4)
    read = {size: read_rate(target, threads, size, seconds, memory) for size in SIZES}
    dots = {name: dot_gops(name, target, seconds, threads) for name in instructions}
    return Limits(threads, gflops, MappingProxyType(read), MappingProxyType(dots))


def reading(
    target: Target, threads: int, nbytes: int, memory: Array | None = None, *, apart: bool = False
) -> Callable[[], object]:
    """A function that reads about so many bytes of f32 once, each thread its own part from first to last.

    ``memory`` are at least as many bytes of f32, aligned, where there are some. Where they lie ``apart``, the
    vectors of a turn are those of as many streams through the thread's part.
    """
    lanes = target.lanes(F32)
    turns = max(1, nbytes // (4 * threads * STREAMS * lanes))
    shape = (threads, STREAMS, turns, lanes) if apart else (threads, turns, STREAMS, lanes)
    X = lang.placeholder(shape, "f32", name="X")
    t = lang.reduce_axis(turns, "t")
    S = lang.compute(
        (threads, STREAMS, lanes),
        lambda p, u, v: lang.sum(X[p, u, t, v] if apart else X[p, t, u, v], axis=t),
        name="S",
    )
    s = Schedule(lang.program([X], [S]))
    p, u, v, t_ = s.loops("S")
    s = s.cache("S", at=p, scope="register", mode="write", name="acc")
    s = s.reorder(t_, u, v).decompose_init("S", t_)
    for block in ("S", "S_init", "acc_out"):
        *_, streams, vector = s.loops(block)
        s = s.unroll(streams).vectorize(vector)
    kernel = build(s.parallel(p) if threads > 1 else s, target=target, threads=threads)
    size = threads * turns * STREAMS * lanes
    values = (_ones(size) if memory is None else memory)[:size]
    table = [values.reshape(shape)]
    table.append(aligned_copy(np.zeros((threads, STREAMS, lanes), np.float32)))
    plan = kernel.plan(table)
    return plan.bind([], []).run


def copying(target: Target, threads: int, nbytes: int) -> Callable[[], object]:
    """A function that copies about so many bytes of f32 once, past the caches where they hold less."""
    part = threads * target.lanes(F32)
    elements = max(1, nbytes // (4 * part)) * part
    X = lang.placeholder((elements,), "f32", name="X")
    program = lang.program([X], [lang.compute((elements,), lambda i: X[i], name="Y")])
    kernel = build(default_schedule(program, Machine(target, threads)), target=target, threads=threads)
    plan = kernel.plan([aligned_copy(np.full(elements, n, np.float32)) for n in (1, 0)])
    return plan.bind([], []).run


def _ones(count: int) -> Array:
    made = aligned_empty((count,), np.dtype(np.float32))
    made.fill(1)
    return made


def read_rate(
    target: Target, threads: int, nbytes: int, seconds: float, memory: Array | None = None
) -> float:
    """GB/s of reading ``nbytes`` again and again, the best of as many times as fit into so many seconds."""
    run = reading(target, threads, nbytes, memory)
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return nbytes / best / 1e9
