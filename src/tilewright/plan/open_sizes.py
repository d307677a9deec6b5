"""Schedules of programs with symbolic sizes: those of a typical size, step by step."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Final

from tilewright.codegen import check
from tilewright.cost import Machine
from tilewright.ir import F32, REGISTER, Buffer, Param, Program, buffers_of, program_at
from tilewright.lower import lower
from tilewright.plan.algorithms.accuracy import EXACT
from tilewright.plan.assembly import plan_unit
from tilewright.plan.clusters import Planned
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, TargetError
from tilewright.target import Target

TYPICAL: Final = 509
"""What a symbolic size is taken for, or a prime below it: no multiple of a tile, so that remainders count."""
VECTORS: Final = 2
"""Vectors of f32 numbers in one strip of a loop that a fixed size would have as one vector loop."""


def schedule_open(
    program: Program,
    machine: Machine,
    planned: Callable[[Program], Planned] | None = None,
) -> Schedule:
    """The schedule of a program with symbolic sizes.

    The plan is that of the program at sizes around :data:`TYPICAL`, by the direct method: others ask for
    sizes that divide. ``planned`` makes it, by default the rules do. Its steps are applied to the program
    with its symbols; those that are refused there, because they hold for that size alone, are left out, and
    noted. Each step that is applied keeps the meaning for all sizes.
    """
    target = machine.target
    sizes = {p.name: typical_size(p) for p in program.params}
    typical = program_at(program, sizes)
    if planned is None:
        made = plan_unit(typical, machine, accuracy=EXACT).schedule
    else:
        made = planned(typical).schedule
    s = Schedule(program, operations=target.operations)
    refused = 0
    for step in made.trace.steps:
        try:
            s = s.apply(step.primitive, *step.args, **dict(step.kwargs))
        except ScheduleError:
            strips = _vector_strips(s, str(step.args[0]), target) if step.primitive == "vectorize" else None
            refused += strips is None
            s = s if strips is None else strips
    if any(b.scope == REGISTER and not _is_fixed(b) for b in buffers_of(s.func).values()):
        # a step that was left out made tiles of registers small
        simple = plan_unit(program, machine, accuracy=EXACT).schedule
        return simple.with_note("no tiles of registers, which not all sizes allow")
    if any(step.primitive == "tensorize" for step in s.trace.steps) and not _can_be_emitted(s, target):
        # instructions find their operands by strides that are numbers
        simple = plan_unit(program, machine, accuracy=EXACT).schedule
        return simple.with_note("no instructions, whose operands have sizes of a run")
    if refused:
        s = s.with_note(
            f"{refused} of {len(made.trace.steps)} steps, which not all sizes allow, are left out"
        )
    return s


def _can_be_emitted(s: Schedule, target: Target) -> bool:
    try:
        check(lower(s.func, native=target.functions), target)
    except (ScheduleError, TargetError):
        return False
    return True


def _is_fixed(b: Buffer) -> bool:
    return all(extent.is_const for extent in b.physical_shape)


def _vector_strips(s: Schedule, loop: str, target: Target) -> Schedule | None:
    """A loop of symbolic extent in vectors, what is left of it in a last, masked one."""
    try:
        cut = s.split(loop, VECTORS * target.lanes(F32), names=(f"{loop}_strip", f"{loop}_lane"))
        cut = cut.partition(f"{loop}_strip", -1)
        return cut.vectorize(f"{loop}_lane").vectorize(f"{loop}_lane_1")
    except ScheduleError:
        return None


def typical_size(p: Param) -> int:
    """A number near :data:`TYPICAL` that a symbolic size may have."""
    first = -(-p.lo // p.multiple_of)
    most = max(first, min(p.hi, TYPICAL) // p.multiple_of)
    return p.multiple_of * next((n for n in range(most, first, -1) if _is_prime(n)), most)


def _is_prime(n: int) -> bool:
    """Whether no tile but one element divides a size."""
    return n > 1 and all(n % d for d in range(2, isqrt(n) + 1))
