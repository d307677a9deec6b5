"""The rule of scans: stripes of them, one after another while a stripe is in the second cache level.

Two scans up and down columns, and their like::

    parallel for stripes of columns:
        for row:
            down[row, stripe] = …         # vectors across the stripe
        for row backwards:
            up[row, stripe] = …

What lies across the stripe, such as turned images, is turned in squares of registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from tilewright.cost import Machine
from tilewright.ir import Stage
from tilewright.plan.contraction.microkernel import fed_by, loops_below
from tilewright.plan.elementwise.blocked_transpose import square_of
from tilewright.plan.rule import Context, Rule
from tilewright.plan.scans.match import Stripes, find_stripes
from tilewright.plan.space import Space
from tilewright.schedule import Schedule


@dataclass(frozen=True, slots=True)
class StripesPlan:
    """``width``: elements of a stripe."""

    width: int


@dataclass(frozen=True, eq=False)
class ScansProblem:
    """What shares stripes, and how wide they may be."""

    context: Context
    stripes: Stripes
    widths: tuple[int, ...]


class ScansRule(Rule[ScansProblem, StripesPlan]):
    """Scans along one axis after another, with point-wise stages between them."""

    name = "scans"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"stripes": StripesPlan})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> ScansProblem | None:
        """The scans that ``root`` ends, if they are these stages."""
        program, machine = context.program, context.machine
        others = {stage.name for stage in program.stages} - {root, *stages}
        found = find_stripes(program, program.stage(root), machine, others)
        if found is None or {m.stage.name for m in found.members} != {*stages}:
            return None
        return ScansProblem(context, found, tuple(found.widths(machine)))

    def default(self, problem: ScansProblem) -> StripesPlan:
        """The widest that a cache holds."""
        return StripesPlan(max(problem.widths))

    def space(self, problem: ScansProblem) -> Space[StripesPlan]:
        """All that a cache holds."""
        return Space(self.default(problem), {"width": problem.widths})

    def build(self, s: Schedule, problem: ScansProblem, plan: StripesPlan) -> Schedule:
        """Compute all stages of a stripe inside its loop."""
        return schedule_stripes(s, problem.stripes, plan.width, problem.context.machine)


def schedule_stripes(s: Schedule, p: Stripes, width: int, machine: Machine) -> Schedule:
    """Schedule scans in stripes of ``width`` elements. Raises ScheduleError where a step is refused."""
    loops = list(s.loops(p.root.name))
    cut = loops[p.cut]
    stripe, own = f"{cut}_stripe", f"{cut}_own"
    s = s.split(cut, width, names=[stripe, own])
    outer = [*(loops[n] for n in p.others), stripe]
    inside = [own if n == p.cut else loop for n, loop in enumerate(loops) if n not in p.others]
    s = s.reorder(*outer, *inside)
    for loop in outer[:-1]:
        fused = f"{loop}_{stripe}"[:60]
        s, stripe = s.fuse(loop, stripe, names=[fused]), fused
    for m in reversed(p.members):
        s = s.compute_at(m.stage.name, stripe)
    for stage in (*(m.stage for m in p.members), p.root):
        s = _in_lanes(s, p, stage, stripe, machine)
    return s.parallel(stripe) if machine.threads > 1 else s


def _in_lanes(s: Schedule, p: Stripes, stage: Stage, stripe: str, machine: Machine) -> Schedule:
    """A stage of a stripe in vectors across it, or along its rows where it turns them: in squares."""
    lanes = machine.target.lanes(p.program.buffer(stage.writes[0]).dtype)
    below = loops_below(s, stage.name, stripe)
    of = {name: loop for loop, name in fed_by(s, stage.name, below).items()}
    last = len(stage.iters) - 1
    square = square_of(p.program, stage, last, machine.target) if stage.iters[last].kind == "par" else None
    if square is None or square.before:
        inner = of.get(stage.iters[p.axis_of(stage)].name)
        if inner is None:
            return s
        return s.reorder(*(loop for loop in below if loop != inner), inner).vectorize(inner)
    names = [of.get(stage.iters[n].name) for n in (square.across, square.vector)]
    if None in names:
        return s
    lines, vector = (name for name in names if name is not None)
    outer, ragged = [loop for loop in below if loop not in (lines, vector)], list[str]()
    squares = {}
    for loop in (lines, vector):
        extent = s.loop(loop).extent
        if extent.is_const and extent.as_int() <= lanes:
            continue
        squares[loop] = f"{loop}_square"
        s = s.split(loop, lanes, names=[squares[loop], f"{loop}_line"])
        outer.append(squares[loop])
        if not extent.is_const or extent.as_int() % lanes:
            ragged.append(squares[loop])
    lines, vector = (f"{loop}_line" if loop in squares else loop for loop in (lines, vector))
    s = s.reorder(*outer, vector, lines).unroll(lines).vectorize(vector)
    for loop in ragged:
        s = s.partition(loop, -1)
    return s
