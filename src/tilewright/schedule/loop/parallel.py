"""parallel: run the iterations of a loop on several threads."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import PARALLEL, LoopFunction, replace_at
from tilewright.schedule.common import find_loop
from tilewright.schedule.independent import check_independent
from tilewright.schedule.registry import primitive


@primitive("parallel", phase="loop")
def parallel(func: LoopFunction, loop: str) -> LoopFunction:
    """Make ``loop`` parallel: its iterations run in any order and at the same time.

    Refused for loops of reduction and ordered iterators, and where two iterations may touch one element of a
    buffer allocated outside of the loop.

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
    >>> print(s.parallel("i"))
    func main:
        for i in 0:10 parallel:
            block Y(par i=i):
                Y[i] = (X[i] * f32(2.0))
    """
    place, node = find_loop(func, loop)
    check_independent(func, place, node, "parallel")
    return func.with_body(replace_at(func.body, place.path, replace(node, kind=PARALLEL)))
