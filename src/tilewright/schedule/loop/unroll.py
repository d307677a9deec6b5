"""unroll: expand a loop of constant extent."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import UNROLL, LoopFunction, replace_at
from tilewright.schedule.common import constant_extent, find_loop, refusal
from tilewright.schedule.registry import primitive


@primitive("unroll", phase="loop")
def unroll(func: LoopFunction, loop: str) -> LoopFunction:
    """Expand ``loop`` into copies of its body in code generation.

    Refused for loops that have a kind, and those whose extent is no constant.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> Y = lang.compute((10,), lambda i: X[i] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> print(s)
    func main:
        for i in 0:10:
            block Y(par i=i):
                Y[i] = (X[i] * f32(2.0))
    >>> print(s.unroll("i"))
    func main:
        for i in 0:10 unroll:
            block Y(par i=i):
                Y[i] = (X[i] * f32(2.0))
    """
    place, node = find_loop(func, loop)
    if node.kind.name not in ("serial", "unroll"):
        raise refusal(func, f"{loop!r} is already a {node.kind} loop", at=[loop])
    constant_extent(func, place, node, "unrolled")
    return func.with_body(replace_at(func.body, place.path, replace(node, kind=UNROLL)))
