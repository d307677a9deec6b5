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

from tilewright.cost import SWEPT_SHARE, Machine
from tilewright.ir import Program, Stage
from tilewright.plan.pipeline.group import AtLoop, Group, Placement, loops_of
from tilewright.plan.pipeline.group_plan import GroupPlan, held_bytes, invalid, kept_rows, too_long
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


@dataclass(slots=True)
class _Loops:
    """The loops of a root by what they are for, outermost first."""

    tiles: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)
    expanded: list[str] = field(default_factory=list)
    inner: str = ""


def schedule_group(s: Schedule, g: Group, program: Program, plan: GroupPlan, machine: Machine) -> Schedule:
    """Schedule a group. Loops are those of the unscheduled program.

    Raises ScheduleError where a step is refused.
    """
    places = list(zip(g.members, plan.placements, strict=True))
    for m, place in places:
        if place == "inline":
            s = s.inline(m.name)
        elif place == "root":
            s = schedule_elementwise(s, program, m, machine)
    lanes = machine.target.lanes(program.buffer(g.root.writes[0]).dtype)
    s, loops = _root_loops(s, g, plan, lanes)
    for m, place in reversed(places):
        if place == "tile":
            s = s.compute_at(m.name, loops.tiles[-1])
        elif place in ("row", "slide"):
            s = s.compute_at(m.name, loops.own[0])
        elif isinstance(place, AtLoop):
            stage = next(each for each in g.members if each.name == place.member)
            own = _own_loops(s, stage, stage.name)
            s = s.compute_at(m.name, own[loops_of(stage)[place.loop].name])
        else:
            continue
        if m.is_reduction:
            s = _sums_outside_of_lanes(s, m)
    kept = kept_rows(g, plan)
    for m, place in places:
        if place == "slide":
            s = s.slide(m.name, loops.own[0])
    for m, place in places:
        if place not in ("inline", "root"):
            s = _in_lanes(s, m, m.name)
        if place == "slide":
            s = _in_lanes(s, m, f"{m.name}_first")
            s = s.roll(m.writes[0], *kept[m.name])
        if place not in ("inline", "root"):
            s = _rows_at_lines(s, m.writes[0], LINE // program.buffer(m.writes[0]).dtype.bytes)
    if loops.sums:
        s = s.decompose_init(g.root.name, loops.sums[0])
        s = _last_in_lanes(s, f"{g.root.name}_init")
    for loop in loops.expanded:
        s = s.unroll(loop)
    if loops.inner:
        s = s.vectorize(loops.inner)
    rest = plan.own(g.axes)[plan.vector] % lanes
    if rest and loops.inner and loops.expanded and not g.members and not plan.tile[plan.vector]:
        # else each vector has a mask, which hides what rows side by side share
        s = s.partition(loops.own[-1], -1)
    if not plan.parallel:
        return s
    first, *more = loops.tiles[: plan.parallel]
    for loop in more:
        fused = f"{first}_{loop}"[:60]
        s = s.fuse(first, loop, names=[fused])
        first = fused
    return s.parallel(first)


def _rows_at_lines(s: Schedule, buffer: str, line: int) -> Schedule:
    """Rows of a buffer of tiles begin at lines of so many elements, where they are many lines long.

    Of three neighbours one is then read within lines, and what is stored goes to one line.
    """
    *rows, row = s.buffers()[buffer].physical_shape
    if not rows or not row.is_const or row.const < LONG_ROW * line or row.const % line == 0:
        return s
    return s.pad_stride(buffer, -row.const % line)


def _root_loops(s: Schedule, g: Group, plan: GroupPlan, lanes: int) -> tuple[Schedule, _Loops]:
    """Cut and order the loops of the root."""
    given = list(s.loops(g.root.name))
    by_kind = {
        kind: [loop for loop, it in zip(given, g.root.iters, strict=True) if it.kind == kind]
        for kind in ("par", "red")
    }
    loops = _Loops(sums=by_kind["red"])
    extents = plan.own(g.axes)
    split = max(plan.expand) > 1 or bool(loops.sums)
    for axis in sorted(plan.order, key=lambda n: (n == plan.vector, plan.order.index(n))):
        loop, tile, each = by_kind["par"][axis], plan.tile[axis], plan.expand[axis]
        if tile:
            s = s.split(loop, tile, names=[f"{loop}_strip", f"{loop}_own"])
            loops.tiles.append(f"{loop}_strip")
            loop = f"{loop}_own"
        if axis == plan.vector:
            if split:
                # what a vector's elements have in common is computed once
                s = s.split(loop, lanes, names=[f"{loop}_vector", f"{loop}_lane"])
                loops.own.append(f"{loop}_vector")
                loop = f"{loop}_lane"
            loops.inner = loop
        elif 1 < each < extents[axis]:
            s = s.split(loop, each, names=[f"{loop}_turn", f"{loop}_each"])
            loops.own.append(f"{loop}_turn")
            loops.expanded.append(f"{loop}_each")
        else:
            (loops.expanded if each > 1 else loops.own).append(loop)
    order = {axis: n for n, axis in enumerate(plan.order)}
    tiled = [axis for axis in sorted(order, key=lambda n: order[n]) if plan.tile[axis]]
    loops.tiles = [f"{by_kind['par'][axis]}_strip" for axis in tiled]
    wanted = [*loops.tiles, *loops.own, *loops.sums, *loops.expanded, loops.inner]
    if wanted != list(s.loops(g.root.name)):
        s = s.reorder(*wanted)
    if prod(extents) == 1 or extents[plan.vector] == 1:
        loops.inner = ""
    return s, loops


def _own_loops(s: Schedule, stage: Stage, block: str) -> dict[str, str]:
    """The loops of a producer inside of a nest by its iterators."""
    node = s.block(block)
    feeds = {it.name: at.vars for it, at in zip(node.iters, node.bind, strict=True)}
    own = s.loops(block)[-len(stage.iters) :]
    return {it.name: next(loop for loop in own if loop in feeds[it.name]) for it in stage.iters}


def _sums_outside_of_lanes(s: Schedule, stage: Stage) -> Schedule:
    """A sum inside of a nest: its last axis, which is in lanes, inside of the loops over terms."""
    own = _own_loops(s, stage, stage.name)
    outer = [own[it.name] for it in loops_of(stage)]
    wanted = [*outer, next(loop for loop in own.values() if loop not in outer)]
    return s if wanted == list(s.loops(stage.name)[-len(wanted) :]) else s.reorder(*wanted)


def _in_lanes(s: Schedule, stage: Stage, block: str) -> Schedule:
    """A producer inside of a nest: its last axis in lanes."""
    if stage.is_reduction:
        own = _own_loops(s, stage, block)
        s = s.decompose_init(block, next(own[it.name] for it in stage.iters if it.kind == "red"))
        s = _last_in_lanes(s, f"{block}_init")
    return _last_in_lanes(s, block)


def _last_in_lanes(s: Schedule, block: str) -> Schedule:
    """The innermost loop around a block in lanes, where it has several iterations."""
    loop = s.loops(block)[-1]
    extent = s.loop(loop).extent
    return s.vectorize(loop) if extent.is_const and extent.as_int() > 1 else s
