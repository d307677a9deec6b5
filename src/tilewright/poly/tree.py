"""Schedule trees: built from a model, tiled, extended by what tiles need, grafted.

The steps of "tile the live-out space, derive the rest, fuse after tiling" (Zhao & Di, MICRO 2020):

    prefix      instances of the tiled statements -> tile
    footprint   tile -> elements that it reads                    prefix^-1 . reads          (formula 4)
    extension   tile -> producer instances it needs               footprint . writes^-1      (formula 6)

and the extension grafted under the tile band, before the tile's own statements.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import islpy as isl

from tilewright.ir import Index, var
from tilewright.poly.budget import bounded, limited, uncounted
from tilewright.poly.dependences import Dependences
from tilewright.poly.executions import PARALLEL_MARK, children, scratch_mark, type_of
from tilewright.poly.extract import Model, PolyStatement
from tilewright.poly.spaces import CONTEXT, DIM, Domain, maps_of, union_map, union_set
from tilewright.support import ScheduleError


@dataclass(frozen=True, slots=True)
class Band:
    """Nested loops: per member, the value of each statement in it."""

    members: tuple[Mapping[str, Index], ...]
    child: Structure


@dataclass(frozen=True, slots=True)
class Order:
    """Parts one after another, each with the names of its statements."""

    parts: tuple[tuple[frozenset[str], Structure], ...]


Structure: TypeAlias = Band | Order | None


def structure_of(statements: Sequence[PolyStatement], depth: int = 0) -> Structure:
    """The textual order of statements as nested bands and sequences; perfect nests are one band."""
    first = statements[0].time[depth : depth + 1]
    if not first:
        return None
    if isinstance(first[0], str):
        member = {s.name: var(str(s.time[depth])) for s in statements}
        child = structure_of(statements, depth + 1)
        if isinstance(child, Band):
            return Band((member, *child.members), child.child)
        return Band((member,), child)
    groups: dict[int, list[PolyStatement]] = {}
    for s in statements:
        position = s.time[depth]
        assert isinstance(position, int)
        groups.setdefault(position, []).append(s)
    if len(groups) == 1:
        return structure_of(statements, depth + 1)
    return Order(
        tuple(
            (frozenset(s.name for s in groups[p]), structure_of(groups[p], depth + 1)) for p in sorted(groups)
        )
    )


def band_schedule(model: Model, members: Sequence[Mapping[str, Index]]) -> isl.MultiUnionPwAff:
    """The partial schedule of a band."""
    names = list(members[0])
    maps = []
    for name in names:
        space = model.space(model.statement(name))
        maps.append(space.map_to("", [m[name] for m in members]))
    return isl.MultiUnionPwAff.from_union_map(union_map(maps))


def insert(node: isl.ScheduleNode, model: Model, structure: Structure) -> isl.ScheduleNode:
    """Insert bands and sequences at a leaf; returns the node at the same place."""
    match structure:
        case None:
            return node
        case Band():
            node = node.insert_partial_schedule(band_schedule(model, structure.members))
            return insert(node.child(0), model, structure.child).parent()
        case Order():
            filters = isl.UnionSetList.alloc(CONTEXT, len(structure.parts))
            for names, _ in structure.parts:
                domain = union_set(model.statement(n).domain for n in sorted(names))
                filters = filters.add(domain.universe())
            node = node.insert_sequence(filters)
            for n, (_, part) in enumerate(structure.parts):
                node = insert(node.child(n).child(0), model, part).parent().parent()
            return node


@limited("the tree of {} is too large")
def tree_of(model: Model, names: Collection[str] | None = None) -> isl.Schedule:
    """The schedule tree of a function as written, or of some of its statements."""
    chosen = [s for s in model.statements if names is None or s.name in names]
    schedule = isl.Schedule.from_domain(union_set(s.domain for s in chosen))
    leaf = schedule.get_root().child(0)
    return insert(leaf, model, structure_of(chosen)).get_schedule()


def multi_val(node: isl.ScheduleNode, sizes: Sequence[int]) -> isl.MultiVal:
    """Tile sizes in the space of a band node."""
    values = isl.ValList.alloc(CONTEXT, len(sizes))
    for size in sizes:
        values = values.add(isl.Val.int_from_si(CONTEXT, size))
    return isl.MultiVal.from_val_list(node.band_get_space(), values)


def split_and_tile(node: isl.ScheduleNode, sizes: Sequence[int]) -> isl.ScheduleNode:
    """Tile the outer ``len(sizes)`` members of a band; returns the tile band, its child is the point band.

    Tile loops run over the origins of tiles (multiples of the sizes).
    """
    members = node.band_n_member()
    if len(sizes) > members:
        raise ScheduleError(f"{len(sizes)} tile sizes for a band of {members} loops")
    if len(sizes) < members:
        node = node.band_split(len(sizes))
    CONTEXT.set_tile_scale_tile_loops(1)
    CONTEXT.set_tile_shift_point_loops(0)
    return node.band_set_permutable(1).band_tile(multi_val(node, sizes))


@limited("the dependences of {} are too many", "fuse fewer statements")
def band_facts(
    dependences: Dependences, members: Sequence[Mapping[str, Index]]
) -> tuple[bool, tuple[bool, ...]]:
    """Whether an outermost band may be tiled, and which of its loops carry no dependence.

    By the exact dependences among its statements: permutable when no member ever goes backwards.
    """
    model = dependences.model
    permutable = True
    coincident = [True] * len(members)
    for d in dependences.among(frozenset(members[0])):
        source, sink = model.statement(d.source), model.statement(d.sink)
        for n, member in enumerate(members):
            left = model.space(source).map_to("", [member[d.source]])
            right = model.space(sink).map_to("", [member[d.sink]])
            distance = d.relation.apply_domain(left).apply_range(right).deltas()
            if distance.is_empty():
                continue
            low, high = distance.dim_min_val(0), distance.dim_max_val(0)
            if not (low.is_zero() and high.is_zero()):
                coincident[n] = False
            if low.is_neg():
                permutable = False
    return permutable, tuple(coincident)


def full_tiles(model: Model, prefix: isl.UnionMap, sizes: Sequence[int]) -> isl.Set:
    """Origins of the tiles in which every statement runs for all of ``sizes``.

    ``prefix`` maps instances to the origin of their tile and then to the values of the tiled loops.
    """
    out: isl.Set | None = None
    n = len(sizes)
    for m in maps_of(prefix):
        both = m.range()  # origins, then values
        space = Domain("", [f"o{k}" for k in range(n)] + [f"x{k}" for k in range(n)], model.params)
        wanted = space.universe()
        for k, size in enumerate(sizes):
            inside = var(f"x{k}") - var(f"o{k}")
            wanted = wanted.intersect(space.at_least(inside)).intersect(space.at_least(size - 1 - inside))
        origins = both.project_out(DIM.set, n, n)
        missing = wanted.intersect(origins.insert_dims(DIM.set, n, n)).subtract(both)
        full = origins.subtract(missing.project_out(DIM.set, n, n))
        out = full if out is None else out.intersect(full)
    assert out is not None
    return out.coalesce()


def separate(model: Model, tile: isl.ScheduleNode, sizes: Sequence[int]) -> isl.ScheduleNode:
    """Have isl generate the full tiles of an outermost tile band apart from the others.

    Inside of them loops have constant extents; what is left over comes in loops of its own.
    """
    origins, values = tile.band_get_partial_schedule(), tile.child(0).band_get_partial_schedule()
    both = isl.UnionMap.from_multi_union_pw_aff(origins.flat_range_product(values))
    full = full_tiles(model, both.intersect_domain(tile.get_domain()), sizes)
    nothing = isl.Set.universe(full.get_space().params().set_from_params())
    isolated = isl.Map.from_domain_and_range(nothing, full).wrap()
    options = isolated.set_tuple_name("isolate").to_union_set()
    with uncounted():  # where the count ends in there, the process does
        return tile.band_set_ast_build_options(options)


def prefix_of(node: isl.ScheduleNode, domain: isl.UnionSet) -> isl.UnionMap:
    """Instances of ``domain`` to the values of the bands above ``node``."""
    return node.get_prefix_schedule_relation().intersect_domain(domain)


def recomputed(extensions: Mapping[str, isl.Map]) -> dict[str, bool]:
    """Per statement, whether some instance runs in several of the tiles that an extension gives."""
    what = f"the tiles of {', '.join(extensions)} are too many for isl"
    return bounded(lambda: {name: not e.is_injective() for name, e in extensions.items()}, what)


def footprint(prefix: isl.UnionMap, accesses: isl.UnionMap) -> isl.UnionMap:
    """Tile to elements accessed in it: ``prefix`` reversed, then ``accesses`` (formula 4)."""
    return prefix.reverse().apply_range(accesses)


def extension(needed: isl.UnionMap, writes: isl.UnionMap) -> isl.UnionMap:
    """Tile to the instances that write what it needs (formula 6); ``writes`` must be injective."""
    return needed.apply_range(writes.reverse())


def box(m: isl.Map) -> isl.Map:
    """The box hull of a map's range, per point of its domain: bounds of every dimension by itself."""
    n = m.dim(DIM.out)
    # what runs once has no dimension
    out = m if n == 0 else None
    for k in range(n):
        one = m.project_out(DIM.out, k + 1, n - k - 1).project_out(DIM.out, 0, k)
        one = one.coalesce().remove_divs_involving_dims(DIM.out, 0, 1).simple_hull().to_map()
        out = one if out is None else out.flat_range_product(one)
    assert out is not None
    if m.has_tuple_name(DIM.out):
        out = out.set_tuple_name(DIM.out, m.get_tuple_name(DIM.out))
    return out


