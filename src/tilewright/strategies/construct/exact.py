"""Exact construction: the best state of each register tile, by values of levels (Gensor, formulas 5, 6).

The graph of states has levels, and edges of one level lead everywhere in it, so that the values of states
follow from those of one level after the other, in one pass: a state of the level ``l`` is worth the best
complete state that it can become. As printed (a product of normalised benefits below 1) values shrink to 0
along any cycle; here the value of a complete state is its price, and the edges between count nothing.

Tiles of a level are a grid, one axis of the nest a dimension, and "around this tile" is a corner of it: the
least over all tiles around each other is a running minimum along each dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.analysis import footprint
from tilewright.ir import Load
from tilewright.strategies.construct.model import compute_cycles, price
from tilewright.strategies.construct.space import Price, State, Tile, TilingSpace

#: Tiles of all cache levels up to which the exact construction is the default: a few tens of milliseconds.
MOST_TILES: Final = 400_000
#: Register tiles whose cache tiles are told apart by traffic, too: the best by their cycles.
RANKED: Final = 64

Grid = npt.NDArray[np.float64]


def tile_count(space: TilingSpace) -> int:
    """Tiles of all cache levels, those that do not fit among them."""
    return len(space.levels) * prod(len(space.sizes(0, axis)) for axis in range(len(space.axes)))


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """What the tiles of each cache level cost: cycles, of what a level cannot hold infinitely many; bytes."""

    sizes: tuple[tuple[int, ...], ...]
    cycles: tuple[Grid, ...]
    traffic: Grid

    def around(self, tile: Tile) -> tuple[slice, ...]:
        """The tiles that have a tile within."""
        return tuple(slice(int(np.searchsorted(s, n)), None) for s, n in zip(self.sizes, tile, strict=True))

    def tile(self, at: tuple[int, ...]) -> Tile:
        """The tile at a place of the grid."""
        return tuple(sizes[n] for sizes, n in zip(self.sizes, at, strict=True))

    def least_cycles(self) -> Grid:
        """Of each tile of the last cache: the fewest cycles of all levels up to there, whatever is around."""
        least = self.cycles[0]
        for cycles in self.cycles[1:]:
            least = np.maximum(cycles, _around(least))
        return _around(least)

    def state(self, registers: Tile, limit: float) -> State | None:
        """The state of a register tile with the least traffic among those within so many cycles."""
        reached: list[Grid] = []
        for cycles in self.cycles:
            own = np.where(cycles <= limit, self.traffic, np.inf)
            reached.append(own + (_around(reached[-1]) if reached else 0.0))
        inner, tiles = registers, [registers]
        for total in reversed(reached):
            corner = self.around(inner)
            part = total[corner]
            found = np.unravel_index(int(part.argmin()), part.shape)
            if not np.isfinite(part[found]):
                return None
            inner = self.tile(tuple(int(n) + s.start for n, s in zip(found, corner, strict=True)))
            tiles.append(inner)
        return State(tuple(reversed(tiles)), len(self.cycles))


def values_of(space: TilingSpace) -> Values:
    """The values of all tiles of cache levels, at once."""
    sizes = tuple(space.sizes(0, axis) for axis in range(len(space.axes)))
    shape = tuple(map(len, sizes))
    reads = np.zeros(shape)
    for ld in space.operands:
        reads += _footprints(space, sizes, ld)
    counts, results = np.ones(shape), np.ones(shape)
    for n, (axis, extent) in enumerate(zip(space.axes, space.extents, strict=True)):
        each = np.array(sizes[n], dtype=np.float64).reshape([-1 if n == m else 1 for m in range(len(shape))])
        counts *= np.ceil(extent / each)
        if axis not in space.sums:
            results *= each
    whole = prod(n for axis, n in zip(space.axes, space.extents, strict=True) if axis not in space.sums)
    traffic = counts * reads + whole * space.width
    held = reads + results * space.width
    behind = (space.memory, *space.levels)
    cycles = tuple(
        np.where(held <= level.capacity, traffic / space.core.threads / far.bandwidth, np.inf)
        for level, far in zip(space.levels, behind, strict=False)
    )
    return Values(sizes, cycles, traffic)


def exact_states(space: TilingSpace, ranked: int = RANKED) -> list[tuple[Price, State]]:
    """The best state of each register tile, the best first; at most ``ranked`` of them.

    The first is the best of all complete states.
    """
    values = values_of(space)
    least = values.least_cycles()
    bounds: list[tuple[float, Tile]] = []
    for tile in sorted(space.registers):
        corner = tuple(s.start for s in values.around(tile))
        limit = max(compute_cycles(space, tile), float(least[corner]))
        if np.isfinite(limit):
            bounds.append((limit, tile))
    bounds.sort()
    # all that share the fewest cycles: traffic decides among them
    most = max(ranked, sum(limit == bounds[0][0] for limit, _ in bounds)) if bounds else 0
    found = [state for limit, tile in bounds[:most] if (state := values.state(tile, limit)) is not None]
    priced = [(price(space, state), state) for state in found]
    return sorted(priced, key=lambda each: (each[0], each[1].tiles))


def _around(grid: Grid) -> Grid:
    """Of each tile the least among those around it, itself included."""
    for axis in range(grid.ndim):
        grid = np.flip(np.minimum.accumulate(np.flip(grid, axis), axis=axis), axis)
    return grid


def _footprints(space: TilingSpace, sizes: tuple[tuple[int, ...], ...], ld: Load) -> Grid:
    """The bytes that a load takes for each tile of a grid: computed for the axes that move it only."""
    moved = {v for i in ld.indices for v in i.vars}
    shape = tuple(len(s) if axis in moved else 1 for axis, s in zip(space.axes, sizes, strict=True))
    out = np.empty(shape)
    for at in np.ndindex(*shape):
        extents = {axis: sizes[n][at[n]] for n, axis in enumerate(space.axes) if axis in moved}
        out[at] = footprint(ld, extents)
    return out
