"""tile: split several loops of a nest and put all outer loops outside."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import LoopFunction
from tilewright.schedule.common import refusal
from tilewright.schedule.loop.reorder import reorder
from tilewright.schedule.loop.split import Tail, split
from tilewright.schedule.registry import primitive


@primitive("tile", phase="loop")
def tile(
    func: LoopFunction, loops: Sequence[str], factors: Sequence[int], *, tail: Tail = "guard"
) -> LoopFunction:
    """Split each of ``loops`` by its factor, then reorder: all outer loops, then all inner ones.

    Named as by ``split``: ``i_o, j_o, i_i, j_i``. The tail policy ``peel`` leaves an imperfect nest, so it is
    for ``split`` alone.

    Raises ScheduleError for unlike numbers of loops and factors, and where ``split`` or ``reorder`` does.

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
    >>> print(s.tile(("i", "j"), (5, 4)))
    func main:
        for i_o in 0:2:
            for j_o in 0:2:
                for i_i in 0:5:
                    for j_i in 0:4:
                        block Y(par i=i_i + 5*i_o, par j=j_i + 4*j_o):
                            Y[i, j] = (X[i, j] * f32(2.0))
    """
    if len(loops) != len(factors):
        raise refusal(
            func, f"{len(loops)} loops and {len(factors)} factors are given", hint="one factor a loop"
        )
    if tail == "peel":
        raise refusal(
            func,
            "tiles cannot be peeled all at once",
            hint="split with tail='peel' from the innermost loop out",
            at=loops,
        )
    outer: list[str] = []
    inner: list[str] = []
    for loop, factor in zip(loops, factors, strict=True):
        before = func.body.names
        func = split(func, loop, factor, tail=tail)
        made = sorted(func.body.names - before)
        outer.extend(v for v in made if v.startswith(f"{loop}_o"))
        inner.extend(v for v in made if v.startswith(f"{loop}_i"))
    return reorder(func, *outer, *inner)
