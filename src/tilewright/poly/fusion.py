"""Tile the live-out space, derive the rest, fuse after tiling (Zhao & Di, MICRO 2020, Algorithms 1 to 3).

    construct   one live-out space and its intermediates: tile it, and derive which instances of producers
                each of its tiles needs (Algorithm 1)
    compose     all live-out spaces of a function; producers that several of them share (Algorithm 3)
    fuse        the schedule tree of the groups found (Algorithm 2)

Our own departures from the text: what cannot be fused becomes a live-out space itself, which is the
recursion of Algorithm 1 and the ban of Algorithm 3 in one; original subtrees are left out of the tree's
domain instead of being marked as skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import islpy as isl

from tilewright.poly.budget import limited
from tilewright.poly.dependences import Dependences
from tilewright.poly.executions import PARALLEL_MARK, scratch_mark
from tilewright.poly.extract import Model, PolyStatement
from tilewright.poly.groups import Space
from tilewright.poly.spaces import maps_of, union_map
from tilewright.poly.tree import box, extension, footprint, graft_tree, recomputed, separate, split_and_tile
from tilewright.support import ScheduleError

CPU_CAP = 1
"""Parallel loops that count on a CPU: one, given to threads (Sec. 3-C)."""
GPU_CAP = 2
"""Parallel loops that count on a GPU: blocks in two dimensions."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A live-out space in tiles of ``sizes`` (none: not tiled), and the producers fused into them.

    ``extensions`` gives, per statement of a producer, tile to instances; ``producers`` stand in the order in
    which they run; ``storage`` names the buffers that live in a tile.
    """

    live: Space
    sizes: tuple[int, ...]
    producers: tuple[Space, ...]
    extensions: Mapping[str, isl.Map]
    storage: tuple[str, ...]
    parallel: bool

    @property
    def recomputes(self) -> dict[str, bool]:
        """Per fused statement, whether some instance runs in several tiles."""
        return recomputed(self.extensions)


@limited("the groups of {} are too many for isl", "fuse fewer statements, or in fewer tiles")
def construct(
    dependences: Dependences,
    live: Space,
    intermediates: Sequence[Space],
    sizes: Sequence[int],
    *,
    cap: int = CPU_CAP,
) -> Group:
    """Algorithm 1: tile ``live`` and fuse those of ``intermediates`` (in program order) that can be.

    A producer is fused unless it has fewer parallel loops than the live-out space keeps (m > n), produces
    nothing that the tiles read, or its instances cannot be derived from what is read. A live-out space that
    cannot be tiled has no tile dimensions: producers then run whole before it (fusion without tiling).
    """
    model = dependences.model
    tiled = _sizes_for(live, sizes, cap)
    kept = min(live.parallel, cap)
    prefix = _tiles_of(live, tiled)
    needed: dict[str, isl.UnionMap] = {}
    for name in live.names:
        _need(needed, prefix, model.statement(name), frozenset())
    producers: list[Space] = []
    extensions: dict[str, isl.Map] = {}
    storage: set[str] = set()
    for space in reversed(intermediates):
        if kept > space.parallel or not _writes_alone(model, space):
            continue
        found = _derived(dependences, space, needed)
        if found is None:
            continue
        producers.insert(0, space)
        extensions.update(found)
        storage.update(w.buffer for name in space.names for w in model.statement(name).writes)
        own = frozenset(w.buffer for name in space.names for w in model.statement(name).writes)
        for name in space.names:
            _need(needed, found[name].to_union_map().reverse(), model.statement(name), own)
    names = tuple(b for b in model.buffers if b in storage)
    parallel = bool(tiled) and live.coincident[0]
    return Group(live, tiled, tuple(producers), extensions, names, parallel)


@limited("the groups of {} are too many for isl", "fuse fewer statements, or in fewer tiles")
def compose(
    dependences: Dependences, spaces: Sequence[Space], sizes: Sequence[int], *, cap: int = CPU_CAP
) -> list[Group]:
    """Algorithms 1 and 3: groups for all live-out spaces, in the order in which they run.

    Spaces that write outputs are live-out, and those whose values nothing else reads. A producer that several
    groups would fuse is fused into all of them where the instances that they need are disjoint, else into
    none; what stays unfused becomes live-out, from the last one on.
    """
    model = dependences.model
    outputs = set(model.function.outputs)
    live = {n for n, s in enumerate(spaces) if _written(model, s) & outputs or not _readers(model, spaces, n)}
    while True:
        groups = {n: _group(dependences, spaces, n, live, sizes, cap) for n in sorted(live)}
        fused = {p.names for g in groups.values() for p in g.producers}
        left = [n for n, s in enumerate(spaces) if n not in live and s.names not in fused]
        more = {left[-1]} if left else _conflicts(model, spaces, groups)
        if not more:
            return [groups[n] for n in sorted(groups)]
        live |= more


@limited("the groups of {} are too many for isl", "fuse fewer statements, or in fewer tiles")
def fuse(model: Model, groups: Sequence[Group]) -> isl.Schedule:
    """Algorithm 2: the tree of the groups, one after another; raises ScheduleError for none.

    Below the tile band of a group stand the extension node of its producers and a sequence: each producer in
    its own schedule, then the point band.
    """
    if not groups:
        raise ScheduleError("there is nothing to schedule: no statement writes anything")
    out: isl.Schedule | None = None
    for group in groups:
        schedule = _tree(model, group)
        out = schedule if out is None else out.sequence(schedule)
    assert out is not None
    return out


def _tree(model: Model, group: Group) -> isl.Schedule:
    root = group.live.schedule.get_root().child(0)
    if not group.sizes:
        for p in group.producers:
            root = graft_tree(root, p.schedule, union_map(group.extensions[n] for n in p.names))
        return root.get_schedule()
    point = separate(model, split_and_tile(root, group.sizes), group.sizes).child(0)
    for p in group.producers:
        point = graft_tree(point, p.schedule, union_map(group.extensions[n] for n in p.names))
    top = point.root().child(0)
    if group.storage:
        top = top.child(0).insert_mark(scratch_mark(group.storage)).parent()
    if group.parallel:
        top = top.insert_mark(isl.Id(PARALLEL_MARK))
    return top.get_schedule()


def _sizes_for(live: Space, sizes: Sequence[int], cap: int) -> tuple[int, ...]:
    """The tile sizes that a space can have: as many as its band has loops, none where it cannot be tiled."""
    wanted = 1 if cap == GPU_CAP else 0
    if not live.permutable or min(live.parallel, cap) <= wanted:
        return ()
    return tuple(sizes[: len(live.coincident)])


def _tiles_of(live: Space, sizes: tuple[int, ...]) -> isl.UnionMap:
    """Instances of a live-out space to the origin of their tile (formula 2)."""
    band = live.schedule.get_root().child(0)
    if not sizes:
        domain = live.schedule.get_domain()
        nowhere = isl.Set.universe(domain.get_space().params().set_from_params()).to_union_set()
        return isl.UnionMap.from_domain_and_range(domain, nowhere)
    point = split_and_tile(band, sizes).child(0)
    return point.get_prefix_schedule_relation().intersect_domain(live.schedule.get_domain())


def _need(
    needed: dict[str, isl.UnionMap], tiles: isl.UnionMap, s: PolyStatement, own: frozenset[str]
) -> None:
    """Add what a statement reads in each tile (formula 4), but for what its own space makes."""
    mine = tiles.intersect_domain(s.domain.to_union_set())
    for r in s.reads:
        if r.buffer not in own:
            foot = footprint(mine, r.relation.to_union_map())
            needed[r.buffer] = needed[r.buffer].union(foot) if r.buffer in needed else foot


def _derived(
    dependences: Dependences, space: Space, needed: Mapping[str, isl.UnionMap]
) -> dict[str, isl.Map] | None:
    """Per statement tile to instances that make what is needed (formula 6); ``None`` where none follow.

    Boxes stand for what is needed of each buffer. Every statement must write each element of a buffer once,
    but for accumulations, and read what the space makes of one point at that point only.
    """
    model = dependences.model
    out: dict[str, isl.Map] = {}
    statements = [model.statement(name) for name in space.names]
    wanted: dict[str, isl.UnionMap] = {}
    for name, m in needed.items():
        parts = maps_of(m)
        if parts and any(w.buffer == name for s in statements for w in s.writes):
            wanted[name] = box(parts[0].coalesce()).to_union_map()
    if not wanted:
        return None
    for s in reversed(statements):
        buffers = {w.buffer for w in s.writes}
        if not buffers & wanted.keys() or not _derivable(dependences, space, s):
            return None
        writes = union_map(w.relation for w in s.writes)
        e = extension(union_map(_map(wanted[b]) for b in sorted(buffers & wanted.keys())), writes)
        e = e.intersect_range(s.domain.to_union_set())
        if e.is_empty():
            return None
        out[s.name] = isl.Map.from_union_map(e).coalesce()
        for r in s.reads:
            if r.buffer not in buffers and any(w.buffer == r.buffer for t in statements for w in t.writes):
                foot = footprint(e.reverse(), r.relation.to_union_map())
                old = wanted.get(r.buffer)
                foot = foot if old is None else foot.union(old)
                wanted[r.buffer] = box(_map(foot).coalesce()).to_union_map()
    return out


def _map(u: isl.UnionMap) -> isl.Map:
    return isl.Map.from_union_map(u)


def _derivable(dependences: Dependences, space: Space, s: PolyStatement) -> bool:
    """Whether a statement writes elements once (accumulations aside), and flow in its space goes forward."""
    position = {name: n for n, name in enumerate(space.names)}
    same = {w.buffer: w.relation.to_union_map() for w in s.writes}
    for r in s.reads:
        # what a statement reads of its own buffer must be the element that it writes
        if r.buffer in same and not r.relation.to_union_map().is_subset(same[r.buffer]):
            return False
    for d in dependences.among(space.names, ("flow",)):
        if d.sink == s.name and position[d.source] > position[s.name]:
            return False
    accumulates = any(r.buffer in same for r in s.reads) or "red" in s.coord_kinds
    repeats = not union_map(w.relation for w in s.writes).is_injective()
    return not repeats or accumulates


def _written(model: Model, space: Space) -> set[str]:
    return {w.buffer for name in space.names for w in model.statement(name).writes}


def _writes_alone(model: Model, space: Space) -> bool:
    """Whether nobody else writes what a space makes, and no caller sees it."""
    made = _written(model, space)
    others = (s for s in model.statements if s.name not in space.names)
    taken = {w.buffer for s in others for w in s.writes} | {b.name for b in model.function.buffers}
    return not made & taken


def _readers(model: Model, spaces: Sequence[Space], n: int) -> set[int]:
    """The other spaces that read what a space makes."""
    made = _written(model, spaces[n])
    return {
        k
        for k, other in enumerate(spaces)
        if k != n and any(r.buffer in made for name in other.names for r in model.statement(name).reads)
    }


def _group(
    dependences: Dependences, spaces: Sequence[Space], n: int, live: set[int], sizes: Sequence[int], cap: int
) -> Group:
    """The group of one live-out space: intermediates all of whose readers could come along, to start with."""
    model = dependences.model
    wanted: set[int] = set()
    for k in reversed(range(n)):
        if k not in live and _readers(model, spaces, k) & {n, *wanted}:
            wanted.add(k)
    return construct(dependences, spaces[n], [spaces[k] for k in sorted(wanted)], sizes, cap=cap)


def _conflicts(model: Model, spaces: Sequence[Space], groups: Mapping[int, Group]) -> set[int]:
    """The last producer that some groups have, but not every reader, or not with instances of their own."""
    for k in reversed(range(len(spaces))):
        names = spaces[k].names
        having = [g for g in groups.values() if any(p.names == names for p in g.producers)]
        members = {p.names for g in having for p in (g.live, *g.producers)}
        readers = {spaces[r].names for r in _readers(model, spaces, k)}
        pairs = combinations(having, 2)
        if having and (
            not readers <= members or any(_overlap(a, b, name) for a, b in pairs for name in names)
        ):
            return {k}
    return set()


def _overlap(a: Group, b: Group, name: str) -> bool:
    """Whether two groups need common instances of a statement."""
    return not a.extensions[name].range().intersect(b.extensions[name].range()).is_empty()
