"""virtual_threads: more iterations than threads, each thread taking every so many of them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import LoopFunction
from tilewright.schedule.common import constant_extent, find_loop, refusal
from tilewright.schedule.loop.bind import bind
from tilewright.schedule.loop.reorder import reorder
from tilewright.schedule.loop.split import split
from tilewright.schedule.loop.unroll import unroll
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("virtual_threads", phase="loop")
def virtual_threads(func: LoopFunction, loops: Sequence[str], axis: str, count: int) -> LoopFunction:
    """Give the iterations of ``loops`` to ``count`` threads of ``axis`` in turn.

    Iteration ``i`` is thread ``i % count``'s. What a thread has is spread out: neighbouring threads have
    neighbouring iterations, as accesses to global memory and to banks of shared memory want it. A loop
    ``i`` becomes ``i_t`` over threads and, inside it and unrolled, ``i_v`` over the virtual threads of
    each. Several loops are bound at once, as by :func:`~tilewright.schedule.loop.bind.bind`.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((12,), name="X")
    >>> Y = lang.compute((12,), lambda i: X[i] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> print(s)
    func main:
        for i in 0:12:
            block Y(par i=i):
                Y[i] = (X[i] * f32(2.0))
    >>> print(s.virtual_threads(("i",), "thread.x", 4))
    func main:
        for i_t in 0:4 thread(thread.x):
            for i_v in 0:3 unroll:
                block Y(par i=i_t + 4*i_v):
                    Y[i] = (X[i] * f32(2.0))

    Raises ScheduleError for axes of blocks, for loops that are no whole number of rounds, and where ``bind``
    refuses.
    """
    if not loops:
        raise ScheduleError("virtual_threads: no loop is given", hint="name a loop, or several")
    if axis.startswith("block"):
        raise refusal(func, f"{axis} is no axis of threads", hint="such as thread.x", at=loops)
    threads: list[str] = []
    for loop in loops:
        place, node = find_loop(func, loop)
        extent = constant_extent(func, place, node, "spread over threads")
        if count < 1 or extent % count:
            raise refusal(
                func,
                f"{loop!r} has {extent} iterations: they do not go round {count} threads",
                hint="choose a divisor",
                at=[loop],
            )
        outer, inner = f"{loop}_v", f"{loop}_t"
        func = split(func, loop, count, names=(outer, inner))
        func = unroll(reorder(func, inner, outer), outer)
        threads.append(inner)
    return bind(func, threads, axis)
