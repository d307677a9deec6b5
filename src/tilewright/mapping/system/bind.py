"""Stages as instructions of a machine: which axes become sizes, which dimensions the operands' tiles span.

The instructions are selected (``mapping/select.py``) among all mappings that need no copies: moves between
memories bring the dimensions of a tile into any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Final, Literal

from tilewright.ir import Index, Param, Program, Stage, Store, substitute_index
from tilewright.mapping.access import three_operand_form
from tilewright.mapping.mapper import find_mappings
from tilewright.mapping.mapping import Failure, LayoutNeed
from tilewright.mapping.needle import Needle
from tilewright.mapping.search import Candidate, transformed
from tilewright.mapping.select import Cost, Option, Selection, Uncovered, Use, select_instructions
from tilewright.mapping.system.approach import Approach
from tilewright.mapping.system.bound import BoundOperand, BoundProgram, BoundStage
from tilewright.mapping.system.graph import SystemGraph, SystemInstruction
from tilewright.mapping.system.joined import renamed
from tilewright.mapping.system.seats import seated, within_reach
from tilewright.schedule import Schedule
from tilewright.support import ProgramError, TargetError, quoted
from tilewright.target import Placement

MAX_PROGRAMS: Final = 32
"""Programs that are looked at where stages of the one given are no instructions."""
SHOWN: Final = 3
"""Reasons in an error why an instruction does not fit."""


def needles_of(machine: SystemGraph) -> tuple[Needle, ...]:
    """What the mapper looks for: a machine's instructions, by their semantics.

    What they read may lie any steps apart where a move from the home memory takes it so.
    """
    apart = any(m.strides and m.source == machine.home for m in machine.movers.values())

    def needle(i: SystemInstruction) -> Needle:
        axes = tuple(dict.fromkeys(it.name for s in i.joined.stages for it in s.iters))
        places = {b.name: Placement(strided=axes) for b in i.semantics.inputs} if apart else {}
        return Needle.of_program(i.name, i.joined, places)

    return tuple(map(needle, machine.instructions.values()))


def bind(program: Program, machine: SystemGraph, approach: Approach) -> BoundProgram:
    """The stages of a program as instructions of a machine, or those of a program that is equal to it.

    Raises ProgramError, naming the stage and what was found there, where no instruction fits.
    """
    for stage in program.stages:
        _check(stage)
    binder = _Binder(machine, approach, "fewest")
    _, selection = _covering(program, binder)
    if selection.uncovered:
        raise _refused(selection.uncovered[0], binder)
    uses = selection.uses
    inputs = frozenset(b.name for b in program.inputs)
    between = {b for use in uses for s in use.stages[:-1] for b in s.writes}
    return BoundProgram(
        tuple(seated(_bound(use, machine, inputs), machine)[0] for use in uses),
        {b.name: b for b in selection.program.buffers if b.name not in between},
        tuple(b.name for b in program.inputs),
        tuple(b.name for b in program.outputs),
    )


def select(
    program: Program, machine: SystemGraph, approach: Approach, rule: Literal["fewest", "cycles"] = "fewest"
) -> Selection:
    """The instructions of a machine that do a program, as far as there are any.

    By the ``fewest`` executions, or by ``cycles``: of units, and of the operands' way from the home memory.
    """
    return _selected(program, _Binder(machine, approach, rule))


def cover(
    program: Program, machine: SystemGraph, approach: Approach, rule: Literal["fewest", "cycles"] = "fewest"
) -> tuple[Schedule, Selection]:
    """As :func:`select`, of the program or of one that transformations make of it, with these.

    Where none is done as a whole, the given program's selection.
    """
    return _covering(program, _Binder(machine, approach, rule))


def _selected(program: Program, binder: _Binder) -> Selection:
    binder.made, binder.inputs = {}, frozenset(b.name for b in program.inputs)
    return select_instructions(program, needles_of(binder.machine), binder.price, binder.choose)


def _covering(program: Program, binder: _Binder) -> tuple[Schedule, Selection]:
    """What transformations do for a program to be instructions, and these; of programs the nearest."""
    needles = needles_of(binder.machine)

    def look(current: Program) -> tuple[Selection, Sequence[Failure]]:
        found = _selected(current, binder)
        left = dict.fromkeys(u.stage for u in found.uncovered)
        return found, [f for s in left for n in needles for f in find_mappings(current, n, s).failures]

    def choose(options: Sequence[Candidate]) -> int:
        return binder.approach.choose("transformation", options, program)

    first: tuple[Schedule, Selection] | None = None
    done: list[tuple[Schedule, Selection]] = []
    for schedule, found in transformed(program, look, programs=MAX_PROGRAMS, choose=choose):
        first = first or (schedule, found)
        if done and len(schedule.trace.steps) > len(done[0][0].trace.steps):
            break
        if not found.uncovered:
            done.append((schedule, found))
    assert first is not None
    return done[binder.approach.choose("program", [s for _, s in done], program)] if done else first


def _check(stage: Stage) -> None:
    if not isinstance(stage.body, Store) or len(stage.body.writes) != 1:
        raise ProgramError(f"stage {quoted(stage.name)} is not a single assignment")
    for it in stage.iters:
        if it.kind == "ord" or not it.extent.is_const or it.lo != Index(0):
            raise ProgramError(
                f"stage {quoted(stage.name)}: axis {quoted(it.name)} is ordered or of unknown extent",
                hint="give recurrences to schedule_recurrence, one step as a program",
            )
        if it.extent.as_int() < 1:
            raise ProgramError(f"stage {quoted(stage.name)}: axis {quoted(it.name)} has no iterations")


def _refused(found: Uncovered, binder: _Binder) -> ProgramError | TargetError:
    machine = binder.machine
    if found.stage in binder.missing:
        instruction, missing = binder.missing[found.stage]
        where = f"stage {quoted(found.stage)}: {quoted(instruction)} of machine {quoted(machine.name)}"
        return TargetError(
            f"{where} would compute it, but {'; '.join(missing[:SHOWN])}",
            hint="add a move or a larger memory, or let an instruction's sizes be smaller",
        )
    kinds = sorted(machine.instructions)
    why = [str(f) for f in found.failures if f.place != "operation"][:SHOWN]
    what = found.value + (f" combined by {found.combine}" if found.combine else "")
    return ProgramError(
        f"stage {quoted(found.stage)}: no instruction of machine {quoted(machine.name)} computes {what}",
        hint="; ".join([f"its instructions are {', '.join(kinds)}", *why]),
    )


class _Binder:
    """What the selection asks a machine."""

    def __init__(self, machine: SystemGraph, approach: Approach, rule: str) -> None:
        self.machine, self.approach, self.rule = machine, approach, rule
        self.made: dict[str, tuple[int, ...]] = {}
        """How tensors lie that have been made."""
        self.inputs: frozenset[str] = frozenset()
        self.missing: dict[str, tuple[str, tuple[str, ...]]] = {}
        """By stage, an instruction that computes it, and what it lacks to have its operands there."""

    def price(self, use: Use) -> Cost | None:
        """Results read as other tiles than they were made, what the rule counts, dimensions turned."""
        if any(not isinstance(n, LayoutNeed) for n in use.mapping.needs):
            return None
        if (not use.whole and use.starts is None) or renamed(use.stages) is None:
            return None
        if any(not it.extent.is_const for s in use.stages for it in s.iters):
            return None
        bound = _bound(use, self.machine, self.inputs)
        misfit = _misfit(bound, self.machine)
        found, missing = (bound, (misfit,)) if misfit else seated(bound, self.machine)
        if missing:
            self.missing.setdefault(use.source, (use.instruction, missing))
            return None
        result, *operands = found.result, *found.operands
        lacking = not within_reach(found, self.machine)  # it works where the stage before leaves it there
        other = sum(self.made.get(o.tensor, o.dims) != o.dims for o in operands)
        turned = sum(list(o.dims) != sorted(o.dims) for o in (result, *operands))
        return lacking + other, found.calls if self.rule == "fewest" else self.cycles(found), turned

    def cycles(self, bound: BoundStage) -> float:
        """Cycles of the units with the largest tiles, and of bringing each operand once."""
        instruction = self.machine.instruction(bound.instruction)
        units = [u for u in self.machine.units.values() if bound.instruction in u.places]
        sizes = {
            bound.sizes[i]: min(n, bound.extents[a]) if a else 1
            for i, (a, n) in bound.axes.items()
            if i in bound.sizes
        }
        found = bound.calls * instruction.cycles.at(sizes) / len(units)
        home = self.machine.home
        types = {b.name: b.dtype for b in instruction.operands}
        for o in bound.operands:
            elements = prod(e for a, e in bound.extents.items() if any(a in x.vars for x in o.indices))
            rates = [
                min(m.bytes_per_cycle for m in path)
                for memory in units[0].places[bound.instruction][o.name]
                for path in self.machine.paths(home, memory, units[0].stream)
                if path
            ]
            if rates and o.tensor not in self.made:
                found += elements * types[o.name].bytes / max(rates)
        return found

    def choose(self, options: Sequence[Option], stage: Stage) -> int:
        """The approach's mapping."""
        chosen = self.approach.choose("mapping", options, stage)
        result = _operands(options[chosen].use, self.inputs)[0]
        self.made[result.tensor] = result.dims
        return chosen


