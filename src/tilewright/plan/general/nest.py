"""Register tiles for any reduction: sums of three factors, min-plus products, distances, any semiring.

The nest that results, for a result with vectors along one axis and rows along up to two others::

    parallel for (axes around, panels of vectors, tiles of rows):
        acc[rows, vectors] = start        # registers
        for the reduction:                # a few steps unrolled
            acc[...] = fold(acc[...], term(operands))
        out[...] = epilogue(acc[...])

What does not divide is a copy of its own with exact extents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Final

from tilewright.analysis import physical, run_length
from tilewright.cost import Machine, operations_of
from tilewright.ir import (
    Binary,
    DType,
    Load,
    Program,
    Stage,
    Store,
    condition_of,
    loads,
)
from tilewright.plan.contraction.match import panels_of
from tilewright.plan.contraction.sharing import sharing
from tilewright.plan.contraction.tile_loops import share_tiles
from tilewright.target import Target
from tilewright.tiling import Body, Cut, Leaf, Level, Nest, Place, Step, chain, sequence

#: Sizes of a register tile along one axis that are tried.
SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)
#: Vectors beside each other that are tried.
VECTORS: Final = (1, 2, 3, 4)
#: Multiply-adds, or other operations, of one turn of the innermost loop, at most.
MAX_OPERATIONS_PER_TURN: Final = 120
#: Registers that operands and constants take besides the accumulators.
SPARE_REGISTERS: Final = 3
#: Loads of vectors and broadcasts that start in a cycle.
LOADS_PER_CYCLE: Final = 2.0
#: Part of a step that the loop around it costs, in cycles.
LOOP_OVERHEAD_CYCLES: Final = 0.25
#: Operations below which another rule does as well.
MIN_OPERATIONS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of any term into one place of its result, and the axes that its nest can tile.

    ``vector`` is the axis along which the result lies together, ``operands`` are what its term reads, where
    it lies in memory, ``operations`` those of one instance. ``epilogue`` consumes the result point by point,
    the stages ``panels`` lay operands out along the vectors.
    """

    stage: Stage
    epilogue: Stage | None
    vector: str
    operands: tuple[Load, ...]
    operations: int
    panels: tuple[str, ...] = ()

    @property
    def last(self) -> Stage:
        """The stage that ends the nest."""
        return self.epilogue or self.stage

    @property
    def rows(self) -> tuple[str, ...]:
        """The other axes of the result."""
        pars = (it.name for it in self.stage.iters if it.kind == "par")
        return tuple(a for a in pars if a != self.vector and self.stage.extent(a) > 1)

    @property
    def sums(self) -> tuple[str, ...]:
        """The axes of the reduction."""
        return tuple(it.name for it in self.stage.iters if it.kind == "red")


@dataclass(frozen=True, slots=True)
class GeneralPlan:
    """A register tile of ``rows`` (axis and size) times ``vectors``, and ``unroll`` steps of the reduction.

    With ``columns_inside`` tiles follow one another along the vectors first. ``threads`` share the outer
    loops.
    """

    rows: tuple[tuple[str, int], ...]
    vectors: int
    unroll: int = 1
    columns_inside: bool = False
    threads: int = 1

    @property
    def accumulators(self) -> int:
        """Vectors of the result in registers."""
        return self.vectors * prod(size for _, size in self.rows)


def match_reduction(
    program: Program, stage: Stage, epilogue: Stage | None, target: Target
) -> Reduction | None:
    """A reduction that register tiles suit: vectors along the result, sizes known; ``None`` for others."""
    _, body = condition_of(stage.body)
    if not stage.is_reduction or not isinstance(body, Store) or len(body.writes) != 1:
        return None
    write = body.writes[0]
    stages = (stage, epilogue or stage)
    if not isinstance(write.value, Binary) or not all(it.extent.is_const for st in stages for it in st.iters):
        return None
    if stage.init is None or any(it.kind == "ord" for it in stage.iters):
        # an update goes on with what is there: its tile is not defined in registers first
        return None
    pars = [it.name for it in stage.iters if it.kind == "par"]
    if [i.as_var() for i in write.indices] != pars or not pars:
        return None
    vector = pars[-1]
    if stage.extent(vector) * 2 < target.lanes(write.value.dtype):
        return None
    found = tuple(
        physical(program, ld) for ld in dict.fromkeys(loads(write.value)) if ld.buffer not in stage.writes
    )
    if not found or any(_strided(ld, vector) for ld in found):
        return None
    operations = max(1, operations_of(write.value))
    if prod(it.extent.as_int() for it in stage.iters) * operations < MIN_OPERATIONS:
        return None
    made = {ld.buffer for ld in found}
    panels = (
        st.name for st in program.stages if st.name.startswith(panels_of(stage)) and made & {*st.writes}
    )
    return Reduction(stage, epilogue, vector, found, operations, tuple(panels))


