"""Between plans and states: the tilings of a problem's nest, and the plan that a state stands for.

Plans say the register tile, of contractions also one block of rows that a cache keeps, and along which axis
tiles follow one another; so much of a state is carried out. Tiles of caches that no field of a plan carries
out guide the construction and the prediction only. Every plan is one of its rule's space.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any

from tilewright.analysis import row_axis
from tilewright.cost import KEPT_SHARE, Machine
from tilewright.plan import (
    ContractionProblem,
    GeneralPlan,
    GeneralProblem,
    MatrixProblem,
    ProductProblem,
    Space,
    TilePlan,
    steps_unrolled,
    vector_width,
)
from tilewright.strategies.construct.blocks import BlockConstruction, block_construction
from tilewright.strategies.construct.model import CoreModel
from tilewright.strategies.construct.space import Core, Level, State, Tile, TilingSpace
from tilewright.target import GpuTarget


@dataclass(frozen=True, slots=True, eq=False)
class Construction:
    """The states of a nest, its plans, and the plans of the register tiles among them."""

    tilings: TilingSpace
    plans: Space[Any]
    tile_plans: Mapping[Tile, Any]
    row: str | None

    def plan_of(self, state: State) -> Any:
        """The plan of a complete state, as much of it as one of the space's can say."""
        plan = self.tile_plans[state.tiles[-1]]
        inner = self.tilings.of(state.tiles[-2])
        whole = self.tilings.of(self.tilings.extents)
        along, row = self.tilings.vector, self.row
        # the axis of which less is kept is the one that passes last
        inside = row is not None and inner[along] * whole[row] > inner[row] * whole[along]
        ordered = replace(plan, columns_inside=inside)
        forms = [ordered, plan]
        if isinstance(plan, TilePlan):
            forms = [*(replace(ordered, block=block) for block in self._blocks(state)), *forms]
        return next(form for form in forms if self.plans.has(form))

    def tile_of(self, plan: Any) -> Tile | None:
        """The register tile that a plan has; ``None`` where it is of another form."""
        same = (tile for tile, own in self.tile_plans.items() if is_same_tile(own, plan))
        return next(same, None)

    def _blocks(self, state: State) -> Iterator[tuple[str, int]]:
        """Blocks of rows: what a cache keeps of an axis, where that is not all, the second level's first."""
        whole = self.tilings.of(self.tilings.extents)
        for tile in state.tiles[-3::-1]:
            for axis, size in self.tilings.of(tile).items():
                if axis not in self.tilings.sums and size < whole[axis]:
                    yield axis, size


def is_same_tile(plan: Any, other: Any) -> bool:
    """Whether two plans are of one form, and equal in their register tiles."""
    return type(plan) is type(other) and (plan.rows, plan.vectors) == (other.rows, other.vectors)


def construction(
    problem: object, plans: Space[Any], machine: Machine
) -> Construction | BlockConstruction | None:
    """The construction of a rule's problem; ``None`` of nests that only have their default plan."""
    if isinstance(problem, ProductProblem | MatrixProblem):
        return block_construction(problem, plans, machine.gpu)
    if isinstance(machine.on, GpuTarget):
        return None
    target = machine.target
    if isinstance(problem, GeneralProblem) and isinstance(plans.default, GeneralPlan):
        r = problem.reduction
        stage, vector, operands, operations = r.stage, r.vector, r.operands, r.operations
        row = r.rows[-1] if r.rows else None
        dtype = problem.context.program.buffer(stage.writes[0]).dtype
        lanes = target.lanes(dtype)
        unrolled = [
            replace(plan, unroll=steps_unrolled(r, plan)) for plan in _tile_plans(plans, plans.default)
        ]
        tile_plans = [({**dict(plan.rows), vector: plan.vectors * lanes}, plan) for plan in unrolled]
    elif isinstance(problem, ContractionProblem) and isinstance(plans.default, TilePlan) and plans.options:
        c = problem.tiles().c
        stage, vector, operations = c.stage, c.vector, 1
        operands = (c.a,) if c.b is None else (c.a, c.b)
        row, lanes = row_axis(c), vector_width(c, target)
        dtype = c.write.value.dtype
        tile_plans = []
        for plan in _tile_plans(plans, plans.default):
            rows = {} if row is None else {row: plan.rows}
            beside = {} if plan.lines is None else dict([plan.lines])
            tile_plans.append((rows | beside | {vector: plan.vectors * lanes}, plan))
    else:
        return None
    axes = tuple(it.name for it in stage.iters)
    extents = tuple(stage.extent(axis) for axis in axes)
    by_tile: dict[Tile, Any] = {}
    for sizes, plan in tile_plans:
        by_tile.setdefault(tuple(min(sizes.get(a, 1), n) for a, n in zip(axes, extents, strict=True)), plan)
    levels, memory = _levels(machine)
    if not by_tile or len(levels) < 2:
        return None
    tilings = TilingSpace(
        axes=axes,
        extents=extents,
        sums=frozenset(it.name for it in stage.iters if it.kind == "red"),
        vector=vector,
        operands=operands,
        operations=operations,
        width=dtype.bytes,
        levels=levels,
        memory=memory,
        registers=frozenset(by_tile),
        core=Core(
            lanes,
            target.fma_per_cycle,
            target.fma_latency,
            max(1, plans.default.threads),
            target.vector_registers,
        ),
        model=CoreModel(),
    )
    return Construction(tilings, plans, MappingProxyType(by_tile), row) if tilings.is_feasible else None


def _tile_plans(plans: Space[Any], default: Any) -> Iterator[Any]:
    """A plan of each register tile: the default's in the rest, as far as that goes with the tile."""
    for rows, vectors in product(plans.options["rows"], plans.options["vectors"]):
        plan = replace(default, rows=rows, vectors=vectors)
        forms = [plan]
        if isinstance(plan, TilePlan):
            forms += [replace(plan, block=None), replace(plan, block=None, shared=None)]
        yield from (form for form in forms if plans.has(form))


def _levels(machine: Machine) -> tuple[tuple[Level, ...], Level]:
    """The caches of one thread, the slowest first, and the memory behind them."""
    memory = machine.target.memory
    caches = tuple(
        Level(
            level.name,
            KEPT_SHARE * level.size / min(machine.threads, level.shared_by),
            level.bandwidth,
            level.latency,
        )
        for level in reversed(memory)
        if level.size is not None
    )
    far = memory[-1]
    return caches, Level(far.name, float("inf"), far.bandwidth, far.latency)
