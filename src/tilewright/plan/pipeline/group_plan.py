"""Plans of groups: tiles, order, lanes and threads of the root, a place for each producer; what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import Box
from tilewright.ir import Program, stmt_loads
from tilewright.plan.pipeline.boxes import boxes, loop_boxes, middle, points
from tilewright.plan.pipeline.group import AtLoop, Group, Placement, misplaced, windows

#: Copies of a root's innermost loop that may be expanded.
MOST_EXPANDED: Final = 32
#: Loads that a stage may have after others were put into it.
MOST_LOADS: Final = 128


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One nest, by the axes of the root's result.

    ``tile`` are elements of a tile along each axis (0: it is not cut). Loops over tiles are around those
    inside of a tile, both in the ``order`` of the axes, but that the axis ``vector`` is the innermost.
    ``expand`` are elements along each axis that are expanded inside of that, so that what they share is
    computed once. The first ``parallel`` loops over tiles are shared by the threads. ``placements`` say where
    each producer is computed, in the program's order.
    """

    tile: tuple[int, ...]
    placements: tuple[Placement, ...]
    order: tuple[int, ...]
    vector: int
    expand: tuple[int, ...]
    parallel: int

    @property
    def row(self) -> int:
        """The axis of the outermost loop inside of a tile."""
        return self.order[0]

    def own(self, extents: tuple[int, ...]) -> tuple[int, ...]:
        """Elements of a tile along each axis, of axes that are not cut all."""
        return tuple(t or n for t, n in zip(self.tile, extents, strict=True))

    def places(self, g: Group) -> dict[str, Placement]:
        """The place of each producer by its name."""
        return {m.name: place for m, place in zip(g.members, self.placements, strict=True)}


def invalid(g: Group, plan: GroupPlan) -> str:
    """Why a plan is none of a group's, by its structure alone; empty where it is one."""
    return unfit(g.axes, plan, len(g.members)) or misplaced(
        g, plan.places(g), plan.row, plan.expand[plan.row]
    )


def unfit(extents: tuple[int, ...], plan: GroupPlan, members: int) -> str:
    """Why a plan is none of any group with these extents and so many producers, whatever these are."""
    rank = len(extents)
    if not rank == len(plan.tile) == len(plan.expand) == len(plan.order) or {*plan.order} != {*range(rank)}:
        return f"the result has {rank} axes"
    if not 0 <= plan.vector < rank or len(plan.placements) != members:
        return f"the nest has {rank} axes and {members} producers"
    if any(not 0 <= t < n for t, n in zip(plan.tile, extents, strict=True)):
        return f"tiles {plan.tile} are no parts of {extents}"
    if not 0 <= plan.parallel <= sum(t > 0 for t in plan.tile):
        return f"{plan.parallel} loops over tiles are parallel, of {sum(t > 0 for t in plan.tile)}"
    own = plan.own(extents)
    for axis, (n, e) in enumerate(zip(own, plan.expand, strict=True)):
        if e < 1 or n % e or (e > 1 and (axis == plan.vector or (axis == plan.row and e == n))):
            return f"{e} elements of axis {axis} cannot be expanded, of {n}"
        if e > 1 and members and plan.tile[axis] and extents[axis] % plan.tile[axis] % e:
            return f"the last tile of axis {axis} has no multiple of {e} elements"
    if prod(plan.expand) > MOST_EXPANDED:
        return f"{prod(plan.expand)} copies are more than {MOST_EXPANDED}"
    inside = {"row", "slide"} & {*plan.placements}
    if inside and plan.row == plan.vector:
        return f"there is no loop over rows inside of a tile for {inside.pop()!r}"
    if "slide" in plan.placements and own[plan.row] == plan.expand[plan.row]:
        return "the loop over rows inside of a tile has one turn, in which nothing slides"
    if "tile" in plan.placements and not any(plan.tile):
        return "there are no tiles at which anything is computed"
    return ""


def too_long(g: Group, program: Program, plan: GroupPlan) -> str:
    """Which stage would have too many loads after others were put into it; empty where none has."""
    if "inline" not in plan.placements:
        return ""
    where, makers = plan.places(g), g.makers
    total: dict[str, int] = {}
    for stage in g.stages:
        loads = stmt_loads(stage.body)
        made = [makers[ld.buffer] for ld in loads if ld.buffer in makers]
        inlined = [name for name in made if where[name] == "inline"]
        total[stage.name] = len(loads) + sum(total[name] for name in inlined)
        if total[stage.name] > MOST_LOADS and inlined:
            return f"{stage.name} would have {total[stage.name]} loads, more than {MOST_LOADS}"
    return ""


def made_boxes(g: Group, plan: GroupPlan) -> Mapping[str, Box]:
    """What is computed of each producer in one iteration of the loop where it is, amid the result.

    Of those that keep rows all that a tile needs.
    """
    own = middle(g.axes, plan.tile)
    first = own[plan.row][0]
    row = (first, first + (plan.expand[plan.row] - 1))
    tile, turn = boxes(g, own), boxes(g, (*own[: plan.row], row, *own[plan.row + 1 :]))
    out: dict[str, Box] = {}
    for m, place in reversed(list(zip(g.members, plan.placements, strict=True))):
        found: Mapping[str, Box] = turn if place == "row" else tile
        if isinstance(place, AtLoop):
            found = loop_boxes(g, place.member, out[place.member], place.loop + 1)
        if m.name in found:
            out[m.name] = found[m.name]
    return out


def kept_rows(g: Group, plan: GroupPlan) -> dict[str, tuple[int, int]]:
    """Of each producer that keeps rows: the axis, and for how many of them there is memory."""
    places = plan.places(g)
    if "slide" not in plan.placements:
        return {}
    step = plan.expand[plan.row]
    found = windows(g, places, plan.row, step)
    ahead = windows(g, places, plan.row, step, ahead=True)
    rows = {name: max(w.rows, ahead[name].rows - step) for name, w in found.items()}
    return {
        name: (w.axis, 1 << (rows[name] - 1).bit_length())
        for name, w in found.items()
        if places[name] == "slide"
    }


def held_bytes(g: Group, program: Program, plan: GroupPlan) -> dict[str, int]:
    """Bytes of each producer that is stored inside of a tile."""
    made = made_boxes(g, plan)
    kept, out = kept_rows(g, plan), dict[str, int]()
    for m, place in zip(g.members, plan.placements, strict=True):
        if place in ("inline", "root") or m.name not in made:
            continue
        count = int(points(made[m.name])[0])
        if place == "slide":
            axis, rows = kept[m.name]
            lo, hi = made[m.name][axis]
            height = int((hi - lo)[0]) + 1
            count = count // height * min(rows, height)
        out[m.name] = count * program.buffer(m.writes[0]).dtype.bytes
    return out
