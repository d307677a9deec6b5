"""The loop tree of a group of stages, from its plan and the boxes of its tiles alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.analysis import Access, Span
from tilewright.cost import Machine, Node, Place, Term
from tilewright.ir import Binary, Expr, Load, Program, Stage, Store, children, condition_of
from tilewright.plan.elementwise.plan import default_elementwise
from tilewright.plan.pipeline.group import AtLoop, Group, Placement
from tilewright.plan.pipeline.group_plan import GroupPlan
from tilewright.plan.rows.tree import ElementwiseLoops, Loops, elementwise_loops
from tilewright.plan.trees import Body, Touched, around, body_of, composed, one, placed, started


@dataclass(frozen=True, slots=True)
class Member:
    """A stage of a group for cost models.

    ``body`` has its accesses; ``loads`` how often its expression has each producer of the group, ``sums``
    the producers that are operands of an addition without a product, and ``top`` the operation of the whole
    expression (of a mere load its buffer). ``alone`` are the loops of a nest ahead of the group's.
    """

    stage: Stage
    body: Body
    loads: Mapping[str, int]
    sums: tuple[frozenset[str], ...]
    top: str
    alone: ElementwiseLoops | None


def members_of(g: Group, program: Program, machine: Machine) -> dict[str, Member] | None:
    """The stages of a group; ``None`` where one is no plain definition."""
    made = set(g.makers)
    out: dict[str, Member] = {}
    for stage in g.stages:
        body = body_of(program, stage)
        _, store = condition_of(stage.body)
        if body is None or not isinstance(store, Store):
            return None
        value = store.writes[0].value
        loads: dict[str, int] = {}
        sums: list[frozenset[str]] = []
        _count(value, made, loads, sums)
        top = value.op if isinstance(value, Binary) else value.buffer if isinstance(value, Load) else ""
        alone = None
        if stage is not g.root and not stage.is_reduction:
            plan = default_elementwise(program, stage)
            alone = elementwise_loops(program, stage, plan, machine)
        out[stage.name] = Member(stage, body, loads, tuple(sums), top, alone)
    return out


def _count(e: Expr, made: set[str], loads: dict[str, int], sums: list[frozenset[str]]) -> None:
    """Producers that an expression reads, each time it does, and additions that one may fuse into."""
    if isinstance(e, Load):
        if e.buffer in made:
            loads[e.buffer] = loads.get(e.buffer, 0) + 1
        return
    if isinstance(e, Binary) and e.op == "add" and e.dtype.is_float:
        operands = (e.a, e.b)
        if not any(isinstance(x, Binary) and x.op == "mul" for x in operands):
            found = frozenset(x.buffer for x in operands if isinstance(x, Load) and x.buffer in made)
            if found:
                sums.append(found)
    for x in children(e):
        _count(x, made, loads, sums)


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops of a group's root: over tiles, in a tile, over sums, expanded ones, lanes; where axes go."""

    tiles: Loops
    inside: Loops
    sums: Loops
    expanded: Loops
    lane: Loops
    binding: Mapping[str, Place]

    @property
    def sizes(self) -> dict[str, int]:
        """The extents of all loops."""
        loops = (*self.tiles, *self.inside, *self.sums, *self.expanded, *self.lane)
        return {name: extent for name, extent, _ in loops}

    def outside(self, where: Placement) -> frozenset[str]:
        """The loops around what is computed at a tile, or at a row of one."""
        row = (self.inside[0][0] if self.inside else "",) if where == "row" else ()
        return frozenset((*(name for name, _, _ in self.tiles), *row))


def group_tree(
    g: Group, program: Program, plan: GroupPlan, machine: Machine, known: Mapping[str, Member]
) -> tuple[Node, ...] | None:
    """The nests of a plan; ``None`` for producers that slide, or whose own nests are not known.

    Nor are those inside of other producers' loops.
    """
    places = plan.places(g)
    if any(place == "slide" or isinstance(place, AtLoop) for place in plan.placements):
        return None
    inlined = {m.writes[0]: m.name for m in g.members if places[m.name] == "inline"}
    bodies = _inlined(g, known, inlined) if inlined else {n: m.body for n, m in known.items()}
    ahead = _ahead(g, places, known, bodies)
    if ahead is None:
        return None
    loops = _around(g, plan, machine.target.lanes(program.buffer(g.root.writes[0]).dtype))
    made = _inside(g, plan, places, loops, known, bodies)
    if made is None:
        return None
    nests, sizes, stored = made
    body = bodies[g.root.name]
    work = placed(body, loops.binding, sizes, inside=stored)
    core: Sequence[Node] = around([*loops.sums, *loops.expanded, *loops.lane], [work])
    if loops.sums:
        then = [(n, e, "serial") for n, e, _ in loops.expanded]
        last = [(n, e, "vector" if e > 1 else "serial") for n, e, _ in loops.lane]
        start = started(body, loops.binding, sizes, inside=stored)
        core = [*around([*then, *last], [start]), *core]
    if loops.inside:
        rows = [*nests["row"], *around(loops.inside[1:], core)]
        core = [*nests["tile"], *around(loops.inside[:1], rows)]
    else:
        core = [*nests["tile"], *nests["row"], *core]
    return (*ahead, *around(loops.tiles, core))


