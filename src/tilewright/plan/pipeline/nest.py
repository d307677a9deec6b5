"""Strips of rows of a pipeline's result, with what a strip needs of its producers computed there.

The nest that results::

    parallel for strips of rows:
        gray[rows + 4, columns] = …       # what the strip reads, in the second cache level
        ix[rows + 2, columns] = …
        for row in strip:
            result[row, columns] = …      # vectors
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tilewright.cost import KEPT_SHARE, Machine
from tilewright.ir import Program, stmt_loads
from tilewright.plan.pipeline.match import Pipeline
from tilewright.plan.rows.nest import CHOICES, schedule_elementwise
from tilewright.schedule import Schedule

#: Rows of a strip that are tried.
STRIPS: Final = (4, 8, 16, 32, 64, 128)
#: Operations that strips may repeat at their borders, in parts of all.
MOST_REPEATED: Final = 0.3
#: Strips that each thread should have at least, so that uneven ones even out.
STRIPS_PER_THREAD: Final = 4
#: Bytes of the producers, in parts of the second cache level, from which on strips pay.
LARGE: Final = 1.0
#: Loads that a stage may have after others were put into it.
MOST_LOADS: Final = 128

Placement = Literal["inline", "strip", "root"]


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """Strips of ``rows`` rows, and where each producer is computed, in the program's order."""

    rows: int
    placements: tuple[Placement, ...]


def second_level(machine: Machine) -> int:
    """Bytes of the second cache level, or of the first where there is no other."""
    sizes = [level.size for level in machine.target.memory if level.size is not None]
    return sizes[min(1, len(sizes) - 1)] if sizes else 0


def default_strips(p: Pipeline, machine: Machine) -> PipelinePlan | None:
    """All producers at the strip, and the largest strip that a cache holds; ``None`` where none pays."""
    names = {m.stage.name for m in p.members}
    room = KEPT_SHARE * second_level(machine)
    if sum(m.height * m.row_bytes for m in p.members) <= LARGE * second_level(machine):
        return None
    fits = [
        n
        for n in STRIPS
        if n * machine.threads * STRIPS_PER_THREAD <= p.rows
        and p.strip_bytes(n, names) <= room
        and p.repeated(n, names) <= MOST_REPEATED
    ]
    placements: tuple[Placement, ...] = tuple("strip" for _ in p.members)
    return PipelinePlan(max(fits), placements) if fits else None


def refusal(p: Pipeline, program: Program, machine: Machine, plan: PipelinePlan) -> str:
    """Why a plan is none: a strip that no cache holds, what is read elsewhere, what becomes too long."""
    where = dict(zip((m.stage.name for m in p.members), plan.placements, strict=True))
    stored = {name for name, place in where.items() if place == "strip"}
    needed, room = p.strip_bytes(plan.rows, stored), second_level(machine)
    if needed > room:
        return f"strips of {plan.rows} rows take {needed} bytes, the second cache level has {room}"
    makers = {m.stage.writes[0]: m.stage.name for m in p.members}
    total: dict[str, int] = {}
    rooted: dict[str, bool] = {}
    for stage in (*(m.stage for m in p.members), p.root):
        inlined = [
            makers[ld.buffer]
            for ld in stmt_loads(stage.body)
            if where.get(makers.get(ld.buffer, "")) == "inline"
        ]
        total[stage.name] = len(stmt_loads(stage.body)) + sum(total[name] for name in inlined)
        if total[stage.name] > MOST_LOADS and inlined:
            return f"{stage.name} would have {total[stage.name]} loads, more than {MOST_LOADS}"
    for m in reversed(p.members):
        readers = program.consumers(m.stage.writes[0])
        place = where[m.stage.name]
        rooted[m.stage.name] = place == "root" or (
            place == "inline" and any(rooted.get(r.name, False) for r in readers)
        )
        outside = next((r.name for r in readers if rooted.get(r.name, False)), "")
        if place == "strip" and outside:
            return f"{m.stage.name} is read outside of the strips, by {outside}"
    return ""


def schedule_strips(
    s: Schedule, p: Pipeline, program: Program, plan: PipelinePlan, machine: Machine
) -> Schedule:
    """Schedule a pipeline. Loops are those of the unscheduled program.

    Raises ScheduleError where a step is refused.
    """
    places = list(zip(p.members, plan.placements, strict=True))
    for m, place in places:
        if place == "inline":
            s = s.inline(m.stage.name)
        elif place == "root":
            s = schedule_elementwise(s, program, m.stage, machine.target, machine.threads)
    loops = list(s.loops(p.root.name))
    row = loops.pop(p.axis)
    strip, own = f"{row}_strip", f"{row}_own"
    axes = [it for n, it in enumerate(p.root.iters) if n != p.axis]
    short = [loop for loop, it in zip(loops[:-1], axes[:-1], strict=True) if it.extent in CHOICES]
    outer = [loop for loop in loops[:-1] if loop not in short]
    s = s.split(row, plan.rows, names=[strip, own])
    inner = loops[-1]
    if short:
        # what a vector's elements have in common is computed once
        lanes = machine.target.lanes(program.buffer(p.root.writes[0]).dtype)
        s = s.split(inner, lanes, names=[f"{inner}_vector", f"{inner}_lane"])
        outer, inner = [*outer, f"{inner}_vector"], f"{inner}_lane"
    s = s.reorder(strip, own, *outer, *short, inner)
    for m, place in reversed(places):
        if place == "strip":
            s = s.compute_at(m.stage.name, strip)
    for m, place in places:
        if place == "strip":
            s = s.vectorize(s.loops(m.stage.name)[-1])
    for loop in short:
        s = s.unroll(loop)
    s = s.vectorize(inner)
    return s.parallel(strip) if machine.threads > 1 else s
