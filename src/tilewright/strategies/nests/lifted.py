"""Nests as programs: lifted, scheduled by the rules of programs, and results put where the nest has them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Final

from tilewright.codegen import check
from tilewright.cost import Machine
from tilewright.ir import Alloc, LoopFunction, Stage, copy_nest, rename_buffers, seq
from tilewright.lower import lower
from tilewright.plan import UnitPlan, build_unit, plan_unit
from tilewright.poly import Lifted, lift
from tilewright.schedule import Schedule, Trace, may_overwrite
from tilewright.strategies.nests.ordered import work
from tilewright.support import ScheduleError
from tilewright.target import CpuTarget

MOST_POINTS: Final = 2
"""Stages have boxes, of which nests may run a part, as bands do; of a triangle, counted as a square, all."""
#: Nests whose programs are remembered: each candidate of a search is carried out in one.
REMEMBERED: Final = 64


@lru_cache(maxsize=REMEMBERED)
def lifted_program(func: LoopFunction) -> Lifted:
    """The program that a nest of fixed sizes is.

    Raises ScheduleError or ResourceError where the nest cannot be lifted, and where no statement adds up:
    rules of programs gain by what a product reads again, and element by element the loops are as good as they
    are written (a blur in three loops, 2000 x 1600: 3 ms, lifted 17).
    """
    found = lift(func)
    sums = [s for s in found.program.stages if s.init is not None]
    if not sums:
        raise ScheduleError(f"no statement of {func.name} adds up")
    if sum(_points(s) for s in sums) > MOST_POINTS * work(func.body):
        raise ScheduleError(f"most points of the program are none of {func.name}'s")
    return found


def lifted_nest(
    func: LoopFunction, machine: Machine, plan: UnitPlan | Trace | None = None
) -> tuple[LoopFunction, Schedule, UnitPlan | None]:
    """A nest of fixed sizes as a program with a plan, by default the rules'; arguments lie as before.

    Its schedule, and the plan, which a trace is none of. Raises what :func:`lifted_program` does, and
    ScheduleError where the plan cannot be carried out or compiled, ArtefactError where it is another one's.
    """
    found = lifted_program(func)
    if plan is None:
        planned = plan_unit(found.program, machine)
        schedule, plan = planned.schedule, planned.plan
    elif isinstance(plan, Trace):
        schedule, plan = Schedule(found.program, operations=machine.on.operations).replay(plan), None
    else:
        schedule = build_unit(found.program, plan, machine)
    made = _with_arguments(func, schedule, found.results)
    if isinstance(machine.on, CpuTarget):
        # a result that is kept in part is copied in other tiles than it is made in, maybe out of registers
        check(lower(made, native=machine.target.functions), machine.target)
    return made, schedule, plan


def _points(s: Stage) -> int:
    return prod(it.extent.as_int() for it in s.iters)


def _with_arguments(func: LoopFunction, schedule: Schedule, results: Mapping[str, str]) -> LoopFunction:
    """The scheduled function over the arguments of ``func``: each result lies upon the argument it replaces.

    Where elements of the argument may be read after results are there, results go to memory of their own and
    are copied at the end.
    """
    body = schedule.func.body
    read = {b.name for b in schedule.func.buffers}
    moved = {out: arg for out, arg in results.items() if arg not in read or may_overwrite(schedule, out, arg)}
    apart = [(out, func.buffer(arg)) for out, arg in results.items() if out not in moved]
    taken: set[str] = {*body.inner_names, *(b.name for b in (*func.buffers, *schedule.func.buffers))}
    body = seq(body, *(copy_nest(out, b, taken, parallel=True) for out, b in apart))
    for out, b in apart:
        body = Alloc(b.with_(name=out), body)
    return func.with_body(rename_buffers(body, moved))
