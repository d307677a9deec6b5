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

from tilewright.ir import Index, Param, Program, var
from tilewright.mapping.system.approach import Approach, Heuristics
from tilewright.mapping.system.bind import BoundProgram, BoundStage, bind
from tilewright.mapping.system.dry import DryRun, finished
from tilewright.mapping.system.graph import SystemGraph, placements
from tilewright.mapping.system.loops import run_nodes
from tilewright.mapping.system.nest import (
    Blocks,
    Group,
    Loop,
    NestBuilder,
    Node,
    Op,
    Tile,
    groups,
    operations,
)
from tilewright.mapping.system.stream import Item, StreamProgram, StreamTensor
from tilewright.support import ProgramError, ResourceError, quoted

FACTORS: Final = (1, 2, 3, 4, 5, 6, 8, 12, 16)
"""Tiles of a block along an axis that are considered."""
MAX_BLOCK: Final = 32
"""Tiles of the largest block: what is unrolled."""
MAX_STEP: Final = 20_000
"""Calls of the longest step of a recurrence, which is unrolled."""


@dataclass(frozen=True, slots=True)
class Split:
    """An axis whose tiles are divided among streams (``None``: one stream does all). ``cost``: calls of the
    busiest stream.
    """

    axis: str | None
    cost: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A group with its division among streams and its blocks."""

    group: Group
    split: Split
    blocks: Blocks
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
    found = groups(bound)
    builder = NestBuilder(bound)
    plans = [_plan(g, bound, machine, chosen) for g in found]
    several = any(p.split.axis is not None for p in plans)
    names = machine.streams if several else machine.streams[:1]
    streams: dict[str, tuple[Item, ...]] = {}
    for n, name in enumerate(names):
        run = DryRun(machine, name, chosen, frozenset())
        for at, plan in enumerate(plans):
            later = {t for p in plans[at + 1 :] for t in _read(p.group)}
            part = _part(plan, n, len(names))
            if part is None or part[1] < part[2]:
                nodes = builder.build(plan.group, plan.blocks, part)
                run.live = frozenset({*bound.outputs, *later, *_read_otherwise(nodes)})
                run_nodes(run, nodes, starved=plan.starved)
            run.live = frozenset({*bound.outputs, *later})
            if several or at + 1 == len(plans):
                run.release()
            if several and at + 1 < len(plans):
                run.barrier(f"group{at}", [x for x in names if x != name])
        streams[name] = finished(run.out)
    return StreamProgram(machine.name, machine.fingerprint, _tensors(bound), streams)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A step that is repeated: ``step`` computes one step's outputs from its inputs.

    ``carried`` gives for outputs of the step the input that they are in the next one. ``sequences`` names
    inputs of which every step has its own. Over all steps, a sequence gets a leading dimension of ``steps``,
    and a carried input one of ``steps + 1``: row 0 is given, row t + 1 is what step t computes. Other inputs
    are the same in all steps; other outputs get a leading dimension of ``steps``.
    """

    step: Program
    steps: int | Param
    carried: Mapping[str, str]
    sequences: tuple[str, ...] = ()


