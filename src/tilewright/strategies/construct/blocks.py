"""States of a product on a GPU: tiles of a block in shared memory and of a thread, virtual threads, buffers.

Gensor's ETIR as it is there (Sec. IV-A): construction starts at the tile of a block, goes on to that of a
thread, and at the registers also chooses how many virtual threads each axis has. Beyond the paper: slices
that are copied ahead (``buffer``), and products by matrix units, whose innermost tile is a warp's. Sums
that are taken apart among blocks are decided before, by the same model, since they are another program
(``plan/gpu/reductions.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import inf, isfinite
from typing import Any, TypeAlias

from tilewright.cost import ACCESS_ELEMENTS as GROUP, ProductSize, ProductTiles, WarpTiles, product_seconds
from tilewright.plan import MatrixProblem, ProductProblem, Space
from tilewright.strategies.construct.space import (
    Core,
    Edge,
    Level,
    Price,
    State,
    Tile,
    TilingSpace,
    neighbours,
)
from tilewright.target import GpuTarget

Tiles: TypeAlias = ProductTiles | WarpTiles
#: The axes of states, in order.
AXES = ("batch", "rows", "columns", "sums")
ROWS, COLUMNS, SUMS = 1, 2, 3
#: Cycles until a multiply-add's result can be used (Jia et al., arXiv:1804.06826: 4 on Volta).
FMA_LATENCY = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class BlockSpace(TilingSpace):
    """All states of a product of ``size`` on a device, with the tiles that ``plans`` has."""

    size: ProductSize
    device: GpuTarget
    plans: Space[Any]

    def initial(self) -> State:
        """The smallest tiles, no virtual threads, nothing copied ahead."""
        block = tuple(self.sizes(0, axis)[0] for axis in range(len(AXES)))
        return State((block, min(self.registers)), virtual=(1,) * len(AXES))

    @property
    def is_feasible(self) -> bool:
        """Whether a block holds the smallest tiles."""
        return self.is_legal(self.initial())

    def sizes(self, level: int, axis: int) -> tuple[int, ...]:
        """What the plan's rule offers; no tile is as large as twice what there is."""
        if level == len(self.levels):
            return tuple(sorted({tile[axis] for tile in self.registers}))
        if AXES[axis] == "batch":
            return (1,)
        options = _options(self.plans, "depth" if axis == SUMS else AXES[axis])
        fitting = [n for n in sorted(options) if axis == SUMS or n < 2 * self.extents[axis]]
        return tuple(fitting or [min(options)])

    def virtual_threads(self, state: State, axis: int) -> tuple[int, ...]:
        """How many virtual threads an axis may have: what divides a thread's tile into groups."""
        size = state.tiles[-1][axis]
        return tuple(n for n in (1, 2, 4, 8) if axis in (ROWS, COLUMNS) and size % n == 0) or (1,)

    def is_legal(self, state: State) -> bool:
        """Whether tiles are inside one another, shared memory holds a block's and registers a thread's."""
        block, thread = state.tiles
        inside = all(inner <= outer for inner, outer in zip(thread, block, strict=True))
        groups = all(v in self.virtual_threads(state, axis) for axis, v in enumerate(state.virtual))
        if not inside or not groups or thread not in self.registers:
            return False
        plan = self.plan(state)
        return (
            plan.shared_bytes(self.size.element) <= self.device.shared_per_block
            and plan.registers <= self.device.registers_per_thread
        )

    def edges(self, state: State) -> Iterator[Edge]:
        """Those of tiles and levels, and at its level what else a block or a thread has."""
        # not super(): dataclasses with slots are made anew, and it would not find the class
        yield from TilingSpace.edges(self, state)
        if state.level == 0:
            for action, n in neighbours(_options(self.plans, "stages"), state.buffers, "buffer", "unbuffer"):
                changed = replace(state, buffers=n)
                if self.is_legal(changed):
                    yield Edge(action, None, changed)
            return
        for axis, had in enumerate(state.virtual):
            counts = self.virtual_threads(state, axis)
            for action, n in neighbours(counts, had, "virtual threads", "fewer virtual threads"):
                virtual = (*state.virtual[:axis], n, *state.virtual[axis + 1 :])
                changed = replace(state, virtual=virtual)
                if self.is_legal(changed):
                    yield Edge(action, axis, changed)

    def footprint(self, tile: Tile) -> float:
        """Bytes of shared memory of a block's tile; of registers of a thread's, its sums among them."""
        held = tile[ROWS] * tile[COLUMNS] * self.width if tile in self.registers else 0
        return self._reads(tile) + held

    def plan(self, state: State) -> Tiles:
        """The plan that a state stands for."""
        block, thread = state.tiles
        groups = []
        for axis in (ROWS, COLUMNS):
            group = thread[axis] // state.virtual[axis]
            usual = group == min(thread[axis], GROUP)
            groups.append(GROUP if usual else group)
        return ProductTiles(
            block[ROWS], block[COLUMNS], block[SUMS], thread[ROWS], thread[COLUMNS], state.buffers, *groups
        )

    def ungrouped(self, state: State) -> Tiles:
        """Its plan as it is without virtual threads."""
        plan = self.plan(state)
        assert isinstance(plan, ProductTiles)  # as here
        return replace(plan, group_rows=GROUP, group_columns=GROUP)

    def conflicts(self, state: State) -> tuple[int, int]:
        """Turns that reads of rows and of columns take for bank conflicts."""
        plan = self.plan(state)
        assert isinstance(plan, ProductTiles)  # as here
        return plan.conflicts

    def planned_states(self) -> Iterator[State]:
        """All states of the last level that the plan's rule has."""
        blocks = [self.sizes(0, axis) for axis in range(len(AXES))]
        stages = _options(self.plans, "stages")
        for block, thread, buffers in product(product(*blocks), sorted(self.registers), stages):
            one = State((block, thread), len(self.levels), (1,) * len(AXES), buffers)
            counts = [self.virtual_threads(one, axis) for axis in range(len(AXES))]
            if self.plans.refusal(self.ungrouped(one)):
                # groups change none of it
                continue
            for virtual in product(*counts):
                yield replace(one, virtual=virtual)

    def _reads(self, tile: Tile) -> float:
        return (tile[ROWS] + tile[COLUMNS]) * tile[SUMS] * self.width


