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
