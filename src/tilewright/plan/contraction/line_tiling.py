"""Rows of two axes in one register tile, where those of one are few: short lines, or images, side by side.

A line of seven pixels makes a tile of seven rows, whose steps load as many vectors of weights, and count as
much for their loop, as those of fourteen. That is a loss where a core shares the instructions that it starts
(`cost/issue.py`): 8.2 cycles a step instead of 14.8 for twice the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.analysis import Contraction, row_axis
from tilewright.cost import Machine, shared_cycles
from tilewright.plan.contraction.instructions import use_of
from tilewright.plan.contraction.register_tiling import MAX_ROWS, RegisterTile, rows_in_registers

#: How much faster the model must show such tiles to be: lines left over have code of their own.
MARGIN: Final = 1.03


@dataclass(frozen=True, slots=True)
class Beside:
    """Lines of a tile: ``count`` neighbours along the m axis ``axis``."""

    axis: str
    count: int


def lines_beside(
    c: Contraction, tile: RegisterTile, machine: Machine, cut: str | None, balanced: bool
) -> Beside | None:
    """The lines that a tile of one whole line takes together; ``None`` where one is as good.

    Threads share the axis ``cut``, if any. Lines that no padding meets: those of the nearest axis that they
    divide, else, if what is outside is shared ``balanced``, those of the nearest one.
    """
    target = machine.target
    row = row_axis(c)
    if (
        c.b is None
        or row is None
        or c.vector in c.axes("batch")
        or use_of(c) is not None
        or c.group
        or c.rows
    ):
        return None
    count = min(MAX_ROWS, rows_in_registers(target, tile.vectors, True)) // tile.rows
    if c.extent(row) != tile.rows or count < 2:
        return None
    met = {v for cond in c.guard for v in cond.vars}
    axes = [a for a in c.axes("m") if a not in (row, c.vector) and a not in met and c.extent(a) > 1]
    own = {a: c.extent(a) // (machine.threads if a == cut else 1) for a in axes}
    even = [a for a in reversed(axes) if own[a] % count == 0]
    near = [a for a in reversed(axes) if own[a] > count and a != cut and balanced]
    axis = next(iter([*even, *near]), None)
    if axis is None:
        return None
    alone, together = (shared_cycles(target, tile.rows * n, tile.vectors) for n in (1, count))
    if alone is None or together is None:
        return None
    whole, left = divmod(own[axis], count)
    cycles = whole * together + (
        shared_cycles(target, tile.rows * left, tile.vectors) or 0.0 if left else 0.0
    )
    return Beside(axis, count) if cycles * MARGIN < own[axis] * alone else None
