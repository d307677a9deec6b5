"""Recurrences on managed machines: a step's program as a loop whose steps may be counted at run time.

A step is unrolled into calls, divided among the streams, and recorded as one loop: weights stay near the
units as far as they fit, and what a step leaves is read where it was made. (ISA Mapper, Sec. 3.6 and 5.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tilewright.ir import Buffer, Index, Param, Program, Stage, var
from tilewright.mapping.system.approach import Approach, Heuristics
from tilewright.mapping.system.bind import bind
from tilewright.mapping.system.bound import Tile
from tilewright.mapping.system.dry import DryRun, finished
from tilewright.mapping.system.graph import SystemGraph
from tilewright.mapping.system.loops import run_nodes
from tilewright.mapping.system.nest import Blocks, Loop, NestBuilder, Node, Op, groups
from tilewright.mapping.system.plain import record_plainly
from tilewright.mapping.system.seats import Seating, Seats
from tilewright.mapping.system.static import read_otherwise, tensors_of
from tilewright.mapping.system.stream import Item, Post, StreamProgram, StreamTensor, Wait
from tilewright.support import ProgramError, ResourceError, TargetError, get_logger, quoted

log = get_logger(__name__)

MAX_STEP: Final = 20_000
"""Calls of the longest step, which is unrolled."""


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
    _check_recurrence(recurrence)
    ways = _ways(recurrence, machine)
    parts = ways[chosen.choose("recurrence", ways, recurrence)].parts
    made = [_recorded(part, machine, chosen) for part in parts]
    return made[0] if len(made) == 1 else _one_after_another(made)


@dataclass(frozen=True, slots=True)
class Way:
    """A recurrence, or what does not depend on the steps before as one of its own, and the rest after it.

    ``cost``: bytes that a step brings from the home memory: weights that do not fit, what lies between parts.
    """

    parts: tuple[Recurrence, ...]
    cost: int


def _ways(recurrence: Recurrence, machine: SystemGraph) -> list[Way]:
    room = sum(m.bytes for m in machine.memories.values() if m.name != machine.home)
    own = {*recurrence.sequences, *recurrence.carried.values()}

    def way(parts: Sequence[Recurrence], between: Sequence[Buffer] = ()) -> Way:
        kept = {b.name for b in between}
        weights = [sum(_bytes(b) for b in part.step.inputs if b.name not in own | kept) for part in parts]
        return Way(tuple(parts), sum(max(0, w - room) for w in weights) + 2 * sum(map(_bytes, between)))

    apart = _apart(recurrence)
    return [way([recurrence])] if apart is None else [way([recurrence]), way(*apart)]


def _bytes(b: Buffer) -> int:
    # extents that are open are refused later, where the stage is known
    return prod(x.const for x in b.shape if x.is_const) * b.dtype.bytes


def _apart(recurrence: Recurrence) -> tuple[tuple[Recurrence, Recurrence], tuple[Buffer, ...]] | None:
    """What each step makes of sequences and weights alone, the rest, and what the rest reads of it."""
    step, carried = recurrence.step, recurrence.carried
    later = set(carried.values())
    for s in step.stages:
        if later & {*s.reads, *s.writes}:
            later |= set(s.writes)
    first = tuple(s for s in step.stages if not later & set(s.writes))
    rest = tuple(s for s in step.stages if later & set(s.writes))
    made = {b for s in first for b in s.writes}
    read = {b for s in rest for b in s.reads}
    outputs = {b.name for b in step.outputs}
    if not made & read or made & outputs:
        return None
    between = tuple(b for b in step.temps if b.name in made & read)
    names = {b.name for b in between}

    def part(stages: Sequence[Stage], inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> Program:
        used = {b for s in stages for b in (*s.reads, *s.writes)}
        return replace(
            step,
            inputs=tuple(b for b in inputs if b.name in used),
            outputs=tuple(outputs),
            temps=tuple(b for b in step.temps if b.name in used - names),
            stages=tuple(stages),
        )

    before = part(first, step.inputs, between)
    after = part(rest, (*step.inputs, *between), step.outputs)

    def sequences(program: Program) -> tuple[str, ...]:
        return tuple(b.name for b in program.inputs if b.name in names or b.name in recurrence.sequences)

    parts = (
        Recurrence(before, recurrence.steps, {}, sequences(before)),
        Recurrence(after, recurrence.steps, carried, sequences(after)),
    )
    return parts, between


def _one_after_another(parts: Sequence[StreamProgram]) -> StreamProgram:
    """The streams of the first part, then, when all have done that, those of the second."""
    before, after = parts
    names = list({**before.streams, **after.streams})
    streams: dict[str, tuple[Item, ...]] = {}
    for name in names:
        others = [n for n in names if n != name]
        meeting: list[Item] = [Post(f"parts.{name}.{n}") for n in others]
        meeting += [Wait(f"parts.{n}.{name}") for n in others]
        streams[name] = (*before.streams.get(name, ()), *meeting, *after.streams.get(name, ()))
    given = {t.name: t for t in before.tensors}
    tensors = {
        t.name: replace(t, temp=True) if t.name in given and given[t.name].output else t
        for t in after.tensors
    }
    return replace(after, tensors=tuple({**given, **tensors}.values()), streams=streams)


def _recorded(recurrence: Recurrence, machine: SystemGraph, chosen: Approach) -> StreamProgram:
    """The streams of one loop over the steps."""
    bound = bind(recurrence.step, machine, chosen)
    seating = Seating(machine)
    if not seating.some_does(bound.stages):
        does = ", ".join(dict.fromkeys(s.instruction for s in bound.stages))
        raise TargetError(
            f"machine {quoted(machine.name)}: no stream can do all of a step by itself, which takes {does}",
            hint="give one stream units for all of these, or schedule one step without the recurrence",
        )
    found = groups(bound, seating.some_does)
    calls = sum(s.calls for group in found for s in group.stages)
    if calls > MAX_STEP:
        raise ResourceError(
            f"one step takes more than {MAX_STEP} calls of {quoted(machine.name)}'s instructions",
            hint="a machine with larger instructions, or smaller layers",
        )
    builder = NestBuilder(bound)
    t = builder.fresh("t")
    moved = _Steps(recurrence, t)
    nodes = [
        n for g in found for n in builder.build(g, Blocks(tuple(g.work.items()), 0), None, unrolled=True)
    ]
    body = tuple(moved.op(n) for n in nodes if isinstance(n, Op))
    steps = recurrence.steps
    count = Index(steps) if isinstance(steps, int) else Index(0, ((steps, 1),))
    outputs = frozenset(map(moved.name, bound.outputs))
    seats = seating.together(bound.stages)
    splits = _step_splits(body, outputs, machine, seats)
    split = splits[chosen.choose("split", splits, recurrence)]
    if len(split.parts) == 1:
        seats = seating.alone(bound.stages)
    names = tuple(seats)[: len(split.parts)]
    streams: dict[str, tuple[Item, ...]] = {}
    try:
        for name, part in zip(names, split.parts, strict=True):
            run = DryRun(seats[name], chosen, [])
            run.live = outputs | read_otherwise(part)
            others = tuple(x for x in names if x != name and recurrence.carried)
            run.shared = frozenset(recurrence.carried.values()) if others else frozenset()
            run_nodes(run, [Loop(t, count, part, others)], starved=True)
            run.release()
            streams[name] = finished(run.out)
    except ResourceError as error:
        log.info("steps on %s: each tile by itself: %s", machine.name, error.what)
        small = tuple(moved.node(n) for g in found for n in builder.build(g, g.small, None))
        ((name, alone),) = seating.alone(bound.stages).items()
        streams = {name: finished(tuple(record_plainly(alone, [Loop(t, count, small)])))}
    tensors = tuple(moved.tensor(x, count) for x in tensors_of(bound) if x.name not in recurrence.carried)
    params = () if isinstance(steps, int) else (steps,)
    return StreamProgram(machine.name, machine.fingerprint, tensors, streams, params)


@dataclass(frozen=True, slots=True)
class StepSplit:
    """The calls of a step, for each of the first streams. ``cost``: cycles of the busiest, and of meeting."""

    parts: tuple[tuple[Op, ...], ...]
    cost: float


def _step_splits(
    body: tuple[Op, ...], outputs: frozenset[str], machine: SystemGraph, seats: Mapping[str, Seats]
) -> list[StepSplit]:
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
    most = min(len(seats), len(made)) if whole else 1
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
        cost = max(sum(_cycles(op, mine) for op in p) for p, mine in zip(parts, seats.values(), strict=False))
        found.append(StepSplit(tuple(parts), cost + (meeting if count > 1 else 0)))
    return found


def _cycles(op: Op, seats: Seats) -> float:
    units = {s.unit.name for s in seats.of(op.stage)}
    return seats.machine.instruction(op.stage.instruction).cycles.at(dict(op.sizes)) / len(units)


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

    def node(self, node: Node) -> Node:
        if isinstance(node, Op):
            return self.op(node)
        return replace(node, body=tuple(map(self.node, node.body)))

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
