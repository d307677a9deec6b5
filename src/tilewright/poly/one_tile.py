"""Tiles whose origins and sizes are parameters: tile sizes become arguments of what is compiled.

Loops over tiles of a size that is not known have bounds that isl has no sets for (products of parameters).
One tile has: of the live-out space ``o <= x < o + T``, of producers what follows from that (formula 6). Where
no loop is parallel, the tiles are those of the permutable loops of isl's schedule, as in
:mod:`tilewright.poly.tiling`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import islpy as isl

from tilewright.ir import (
    GLOBAL,
    Alloc,
    Buffer,
    Index,
    LoopFunction,
    Param,
    Seq,
    Stmt,
    fresh_name,
    ge0,
    index,
    seq,
    stmt_writes,
    var,
)
from tilewright.poly.ast_import import import_tree
from tilewright.poly.budget import OPERATIONS, bounded
from tilewright.poly.dependences import Dependences
from tilewright.poly.executions import scratch_mark, type_of
from tilewright.poly.extract import Model, extract_model
from tilewright.poly.fusion import Group, compose, construct, fuse
from tilewright.poly.groups import Space, conservative_fusion, isl_fusion
from tilewright.poly.spaces import DIM, Domain
from tilewright.poly.tiling import over_points
from tilewright.support import ResourceError, ScheduleError

LARGEST: Final = 1 << 31
"""Bound of origins and sizes."""

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Of each loop over tiles the least value and how many values there are."""


@dataclass(frozen=True, slots=True)
class OneTile:
    """A function of one tile; ``origins`` and ``sizes`` are its parameters, ``extents`` those of the space.

    A call computes the points from an origin on, as many as its size says, which must not reach beyond
    ``extents``. Loops around those in tiles have origins alone: they run in order, a value at a time. Inside
    of them calls do not wait for each other where the tiles are ``apart``; others wait for those before them
    along any of the loops, so that those of equal sums of their numbers do not wait for each other. A space
    of which nothing can be tiled has no parameters: one call computes all of it.
    """

    func: LoopFunction
    origins: tuple[str, ...]
    sizes: tuple[str, ...]
    extents: tuple[int, ...]
    apart: bool


@dataclass(frozen=True, slots=True)
class TileByTile:
    """What computes a function tile by tile: all tiles of the first space, then those of the next.

    ``between`` are arrays that one space makes for later ones: arguments after those of the function.
    """

    spaces: tuple[OneTile, ...]
    between: tuple[Buffer, ...]


def tile_by_tile(func: LoopFunction, dims: int = 2, *, operations: int = OPERATIONS) -> TileByTile:
    """A function of one tile for each live-out space of a function, producers inside where they can be.

    ``func`` has fixed sizes. Up to ``dims`` leading parallel loops are tiled; without any, all loops of
    permutable bands of two or more in isl's schedule. Raises ScheduleError where there is neither,
    ProgramError for storage inside of loops, ResourceError where isl needs more than ``operations``.
    """
    if func.params:
        raise ScheduleError(f"the sizes of {func.name} are open", hint="settle them first")
    what = f"the tile of {func.name} is too large"
    return bounded(lambda: _tile_by_tile(func, dims), what, "tile a smaller function", operations=operations)


def _tile_by_tile(func: LoopFunction, dims: int) -> TileByTile:
    dependences = Dependences(extract_model(func))
    groups: list[Group | Space] = []
    reason = "no two loops may be permuted"
    for group in compose(dependences, conservative_fusion(dependences), ()):
        found: list[Group | Space] = []
        if group.live.coincident and not group.live.parallel:
            try:
                found = _permutable(dependences, group)
            except ResourceError as error:
                reason = error.what
        groups += found or [group]
    inside = {name for group in groups if isinstance(group, Group) for name in group.storage}
    # storage inside of loops stays there
    apart = {b.name for b in func.body.allocated} - {b.name for b in _without(func.body, None).allocated}
    between = tuple(
        b.with_(scope=GLOBAL)
        for b in func.body.allocated
        if len(groups) > 1 and b.name in apart and b.name not in inside
    )
    names = {b.name for b in between}
    whole = replace(
        func,
        buffers=(*func.buffers, *between),
        outputs=(*func.outputs, *(b.name for b in between)),
        body=_without(func.body, names),
    )
    spaces = tuple(
        _one_tile(whole, g, dims) if isinstance(g, Group) else _tile_of_band(whole, dependences, g)
        for g in groups
    )
    if not any(space.sizes for space in spaces):
        raise ScheduleError(
            f"{func.name} has nothing to tile: no loop is parallel, and {reason}",
            hint="compile it as it is: --emit c",
        )
    return TileByTile(spaces, between)


def _permutable(dependences: Dependences, group: Group) -> list[Group | Space]:
    """The statements of a group in isl's schedule, where some of its bands can be tiled; else nothing.

    Raises ResourceError where isl needs too long.
    """
    names = {name for space in (*group.producers, group.live) for name in space.names}
    spaces = isl_fusion(dependences, "min", names)
    return [*spaces] if any(_band_to_tile(space) for space in spaces) else []


def _band_to_tile(space: Space) -> isl.ScheduleNode | None:
    """The outermost band of permutable loops that stands in nothing but loops, if there is one.

    It has two loops or more, or is a single parallel one around everything.
    """
    node = space.schedule.get_root().child(0)
    if space.coincident == (True,):
        return node
    while type_of(node) == "band":
        if node.band_n_member() > 1 and node.band_get_permutable():
            return node
        node = node.child(0)
    return None


