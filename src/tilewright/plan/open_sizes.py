"""Schedules of programs with symbolic sizes: those of a typical size, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from msgspec.structs import replace as tree_with

from tilewright.codegen import check
from tilewright.cost import Machine, seconds, tree_of
from tilewright.ir import (
    REGISTER,
    Buffer,
    Program,
    bind_params,
    buffers_of,
    function_at,
    program_at,
    typical_sizes,
)
from tilewright.lower import lower
from tilewright.plan.algorithms.accuracy import EXACT
from tilewright.plan.assembly import plan_unit
from tilewright.plan.clusters import Planned
from tilewright.plan.unit import build_unit
from tilewright.schedule import Schedule
from tilewright.support import ArtefactError, ScheduleError, TargetError
from tilewright.target import Instruction, Target
from tilewright.tiling import without_whole


def schedule_open(
    program: Program,
    machine: Machine,
    planned: Callable[[Program], Planned] | None = None,
) -> Schedule:
    """The schedule of a program with symbolic sizes.

    The plan is that of the program at sizes around :data:`tilewright.ir.TYPICAL`, by the direct method:
    others ask for sizes that divide. ``planned`` makes it, by default the rules do. Its steps are applied to
    the program with its symbols; those that are refused there, because they hold for that size alone, are
    left out, and noted. Each step that is applied keeps the meaning for all sizes. Where some are left out,
    the plan without tile registers, whose rows would have to be padded, and that of the symbols themselves
    are tried, too: the one that the analytic model prices lowest at the typical sizes is taken.
    """
    sizes = typical_sizes(program.params)
    typical = program_at(program, sizes)

    def by_rules(at: Program, on: Machine) -> Schedule:
        found = plan_unit(at, on, accuracy=EXACT)
        return found.schedule if at is program else _without_whole(program, at, found, on)

    made = (
        by_rules(typical, machine)
        if planned is None
        else _without_whole(program, typical, planned(typical), machine)
    )
    first, left_out = _replayed(program, made, machine, sizes)
    usable = _is_usable(first, machine.target)
    if usable and not left_out:
        return first
    found = [first] if usable else []
    simpler = _without_tiles(machine)
    if simpler is not None:
        second, _ = _replayed(program, by_rules(typical, simpler), machine, sizes)
        found += [second] if _is_usable(second, machine.target) else []
    found.append(by_rules(program, machine).with_note("no steps of a typical size"))

    def price(s: Schedule) -> float:
        return seconds(tree_of(function_at(s.func, sizes), machine.target.operations), machine)

    return min(found, key=price)


def _without_whole(program: Program, typical: Program, planned: Planned, machine: Machine) -> Schedule:
    """The schedule of a plan at typical sizes, without tiles that are whole there along symbolic axes.

    They would be tiles of so many elements at all sizes: half a thousand rows at each.
    """
    plan = planned.plan
    began, _ = _replayed(program, Schedule(typical).replay(plan.rewrites.steps), machine, {})
    symbolic = {
        stage.name: {it.name for it in stage.iters if not it.extent.is_const}
        for stage in began.require_program().stages
    }
    rewritten = Schedule(typical).replay(plan.rewrites.steps).require_program()
    extents = {
        stage.name: {
            it.name: it.extent.as_int() for it in stage.iters if it.name in symbolic.get(stage.name, ())
        }
        for stage in rewritten.stages
    }
    nests = [
        replace(
            nest,
            trees=tuple(
                tree_with(tree, body=without_whole(tree.body, extents.get(tree.root, {})))
                for tree in nest.trees
            ),
        )
        for nest in plan.nests
    ]
    changed = replace(plan, nests=tuple(nests))
    try:
        return planned.schedule if changed == plan else build_unit(typical, changed, machine)
    except (ScheduleError, ArtefactError):
        return planned.schedule


def _replayed(
    program: Program, made: Schedule, machine: Machine, sizes: Mapping[str, int]
) -> tuple[Schedule, int]:
    """A program by the steps of a schedule of it at one size, and how many of them are left out."""
    target = machine.target
    s = Schedule(program, operations=target.operations)
    parts: dict[str, tuple[str, str]] = {}
    refused = 0
    for step in made.trace.steps:
        args = step.args
        if step.primitive == "partition" and args[1] == (-1,):
            # at another size there may be no tail
            args = (args[0], "tail")
        try:
            s = s.apply(step.primitive, *args, **dict(step.kwargs))
            continue
        except ScheduleError:
            instead: Schedule | None = None
        if step.primitive == "fuse":
            # what is done to the one loop shows what it was for
            outer, inner = map(str, step.args)
            names = dict(step.kwargs).get("names")
            name = str(names[0]) if isinstance(names, tuple) else f"{outer}_{inner}"
            parts[name], instead = (outer, inner), s
        elif step.primitive == "parallel":
            instead = _shared_by_part(s, parts, str(step.args[0]), sizes, machine.threads)
        refused += instead is None
        s = s if instead is None else instead
    if refused:
        s = s.with_note(
            f"{refused} of {len(made.trace.steps)} steps, which not all sizes allow, are left out"
        )
    return s, refused


def _is_usable(s: Schedule, target: Target) -> bool:
    """Whether code can be made: without some steps registers may have sizes of a run, instructions parts."""
    if any(b.scope == REGISTER and not _is_fixed(b) for b in buffers_of(s.func).values()):
        return False
    if all(step.primitive != "tensorize" for step in s.trace.steps):
        return True
    try:
        check(lower(s.func, native=target.functions), target)
    except (ScheduleError, TargetError):
        return False
    return True


def _without_tiles(machine: Machine) -> Machine | None:
    """The machine without instructions on tile registers; ``None`` where it has none."""
    target = machine.target

    def left(rows: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        return tuple(row for row in rows if row.emission is None or row.emission.form != "tiles")

    instructions, moves = left(target.instructions), left(target.moves)
    if len(instructions) == len(target.instructions):
        return None
    return replace(machine, on=replace(target, instructions=instructions, moves=moves))


def _shared_by_part(
    s: Schedule, parts: Mapping[str, tuple[str, str]], fused: str, sizes: Mapping[str, int], threads: int
) -> Schedule | None:
    """Threads along one of the loops that should have become one: the outermost with an iteration for each.

    Where none has so many at the typical sizes: the one with the most.
    """
    found: dict[str, int] = {}
    open_ = [fused]
    while open_:
        loop = open_.pop()
        if loop in parts:
            open_ += reversed(parts[loop])
        elif loop in s.loops() and (extent := bind_params(s.loop(loop).extent, sizes)).is_const:
            found[loop] = extent.const
    if not found:
        return None
    best = next((loop for loop, n in found.items() if n >= threads), max(found, key=lambda loop: found[loop]))
    try:
        return s.parallel(best)
    except ScheduleError:
        return None


def _is_fixed(b: Buffer) -> bool:
    return all(extent.is_const for extent in b.physical_shape)
