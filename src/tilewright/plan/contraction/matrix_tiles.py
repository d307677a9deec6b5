"""The parts that contractions are cut into for instructions that multiply whole matrices.

Extents are cut evenly, into parts of at most the instruction's axes: parts of tiles take as long as whole
ones, so as few as possible are taken, and so many together that none waits for the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.target import Instruction

#: Results that are summed up beside each other: a product takes that many times as long as it occupies.
RESULTS: Final = 4
#: What loading an operand's tile costs, as part of a product.
LOAD_COST: Final = 0.5
#: How much of an instruction even parts must use, for it to be worth its moves.
LEAST_USE: Final = 0.2


@dataclass(frozen=True, slots=True)
class MatrixTile:
    """Parts of the axes that one instruction does, and how many of rows and columns are done together."""

    rows: int
    columns: int
    depth: int
    row_tiles: int
    column_tiles: int


def matrix_tile(
    instruction: Instruction,
    rows: int,
    columns: int,
    depth: int,
    *,
    panel: int | None = None,
    run: int | None = None,
) -> MatrixTile | None:
    """The even parts with the fewest products; ``None`` where an extent has no good ones.

    ``rows`` and ``columns`` are extents of the result, ``depth`` the reduction's run that lies together;
    ``panel`` are columns that must be done together, ``run`` those that lie together in the result.
    """
    m, n, k = (extent for _, extent in matrix_axes(instruction))
    group = instruction.b.group
    deep = max((d for d in range(group, k + 1, group) if depth % d == 0), default=0)
    if not deep:
        return None
    best: tuple[float, MatrixTile] | None = None
    for row_tiles in range(1, RESULTS + 1):
        for column_tiles in range(1, RESULTS // row_tiles + 1):
            high = _part(rows, row_tiles, m)
            wide = _part(columns, column_tiles, n)
            if not high or not wide or (run is not None and run % wide):
                continue
            if panel is not None and wide * column_tiles != panel:
                continue
            tile = MatrixTile(high, wide, deep, row_tiles, column_tiles)
            cost = tile_cost(tile, rows, columns, depth)
            if best is None or cost < best[0]:
                best = (cost, tile)
    if best is None:
        return None
    tile = best[1]
    return tile if tile.rows * tile.columns * tile.depth >= LEAST_USE * m * n * k else None


def matrix_axes(row: Instruction) -> tuple[tuple[str, int], ...]:
    """An instruction's axes for whole matrices with their extents: rows, columns, the reduction."""
    inner = dict(row.inner_axes)
    spanned = [axis for axis in row.result.axes if axis in inner]
    return tuple((axis, inner[axis]) for axis in (*spanned, *(a for a in inner if a not in spanned)))


def products_cost(instruction: Instruction, rows: int, columns: int, depth: int) -> float | None:
    """What a contraction takes, in products of an instruction; ``None`` where it has no good parts."""
    tile = matrix_tile(instruction, rows, columns, depth)
    return None if tile is None else tile_cost(tile, rows, columns, depth)


def tile_cost(tile: MatrixTile, rows: int, columns: int, depth: int) -> float:
    """Products with what they wait and load, in products."""
    count = (rows // tile.rows) * (columns // tile.columns) * (depth // tile.depth)
    together = tile.row_tiles * tile.column_tiles
    # each waits for the one before on the same result
    waiting = max(1.0, RESULTS / together)
    loads = LOAD_COST * (tile.row_tiles + tile.column_tiles) / together
    return count * (waiting + loads)


def _part(extent: int, tiles: int, most: int) -> int:
    """The largest part, of which ``tiles`` together divide an extent; 0 where there is none."""
    return max((n for n in range(1, most + 1) if extent % (n * tiles) == 0), default=0)
