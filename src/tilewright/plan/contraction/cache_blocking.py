"""Blocks of rows of a contraction that stay in cache while all panels of the other operand pass over them.

Without blocks every panel reads the whole operand ``a`` again; with them every block reads the whole operand
``b`` again. Whichever costs less, by bytes and where they come from, is chosen (Goto and van de Geijn,
"Anatomy of High-Performance Matrix Multiplication", 2008, section 4, for any access).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import Contraction, footprint
from tilewright.cost import BLOCK_SHARE, Machine, bandwidth

#: How many times cheaper blocks must be: they cost loops, and code where they are not even.
MARGIN: Final = 1.1


@dataclass(frozen=True, slots=True)
class RowBlock:
    """``size`` iterations of the m axis ``axis``, with all of the m axes after it, make a block."""

    axis: str
    size: int


def choose_row_block(
    c: Contraction,
    machine: Machine,
    tiled: Mapping[str, int],
    panel: int,
    cut: str | None,
    made: bool = False,
) -> RowBlock | None:
    """The blocks of a contraction's rows; ``None`` where they do not pay, or no even ones fit.

    ``tiled`` are the m axes of a tile and what it has of each, ``panel`` is its extent along the vector axis.
    Threads share the axis ``cut`` evenly, or, if it is ``None``, the panels. Where ``a`` is ``made`` for this
    contraction, blocks of it need not be stored to memory and read again: they always pay.
    """
    if c.b is None or not tiled or c.group is not None:
        return None
    axes = [a for a in c.axes("m") if a != c.vector]
    full = {it.name: it.extent.as_int() for it in c.stage.iters}
    full |= dict.fromkeys(c.axes("batch"), 1)
    if cut is not None:
        full[cut] //= machine.threads
    panels = -(-full[c.vector] // panel) * prod(full[a] for a in c.axes("n") if a != c.vector)
    share = 1 if cut is not None else min(machine.threads, panels)
    panels = -(-panels // share)
    whole, other = footprint(c.a, full), footprint(c.b, full) // share
    second = machine.target.level("l2")
    most = int(BLOCK_SHARE * (second.size or 0))
    if whole <= most or (panels == 1 and not made):
        return None
    chosen: RowBlock | None = None
    inside = dict(full) | dict.fromkeys(axes, 1)
    for axis in reversed(axes):
        step = tiled.get(axis, 1)
        sizes = [n for n in range(step, full[axis] + 1, step) if full[axis] % n == 0]
        if not sizes and axis != axes[-1]:
            # lines left over at the end of all of them
            sizes = [full[axis]]
        fitting = [n for n in sizes if footprint(c.a, inside | {axis: n}) <= most]
        if not fitting:
            break
        chosen = RowBlock(axis, fitting[-1])
        if fitting[-1] != full[axis]:
            break
        inside[axis] = full[axis]
    if chosen is None:
        return None
    done = footprint(c.a, inside | {chosen.axis: chosen.size})
    blocks = max(1, round(whole / done))
    rate = bandwidth(machine, whole)
    plain = panels * whole / rate
    blocked = whole / rate + panels * whole / second.bandwidth
    blocked += blocks * other / bandwidth(machine.with_threads(machine.threads if cut is None else 1), other)
    return chosen if made or blocked * MARGIN < plain else None