def graft(
    node: isl.ScheduleNode, model: Model, names: Sequence[str], extensions: isl.UnionMap
) -> isl.ScheduleNode:
    """Run the instances that ``extensions`` gives for the bands above before ``node``, in textual order."""
    chosen = [s for s in model.statements if s.name in names]
    new = isl.ScheduleNode.from_extension(extensions)
    inserted = insert(new.child(0), model, structure_of(chosen))
    return node.graft_before(inserted.root())


def insert_tree(node: isl.ScheduleNode, source: isl.ScheduleNode) -> isl.ScheduleNode:
    """Insert the bands and sequences of another tree at a leaf; returns the node at the same place."""
    match type_of(source):
        case "band":
            node = node.insert_partial_schedule(source.band_get_partial_schedule())
            return insert_tree(node.child(0), source.child(0)).parent()
        case "sequence" | "set":
            filters = isl.UnionSetList.alloc(CONTEXT, source.n_children())
            for child in children(source):
                filters = filters.add(child.filter_get_filter())
            node = node.insert_sequence(filters)
            for n, child in enumerate(children(source)):
                node = insert_tree(node.child(n).child(0), child.child(0)).parent().parent()
            return node
    return node


def graft_tree(node: isl.ScheduleNode, schedule: isl.Schedule, extensions: isl.UnionMap) -> isl.ScheduleNode:
    """Run what ``extensions`` gives for the bands above before ``node``, in the order of another schedule."""
    new = isl.ScheduleNode.from_extension(extensions)
    inserted = insert_tree(new.child(0), schedule.get_root().child(0))
    return node.graft_before(inserted.root())


