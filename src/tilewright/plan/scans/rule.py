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

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from tilewright.cost import Machine
from tilewright.ir import Stage
from tilewright.plan.elementwise.blocked_transpose import square_of
from tilewright.plan.rule import Asked, Cluster, Context, Rule
from tilewright.plan.scans.match import Stripes, find_stripes
from tilewright.plan.space import Space
from tilewright.tiling import Body, Cut, Leaf, Nest, Place, Step, chain, sequence, together


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

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """Scans over the same lines, in stripes."""
        for stage in asked.roots:
            done = {*asked.taken, *asked.decided} - {stage.name}
            found = find_stripes(asked.program, stage, asked.context.machine, done)
            if found is not None:
                before = tuple(m.stage.name for m in found.members)
                each = tuple(Cluster("elementwise", name) for name in (*before, stage.name))
                yield Cluster(self.name, stage.name, before, each)

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

    def trees(self, problem: ScansProblem, plan: StripesPlan) -> tuple[Nest, ...]:
        """All stages of a stripe inside its loop."""
        return (stripes_nest(problem.stripes, plan.width, problem.context.machine),)


def stripes_nest(p: Stripes, width: int, machine: Machine) -> Nest:
    """The nest of scans in stripes of ``width`` elements."""
    cut = p.root.iters[p.cut].name
    outer = [*(Step(p.root.iters[n].name, 1) for n in p.others), Step(cut, width)]
    apart = {m.stage.name: {m.apart[n] for n in p.others} for m in p.members}
    places = [
        Place(m.stage.name, "make", "local", _in_lanes(p, m.stage, width, apart[m.stage.name], machine))
        for m in p.members
    ]
    body = sequence(*places, _in_lanes(p, p.root, width, set(p.others), machine))
    return Nest(p.root.name, together(outer, body, "parallel" if machine.threads > 1 else "serial"))


def _in_lanes(
    p: Stripes, stage: Stage, width: int, outside: Collection[int | None], machine: Machine
) -> Body:
    """A stage of a stripe in vectors across it, or along its rows where it turns them: in blocks.

    Its iterators ``outside`` have one value in a stripe.
    """
    lanes = machine.target.lanes(p.program.buffer(stage.writes[0]).dtype)
    extents = {it.name: it.extent.as_int() for n, it in enumerate(stage.iters) if n not in outside}
    stripe = stage.iters[p.axis_of(stage)].name
    extents |= {stripe: min(width, extents[stripe])} if stripe in extents else {}
    last = len(stage.iters) - 1
    square = square_of(p.program, stage, last, machine.target) if stage.iters[last].kind == "par" else None
    if square is None or square.before:
        rest = [Step(a, 1) for a in extents if a != stripe]
        return chain([*rest, Step(stripe, 1, "vector")], Leaf(stage.name))
    lines, vector = (stage.iters[n].name for n in (square.across, square.vector))
    outer = [Step(a, 1) for a in extents if a not in (lines, vector)]
    blocks = [Step(a, lanes) for a in (lines, vector) if extents[a] > lanes]
    body = chain([Step(vector, 1, "vector"), Step(lines, 1, "unroll")], Leaf(stage.name))
    for block in reversed(blocks):
        loop, end = chain([block], body), extents[block.axis] // lanes * lanes
        body = Cut(block.axis, (end,), (loop, loop)) if end < extents[block.axis] else loop
    return chain(outer, body)
