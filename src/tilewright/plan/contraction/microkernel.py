"""The micro-kernel of a contraction: the nest inside a register tile, its order, what is expanded."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tilewright.analysis import Contraction, contiguous_reduction, row_axis
from tilewright.cost import reloaded_rows
from tilewright.plan.contraction.instructions import use_of
from tilewright.plan.contraction.register_tiling import RegisterTile
from tilewright.target import Target

#: Multiply-adds of one turn of the innermost reduction loop, at most: more lets the register allocator spill.
MAX_FMAS_PER_TURN: Final = 120
#: Steps of the innermost reduction loop that are unrolled, at most.
MAX_STEPS_PER_TURN: Final = 4
#: The same where border tiles have several copies of the loop: keeps compile time in bounds.
MAX_STEPS_PER_COPY: Final = 2
#: Multiply-adds of one turn that are enough there: more are no faster (28 and 56 measured, to 0.5%).
FMAS_PER_COPY: Final = 24
#: Windows up to this many taps are expanded in the micro-kernel where there is no k axis: rows share what
#: they load (Granite Rapids, depthwise 7x7, 2 threads: 96 at 56 pixels 179 -> 100 us, 384 at 14 58 -> 33).
MAX_EXPANDED_TAPS: Final = 49


def _together(c: Contraction) -> int:
    """Steps of the reduction that are done at once."""
    use = use_of(c)
    return 1 if use is None else use.depth


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the innermost reduction loop: ``unroll`` steps of it.

    The elements of ``reload`` rows are loaded by each multiply-add instead of being broadcast.
    """

    unroll: int = 1
    reload: int = 0


def is_expanded(c: Contraction) -> bool:
    """Whether a micro-kernel has its windows expanded, and no loop over steps."""
    taps = math.prod(c.extent(a) for a in c.axes("window"))
    return not c.axes("k") and use_of(c) is None and taps <= MAX_EXPANDED_TAPS


@dataclass(frozen=True, slots=True)
class Innermost:
    """The innermost loop of a reduction: its axis, how many ``steps`` it has.

    ``run`` is its part of an axis that lies in blocks (``None``: the whole one), ``windows_outside`` says
    whether the loops over windows are outside of those over ``k``, so that they can be cut at the padding.
    """

    axis: str
    run: int | None
    steps: int
    windows_outside: bool


def innermost_of(c: Contraction, fmas: int, reds: Collection[str] | None = None) -> Innermost:
    """The innermost loop over a reduction in a micro-kernel.

    ``fmas`` are the multiply-adds of a step, ``reds`` the reduction axes inside the tile: by default all.
    """
    known = _reductions(c) if reds is None else reds
    masking = masking_windows(c, known, fmas)
    axis, run = contiguous_reduction(c, [a for a in c.axes("k", "window") if a in known and a not in masking])
    windows = [a for a in c.axes("window") if a in known and a not in masking]
    ks = [a for a in c.axes("k") if a in known]
    outside = bool(masking and ks) and run is None
    last = ks[-1] if outside else axis or (windows or ks)[-1]
    if run is not None and run >= c.extent(last):
        run = None
    steps = c.extent(last) if run is None else run
    return Innermost(last, run, steps // _together(c), outside)


def default_turn(
    c: Contraction, tile: RegisterTile, target: Target, reds: Collection[str] | None = None
) -> Turn:
    """The steps that pay for the loop around them, as far as registers and border tiles allow."""
    if is_expanded(c):
        return Turn()
    known, fmas, row = _reductions(c) if reds is None else reds, tile.rows * tile.vectors, row_axis(c)
    masking = masking_windows(c, known, fmas)
    inner = innermost_of(c, fmas, known)
    last, steps = inner.axis, inner.steps
    apart = _steps_apart(c, last, 1 if row is None else min(tile.rows, c.extent(row)))
    fmas *= math.prod(c.extent(axis) for axis in masking)
    cached = use_of(c) is not None or masking or c.vector in c.axes("batch")
    again = 0 if cached else reloaded_rows(target, tile.rows, tile.vectors)
    few = not again and any(axis != last for axis in _met_by_rows(c, known))
    most = min(MAX_STEPS_PER_COPY, -(-FMAS_PER_COPY // fmas)) if few else MAX_STEPS_PER_TURN
    unroll = next(
        u
        for u in range(min(most, apart), 0, -1)
        if steps % u == 0 and (u == 1 or u * fmas <= MAX_FMAS_PER_TURN)
    )
    return Turn(unroll, again if steps > unroll else 0)


def _reductions(c: Contraction) -> tuple[str, ...]:
    return tuple(it.name for it in c.stage.iters if it.kind == "red")


def masking_windows(c: Contraction, reds: Collection[str], fmas: int) -> list[str]:
    """Window axes that say which lanes are off: expanded, where that is not too much code, so are masks."""
    tied = {v for cond in c.guard if c.vector in cond.vars for v in cond.vars}
    axes = [a for a in c.axes("window") if a in tied and a in reds]
    few = math.prod(c.extent(a) for a in axes) * fmas <= MAX_FMAS_PER_TURN
    return axes if few and len(axes) < len(reds) and use_of(c) is None else []


def _met_by_rows(c: Contraction, reds: Collection[str]) -> list[str]:
    """Window axes that a guard ties to the tiled row axis: they are cut where a tile meets the padding."""
    row = row_axis(c)
    tied = {v for cond in c.guard if row in cond.vars for v in cond.vars}
    return [a for a in c.axes("window") if a in tied and a in reds]


def _steps_apart(c: Contraction, axis: str, rows: int) -> int:
    """Steps of a reduction axis after which some of ``rows`` rows read the elements of rows beside them.

    Unrolled further, those elements would be loaded once and kept, in registers that the sums need.
    """
    row = row_axis(c)
    if row is None or c.b is None:
        return MAX_STEPS_PER_TURN
    depth = _together(c)
    found = [MAX_STEPS_PER_TURN]
    for i in c.a.indices:
        if not {axis, row} <= i.vars:
            continue
        along, step = abs(i.coefficient(row)), abs(i.coefficient(axis)) * depth
        common = math.gcd(along, step)
        if common == 0 or step // common < rows:
            found.append(max(1, along // max(1, common)))
    return min(found)
