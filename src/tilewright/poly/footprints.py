"""What tiles of a group run of each statement, as boxes: for people to read."""

from __future__ import annotations

import islpy as isl

from tilewright.poly.budget import limited
from tilewright.poly.extract import Model
from tilewright.poly.fusion import Group
from tilewright.poly.spaces import CONTEXT, DIM, maps_of
from tilewright.poly.tree import split_and_tile

Box = tuple[tuple[int, int], ...]


@limited("the tiles of {} are too many for isl", "use larger ones, or of fewer statements")
def tile_instances(model: Model, group: Group) -> list[tuple[str, Box, tuple[Box, ...], float]]:
    """Per statement of a group, producers first: boxes of all instances, of a tile's, of its neighbours'.

    The last number is how often an instance runs inside of the space: what a tile runs over what tiles lie
    apart. The tile stands in the middle of the live-out space; without tiles there are no boxes of tiles.
    """
    tiles = _tiles(group)
    first = None if tiles is None else _middle(tiles)
    out: list[tuple[str, Box, tuple[Box, ...], float]] = []
    for names in (*(p.names for p in group.producers), group.live.names):
        for name in names:
            domain = model.statement(name).domain
            found: list[Box] = []
            if tiles is not None and first is not None:
                needed = _of_statement(tiles, group, name)
                for at in (first, *(_next(first, group.sizes, n) for n in range(len(group.sizes)))):
                    part = needed.intersect_domain(at)
                    if not part.is_empty():
                        found.append(_box(part.range()))
            again = 1.0
            if found and name in group.extensions:
                for n, size in enumerate(group.sizes[: len(found[0])]):
                    low, high = found[0][n]
                    whole = domain.dim_max_val(n).to_python() - domain.dim_min_val(n).to_python() + 1
                    again *= max(1.0, (high - low + 1) / min(size, whole))
            out.append((name, _box(domain), tuple(found), again))
    return out


def _tiles(group: Group) -> isl.UnionMap | None:
    """Tile origins to instances of the live-out space."""
    if not group.sizes:
        return None
    point = split_and_tile(group.live.schedule.get_root().child(0), group.sizes).child(0)
    found = point.get_prefix_schedule_relation().intersect_domain(group.live.schedule.get_domain())
    return found.reverse()


def _of_statement(tiles: isl.UnionMap, group: Group, name: str) -> isl.Map:
    if name in group.extensions:
        return group.extensions[name]
    return next(m for m in maps_of(tiles) if m.get_tuple_name(DIM.out) == name)


def _middle(tiles: isl.UnionMap) -> isl.Set:
    """The origin of a tile in the middle of all."""
    every = isl.Set.from_union_set(tiles.domain()).coalesce()
    for n in range(every.dim(DIM.set)):
        low, high = every.dim_min_val(n), every.dim_max_val(n)
        half = low.add(high).div(isl.Val.int_from_si(CONTEXT, 2)).floor()
        below = every.upper_bound_val(DIM.set, n, half)
        every = every.fix_val(DIM.set, n, below.dim_max_val(n))
    return every


def _next(tile: isl.Set, sizes: tuple[int, ...], n: int) -> isl.Set:
    """The tile after another one along a loop."""
    at = tile.dim_max_val(n).add(isl.Val.int_from_si(CONTEXT, sizes[n]))
    return tile.drop_constraints_involving_dims(DIM.set, n, 1).fix_val(DIM.set, n, at)


def _box(s: isl.Set) -> Box:
    return tuple((s.dim_min_val(n).to_python(), s.dim_max_val(n).to_python()) for n in range(s.dim(DIM.set)))
