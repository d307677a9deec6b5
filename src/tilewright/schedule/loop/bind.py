"""bind: give a loop's iterations to the units of a hardware axis."""

from __future__ import annotations

import re
from dataclasses import replace

from tilewright.ir import LoopFunction, replace_at, thread
from tilewright.schedule.common import find_loop, refusal
from tilewright.schedule.independent import check_independent
from tilewright.schedule.registry import primitive

_AXIS = re.compile(r"(block|thread)\.[xyz]\Z")


@primitive("bind", phase="loop")
def bind(func: LoopFunction, loop: str, axis: str) -> LoopFunction:
    """Run ``loop`` on the hardware ``axis``: ``block.x`` to ``block.z`` or ``thread.x`` to ``thread.z``.

    As :func:`~tilewright.schedule.loop.parallel.parallel`; threads of one block may share ``shared`` buffers,
    whose accesses barriers order.

    Raises ScheduleError for other axes, and where the iterations may touch one element. Where statements of
    one block stand beside the loop, barriers between them are the caller's to place.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10, 8), name="X")
    >>> Y = lang.compute((10, 8), lambda i, j: X[i, j] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> print(s)
    func main:
        for i in 0:10:
            for j in 0:8:
                block Y(par i=i, par j=j):
                    Y[i, j] = (X[i, j] * f32(2.0))
    >>> print(s.bind("i", "block.x").bind("j", "thread.x"))
    func main:
        for i in 0:10 thread(block.x):
            for j in 0:8 thread(thread.x):
                block Y(par i=i, par j=j):
                    Y[i, j] = (X[i, j] * f32(2.0))
    """
    place, node = find_loop(func, loop)
    if not _AXIS.match(axis):
        raise refusal(
            func, f"there is no axis {axis[:80]!r}", hint="axes are block.x … z and thread.x … z", at=[loop]
        )
    if any(f.kind.name == "thread" and f.kind.axis == axis for f in place.loops):
        raise refusal(func, f"a loop around {loop!r} already has the axis {axis}", at=[loop])
    check_independent(func, place, node, axis)
    return func.with_body(replace_at(func.body, place.path, replace(node, kind=thread(axis))))
