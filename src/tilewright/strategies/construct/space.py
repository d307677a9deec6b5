"""States of a construction: the tiles of a nest at the registers and at each cache level, and their edges.

The ETIR of Gensor (Sec. IV-A); what GPUs have besides is in ``blocks.py``. Levels are counted from the
slowest cache towards the registers; construction starts at the slowest. An edge changes the tile of one axis
at the current level to the next larger or smaller size, goes on to the next level (``cache``), or back to the
one before (``uncache``, which the paper does not have: without it a level that was left too early is left for
good). No tile is larger than that of the level around it, and none takes more than its level holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, Protocol, TypeAlias

from tilewright.analysis import footprint
from tilewright.ir import Load

Tile: TypeAlias = tuple[int, ...]
"""Iterations of each axis, in the order of the axes of the nest."""
Action: TypeAlias = Literal[
    "tile",
    "inverse tile",
    "virtual threads",
    "fewer virtual threads",
    "buffer",
    "unbuffer",
    "cache",
    "uncache",
]
Price: TypeAlias = tuple[float, float, int]
"""What a state costs: time, in one unit for all of a space; bytes moved; what decides among equal ones."""


@dataclass(frozen=True, slots=True)
class Level:
    """A cache: the bytes that one thread may fill, bytes a cycle from it, and cycles until they come."""

    name: str
    capacity: float
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class Core:
    """What the loops of a nest run on.

    Lanes of its vectors, instructions a cycle, cycles of one, the threads that share the result, and its
    vector registers.
    """

    lanes: int
    per_cycle: float
    latency: float
    threads: int = 1
    registers: int = 32


@dataclass(frozen=True, slots=True)
class State:
    """Tiles of all levels, the slowest cache first and the registers last, and the level in work.

    On GPUs also the virtual threads of each axis, groups of a thread's iterations that lie apart, and the
    slices of its operands that a block's memory holds at once.
    """

    tiles: tuple[Tile, ...]
    level: int = 0
    virtual: Tile = ()
    buffers: int = 1

    def with_tile(self, tile: Tile) -> State:
        """The state with another tile at its level."""
        return replace(self, tiles=(*self.tiles[: self.level], tile, *self.tiles[self.level + 1 :]))


@dataclass(frozen=True, slots=True)
class Edge:
    """An action, the axis that it is about (``None`` where it is about all), and where it leads."""

    action: Action
    axis: int | None
    state: State

    @property
    def stays(self) -> bool:
        """Whether it leaves the level as it is."""
        return self.action not in ("cache", "uncache")


class Model(Protocol):
    """What tells states of a kind of machine apart."""

    def price(self, space: TilingSpace, state: State) -> Price:
        """What a complete state costs: smaller is better."""

    def overlap(self, space: TilingSpace, before: State, after: State) -> float:
        """Formula 3: what a change at the registers gains by what then runs side by side."""


@dataclass(frozen=True, slots=True, eq=False)
class TilingSpace:
    """All states of one reduction.

    ``axes`` have their ``extents``; those in ``sums`` are summed over, ``vector`` is the one of the vectors.
    ``operands`` are what a term of so many ``operations`` reads, ``width`` the bytes of a result. ``levels``
    are the caches, the slowest first, ``memory`` is what lies behind them. ``registers`` are the tiles that
    registers hold. ``model`` prices them.
    """

    axes: tuple[str, ...]
    extents: Tile
    sums: frozenset[str]
    vector: str
    operands: tuple[Load, ...]
    operations: int
    width: int
    levels: tuple[Level, ...]
    memory: Level
    registers: frozenset[Tile]
    core: Core
    model: Model
    _known: dict[tuple[str, Tile], float] = field(default_factory=dict, init=False, repr=False)

    def initial(self) -> State:
        """Nothing tiled: the smallest tile of the registers at every level."""
        least = min(self.registers, key=lambda tile: (prod(tile), tile))
        return State((least,) * (len(self.levels) + 1))

    @property
    def is_feasible(self) -> bool:
        """Whether there are iterations, and each level holds the smallest tile: else nothing to construct."""
        least = self.initial().tiles[0]
        return 0 not in self.extents and all(self.footprint(least) <= level.capacity for level in self.levels)

    def is_complete(self, state: State) -> bool:
        """Whether all levels have been worked on."""
        return state.level == len(self.levels)

    def sizes(self, level: int, axis: int) -> tuple[int, ...]:
        """Sizes of an axis at a level, in order: powers of two times the smallest, and the whole axis."""
        if level == len(self.levels):
            return tuple(sorted({tile[axis] for tile in self.registers}))
        size, extent = self.initial().tiles[0][axis], self.extents[axis]
        found = []
        while size < extent:
            found.append(size)
            size *= 2
        return (*found, extent)

    def is_legal(self, state: State) -> bool:
        """Whether tiles are inside one another, and every level holds its own."""
        *caches, registers = state.tiles
        nested = all(
            inner <= outer
            for around, tile in zip(state.tiles, state.tiles[1:], strict=False)
            for inner, outer in zip(tile, around, strict=True)
        )
        held = all(
            self.footprint(tile) <= level.capacity for tile, level in zip(caches, self.levels, strict=True)
        )
        return nested and held and registers in self.registers

    def edges(self, state: State) -> Iterator[Edge]:
        """What can be done next, always in the same order."""
        tile = state.tiles[state.level]
        for axis, size in enumerate(tile):
            for action, n in neighbours(self.sizes(state.level, axis), size, "tile", "inverse tile"):
                changed = state.with_tile((*tile[:axis], n, *tile[axis + 1 :]))
                if self.is_legal(changed):
                    yield Edge(action, axis, changed)
        if state.level < len(self.levels):
            yield Edge("cache", None, replace(state, level=state.level + 1))
        if state.level > 0:
            yield Edge("uncache", None, replace(state, level=state.level - 1))

    def footprint(self, tile: Tile) -> float:
        """Bytes that a tile takes: of its operands and of its results."""
        return self._reads(tile) + self._results(tile) * self.width

    def traffic(self, tile: Tile) -> float:
        """Bytes that pass into a level with such tiles: operands once a tile, results once."""
        return self.tiles(tile) * self._reads(tile) + self._results(self.extents) * self.width

    def tiles(self, tile: Tile, *, summed: bool = True) -> int:
        """How many tiles cover the nest, partial ones counted whole; its results without ``summed``."""
        return prod(
            -(-extent // size)
            for axis, extent, size in zip(self.axes, self.extents, tile, strict=True)
            if summed or axis not in self.sums
        )

    def of(self, tile: Tile) -> Mapping[str, int]:
        """The tile by the names of axes."""
        return dict(zip(self.axes, tile, strict=True))

    def _reads(self, tile: Tile) -> float:
        key = ("reads", tile)
        if key not in self._known:
            extents = self.of(tile)
            self._known[key] = sum(footprint(ld, extents) for ld in self.operands)
        return self._known[key]

    def _results(self, tile: Tile) -> int:
        return prod(n for axis, n in zip(self.axes, tile, strict=True) if axis not in self.sums)


def neighbours(
    sizes: tuple[int, ...], size: int, larger: Action, smaller: Action
) -> Iterator[tuple[Action, int]]:
    """The next larger and the next smaller of some sizes, each with its action."""
    at = sizes.index(size)
    if at + 1 < len(sizes):
        yield larger, sizes[at + 1]
    if at > 0:
        yield smaller, sizes[at - 1]
