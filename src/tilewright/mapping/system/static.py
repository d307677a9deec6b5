"""Static scheduling: programs onto managed machines, as instruction streams with loops (ISA Mapper, Sec. 3).

Stages are bound to instructions, put in groups that are computed tile by tile, each group's tiles are divided
among the machine's streams along one axis, and each stream is recorded by a dry run. No decision is left to
run time, and no loop is unrolled but the tiles of one block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import inf, prod
from typing import Final

from tilewright.ir import Program
from tilewright.mapping.system.approach import Approach, Heuristics
from tilewright.mapping.system.bind import bind
from tilewright.mapping.system.bound import BoundProgram, BoundStage
from tilewright.mapping.system.dry import DryRun, Recorded, finished, meeting
from tilewright.mapping.system.graph import Mover, SystemGraph
from tilewright.mapping.system.loops import run_nodes
from tilewright.mapping.system.nest import (
    Blocks,
    Group,
    NestBuilder,
    Node,
    groups,
    operations,
)
from tilewright.mapping.system.plain import record_plainly
from tilewright.mapping.system.seats import Seating, Seats
from tilewright.mapping.system.stream import Item, StreamProgram, StreamTensor
from tilewright.support import ResourceError, get_logger, quoted

log = get_logger(__name__)

FACTORS: Final = (1, 2, 3, 4, 5, 6, 8, 12, 16)
"""Tiles of a block along an axis that are considered."""
MAX_BLOCK: Final = 32
"""Tiles of the largest block: what is unrolled."""


@dataclass(frozen=True, slots=True)
class Split:
    """An axis whose tiles are divided among streams (``None``: one stream does all). ``cost``: calls of the
    busiest stream.
    """

    axis: str | None
    cost: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A group, the streams that do it, its division among them, and its blocks; without, tile by tile."""

    group: Group
    seats: Mapping[str, Seats]
    split: Split
    blocks: Blocks | None
    starved: bool


def schedule(program: Program, machine: SystemGraph, approach: Approach | None = None) -> StreamProgram:
    """The instruction streams that compute a program on a machine.

    Inputs and outputs lie in the machine's home memory. Raises ProgramError for stages that no instruction
    computes, TargetError where no path of moves leads to an operand, ResourceError for tiles or tensors that
    do not fit.
    """
    chosen = approach or Heuristics()
    bound = bind(program, machine, chosen)
    _check_room(bound, machine)
    seating = Seating(machine)
    builder = NestBuilder(bound)
    plans = [_plan(g, bound, seating, chosen) for g in groups(bound, seating.some_does)]
    used = {name for p in plans for name in p.seats}
    names = [name for name in machine.streams if name in used]
    streams: dict[str, tuple[Item, ...]] = {}
    for name in names:
        out: list[Recorded] = []
        run: DryRun | None = None
        for at, plan in enumerate(plans):
            part = _part(plan, name)
            if part is None or part[1] < part[2]:
                if run is None or len(names) > 1:
                    run = DryRun(plan.seats[name], chosen, out)
                run.needed = frozenset(
                    {*bound.outputs, *(t for p in plans[at + 1 :] for t in _read(p.group))}
                )
                _record(run, plan, part, builder)
                if len(names) > 1 or at + 1 == len(plans):
                    run.release()
                out = run.out
            if at + 1 < len(plans):
                out += meeting(f"group{at}", name, [x for x in names if x != name])
        streams[name] = finished(out)
    return StreamProgram(machine.name, machine.fingerprint, tensors_of(bound), streams)


def _record(run: DryRun, plan: _Plan, part: tuple[str, int, int] | None, builder: NestBuilder) -> None:
    """Record a stream's part of a plan, tile by tile where what is chosen on the way does not fit."""
    if plan.blocks is not None:
        nodes = builder.build(plan.group, plan.blocks, part)
        before = run.state()
        run.live = run.needed | read_otherwise(nodes)
        try:
            run_nodes(run, nodes, starved=plan.starved)
        except ResourceError as error:
            run.back_to(before)
            log.info("stream %s of %s: tile by tile: %s", run.stream, run.machine.name, error.what)
        else:
            run.live = run.needed
            return
    run.live = run.needed | _read(plan.group) | {s.result.tensor for s in plan.group.stages}
    run.release()
    run.live = run.needed
    run.out += record_plainly(run.seats, builder.build(plan.group, plan.group.small, part))


