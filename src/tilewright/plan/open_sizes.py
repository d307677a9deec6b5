"""Plans of programs with symbolic sizes: trees that were written at a typical size, for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt, log, prod
from typing import Final

from tilewright import tiling
from tilewright.codegen import check
from tilewright.cost import Machine, seconds, tree_of
from tilewright.ir import CONST, F32, REGISTER, Program, buffers_of, function_at, program_at, typical_sizes
from tilewright.lower import lower
from tilewright.plan.algorithms.accuracy import EXACT
from tilewright.plan.assembly import plan_unit
from tilewright.plan.clusters import Planned
from tilewright.plan.fallback import fell_back
from tilewright.plan.unit import UnitPlan, build_unit
from tilewright.schedule import Schedule
from tilewright.support import ArtefactError, ScheduleError, TargetError
from tilewright.target import Instruction, Target

#: Where between the least and the typical sizes programs are planned, and prices are looked at; beyond 1
#: between the typical and the largest.
PLANNED: Final = (1.0, 0.5)
LOOKED_AT: Final = (0.25, 0.5, 0.75, 1.0, 1.5)
#: Programs whose plans are remembered: those of a model's kernels.
REMEMBERED: Final = 256
#: What each of two plans must save where it is the better one. Prices promise more than they keep: a version
#: is a step more in each run, and overwrites nothing. Two threads, time of one plan over that of versions:
#: with 0.1 0.94 to 1.08 (an export of ConvNeXt), with 0.3 0.88 to 1.0 (GPT-2), one process each.
GAIN: Final = 0.4


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A plan for all sizes, and how many elements arguments have where it is the faster one."""

    planned: Planned
    above: int = 0
    until: int | None = None


def plan_open(
    program: Program,
    machine: Machine,
    planned: Callable[[Program, Machine], Planned] | None = None,
) -> Planned:
    """The plan of a program with symbolic sizes.

    It is that of the program at typical sizes (:func:`tilewright.ir.typical_sizes`), by the direct method
    (others ask for sizes that divide), with trees for all sizes (:func:`tilewright.tiling.symbolic`).
    ``planned`` makes it, by default the rules do. The plan of small sizes is taken where it is no dearer at
    large ones, and less over all sizes of :data:`LOOKED_AT`. Where a step of both is refused it is that of a
    machine without tile registers, whose rows would have to be padded, and then what the rules make of the
    symbols.
    """
    (plan, many), *others = _candidates(program, machine, planned)
    large = [n for n, part in enumerate(LOOKED_AT) if part >= 1]
    for small, few in others:
        if all(few[n] <= many[n] for n in large) and sum(map(log, few)) < sum(map(log, many)):
            return small
    return plan


def plan_versions(
    program: Program,
    machine: Machine,
    planned: Callable[[Program, Machine], Planned] | None = None,
) -> tuple[Version, ...]:
    """As :func:`plan_open`, or two plans where one is faster for few elements and the other for many.

    The border is between the sizes at which prices change places.
    """
    found = _candidates(program, machine, planned)
    if len(found) == 2:
        (large, many), (small, few) = found
        logs = [log(b / a) for a, b in zip(many, few, strict=True)]
        at = min(range(len(logs) + 1), key=lambda n: sum(logs[:n]))
        least, limit = min(logs[:at], default=0.0), log(1 - GAIN)
        if least <= limit and max(logs[at:], default=0.0) >= -limit:
            counts = [elements(program, typical_sizes(program.params, LOOKED_AT[n])) for n in (at - 1, at)]
            border = isqrt(prod(counts))
            return (Version(small, until=border), Version(large, above=border))
    return (Version(plan_open(program, machine, planned)),)


def elements(program: Program, sizes: Mapping[str, int]) -> int:
    """How many elements the arguments of a program have at some sizes, without what is known beforehand."""
    at = program_at(program, sizes)
    return sum(prod(n.as_int() for n in b.shape) for b in (*at.inputs, *at.outputs) if b.scope != CONST)