def strided_operands(program: Program, stage: Stage) -> tuple[Load, ...]:
    """What a reduction reads across its vectors: gathered, unless it is laid out for them before."""
    pars = [it.name for it in stage.iters if it.kind == "par"]
    if not pars:
        return ()
    return tuple(
        ld
        for ld in stage.operands
        if ld.buffer not in stage.writes and _strided(physical(program, ld), pars[-1])
    )


def _strided(ld: Load, vector: str) -> bool:
    return any(vector in i.vars for i in ld.indices) and run_length(ld, vector) is not None


def default_general(r: Reduction, machine: Machine) -> GeneralPlan:
    """The register tile with the fewest cycles for each result and step, among those that registers hold."""
    target = machine.target
    best: tuple[float, GeneralPlan] | None = None
    machine = sharing(r.stage, machine)
    for plan in tiles_of(r, machine):
        cost = cycles_per_step(r, plan, target)
        if best is None or cost < best[0] - 1e-9:
            best = (cost, plan)
    assert best is not None
    return best[1]


def tiles_of(r: Reduction, machine: Machine) -> list[GeneralPlan]:
    """All register tiles of a reduction, with the steps that are unrolled in each."""
    whole = -(-r.stage.extent(r.vector) // machine.target.lanes(dtype_of(r)))
    axes = [*r.rows[::-1]]
    chosen: list[tuple[tuple[str, int], ...]] = [()]
    chosen += [((a, n),) for a in axes for n in SIZES[1:] if n <= r.stage.extent(a)]
    chosen += [
        ((a, n), (b, m))
        for a, b in combinations(axes, 2)
        for n in SIZES[1:5]
        for m in SIZES[1:5]
        if n <= r.stage.extent(a) and m <= r.stage.extent(b)
    ]
    plans = [
        GeneralPlan(rows, vectors, threads=machine.threads)
        for rows in chosen
        for vectors in VECTORS
        if vectors <= whole
    ]
    fitting = [plan for plan in plans if fits_registers(r, plan, machine.target)]
    return [
        GeneralPlan(plan.rows, plan.vectors, steps_unrolled(r, plan), threads=machine.threads)
        for plan in fitting or plans[:1]
    ]


def fits_registers(r: Reduction, plan: GeneralPlan, target: Target) -> bool:
    """Whether accumulators and one step's vectors fit beside each other."""
    beside = sum(plan.vectors for ld in r.operands if any(r.vector in i.vars for i in ld.indices))
    return plan.accumulators + min(beside, plan.vectors * 2) + SPARE_REGISTERS <= target.vector_registers


def steps_unrolled(r: Reduction, plan: GeneralPlan) -> int:
    """The steps of the innermost loop that are expanded."""
    steps = r.stage.extent(r.sums[-1])
    work = plan.accumulators * r.operations
    return next(n for n in (4, 2, 1) if steps % n == 0 and (n == 1 or n * work <= MAX_OPERATIONS_PER_TURN))


def cycles_per_step(r: Reduction, plan: GeneralPlan, target: Target) -> float:
    """Cycles that one step of the reduction takes for each vector of results."""
    sizes = dict(plan.rows)
    read = 0
    for ld in r.operands:
        moved = {v for i in ld.indices for v in i.vars}
        read += prod(n for a, n in sizes.items() if a in moved) * (plan.vectors if r.vector in moved else 1)
    work = plan.accumulators * r.operations / target.fma_per_cycle
    latency = target.fma_latency * max(1, r.operations // 2)
    step = max(work, read / LOADS_PER_CYCLE, latency) + LOOP_OVERHEAD_CYCLES / plan.unroll
    # partial tiles count as whole ones
    waste = prod(-(-r.stage.extent(a) // n) * n / r.stage.extent(a) for a, n in sizes.items())
    lanes = target.lanes(dtype_of(r)) * plan.vectors
    extent = r.stage.extent(r.vector)
    waste *= -(-extent // lanes) * lanes / extent
    return step * waste / plan.accumulators


def general_nest(r: Reduction, plan: GeneralPlan, program: Program, target: Target) -> Nest:
    """The nest of a reduction and the stage that consumes it point by point, if there is one."""
    stage, last, lanes = r.stage, r.last, target.lanes(dtype_of(r))
    own = [it.name for it in stage.iters if it.kind == "par"]
    names = dict(zip(own, [it.name for it in last.iters if it.kind == "par"], strict=True))
    sizes = {axis: size for axis, size in plan.rows if size > 1}
    sizes[r.vector] = min(plan.vectors * lanes, stage.extent(r.vector))
    tiles = {a: Step(a, n, count=-(-stage.extent(a) // n)) for a, n in sizes.items()}
    columns = tiles.pop(r.vector)
    around = [Step(a, 1, count=stage.extent(a)) for a in own if a not in sizes]
    outer = [*around, *([*tiles.values(), columns] if plan.columns_inside else [columns, *tiles.values()])]
    outer[-1].hint("outline")
    body = _tile(r, plan, list(tiles), names)
    # panels of operands for a panel of columns, just before their use
    panels = [_panel(program.stage(name)) for name in reversed(r.panels)]
    for step in reversed(outer):
        if step is columns:
            body = sequence(*panels, body)
        loop = Level(((names[step.axis], step.size),), body, "serial", tuple(step.hints.items()))
        end = stage.extent(step.axis) // step.size * step.size
        ragged = end < stage.extent(step.axis) and end
        body = Cut(names[step.axis], (end,), (loop, loop)) if ragged else loop
    if plan.threads > 1:
        extents = {names[a]: stage.extent(a) for a in own}
        body = share_tiles(body, extents, [(names[s.axis], s.size) for s in outer], plan.threads)
    return Nest(last.name, body)


def _tile(r: Reduction, plan: GeneralPlan, rows: Sequence[str], names: Mapping[str, str]) -> Body:
    """The nest inside a tile: sums outside, rows expanded, vectors innermost; and what becomes of it."""
    name, result = r.stage.name, r.stage.writes[0]
    sums = [Step(a, 1) for a in r.sums]
    if plan.unroll > 1:
        sums[-1].hint("unroll", str(plan.unroll))
    pars = [it.name for it in r.stage.iters if it.kind == "par"]
    ordered = sorted(rows, key=pars.index)
    inner = [
        *(Step(a, 1, "unroll") for a in (rows if r.epilogue is None else ordered)),
        Step(r.vector, 1, "vector"),
    ]
    nest = chain([*sums, *inner], Leaf(name))
    if r.epilogue is None:
        drain = chain([*(Step(a, 1, "unroll") for a in ordered), Step(r.vector, 1, "vector")], Leaf(name))
        return sequence(Place(result, "keep", "register", nest, drain))
    rest = chain(
        [Step(names[a], 1, "unroll") for a in rows],
        chain([Step(names[r.vector], 1, "vector")], Leaf(r.epilogue.name)),
    )
    return sequence(Place(name, "make", "register", nest), rest)


def _panel(stage: Stage) -> Place:
    """An operand laid out along the vectors, in vectors."""
    *rest, last = [it.name for it in stage.iters]
    body = chain([*(Step(a, 1) for a in rest), Step(last, 1, "vector")], Leaf(stage.name))
    return Place(stage.name, "make", "local", body)


def dtype_of(r: Reduction) -> DType:
    """The type of a reduction's result."""
    _, body = condition_of(r.stage.body)
    assert isinstance(body, Store)
    return body.writes[0].value.dtype