def schedule_recurrence(
    recurrence: Recurrence, machine: SystemGraph, approach: Approach | None = None
) -> StreamProgram:
    """The instruction streams that run a recurrence; the number of steps may be a parameter.

    Streams divide the tiles of a step's results, and meet after each step. What all steps read stays near the
    units as far as it fits; the results of a step stay where the next one reads them. Raises what
    :func:`schedule` raises.
    """
    chosen = approach or Heuristics()
    bound = bind(recurrence.step, machine, chosen)
    _check_recurrence(recurrence)
    builder = NestBuilder(bound)
    t = builder.fresh("t")
    nodes: list[Node] = []
    calls = 0
    for group in groups(bound):
        first = group.stages[0]
        calls += prod(-(-n // first.reach(a)) for a, n in first.extents.items()) * len(group.stages)
        if calls > MAX_STEP:
            raise ResourceError(
                f"one step takes more than {MAX_STEP} calls of {quoted(machine.name)}'s instructions",
                hint="a machine with larger instructions, or smaller layers",
            )
        blocks = Blocks(tuple((a, group.tiles(a)) for a in group.axes), 0)
        nodes += builder.build(group, blocks, None, unrolled=True)
    moved = _Steps(recurrence, t)
    body = tuple(moved.op(n) for n in nodes if isinstance(n, Op))
    steps = recurrence.steps
    count = Index(steps) if isinstance(steps, int) else Index(0, ((steps, 1),))
    outputs = frozenset(map(moved.name, bound.outputs))
    splits = _step_splits(body, outputs, machine)
    parts = splits[chosen.choose("split", splits, recurrence)].parts
    names = machine.streams[: len(parts)]
    streams: dict[str, tuple[Item, ...]] = {}
    for name, part in zip(names, parts, strict=True):
        run = DryRun(machine, name, chosen, outputs | _read_otherwise(part))
        others = tuple(x for x in names if x != name)
        run.shared = frozenset(recurrence.carried.values()) if others else frozenset()
        run_nodes(run, [Loop(t, count, part, others)], starved=True)
        run.release()
        streams[name] = finished(run.out)
    tensors = tuple(moved.tensor(x, count) for x in _tensors(bound) if x.name not in recurrence.carried)
    params = () if isinstance(steps, int) else (steps,)
    return StreamProgram(machine.name, machine.fingerprint, tensors, streams, params)


@dataclass(frozen=True, slots=True)
class StepSplit:
    """The calls of a step, for each of the first streams. ``cost``: cycles of the busiest, and of meeting."""

    parts: tuple[tuple[Op, ...], ...]
    cost: float


def _step_splits(body: tuple[Op, ...], outputs: frozenset[str], machine: SystemGraph) -> list[StepSplit]:
    """Ways to divide a step: each stream makes some tiles of the results, and all that these need.

    What several streams need of what the step itself makes, each makes for itself; what a step leaves for the
    next one they exchange through the home memory.
    """
    made = list(dict.fromkeys(op.result[1] for op in body if op.result[1].tensor in outputs))
    known = {op.result[1] for op in body}
    written = {t.tensor for t in known}
    whole = all(
        t in known or t.tensor not in written or t.tensor in outputs for op in body for _, t in op.operands
    )
    most = min(len(machine.streams), len(made)) if whole else 1
    meeting = 2 * max(m.latency for m in machine.movers.values()) if machine.movers else 0
    found = []
    for count in range(1, most + 1):
        parts = []
        for n in range(count):
            needed = set(made[len(made) * n // count : len(made) * (n + 1) // count])
            if count == 1:
                needed = known
            kept: list[Op] = []
            for op in reversed(body):
                if op.result[1] in needed:
                    kept.append(op)
                    needed = needed | {t for _, t in op.operands}
            parts.append(tuple(reversed(kept)))
        cost = max(
            sum(_cycles(op, machine, name) for op in p)
            for p, name in zip(parts, machine.streams, strict=False)
        )
        found.append(StepSplit(tuple(parts), cost + (meeting if count > 1 else 0)))
    return found


def _cycles(op: Op, machine: SystemGraph, stream: str) -> float:
    units = machine.units_of(op.stage.instruction, stream)
    return machine.instruction(op.stage.instruction).cycles.at(dict(op.sizes)) / max(1, len(units))


def _check_recurrence(r: Recurrence) -> None:
    inputs = {b.name: b for b in r.step.inputs}
    outputs = {b.name: b for b in r.step.outputs}
    if (isinstance(r.steps, int) and r.steps < 1) or (isinstance(r.steps, Param) and r.steps.lo < 1):
        raise ProgramError("a recurrence has at least one step")
    for name in r.sequences:
        if name not in inputs or name in r.carried.values():
            raise ProgramError(f"the sequence {quoted(name)} is no input of the step, or is carried")
    for made, taken in r.carried.items():
        if made not in outputs or taken not in inputs:
            raise ProgramError(
                f"{quoted(made)} -> {quoted(taken)} is carried: it must be an output and an input of the step"
            )
        if outputs[made].shape != inputs[taken].shape or outputs[made].dtype != inputs[taken].dtype:
            raise ProgramError(
                f"{quoted(made)} and {quoted(taken)} differ in shape or type, and one becomes the other"
            )


class _Steps:
    """From one step's tensors to those of all steps."""

    def __init__(self, recurrence: Recurrence, t: str) -> None:
        self.carried = dict(recurrence.carried)
        self.own = {*recurrence.sequences, *(b.name for b in recurrence.step.outputs)}
        self.t = var(t)

    def name(self, tensor: str) -> str:
        return self.carried.get(tensor, tensor)

    def op(self, op: Op) -> Op:
        return replace(
            op,
            operands=tuple((n, self.tile(x)) for n, x in op.operands),
            result=(op.result[0], self.tile(op.result[1])),
        )

    def tile(self, tile: Tile) -> Tile:
        if tile.tensor in self.carried:
            at = self.t + 1
        elif tile.tensor in self.own or tile.tensor in self.carried.values():
            at = self.t
        else:
            return tile
        dims = tuple(d + 1 if d >= 0 else d for d in tile.dims)
        steps = (1, *tile.steps) if tile.steps else ()
        return Tile(self.name(tile.tensor), (at, *tile.lows), (1, *tile.extents), dims, tile.dtype, steps)

    def tensor(self, tensor: StreamTensor, count: Index) -> StreamTensor:
        if tensor.name in self.carried.values():
            return replace(tensor, shape=(count + 1, *tensor.shape), output=True, given=True)
        if tensor.name in self.own:
            return replace(tensor, shape=(count, *tensor.shape))
        return tensor


# ---- plans ----


def _read(group: Group) -> set[str]:
    return {o.tensor for s in group.stages for o in s.operands}


def _read_otherwise(nodes: Sequence[Node]) -> frozenset[str]:
    """Tensors that are read as other tiles than those that the same nodes write, if they write any."""
    made = {op.result[1] for op, _ in operations(nodes)}
    return frozenset(t.tensor for op, _ in operations(nodes) for _, t in op.operands if t not in made)


def _tensors(bound: BoundProgram) -> tuple[StreamTensor, ...]:
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


def _plan(group: Group, bound: BoundProgram, machine: SystemGraph, approach: Approach) -> _Plan:
    count = len(machine.streams)
    work = {a: group.tiles(a) for a in group.axes}
    splits = [
        Split(a, (-(-n // count) * (prod(work.values()) // n), i))
        for i, (a, n) in enumerate(work.items())
        if n > 1
    ]
    if count == 1 or not splits:
        splits = [Split(None, (prod(work.values()), 0))]
    split = splits[approach.choose("split", splits, group)]
    if split.axis is not None:
        group = _evened(group, split.axis, count, machine)
        work[split.axis] = -(-work[split.axis] // count)
    options = list(_block_options(group, work, bound, machine, 1 if split.axis is None else count))
    if not options:
        raise ResourceError(
            f"stage {quoted(group.stages[0].stage)}: not one tile of each operand fits the memories of"
            f" machine {quoted(machine.name)}"
        )
    chosen = options[approach.choose("blocks", [b for b, _ in options], group)]
    return _Plan(group, split, *chosen)


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


def _part(plan: _Plan, n: int, streams: int) -> tuple[str, int, int] | None:
    """The tiles of one stream: equal parts, the first ones larger."""
    if plan.split.axis is None:
        return None if n == 0 else ("", 0, 0)
    tiles = plan.group.tiles(plan.split.axis)
    size, more = divmod(tiles, streams)
    lo = n * size + min(n, more)
    return plan.split.axis, lo, lo + size + (n < more)


def _block_options(
    group: Group, work: Mapping[str, int], bound: BoundProgram, machine: SystemGraph, streams: int
) -> list[tuple[Blocks, bool]]:
    """Blocks and orders of the axes with their estimated cycles, and whether moves decide those."""
    first = group.stages[0]
    name = machine.streams[0]
    estimate = _Estimate(group, work, bound, machine, name, streams)
    mapped = [a for a in group.axes if first.reach(a) > 1 or work[a] == 1 or first.reach(a) == 1]
    choices = [[f for f in FACTORS if f <= work[a]] if a in mapped else [1] for a in group.axes]
    if len(group.axes) > 3:  # images: only axes that a call goes along are blocked
        choices = [c if first.reach(a) > 1 else [1] for a, c in zip(group.axes, choices, strict=True)]
    out: list[tuple[Blocks, bool]] = []
    for factors in product(*choices):
        if prod(factors) > MAX_BLOCK:
            continue
        f = dict(zip(group.axes, factors, strict=True))
        cycles, starved = estimate.cycles(f)
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
        self,
        group: Group,
        work: Mapping[str, int],
        bound: BoundProgram,
        machine: SystemGraph,
        stream: str,
        streams: int,
    ) -> None:
        self.group, self.work, self.machine, self.streams = group, work, machine, streams
        first = group.stages[0]
        self.first = first
        units = machine.units_of(first.instruction, stream)
        self.units = max(1, len(units))
        instruction = machine.instruction(first.instruction)
        sizes = {
            first.sizes[i]: min(n, first.extents[a]) if a else 1
            for i, (a, n) in first.axes.items()
            if i in first.sizes
        }
        self.call = instruction.cycles.at(sizes)
        self.wait = instruction.latency.at(sizes)
        self.steps = prod(-(-first.extents[a] // first.reach(a)) for a in first.reduces)
        self.reads: list[tuple[int, frozenset[str], str, float, int]] = []
        self.capacity = {m.name: m.bytes for m in machine.memories.values()}
        if not units:
            return
        where = placements(machine, units[0], first.instruction)[0]
        for o in first.operands:
            axes = {a for a in first.extents if any(a in x.vars for x in o.indices)}
            size = bound.tensors[o.tensor].dtype.bytes * prod(
                min(first.reach(a), first.extents[a]) for a in axes if first.reach(a) > 1
            )
            rate, latency = self.rate(machine.home, where[o.name], stream)
            self.reads.append((size, frozenset(axes - set(first.reduces)), where[o.name], rate, latency))
        self.result = bound.tensors[first.result.tensor].dtype.bytes * prod(
            min(first.reach(a), first.extents[a]) for a in group.axes
        )
        self.at = where[first.result.name]

    def rate(self, source: str, target: str, stream: str) -> tuple[float, int]:
        if source == target:
            return inf, 0
        path = self.machine.path(source, target, stream)
        rates = [float(m.bytes_per_cycle) for m in path]
        rates += [self.machine.channels[c].bytes_per_cycle / self.streams for m in path for c in m.channels]
        return min(rates), sum(m.latency for m in path)

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
        if any(n > self.capacity[m] for m, n in need.items() if m != self.machine.home):
            return inf, True
        compute = -(-tiles // self.units) * self.call
        if self.steps > 1:
            compute = max(compute, self.call)
        blocks = prod(-(-n // factors[a]) for a, n in self.work.items())
        double = need[self.at] + tiles * self.result <= self.capacity[self.at]
        fill = load + (start + self.wait) * (0.3 if double else 1.0)
        return blocks * (self.steps * max(compute, load) + fill), load > compute
