"""bind: give a loop's iterations to the units of a hardware axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import THREAD_AXES, For, LoopFunction, locate, replace_at, thread
from tilewright.schedule.common import find_loop, refusal
from tilewright.schedule.independent import check_independent
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError

BLOCK_AXES = ("block.x", "block.y", "block.z")
#: Axes that are x taken apart.
WARPS = ("thread.warp", "thread.lane")


@primitive("bind", phase="loop")
def bind(func: LoopFunction, loop: str | Sequence[str], axis: str) -> LoopFunction:
    """Run ``loop``, or several loops, on the hardware ``axis``: ``block.x`` to ``thread.z``.

    As :func:`~tilewright.schedule.loop.parallel.parallel`. Loops on one ``thread`` axis that follow each
    other name the same threads by their iterations. Those of one block may share ``shared`` buffers, whose
    accesses barriers order (lowering places them). Buffers of one thread (``local``, ``register``) may be
    allocated outside, where each element has one thread, the same in all loops: give these loops at once.

    ``thread.warp`` and ``thread.lane`` are ``thread.x`` taken apart: threads that run in step, and which
    of them. Kernels of devices have no such axes: code generation refuses them there.

    Raises ScheduleError for other axes; where the iterations may touch one element; for a loop over blocks
    inside of one over threads, or inside of another loop on the axis.

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
    loops = (loop,) if isinstance(loop, str) else tuple(loop)
    if not loops:
        raise ScheduleError("bind: no loop is given", hint="name a loop, or several")
    out = func
    for name in loops:
        out = _bound(out, name, axis, func)
    return out


def _bound(func: LoopFunction, loop: str, axis: str, shown: LoopFunction) -> LoopFunction:
    place, node = find_loop(func, loop)
    if axis not in (*BLOCK_AXES, *THREAD_AXES):
        raise refusal(
            func,
            f"there is no axis {axis[:80]!r}",
            hint=f"axes are {', '.join((*BLOCK_AXES, *THREAD_AXES))}",
            at=[loop],
        )
    clash = {"thread.x", *WARPS} - ({"thread.x"} if axis == "thread.x" else {*WARPS})
    for p in locate(func.body, For) if axis in ("thread.x", *WARPS) else ():
        if p.node.kind.axis in clash:
            raise refusal(
                shown,
                f"{loop!r} cannot be on {axis} where {p.node.var!r} is on {p.node.kind.axis}: warps and "
                "lanes are thread.x taken apart",
                hint="bind all loops of a function to thread.x, or to warps and lanes",
                at=[loop, p.node.var],
            )
    inside = [p.node for p in locate(node.body, For)]
    for others, where in ((place.loops, "around"), (inside, "inside")):
        for other in others:
            if other.kind.name == "thread" and other.kind.axis == axis:
                raise refusal(
                    shown, f"a loop {where} {loop!r} already has the axis {axis}", at=[loop, other.var]
                )
            inner, outer = (axis, other.kind.axis) if where == "around" else (other.kind.axis, axis)
            if other.kind.name == "thread" and inner.startswith("block") and outer.startswith("thread"):
                raise refusal(
                    shown,
                    f"{loop!r} on {axis} {'inside of' if where == 'around' else 'around'} {other.var!r} on "
                    f"{other.kind.axis}: blocks hold threads",
                    hint="bind the outer loops to blocks",
                    at=[loop, other.var],
                )
    check_independent(func, place, node, axis)
    return func.with_body(replace_at(func.body, place.path, replace(node, kind=thread(axis))))