# ---- plans ----


def _read(group: Group) -> set[str]:
    return {o.tensor for s in group.stages for o in s.operands}


def read_otherwise(nodes: Sequence[Node]) -> frozenset[str]:
    """Tensors that are read as other tiles than those that the same nodes write, if they write any."""
    made = {op.result[1] for op, _ in operations(nodes)}
    return frozenset(t.tensor for op, _ in operations(nodes) for _, t in op.operands if t not in made)


def tensors_of(bound: BoundProgram) -> tuple[StreamTensor, ...]:
    """The tensors in the home memory, as streams declare them."""
    return tuple(
        StreamTensor(
            b.name, b.shape, b.dtype, b.name in bound.outputs, b.name not in (*bound.inputs, *bound.outputs)
        )
        for b in bound.tensors.values()
    )


def _check_room(bound: BoundProgram, machine: SystemGraph) -> None:
    home = machine.memories[machine.home]
    total = sum(prod(x.as_int() for x in b.shape) * b.dtype.bytes for b in bound.tensors.values())
    if total > home.bytes:
        raise ResourceError(
            f"the program's tensors take {total} bytes, and memory {quoted(home.name)} of machine"
            f" {quoted(machine.name)} has {home.bytes}"
        )


def _plan(group: Group, bound: BoundProgram, seating: Seating, approach: Approach) -> _Plan:
    seats = seating.together(group.stages)
    count = len(seats)
    work = group.work
    splits = [
        Split(a, (-(-n // count) * (prod(work.values()) // n), i))
        for i, (a, n) in enumerate(work.items())
        if n > 1 and count > 1
    ] or [Split(None, (prod(work.values()), 0))]
    split = splits[approach.choose("split", splits, group)]
    if split.axis is None:
        seats = seating.alone(group.stages)
    else:
        group = _evened(group, split.axis, count, seating.machine)
        work[split.axis] = -(-work[split.axis] // count)
    options = _block_options(group, work, bound, seats)
    if not options:
        return _Plan(group, seats, split, None, True)
    chosen = options[approach.choose("blocks", [b for b, _ in options], group)]
    return _Plan(group, seats, split, *chosen)


def _evened(group: Group, axis: str, streams: int, machine: SystemGraph) -> Group:
    """The group with equal tiles along an axis, as many for each stream as the busiest one had."""
    extent = group.stages[0].extents[axis]
    most = -(-group.tiles(axis) // streams)
    reach = -(-extent // (most * streams))
    parameters = {
        p
        for s in group.stages
        for p in machine.instruction(s.instruction).semantics.params
        for i, (a, _) in s.axes.items()
        if a == axis and s.sizes.get(i) == p.name
    }
    fixed = any(a == axis and i not in s.sizes for s in group.stages for i, (a, _) in s.axes.items())
    if fixed or any(p.multiple_of > 1 or p.lo > 1 for p in parameters):
        return group

    def shorter(stage: BoundStage) -> BoundStage:
        return replace(stage, axes={i: (a, reach if a == axis else n) for i, (a, n) in stage.axes.items()})

    return Group(tuple(map(shorter, group.stages)))


def _part(plan: _Plan, stream: str) -> tuple[str, int, int] | None:
    """The tiles of one stream: equal parts, the first ones larger."""
    if stream not in plan.seats:
        return "", 0, 0
    if plan.split.axis is None:
        return None
    n = list(plan.seats).index(stream)
    size, more = divmod(plan.group.tiles(plan.split.axis), len(plan.seats))
    lo = n * size + min(n, more)
    return plan.split.axis, lo, lo + size + (n < more)


def _block_options(
    group: Group, work: Mapping[str, int], bound: BoundProgram, seats: Mapping[str, Seats]
) -> list[tuple[Blocks, bool]]:
    """Blocks and orders of the axes with their estimated cycles, and whether moves decide those."""
    first = group.stages[0]
    # streams that are alike have one estimate; of others the slowest counts, and the smallest memory
    estimates = {e.key: e for e in (_Estimate(group, work, bound, s, len(seats)) for s in seats.values())}
    choices = [[f for f in FACTORS if f <= work[a]] for a in group.axes]
    if len(group.axes) > 3:  # images: only axes that a call goes along are blocked
        choices = [c if first.reach(a) > 1 else [1] for a, c in zip(group.axes, choices, strict=True)]
    out: list[tuple[Blocks, bool]] = []
    for factors in product(*choices):
        if prod(factors) > MAX_BLOCK:
            continue
        f = dict(zip(group.axes, factors, strict=True))
        cycles, starved = max(e.cycles(f) for e in estimates.values())
        if cycles < inf:
            out.append((Blocks(tuple(f.items()), cycles), starved))
    best = min((b.cost for b, _ in out), default=0)
    if len(group.axes) <= 3:
        near = [(b, s) for b, s in out if b.cost <= best * 1.01]
        turned = [
            (Blocks(order, b.cost + 0.001 * n), s)
            for b, s in near[:4]
            for n, order in enumerate(permutations(b.factors))
        ]
        out = turned + [x for x in out if x not in near]
    return out


class _Estimate:
    """Cycles of a group by blocks: units and moves side by side, a fill a block."""

    def __init__(
        self, group: Group, work: Mapping[str, int], bound: BoundProgram, seats: Seats, streams: int
    ) -> None:
        self.group, self.work, self.machine, self.streams = group, work, seats.machine, streams
        first = group.stages[0]
        found = seats.of(first)
        seat = found[0]
        self.units = len({s.unit.name for s in found})
        instruction = self.machine.instruction(first.instruction)
        sizes = {
            first.sizes[i]: min(n, first.extents[a]) if a else 1
            for i, (a, n) in first.axes.items()
            if i in first.sizes
        }
        self.call = instruction.cycles.at(sizes)
        self.wait = instruction.latency.at(sizes)
        self.steps = prod(-(-first.extents[a] // first.reach(a)) for a in first.reduces)
        self.reads: list[tuple[int, frozenset[str], str, float, int]] = []
        self.capacity = {m: size for m, (_, size) in seats.areas.items()}
        for o in first.operands:
            axes = {a for a in first.extents if any(a in x.vars for x in o.indices)}
            size = bound.tensors[o.tensor].dtype.bytes * prod(
                min(first.reach(a), first.extents[a]) for a in axes if first.reach(a) > 1
            )
            rate, latency = self.rate(seat.loads.get(o.name, ()))
            self.reads.append(
                (size, frozenset(axes - set(first.reduces)), seat.memories[o.name], rate, latency)
            )
        self.result = bound.tensors[first.result.tensor].dtype.bytes * prod(
            min(first.reach(a), first.extents[a]) for a in group.axes
        )
        self.at = seat.memories[first.result.name]
        places = [m for _, _, m, _, _ in self.reads] + [self.at]
        alike = [(*r[:2], *r[3:]) for r in self.reads]
        rooms = [(places.index(m), self.capacity.get(m, 0)) for m in places]
        self.key = repr((self.units, alike, rooms))

    def rate(self, path: Sequence[Mover]) -> tuple[float, int]:
        rates = [float(m.bytes_per_cycle) for m in path]
        rates += [self.machine.channels[c].bytes_per_cycle / self.streams for m in path for c in m.channels]
        return min(rates, default=inf), sum(m.latency for m in path)

    def cycles(self, factors: Mapping[str, int]) -> tuple[float, bool]:
        """Estimated cycles (``inf``: it does not fit), and whether moves take longer than units."""
        tiles = prod(factors.values())
        need: dict[str, int] = {self.at: tiles * self.result}
        if len(self.group.stages) > 1:
            need[self.at] += 3 * self.result
        load, start = 0.0, 0
        for size, axes, memory, rate, latency in self.reads:
            part = prod(factors[a] for a in axes) * size
            need[memory] = need.get(memory, 0) + 2 * part
            load += part / rate
            start = max(start, latency)
        if any(n > self.capacity[m] for m, n in need.items() if m in self.capacity):
            return inf, True
        compute = -(-tiles // self.units) * self.call
        if self.steps > 1:
            compute = max(compute, self.call)
        blocks = prod(-(-n // factors[a]) for a, n in self.work.items())
        double = need[self.at] + tiles * self.result <= self.capacity.get(self.at, 0)
        fill = load + (start + self.wait) * (0.3 if double else 1.0)
        return blocks * (self.steps * max(compute, load) + fill), load > compute