def _without(s: Stmt, names: Collection[str] | None) -> Stmt:
    """A body without the outermost allocations of these names (``None``: without any)."""
    match s:
        case Alloc():
            body = _without(s.body, names)
            return body if names is None or s.buffer.name in names else replace(s, body=body)
        case Seq():
            return seq(*(_without(each, names) for each in s.stmts))
    return s


def _one_tile(func: LoopFunction, group: Group, dims: int) -> OneTile:
    """The function of one tile of a group, whose statements are in ``func``, too."""
    count = min(dims, group.live.parallel)
    values = _values(group.live.schedule.get_root().child(0), ()) if count else None
    ranges = _ranges(values, count)
    model = _with_tiles(func, ranges)
    dependences = Dependences(model)
    spaces = {space.names: space for space in conservative_fusion(dependences)}
    live = spaces[group.live.names]
    if values is not None and ranges:
        cut = live.schedule.intersect_domain(_tile(model, values, ranges))
        live = replace(live, schedule=cut, permutable=False)
    found = construct(dependences, live, [spaces[p.names] for p in group.producers], ())
    # whether a producer can be fused does not depend on the tile
    assert len(found.producers) == len(group.producers)
    schedule = fuse(model, [found])
    if found.storage:
        schedule = schedule.get_root().child(0).insert_mark(scratch_mark(found.storage)).get_schedule()
    return _imported(func, model, schedule, ranges, apart=True)


def _tile_of_band(func: LoopFunction, dependences: Dependences, space: Space) -> OneTile:
    """The function of one tile of a band of isl's, or of all that has no such band."""
    band = _band_to_tile(space)
    if band is None:
        return _imported(func, _with_tiles(func, ()), space.schedule, (), apart=True)
    around: list[isl.ScheduleNode] = []
    node = band
    while type_of(node := node.parent()) == "band":
        around.insert(0, node)
    values = _values(band, around)
    count = band.band_n_member()
    ranges = _ranges(values)
    model = _with_tiles(func, ranges, steps=len(ranges) - count)
    apart = all(band.band_member_get_coincident(n) for n in range(count))
    points = over_points(dependences, band) if count > 1 else band
    cut = points.get_schedule().intersect_domain(_tile(model, values, ranges))
    return _imported(func, model, cut, ranges, apart=apart)


def _with_tiles(func: LoopFunction, ranges: Ranges, steps: int = 0) -> Model:
    """The model with the origin and the size of a tile as parameters; it writes a part of the outputs.

    The first ``steps`` loops run a value at a time.
    """
    taken = {*func.body.names, *(b.name for b in func.buffers)}
    origins = [Param(fresh_name(f"o{n}", taken), 0, LARGEST) for n in range(len(ranges))]
    sizes = [Param(fresh_name(f"T{n}", taken), 1, LARGEST) for n in range(len(ranges) - steps)]
    inside = [
        ge0(extent - index(o) - size)
        for (_, extent), o, size in zip(ranges, origins, _sizes(origins, sizes), strict=True)
    ]
    # the rest of the outputs is kept
    assumes = (*func.assumes, *inside)
    return extract_model(replace(func, params=(*origins, *sizes), inouts=func.outputs, assumes=assumes))


def _sizes(origins: Sequence[Param], sizes: Sequence[Param]) -> list[Index]:
    """The points of a tile along each loop: one where it has no size."""
    return [index(1)] * (len(origins) - len(sizes)) + [index(t) for t in sizes]


def _imported(
    func: LoopFunction, model: Model, schedule: isl.Schedule, ranges: Ranges, *, apart: bool
) -> OneTile:
    made = import_tree(model, schedule)
    written = {name for name, _ in stmt_writes(made.body)}
    # storage of other groups
    unused = {b.name for b in made.body.allocated} - written
    made = made.with_body(_without(made.body, unused))
    outputs = tuple(name for name in func.outputs if name in written)
    names = tuple(p.name for p in made.params)
    count = len(ranges)
    extents = tuple(extent for _, extent in ranges)
    return OneTile(
        replace(made, outputs=outputs, inouts=outputs), names[:count], names[count:], extents, apart
    )


def _values(band: isl.ScheduleNode, around: Sequence[isl.ScheduleNode]) -> isl.UnionMap:
    """Instances to the values of some bands around a band and of its own."""
    first, *others = (each.band_get_partial_schedule() for each in (*around, band))
    for other in others:
        first = first.flat_range_product(other)
    return isl.UnionMap.from_multi_union_pw_aff(first).intersect_domain(band.get_domain())


def _ranges(values: isl.UnionMap | None, count: int | None = None) -> Ranges:
    """Where the outer loops run, so many of them or all; none where nothing ever runs."""
    if values is None or values.is_empty():
        return ()
    every = isl.Set.from_union_set(values.range())
    rank = every.dim(DIM.set)
    bounds = [
        (every.dim_min_val(n).to_python(), every.dim_max_val(n).to_python())
        for n in range(rank if count is None else count)
    ]
    return tuple((low, high - low + 1) for low, high in bounds)


def _tile(model: Model, values: isl.UnionMap, ranges: Ranges) -> isl.UnionSet:
    """The instances of one tile."""
    rank = isl.Set.from_union_set(values.range()).dim(DIM.set)
    space = Domain("", tuple(f"x{n}" for n in range(rank)), model.params)
    tile = space.universe()
    origins, sizes = model.params[: len(ranges)], model.params[len(ranges) :]
    for n, ((low, _), origin, size) in enumerate(zip(ranges, origins, _sizes(origins, sizes), strict=True)):
        inside = var(f"x{n}") - low - index(origin)
        tile = tile.intersect(space.at_least(inside)).intersect(space.at_least(size - 1 - inside))
    return tile.to_union_set().apply(values.reverse())