@lru_cache(maxsize=REMEMBERED)
def _candidates(
    program: Program, machine: Machine, planned: Callable[[Program, Machine], Planned] | None
) -> tuple[tuple[Planned, tuple[float, ...]], ...]:
    """The plans of typical sizes and of small ones, if they differ, with their prices from small to large."""
    refused: ScheduleError | None = None
    for on in _machines(machine):
        found: list[Planned] = []
        for sizes in (typical_sizes(program.params, part) for part in PLANNED):
            if found and sizes == typical_sizes(program.params):
                continue
            try:
                at = (planned or _by_rules)(program_at(program, sizes), on)
                made = _for_all(program, on, at.plan, sizes)
            except (ScheduleError, ArtefactError, TargetError) as error:
                refused = refused or ScheduleError(error.what)
                continue
            if made.plan not in [each.plan for each in found]:
                found.append(made)
        if found:
            if len(found) == 1:
                return ((found[0], (1.0,)),)
            return tuple((each, _prices(program, each.schedule, machine)) for each in found)
    made = _by_rules(program, machine)
    assert refused is not None  # nothing was found
    return ((replace(made, schedule=fell_back(made.schedule, "the rules", refused)), (1.0,)),)


def _prices(program: Program, s: Schedule, machine: Machine) -> tuple[float, ...]:
    """What a schedule for all sizes takes at some of them."""
    found = [typical_sizes(program.params, part) for part in LOOKED_AT]
    trees = [tree_of(function_at(s.func, sizes), machine.target.operations) for sizes in found]
    return tuple(seconds(tree, machine) for tree in trees)


def _by_rules(program: Program, machine: Machine) -> Planned:
    return plan_unit(program, machine, accuracy=EXACT)


def _for_all(program: Program, machine: Machine, plan: UnitPlan, sizes: Mapping[str, int]) -> Planned:
    """A plan at some sizes for all sizes. Raises ScheduleError, ArtefactError or TargetError."""
    target = machine.target
    extents = _rewritten(program_at(program, sizes), plan, target)
    symbols = {
        name: frozenset(axis for axis, extent in axes.items() if extent is None)
        for name, axes in _rewritten(program, plan, target).items()
    }
    known = {name: {a: n for a, n in axes.items() if n is not None} for name, axes in extents.items()}
    nests = tuple(
        replace(
            nest,
            choice=None,
            trees=tuple(
                tiling.symbolic(tree, known, symbols, machine.threads, target.lanes(F32))
                for tree in nest.trees
            ),
        )
        for nest in plan.nests
    )
    changed = replace(plan, nests=nests)
    s = build_unit(program, changed, machine)
    # of registers with sizes of a run, and instructions on parts of a tile, there is no code
    open_registers = any(
        b.scope == REGISTER and not all(n.is_const for n in b.physical_shape)
        for b in buffers_of(s.func).values()
    )
    if open_registers or any(step.primitive == "tensorize" for step in s.trace.steps):
        check(lower(s.func, native=target.functions), target)
    return Planned(changed, s)


def _rewritten(program: Program, plan: UnitPlan, target: Target) -> Mapping[str, Mapping[str, int | None]]:
    """The extents of stages after a plan's steps on the program; ``None`` where they are symbols."""
    steps = (*plan.rewrites.steps, *(step for nest in plan.nests for step in nest.steps))
    rewritten = Schedule(program, operations=target.operations).replay(steps).require_program()
    return {
        stage.name: {it.name: it.extent.as_int() if it.extent.is_const else None for it in stage.iters}
        for stage in rewritten.stages
    }


def _machines(machine: Machine) -> Iterator[Machine]:
    """The machine, and then without instructions on tile registers, where it has such."""
    yield machine
    target = machine.target

    def left(rows: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        return tuple(row for row in rows if row.emission is None or row.emission.form != "tiles")

    instructions, moves = left(target.instructions), left(target.moves)
    if len(instructions) < len(target.instructions):
        yield replace(machine, on=replace(target, instructions=instructions, moves=moves))
