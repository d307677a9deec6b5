"""Plans of programs with symbolic sizes: trees that were written at a typical size, for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tilewright import tiling
from tilewright.codegen import check
from tilewright.cost import Machine
from tilewright.ir import REGISTER, Program, buffers_of, program_at, typical_sizes
from tilewright.lower import lower
from tilewright.plan.algorithms.accuracy import EXACT
from tilewright.plan.assembly import plan_unit
from tilewright.plan.clusters import Planned
from tilewright.plan.fallback import fell_back
from tilewright.plan.unit import UnitPlan, build_unit
from tilewright.schedule import Schedule
from tilewright.support import ArtefactError, ScheduleError, TargetError
from tilewright.target import Instruction, Target


def plan_open(
    program: Program,
    machine: Machine,
    planned: Callable[[Program, Machine], Planned] | None = None,
) -> Planned:
    """The plan of a program with symbolic sizes.

    It is that of the program at sizes around :data:`tilewright.ir.TYPICAL`, by the direct method (others ask
    for sizes that divide), with trees for all sizes (:func:`tilewright.tiling.symbolic`). ``planned`` makes
    it, by default the rules do. Where a step is refused it is that of a machine without tile registers, whose
    rows would have to be padded, and then what the rules make of the symbols themselves.
    """
    make = planned or _by_rules
    refused: ScheduleError | None = None
    for on in _machines(machine):
        try:
            return _for_all(program, on, make(program_at(program, typical_sizes(program.params)), on).plan)
        except (ScheduleError, ArtefactError, TargetError) as error:
            refused = refused or ScheduleError(error.what)
    found = _by_rules(program, machine)
    return (
        found if refused is None else replace(found, schedule=fell_back(found.schedule, "the rules", refused))
    )


def _by_rules(program: Program, machine: Machine) -> Planned:
    return plan_unit(program, machine, accuracy=EXACT)


def _for_all(program: Program, machine: Machine, plan: UnitPlan) -> Planned:
    """A plan at typical sizes for all sizes. Raises ScheduleError, ArtefactError or TargetError."""
    target = machine.target
    extents = _rewritten(program_at(program, typical_sizes(program.params)), plan, target)
    symbols = {
        name: frozenset(axis for axis, extent in axes.items() if extent is None)
        for name, axes in _rewritten(program, plan, target).items()
    }
    known = {name: {a: n for a, n in axes.items() if n is not None} for name, axes in extents.items()}
    nests = tuple(
        replace(
            nest,
            choice=None,
            trees=tuple(tiling.symbolic(tree, known, symbols, machine.threads) for tree in nest.trees),
        )
        for nest in plan.nests
    )
    changed = replace(plan, nests=nests)
    s = build_unit(program, changed, machine)
    if any(
        b.scope == REGISTER and not all(n.is_const for n in b.physical_shape)
        for b in buffers_of(s.func).values()
    ):
        raise ScheduleError("registers would have sizes of a run")
    if any(step.primitive == "tensorize" for step in s.trace.steps):
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
