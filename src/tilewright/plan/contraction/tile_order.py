"""In which order the tiles of a result follow one another: down a panel of columns, or along a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.analysis import Contraction, footprint, row_axis
from tilewright.cost import BLOCK_SHARE, second_cache
from tilewright.ir import Buffer, Stage
from tilewright.plan.contraction.instructions import tile_of
from tilewright.plan.contraction.register_tiling import RegisterTile, vector_width
from tilewright.plan.contraction.sharing import operand_bytes
from tilewright.plan.streaming_stores import is_mostly_stored, reads_as_much
from tilewright.target import Target

#: How many times more columns than rows a tile may have, whose bands pass the panels.
SQUARE_SHARE: Final = 1.25


def columns_inside(c: Contraction, last: Stage, outputs: Sequence[Buffer], target: Target) -> bool:
    """Whether tiles are done along the vectors first, then the next rows."""
    if c.vector in c.axes("batch") or c.b is None:
        # a band of rows from end to end, as it lies in memory
        return True
    # tiles with a border of their own, then, are no parallel loops of their own
    met = any(c.vector in cond.vars for cond in c.guard)
    stored = any(is_mostly_stored(c, b, target) for b in outputs if b.name in last.writes)
    read = footprint(c.b, {it.name: it.extent.as_int() for it in c.stage.iters})
    passing = met or stored or reads_as_much(c, last, target)
    return passing and read <= BLOCK_SHARE * second_cache(target)


def bands_pass(c: Contraction, tile: RegisterTile, target: Target) -> bool:
    """Whether a band of rows passes all panels, not a panel all bands, where both come from one cache.

    Then results are stored in the order in which they lie in memory, and rows that begin in the middle of a
    line stay in the first level: decision 0416 has figures of instructions for whole matrices. A tile with
    fewer rows than columns would read more of each panel than it reads of a band.
    """
    if tile_of(c) is None or c.b is None or row_axis(c) is None:
        return False
    if tile.rows * SQUARE_SHARE < tile.vectors * vector_width(c, target):
        return False
    return operand_bytes(c, c.b) <= BLOCK_SHARE * second_cache(target)