def _misfit(stage: BoundStage, machine: SystemGraph) -> str:
    """Why an instruction's sizes cannot be those of every tile, or its sum not go on; empty: they can."""
    if stage.initial is None and not stage.continues:
        for a in stage.reduces:
            if stage.reach(a) < stage.extents[a]:
                return (
                    f"it sums {stage.reach(a)} of {stage.extents[a]} along {a}, and nothing goes on with it"
                )
    for each in filter(None, (stage.instruction, stage.initial)):
        semantics = machine.instruction(each).joined
        sizes = {
            it.name: str(it.extent) for s in semantics.stages for it in s.iters if not it.extent.is_const
        }
        if sizes != stage.sizes:
            return f"{stage.initial}, which starts its sum, calls its sizes otherwise"
        params, alone = {p.name: p for p in semantics.params}, Counter(sizes.values())
        for i, name in sizes.items():
            axis, reach = stage.axes[i]
            extent = 1 if axis is None else stage.extents[axis]
            p = params[name]
            for n in {min(reach, extent), extent % reach or reach}:
                if 0 < n <= extent and (n < p.lo or n % p.multiple_of):
                    return f"{n} along {axis} is no {name} of {each}: {p.multiple_of} * n, from {p.lo} on"
            if alone[name] > 1 and extent != reach:
                return f"its axes share the size {name}, and {axis} would have to be cut"
    return ""