def _ahead(
    g: Group,
    places: Mapping[str, Placement],
    known: Mapping[str, Member],
    bodies: Mapping[str, Body],
) -> list[Node] | None:
    """The nests of producers that are computed as wholes, before; ``None`` where one is not known."""
    out: list[Node] = []
    for m in g.members:
        if places[m.name] != "root":
            continue
        alone = known[m.name].alone
        if alone is None or m.is_reduction:
            return None
        out += alone.around(bodies[m.name])
    return out


def _around(g: Group, plan: GroupPlan, lanes: int) -> _Around:
    """The loops of the root, as its plan cuts and orders them."""
    extents, own = g.axes, plan.own(g.axes)
    pars = [it.name for it in g.root.iters if it.kind == "par"]
    reds = [it for it in g.root.iters if it.kind == "red"]
    sums: Loops = [(f"+{it.name}", it.extent.as_int(), "serial") for it in reds]
    split = max(plan.expand) > 1 or bool(sums)
    tiles, tile_at = _tiles(plan, extents, pars)
    inside: Loops = []
    expanded: Loops = []
    lane: Loops = []
    at: dict[int, Place] = {}
    for axis in sorted(plan.order, key=lambda n: (n == plan.vector, plan.order.index(n))):
        name, each, step = pars[axis], plan.expand[axis], 1
        place: Place = tile_at.get(axis, ())
        size = own[axis]
        if axis == plan.vector:
            if split:
                inside.append((f"{name}|", -(-size // lanes), "serial"))
                place, size = (*place, *one(f"{name}|", lanes)), min(lanes, size)
            if size > 1 or extents[axis] > 1:
                lane = [(name, size, "vector" if own[plan.vector] > 1 else "serial")]
        elif 1 < each < size:
            inside.append((f"{name}|", size // each, "serial"))
            expanded.append((name, each, "unroll"))
            place = (*place, *one(f"{name}|", each))
            step = 1
        else:
            (expanded if each > 1 else inside).append((name, size, "unroll" if each > 1 else "serial"))
        at[axis] = (*place, *one(name, step))
    sizes = {n: e for n, e, _ in (*tiles, *inside, *sums, *expanded, *lane)}
    at = {axis: tuple(t for t in place if sizes.get(t.inner[0][1], 1) > 1) for axis, place in at.items()}
    binding = {pars[n]: place for n, place in at.items()}
    binding |= {it.name: one(f"+{it.name}") for it in reds if it.extent.as_int() > 1}
    return _Around(tiles, inside, sums, expanded, lane, binding)


def _tiles(plan: GroupPlan, extents: Sequence[int], pars: Sequence[str]) -> tuple[Loops, dict[int, Place]]:
    """The loops over tiles, those that threads share as one, and where each axis is by them."""
    order = {axis: n for n, axis in enumerate(plan.order)}
    cut = sorted((n for n in range(len(extents)) if plan.tile[n]), key=lambda n: order[n])
    counts = [-(-extents[n] // plan.tile[n]) for n in cut]
    tiles: Loops = [(f"{pars[n]}/", count, "serial") for n, count in zip(cut, counts, strict=True)]
    at: dict[int, Place] = {n: one(f"{pars[n]}/", plan.tile[n]) for n in cut}
    if plan.parallel:
        shared = prod(counts[: plan.parallel])
        name = tiles[0][0] if plan.parallel == 1 else "fused"
        tiles[: plan.parallel] = [(name, shared, "parallel")]
        below = shared
        for k, (n, count) in enumerate(zip(cut[: plan.parallel], counts, strict=False)):
            below //= count
            at[n] = (Term(plan.tile[n], ((1, name),), below, count if k else 0),)
    return tiles, at


def _inside(
    g: Group,
    plan: GroupPlan,
    places: Mapping[str, Placement],
    loops: _Around,
    known: Mapping[str, Member],
    bodies: Mapping[str, Body],
) -> tuple[dict[Placement, list[Node]], dict[str, int], dict[str, frozenset[str]]] | None:
    """What is computed at a tile and at a row: its nests, the extents of all loops, and loops inside buffers.

    ``None`` where what a tile needs is not known.
    """
    tile_box = tuple(_middle(n, t) for n, t in zip(g.axes, plan.tile, strict=True))
    first = tile_box[plan.row][0]
    turn_box = (
        *tile_box[: plan.row], (first, first + plan.expand[plan.row] - 1), *tile_box[plan.row + 1 :]
    )  # fmt: skip
    names = {m.name for m in g.members}
    boxes = {
        where: g.table.boxes(g.root.name, box, names) if where in plan.placements else {}
        for where, box in (("tile", tile_box), ("row", turn_box))
    }
    moves = _moves(g, loops.binding, known)
    if moves is None:
        return None
    sizes = loops.sizes
    made: list[tuple[str, Placement, Loops, dict[str, Place]]] = []
    for m in g.members:
        where = places[m.name]
        if where not in boxes:
            continue
        if m.name not in boxes[where]:
            return None
        its: dict[str, Place] = {}
        own: Loops = []
        left = iter(boxes[where][m.name])
        for it in m.iters:
            name, whole = f"{m.name}.{it.name}", it.extent.as_int()
            size = whole
            place: Place = ()
            if it.kind == "par":
                lo, hi = next(left)
                size = hi - lo + 1
                if size < whole:
                    outside = loops.outside(where)
                    place = tuple(t for t in moves[m.name][it.name] if t.inner[0][1] in outside)
            own.append((name, size, "serial"))
            its[it.name] = (*place, *(one(name) if size > 1 else ()))
        sizes |= {n: e for n, e, _ in own}
        made.append((m.name, where, own, its))
    everything = frozenset(sizes)
    stored = {known[n].stage.writes[0]: everything - loops.outside(where) for n, where, _, _ in made}
    nests: dict[Placement, list[Node]] = {"tile": [], "row": []}
    for name, where, own, its in made:
        nests[where] += _member_nest(known[name].stage, bodies[name], own, its, sizes, stored)
    return nests, sizes, stored


def _middle(n: int, tile: int) -> Span:
    size = tile or n
    first = (n // size) // 2 * size
    return first, min(first + size, n) - 1


def _member_nest(
    stage: Stage,
    body: Body,
    loops: Loops,
    binding: Mapping[str, Place],
    sizes: Mapping[str, int],
    stored: Mapping[str, frozenset[str]],
) -> tuple[Node, ...]:
    work = placed(body, binding, sizes, inside=stored)
    if not stage.is_reduction:
        last = [(n, e, "vector") for n, e, _ in loops[-1:]]
        return around([*loops[:-1], *last], [work])
    kinds = dict(zip((n for n, _, _ in loops), (it.kind for it in stage.iters), strict=True))
    reds = [x for x in loops if kinds[x[0]] == "red"]
    pars = [x for x in loops if kinds[x[0]] != "red"]
    inner = [(n, e, "vector") for n, e, _ in pars[-1:]]
    return around(
        pars[:-1],
        [*around(inner, [started(body, binding, sizes, inside=stored)]), *around([*reds, *inner], [work])],
    )


def _moves(
    g: Group, binding: Mapping[str, Place], known: Mapping[str, Member]
) -> dict[str, dict[str, Place]] | None:
    """How the first instance that is needed of each producer moves with the loops; ``None``: unevenly."""
    out: dict[str, dict[str, Place]] = {g.root.name: dict(binding)}
    makers = g.makers
    for stage in reversed(g.stages):
        if stage.name not in out:
            continue
        for access in g.table.accesses[stage.name]:
            maker = makers.get(access.buffer)
            if maker is None:
                continue
            pars = [it.name for it in known[maker].stage.iters if it.kind == "par"]
            for name, place in zip(pars, _read(access, out[stage.name]), strict=True):
                if place is None:
                    return None
                before = out.setdefault(maker, {}).setdefault(name, place)
                if before != place:
                    return None
    return out


def _read(access: Access, binding: Mapping[str, Place]) -> list[Place | None]:
    out: list[Place | None] = []
    for reaches in access.dims:
        found = {
            composed(reach.terms, binding) if reach.tag in ("affine", "clamp") else None for reach in reaches
        }
        out.append(found.pop() if len(found) == 1 else None)
    return out


def _inlined(g: Group, known: Mapping[str, Member], inlined: Mapping[str, str]) -> dict[str, Body]:
    """The bodies of stages with some producers in their expressions."""
    out: dict[str, Body] = {}
    tops: dict[str, str] = {}
    for stage in g.stages:
        m = known[stage.name]
        body = m.body
        inside = [b for b in m.loads if b in inlined]
        top = m.top
        if top in inlined:
            top = tops[inlined[top]]
        tops[stage.name] = top
        if inside:
            operations = body.operations
            if operations == 1 and m.top in known[stage.name].loads:
                operations = 0
            for b in inside:
                child = out[inlined[b]]
                operations += m.loads[b] * (0 if tops[inlined[b]] == "copy" else child.operations)
            operations -= sum(
                any(b in inlined and tops[inlined[b]] == "mul" for b in some) for some in m.sums
            )
            touched: dict[Touched, None] = {}
            for t in body.touched:
                if t.buffer not in inside or t.writes:
                    touched[t] = None
                    continue
                child = out[inlined[t.buffer]]
                pars = [it for it in known[inlined[t.buffer]].stage.iters if it.kind == "par"]
                moved = dict(zip((it.name for it in pars if it.extent.as_int() > 1), t.places, strict=True))
                for other in child.touched:
                    if not other.writes:
                        spots = tuple(
                            tuple(
                                Term(term.stride * c * b.stride, b.inner, b.quotient, b.modulus)
                                for term in place
                                for c, n in term.inner
                                for b in moved.get(n, ())
                            )
                            for place in other.places
                        )
                        touched[other._replace(places=spots)] = None
            body = body._replace(touched=tuple(touched), operations=max(1, operations))
        out[stage.name] = body
    return out
