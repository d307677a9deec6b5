"""What a state costs on a CPU: the roofline of each level, and the turns of its register tile.

Not in Gensor, which needs such a model to say which of its states is the best. The longest of the rooflines
counts, so that many states tie: less traffic in all decides then, and after that more accumulators.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.strategies.construct.space import Price, State, Tile, TilingSpace

#: Loads of vectors and broadcasts that start in a cycle.
LOADS_PER_CYCLE: Final = 2.0
#: Cycles of a turn of the loop around a register tile, besides its work, with a few of them expanded.
TURN_CYCLES: Final = 0.25


def price(space: TilingSpace, state: State) -> Price:
    """The price of a state, by the model of its space: smaller is better."""
    return space.model.price(space, state)


class CoreModel:
    """Cycles of the busiest thread; bytes between all levels; accumulators, negative."""

    def price(self, space: TilingSpace, state: State) -> Price:
        """The longest of the rooflines."""
        *caches, registers = state.tiles
        bytes_moved = sum(map(space.traffic, caches))
        bounds = [level_cycles(space, n, tile) for n, tile in enumerate(caches)]
        return max(compute_cycles(space, registers), *bounds), bytes_moved, -accumulators(space, registers)

    def overlap(self, space: TilingSpace, before: State, after: State) -> float:
        """Formula 3 on a CPU: turns of as many independent sums as hide the latency, before and after."""
        return interleaving(
            space, accumulators(space, before.tiles[-1]), accumulators(space, after.tiles[-1])
        )


def interleaving(space: TilingSpace, before: int, after: int) -> float:
    """Turns of as many independent sums as hide the latency, before and after."""
    wanted = max(1, round(space.core.latency * space.core.per_cycle))
    return -(-wanted // before) / -(-wanted // after)


def level_cycles(space: TilingSpace, level: int, tile: Tile) -> float:
    """Cycles until one thread's part of the traffic into a level has come from the level behind it."""
    behind = space.memory if level == 0 else space.levels[level - 1]
    return space.traffic(tile) / space.core.threads / behind.bandwidth


def compute_cycles(space: TilingSpace, tile: Tile) -> float:
    """Cycles of the busiest thread's register tiles: products, loads, or sums that wait for one another.

    What registers do not hold is stored and loaded again (three factors 512^3, 24 accumulators 2.07 ms, 16
    1.42; sums of minima 4.1 and 2.2; in the assembly of 24 accumulators 38 to 130 such stores).
    """
    core, sizes = space.core, space.of(tile)
    held = accumulators(space, tile)
    reads = beside = 0
    for ld in space.operands:
        moved = {v for i in ld.indices for v in i.vars}
        reads += (own := prod(_vectors(space, axis, n) for axis, n in sizes.items() if axis in moved))
        beside += own if space.vector in moved else 1
    waits = core.latency * max(1, space.operations // 2)
    # terms of several operations are computed side by side before they are added: each takes a register, too
    live = held * (2 if space.operations > 1 else 1) + beside
    reads += 2 * max(0, live - core.registers)
    turn = max(held * space.operations / core.per_cycle, reads / LOADS_PER_CYCLE, waits) + TURN_CYCLES
    steps = prod(n for axis, n in zip(space.axes, space.extents, strict=True) if axis in space.sums)
    return -(-space.tiles(tile, summed=False) // core.threads) * steps * turn


def accumulators(space: TilingSpace, tile: Tile) -> int:
    """Vectors of results in registers."""
    return prod(_vectors(space, axis, n) for axis, n in space.of(tile).items() if axis not in space.sums)


def _vectors(space: TilingSpace, axis: str, size: int) -> int:
    return -(-size // space.core.lanes) if axis == space.vector else size