def _operands(use: Use, inputs: frozenset[str]) -> list[BoundOperand]:
    """The result, then what is read."""
    names = renamed(use.stages) or {}
    dims = dict(use.mapping.dims)
    out = []
    for b in use.mapping.operands:
        indices = tuple(substitute_index(i, names) for i in b.indices) if len(use.stages) > 1 else b.indices
        own = tuple((*d, -1)[0] for d in dims[b.operand])
        out.append(BoundOperand(b.operand, b.buffer, indices, own, b.buffer not in inputs))
    result = use.mapping.instruction.result
    return sorted(out, key=lambda o: o.name != result)


def _bound(use: Use, machine: SystemGraph, inputs: frozenset[str]) -> BoundStage:
    form = three_operand_form(use.stages[0])
    axes = {b.axis: b.program[0] if b.program else None for b in use.mapping.axes}
    extents = {
        it.name: it.extent for s in machine.instruction(use.instruction).joined.stages for it in s.iters
    }
    result, *operands = _operands(use, inputs)
    names = renamed(use.stages) or {}
    later = {str(names[it.name]) for s in use.stages[1:] for it in s.iters if it.kind == "red"}
    return BoundStage(
        use.source,
        use.instruction,
        use.starts.name if use.starts else None,
        {a: e.as_int() for a, e in zip(form.axes, form.extents, strict=True)},
        tuple(a for a, kind in zip(form.axes, form.kinds, strict=True) if kind == "red" or a in later),
        {i: (axes.get(i), _reach(e)) for i, e in extents.items()},
        {i: str(e) for i, e in extents.items() if not e.is_const},
        tuple(operands),
        result,
        use.starts is None and machine.instruction(use.instruction).mode(result.name) == "rw",
    )


def _reach(extent: Index) -> int:
    """How far one call goes at most."""
    if extent.is_const:
        return extent.as_int()
    atom = extent.terms[0][0]
    assert isinstance(atom, Param)
    return atom.hi // atom.multiple_of * atom.multiple_of
