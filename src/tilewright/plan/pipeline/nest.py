"""Nests of groups: tiles of a root, with what they need of its producers computed there.

The nest of strips of rows, which is the default::

    parallel for strips of rows:
        gray[rows + 4, columns] = …       # what the strip reads, in the second cache level
        ix[rows + 2, columns] = …
        for row in strip:
            result[row, columns] = …      # vectors
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Final

import numpy as np

from tilewright.cost import SWEPT_SHARE, Machine
from tilewright.ir import Program, Stage
from tilewright.plan.elementwise.nest import elementwise_nest
from tilewright.plan.elementwise.plan import CHOICES
from tilewright.plan.pipeline.group import AtLoop, Group, Placement, loops_of
from tilewright.plan.pipeline.group_plan import (
    GroupPlan,
    held_bytes,
    invalid,
    kept_rows,
    made_boxes,
    too_long,
)
from tilewright.plan.pipeline.match import Pipeline
from tilewright.tiling import Body, Cut, How, Leaf, Nest, Place, Step, chain, sequence, shared_chain

#: Rows of a strip that are tried.
STRIPS: Final = (4, 8, 16, 32, 64, 128)
#: Operations that strips may repeat at their borders, in parts of all.
MOST_REPEATED: Final = 0.3
#: Strips that each thread should have at least, so that uneven ones even out.
STRIPS_PER_THREAD: Final = 4
#: Bytes of the producers, in parts of the second cache level, from which on strips pay.
LARGE: Final = 1.0
#: Bytes of a cache line, and lines of a row from which on it begins at one: a line more is then little.
LINE: Final = 64
LONG_ROW: Final = 8


def second_level(machine: Machine) -> int:
    """Bytes of the second cache level, or of the first where there is no other."""
    sizes = [level.size for level in machine.target.memory if level.size is not None]
    return sizes[min(1, len(sizes) - 1)] if sizes else 0


def default_strips(p: Pipeline, machine: Machine) -> GroupPlan | None:
    """All producers at the strip, and the largest strip that a cache holds; ``None`` where none pays."""
    names = {m.stage.name for m in p.members}
    room = SWEPT_SHARE * second_level(machine)
    if sum(m.height * m.row_bytes for m in p.members) <= LARGE * second_level(machine):
        return None
    fits = [
        n
        for n in STRIPS
        if n * machine.threads * STRIPS_PER_THREAD <= p.rows
        and p.strip_bytes(n, names) <= room
        and p.repeated(n, names) <= MOST_REPEATED
    ]
    if not fits:
        return None
    plan = whole_nest(p.root, p.axis, len(p.members), machine)
    tile = tuple(max(fits) if axis == p.axis else 0 for axis in range(len(p.root.iters)))
    return GroupPlan(
        tile,
        everywhere("tile", len(p.members)),
        plan.order,
        plan.vector,
        plan.expand,
        int(machine.threads > 1),
    )


def everywhere(place: Placement, count: int) -> tuple[Placement, ...]:
    """So many producers, all at one place."""
    return (place,) * count


def whole_nest(root: Stage, row: int, members: int, machine: Machine) -> GroupPlan:
    """The plan without tiles, rows outside, all producers ahead of it. Short axes are expanded."""
    axes = [it for it in root.iters if it.kind == "par"]
    last = len(axes) - 1
    row = max(row, 0)
    order = (row, *(n for n in range(len(axes)) if n != row))
    expand = tuple(
        it.extent.as_int() if it.extent in CHOICES and n not in (row, last) else 1
        for n, it in enumerate(axes)
    )
    return GroupPlan((0,) * len(axes), everywhere("root", members), order, last, expand, 0)


def refusal(g: Group, program: Program, machine: Machine, plan: GroupPlan) -> str:
    """Why a plan is none: its structure, a tile that no cache holds, what becomes too long."""
    reason = invalid(g, plan) or too_long(g, program, plan)
    if reason:
        return reason
    needed, room = sum(held_bytes(g, program, plan).values()), second_level(machine)
    if needed > room:
        shape = "x".join(map(str, plan.own(g.axes)))
        return f"tiles of {shape} take {needed} bytes, the second cache level has {room}"
    return ""


@dataclass(slots=True, eq=False)
class _RootLoops:
    """The loops of a root by what they are for, outermost first; ``lanes`` is the innermost one."""

    lanes: Step
    tiles: list[Step] = field(default_factory=list)
    own: list[Step] = field(default_factory=list)
    sums: list[Step] = field(default_factory=list)
    expanded: list[Step] = field(default_factory=list)


def group_nests(g: Group, program: Program, plan: GroupPlan, machine: Machine) -> tuple[Nest, ...]:
    """The nests of a group: those of producers that are computed ahead, then its own.

    Producers that are inlined are gone from the program's stages by then.
    """
    places = list(zip(g.members, plan.placements, strict=True))
    lanes = machine.target.lanes(program.buffer(g.root.writes[0]).dtype)
    loops, made = _root_loops(g, plan, lanes), _Producers(g, program, plan)
    name, inner = g.root.name, loops.lanes
    body: Body = chain([*loops.sums, *loops.expanded, inner], Leaf(name))
    if loops.sums:
        start = [*(Step(s.axis, s.size) for s in loops.expanded), Step(inner.axis, 1, inner.bind)]
        body = sequence(Place(g.root.writes[0], "init", "local", chain(start, Leaf(name))), body)
    extent = plan.own(g.axes)[plan.vector]
    rest = extent % lanes
    for n, step in reversed(list(enumerate(loops.own))):
        if n == 0:
            # producers at rows stand right inside of the outermost loop of a tile
            rows = [
                made.place(m, "slide" if at == "slide" else "make")
                for m, at in places
                if at in ("row", "slide")
            ]
            body = sequence(*rows, body)
        body = chain([step], body)
        plain = not g.members and not plan.tile[plan.vector] and inner.bind == "vector" and loops.expanded
        if n == len(loops.own) - 1 and rest and plain:
            # else each vector has a mask, which hides what rows side by side share
            whole = extent - rest
            body = Cut(step.axis, (whole,), (body, body)) if whole else body
    body = sequence(*(made.place(m, "make") for m, at in places if at == "tile"), body)
    body = shared_chain(loops.tiles, plan.parallel, body)
    ahead = (elementwise_nest(program, m, machine) for m, at in places if at == "root")
    return (*(nest for nest in ahead if nest is not None), Nest(name, body))


def _root_loops(g: Group, plan: GroupPlan, lanes: int) -> _RootLoops:
    """The loops of the root, cut and in order."""
    pars = [it.name for it in g.root.iters if it.kind == "par"]
    extents = plan.own(g.axes)
    one = prod(extents) == 1 or extents[plan.vector] == 1
    loops = _RootLoops(Step(pars[plan.vector], 1, "serial" if one else "vector"))
    loops.sums = [Step(it.name, 1) for it in g.root.iters if it.kind == "red"]
    loops.tiles = [Step(pars[n], plan.tile[n]) for n in plan.order if plan.tile[n]]
    for axis in sorted(plan.order, key=lambda n: (n == plan.vector, plan.order.index(n))):
        name, each = pars[axis], plan.expand[axis]
        if axis == plan.vector:
            if max(plan.expand) > 1 or loops.sums:
                # what a vector's elements have in common is computed once
                loops.own.append(Step(name, min(lanes, extents[axis])))
        elif 1 < each < extents[axis]:
            loops.own.append(Step(name, each))
            loops.expanded.append(Step(name, 1, "unroll"))
        elif each > 1:
            loops.expanded.append(Step(name, 1, "unroll"))
        else:
            loops.own.append(Step(name, 1))
    return loops


class _Producers:
    """The places of a group's producers: what is made of each in one iteration of the loop where it is."""

    def __init__(self, g: Group, program: Program, plan: GroupPlan) -> None:
        self.program, self.places = program, list(zip(g.members, plan.placements, strict=True))
        self.made, self.kept = made_boxes(g, plan), kept_rows(g, plan)

    def place(self, m: Stage, how: How) -> Place:
        """A producer in vectors along its last axis, with those that are made inside of its own loops."""
        axes = [it.name for it in m.iters if it.kind == "par"]
        order = [*axes[:-1], *(it.name for it in m.iters if it.kind == "red"), axes[-1]]
        row = self._size(m, len(axes) - 1)
        body: Body = Leaf(m.name)
        for n, axis in reversed(list(enumerate(order))):
            last = n == len(order) - 1
            body = chain([Step(axis, 1, "vector" if last and row > 1 else "serial")], body)
            inside = [x for x, at in self.places if n and _is_at(at, m, order[n - 1])]
            body = sequence(*(self.place(x, "make") for x in inside), body)
        hints: list[tuple[str, str]] = []
        if how == "slide":
            axis_of_rows, rows = self.kept[m.name]
            hints.append(("rows", f"{axes[axis_of_rows]}:{rows}"))
            row = rows if axis_of_rows == len(axes) - 1 else row
        line = LINE // self.program.buffer(m.writes[0]).dtype.bytes
        if len(axes) > 1 and row >= LONG_ROW * line and row % line:
            # rows begin at lines: of three neighbours one is read within lines, what is stored goes to one
            hints.append(("pad", str(-row % line)))
        return Place(m.name, how, "local", body, None, (), tuple(hints))

    def _size(self, m: Stage, axis: int) -> int:
        lo, hi = self.made[m.name][axis]
        return int(np.max(hi - lo)) + 1


def _is_at(at: Placement, m: Stage, axis: str) -> bool:
    """Whether a placement is inside of a producer's loop over an axis."""
    return isinstance(at, AtLoop) and at.member == m.name and loops_of(m)[at.loop].name == axis