@dataclass(frozen=True, slots=True, eq=False)
class WarpSpace(BlockSpace):
    """Those of a product by matrix units: the innermost tile is a warp's, whose threads the units decide."""

    def virtual_threads(self, state: State, axis: int) -> tuple[int, ...]:
        """None but the thread itself."""
        return (1,)

    def plan(self, state: State) -> Tiles:
        """The plan that a state stands for."""
        block, warp = state.tiles
        return WarpTiles(block[ROWS], block[COLUMNS], block[SUMS], warp[ROWS], warp[COLUMNS], state.buffers)

    def ungrouped(self, state: State) -> Tiles:
        """Its plan."""
        return self.plan(state)

    def conflicts(self, state: State) -> tuple[int, int]:
        """Rows of slices lie apart: none."""
        return (1, 1)


class DeviceModel:
    """Seconds by tiles, occupancy, waves and bank conflicts; bytes moved; registers of a thread.

    Bytes are those that come to blocks, and those that threads read, as often as conflicts have them wait.

    Infinitely many seconds where the rule has no such plan: too few threads, or too many.
    """

    def price(self, space: TilingSpace, state: State) -> Price:
        """What ``cost`` says of the plan."""
        assert isinstance(space, BlockSpace)
        plan = space.plan(state)
        seconds = product_seconds(space.size, plan, space.device) if space.plans.has(plan) else inf
        thread = state.tiles[-1]
        down, across = space.conflicts(state)
        read = space.tiles(thread) * (thread[ROWS] * down + thread[COLUMNS] * across) * space.width
        return seconds, space.traffic(state.tiles[0]) + read, plan.registers

    def overlap(self, space: TilingSpace, before: State, after: State) -> float:
        """Formula 3: turns that reads of shared memory take for bank conflicts, before and after."""
        assert isinstance(space, BlockSpace)
        old, new = space.conflicts(before), space.conflicts(after)
        return old[0] * old[1] / (new[0] * new[1])


@dataclass(frozen=True, slots=True, eq=False)
class BlockConstruction:
    """The states of a product on a device, and its plans."""

    tilings: BlockSpace
    plans: Space[Any]

    def plan_of(self, state: State) -> Tiles:
        """The plan of a complete state: all of it."""
        return self.tilings.plan(state)


def block_construction(
    problem: ProductProblem | MatrixProblem, plans: Space[Any], device: GpuTarget
) -> BlockConstruction | None:
    """The construction of a product; ``None`` where a block does not hold the smallest tiles."""
    size = problem.size
    by_warps = isinstance(problem, MatrixProblem)
    own = "warp" if by_warps else "thread"
    threads = product(_options(plans, f"{own}_rows"), _options(plans, f"{own}_columns"))
    shared, far = device.level("shared"), device.memory[-1]
    caches = [level for level in device.memory if level.name in ("l2", "l3")]
    behind = caches[-1] if caches else far
    # no block fills more than its largest tile
    rows, columns, depth, stages = (max(_options(plans, n)) for n in ("rows", "columns", "depth", "stages"))
    made, space = (WarpTiles, WarpSpace) if by_warps else (ProductTiles, BlockSpace)
    largest = made(rows, columns, depth, 1, 1, stages)
    tilings = space(
        axes=AXES,
        extents=(size.batch, size.rows, size.columns, size.sums),
        sums=frozenset({"sums"}),
        vector="columns",
        operands=(),
        operations=1,
        width=size.element,
        levels=(
            Level(
                "shared",
                min(device.shared_per_block, largest.shared_bytes(size.element)),
                shared.bandwidth,
                shared.latency,
            ),
        ),
        memory=Level(behind.name, inf, behind.bandwidth, behind.latency),
        registers=frozenset((1, down, across, 1) for down, across in threads),
        core=Core(device.warp, device.fma_per_cycle / device.warp, FMA_LATENCY),
        model=DeviceModel(),
        size=size,
        device=device,
        plans=plans,
    )
    return BlockConstruction(tilings, plans) if tilings.is_feasible else None


def exact_blocks(space: BlockSpace) -> list[tuple[Price, State]]:
    """The best state of each tile of a thread, the best first: all states are priced (formulas 5, 6)."""
    best: dict[Tile, tuple[Price, State]] = {}
    for state in space.planned_states():
        found = (space.model.price(space, state), state)
        thread = state.tiles[-1]
        if isfinite(found[0][0]) and (thread not in best or _order(found) < _order(best[thread])):
            best[thread] = found
    return sorted(best.values(), key=_order)


def _order(found: tuple[Price, State]) -> tuple[Price, tuple[Tile, ...], Tile, int]:
    cost, state = found
    return cost, state.tiles, state.virtual, state.buffers


def _options(plans: Space[Any], name: str) -> tuple[int, ...]:
    """The sizes that a field of plans may have, in order."""
    return tuple(sorted(n for n in plans.options[name] if isinstance(n, int)))