@dataclass(frozen=True, slots=True)
class TiledTree:
    """A tiled nest with producers fused into its tiles.

    ``extensions`` gives, per fused statement, tile to instances. What the producers write lives in storage of
    a tile (marks of the tree say so).
    """

    schedule: isl.Schedule
    extensions: Mapping[str, isl.Map]
    depth: int

    @property
    def recomputes(self) -> dict[str, bool]:
        """Per fused statement, whether some instance runs in several tiles."""
        return recomputed(self.extensions)


@limited("the tiles of {} are too many for isl", "use larger ones, or of fewer statements")
def tile_and_fuse(
    model: Model,
    live_out: str,
    sizes: Sequence[int],
    producers: Sequence[str],
    *,
    parallel: bool = False,
    dependences: Dependences | None = None,
) -> TiledTree:
    """Tile the stage ``live_out`` and fuse the ``producers`` (stages) into its tiles, recomputing overlaps.

    Statements of all other stages keep their order before the tiled nest. Raises
    :class:`~tilewright.support.ScheduleError` where the nest cannot be tiled, a producer's writes are not
    injective, or a producer is used outside of the tiles.
    """
    live = [s for s in model.statements if s.stage == live_out]
    if not live:
        raise ScheduleError(f"there is no stage {live_out!r}", hint="name a stage of the function")
    shape = structure_of(live)
    if not sizes or not isinstance(shape, Band) or len(shape.members) < len(sizes):
        raise ScheduleError(f"stage {live_out!r} has no {len(sizes)} common outer loops to tile")
    permutable, coincident = band_facts(dependences or Dependences(model), shape.members[: len(sizes)])
    if not permutable:
        raise ScheduleError(f"the outer loops of stage {live_out!r} cannot be tiled: a dependence turns back")
    if parallel and not coincident[0]:
        raise ScheduleError(f"the outermost loop of stage {live_out!r} carries a dependence")
    fused = [s for s in model.statements if s.stage in producers]
    domain = union_set(s.domain for s in live)
    root = insert(isl.Schedule.from_domain(domain).get_root().child(0), model, shape)
    point = separate(model, split_and_tile(root, sizes), sizes).child(0)
    prefix = prefix_of(point, domain)
    tiles = {s.name: prefix.intersect_domain(s.domain.to_union_set()) for s in live}
    extensions, scratch = _extensions(model, live, fused, tiles, live_out)
    for s in _by_stage(fused):
        names = [t.name for t in s]
        point = graft(point, model, names, union_map(extensions[n] for n in names))
    # above the tile band stands only the domain
    top = point.root().child(0)
    if scratch:
        top = top.child(0).insert_mark(scratch_mark(scratch)).parent()
    if parallel:
        top = top.insert_mark(isl.Id(PARALLEL_MARK))
    schedule = top.get_schedule()
    done = {s.name for s in (*live, *fused)}
    others = [s.name for s in model.statements if s.name not in done]
    if others:
        schedule = tree_of(model, others).sequence(schedule)
    return TiledTree(schedule, extensions, len(sizes))


