"""Tiles whose origins and sizes are parameters: tile sizes become arguments of what is compiled.

Loops over tiles of a size that is not known have bounds that isl has no sets for (products of parameters).
One tile has: of the live-out space ``o <= x < o + T``, of producers what follows from that (formula 6).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import islpy as isl

from tilewright.ir import (
    GLOBAL,
    Alloc,
    Buffer,
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
from tilewright.poly.executions import scratch_mark
from tilewright.poly.extract import Model, extract_model
from tilewright.poly.fusion import Group, compose, construct, fuse
from tilewright.poly.groups import Space, conservative_fusion
from tilewright.poly.spaces import Domain
from tilewright.support import ScheduleError

LARGEST: Final = 1 << 31
"""Bound of origins and sizes."""


@dataclass(frozen=True, slots=True)
class OneTile:
    """A function of one tile; ``origins`` and ``sizes`` are its parameters, ``extents`` those of the space.

    A call computes the points from an origin on, as many as its size says, which must not reach beyond
    ``extents``; calls do not wait for each other. A space without parallel loops has no parameters: one call
    computes all of it.
    """

    func: LoopFunction
    origins: tuple[str, ...]
    sizes: tuple[str, ...]
    extents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TileByTile:
    """What computes a function tile by tile: all tiles of the first space, then those of the next.

    ``between`` are arrays that one space makes for later ones: arguments after those of the function.
    """

    spaces: tuple[OneTile, ...]
    between: tuple[Buffer, ...]


def tile_by_tile(func: LoopFunction, dims: int = 2, *, operations: int = OPERATIONS) -> TileByTile:
    """A function of one tile for each live-out space of a function, producers inside where they can be.

    ``func`` has fixed sizes. Up to ``dims`` leading parallel loops are tiled. Raises ScheduleError where no
    loop is parallel, ProgramError for storage inside of loops, ResourceError where isl needs more than
    ``operations``.
    """
    if func.params:
        raise ScheduleError(f"the sizes of {func.name} are open", hint="settle them first")
    what = f"the tile of {func.name} is too large"
    return bounded(lambda: _tile_by_tile(func, dims), what, "tile a smaller function", operations=operations)


def _tile_by_tile(func: LoopFunction, dims: int) -> TileByTile:
    dependences = Dependences(extract_model(func))
    groups = compose(dependences, conservative_fusion(dependences), ())
    inside = {name for group in groups for name in group.storage}
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
    spaces = tuple(_one_tile(whole, group, dims) for group in groups)
    if not any(space.sizes for space in spaces):
        raise ScheduleError(f"{func.name} has no parallel loops to tile")
    return TileByTile(spaces, between)


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
    extents = _extents(group.live, min(dims, group.live.parallel))
    count = len(extents)
    taken = {*func.body.names, *(b.name for b in func.buffers)}
    origins = tuple(fresh_name(f"o{n}", taken) for n in range(count))
    sizes = tuple(fresh_name(f"T{n}", taken) for n in range(count))
    params = (*(Param(n, 0, LARGEST) for n in origins), *(Param(n, 1, LARGEST) for n in sizes))
    inside = (ge0(n - index(params[k]) - index(params[count + k])) for k, n in enumerate(extents))
    # a tile writes a part of the outputs: the rest is kept
    model = extract_model(replace(func, params=params, inouts=func.outputs, assumes=(*func.assumes, *inside)))
    dependences = Dependences(model)
    spaces = {space.names: space for space in conservative_fusion(dependences)}
    live = _part(model, spaces[group.live.names], params)
    found = construct(dependences, live, [spaces[p.names] for p in group.producers], ())
    # whether a producer can be fused does not depend on the tile
    assert len(found.producers) == len(group.producers)
    schedule = fuse(model, [found])
    if found.storage:
        schedule = schedule.get_root().child(0).insert_mark(scratch_mark(found.storage)).get_schedule()
    made = import_tree(model, schedule)
    written = {name for name, _ in stmt_writes(made.body)}
    # storage of other groups
    unused = {b.name for b in made.body.allocated} - written
    made = made.with_body(_without(made.body, unused))
    outputs = tuple(name for name in func.outputs if name in written)
    return OneTile(replace(made, outputs=outputs, inouts=outputs), origins, sizes, extents)


def _values(live: Space) -> isl.UnionMap:
    """Instances of a space to the values of its outer band."""
    band = live.schedule.get_root().child(0)
    values = isl.UnionMap.from_multi_union_pw_aff(band.band_get_partial_schedule())
    return values.intersect_domain(live.schedule.get_domain())


def _extents(live: Space, count: int) -> tuple[int, ...]:
    """How far the outer loops run that begin at 0, at most ``count`` of them."""
    out: list[int] = []
    every = isl.Set.from_union_set(_values(live).range()) if count else None
    for n in range(count):
        assert every is not None
        if not every.dim_min_val(n).is_zero():
            break
        out.append(every.dim_max_val(n).to_python() + 1)
    return tuple(out)


def _part(model: Model, live: Space, params: Sequence[Param]) -> Space:
    """The space cut to one tile, which is not tiled further."""
    if not params:
        return live
    count = len(params) // 2
    values = _values(live)
    rank = live.schedule.get_root().child(0).band_n_member()
    space = Domain("", tuple(f"x{n}" for n in range(rank)), model.params)
    tile = space.universe()
    for n in range(count):
        inside = var(f"x{n}") - index(params[n])
        tile = tile.intersect(space.at_least(inside))
        tile = tile.intersect(space.at_least(index(params[count + n]) - 1 - inside))
    cut = live.schedule.intersect_domain(tile.to_union_set().apply(values.reverse()))
    return replace(live, schedule=cut, permutable=False)