def _by_stage(statements: Sequence[PolyStatement]) -> list[list[PolyStatement]]:
    """Statements grouped by stage, in textual order."""
    groups: dict[str, list[PolyStatement]] = {}
    for s in statements:
        groups.setdefault(s.stage, []).append(s)
    return list(groups.values())


def _extensions(
    model: Model,
    live: Sequence[PolyStatement],
    fused: Sequence[PolyStatement],
    tiles: dict[str, isl.UnionMap],
    live_out: str,
) -> tuple[dict[str, isl.Map], tuple[str, ...]]:
    """Per fused statement tile to instances, consumers before producers, and the buffers they write."""
    inside = {s.name for s in (*live, *fused)}
    needed: dict[str, isl.UnionMap] = {}

    def need(s: PolyStatement) -> None:
        for r in s.reads:
            foot = footprint(tiles[s.name], r.relation.to_union_map())
            needed[r.buffer] = needed[r.buffer].union(foot) if r.buffer in needed else foot

    for s in live:
        need(s)
    extensions: dict[str, isl.Map] = {}
    scratch: dict[str, isl.Map] = {}
    for group in reversed(_by_stage(fused)):
        buffers = {w.buffer for s in group for w in s.writes}
        for buffer in sorted(buffers):
            users = [s for s in model.statements if any(r.buffer == buffer for r in s.reads)]
            stranger = next((s for s in users if s.name not in inside), None)
            if stranger is not None:
                raise ScheduleError(
                    f"buffer {buffer!r} is also read by block {stranger.name!r}, outside of the tiles"
                    f" of {live_out!r}",
                    hint="fuse that stage too, or leave this producer where it is",
                )
            if buffer not in needed or needed[buffer].is_empty():
                raise ScheduleError(f"no tile of {live_out!r} reads {buffer!r}")
            scratch[buffer] = box(isl.Map.from_union_map(needed[buffer]).coalesce())
        for s in group:
            writes = union_map(w.relation for w in s.writes)
            par = [k for k, kind in enumerate(s.coord_kinds) if kind != "red"]
            if len(par) == len(s.coord_kinds) and not writes.is_injective():
                raise ScheduleError(
                    f"block {s.name!r} writes elements several times: its instances cannot be derived",
                    hint="rename it to single assignment first",
                )
            wanted = union_map(scratch[b] for b in sorted(buffers))
            e = extension(wanted, writes).intersect_range(s.domain.to_union_set())
            if e.is_empty():
                raise ScheduleError(
                    f"no tile of {live_out!r} needs anything of block {s.name!r}",
                    hint="leave this producer where it is",
                )
            extensions[s.name] = isl.Map.from_union_map(e).coalesce()
            tiles[s.name] = e.reverse()
        for s in group:
            for r in s.reads:
                if r.buffer not in buffers:
                    foot = footprint(tiles[s.name], r.relation.to_union_map())
                    needed[r.buffer] = needed[r.buffer].union(foot) if r.buffer in needed else foot
    order = [b for b in model.buffers if b in scratch]
    return extensions, tuple(order)
