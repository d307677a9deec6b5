"""One tile whose origin and sizes are parameters: tile sizes become arguments of what is compiled.

Loops over tiles of a size that is not known have bounds that isl has no sets for (products of parameters).
One tile has: of the live-out space ``o <= x < o + T``, of producers what follows from that (formula 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import islpy as isl

from tilewright.ir import LoopFunction, Param, fresh_name, ge0, index, var
from tilewright.poly.ast_import import import_tree
from tilewright.poly.budget import OPERATIONS, bounded
from tilewright.poly.dependences import Dependences
from tilewright.poly.executions import scratch_mark
from tilewright.poly.extract import Model, extract_model
from tilewright.poly.fusion import construct, fuse
from tilewright.poly.groups import Space, conservative_fusion
from tilewright.poly.spaces import Domain
from tilewright.support import ScheduleError

LARGEST: Final = 1 << 31
"""Bound of origins and sizes."""


@dataclass(frozen=True, slots=True)
class OneTile:
    """A function of one tile; ``origins`` and ``sizes`` are its parameters, ``extents`` those of the space.

    A call computes the points from an origin on, as many as its size says, which must not reach beyond
    ``extents``; calls do not wait for each other.
    """

    func: LoopFunction
    origins: tuple[str, ...]
    sizes: tuple[str, ...]
    extents: tuple[int, ...]


def one_tile(func: LoopFunction, dims: int = 2, *, operations: int = OPERATIONS) -> OneTile:
    """The function that computes one tile of a function's only live-out space, producers inside.

    ``func`` has fixed sizes. Up to ``dims`` leading parallel loops are tiled. Raises ScheduleError where
    there are several live-out spaces, a producer cannot be fused, or no loop is parallel; ResourceError where
    isl needs more than ``operations``.
    """
    if func.params:
        raise ScheduleError(f"the sizes of {func.name} are open", hint="settle them first")
    what = f"the tile of {func.name} is too large"
    return bounded(lambda: _one_tile(func, dims), what, "tile a smaller function", operations=operations)


def _one_tile(func: LoopFunction, dims: int) -> OneTile:
    live = conservative_fusion(Dependences(extract_model(func)))[-1]
    extents = _extents(live, min(dims, live.parallel))
    count = len(extents)
    if not count:
        raise ScheduleError(f"{func.name} has no parallel loops to tile")
    taken = {*func.body.names, *(b.name for b in func.buffers)}
    origins = tuple(fresh_name(f"o{n}", taken) for n in range(count))
    sizes = tuple(fresh_name(f"T{n}", taken) for n in range(count))
    params = (*(Param(n, 0, LARGEST) for n in origins), *(Param(n, 1, LARGEST) for n in sizes))
    inside = (ge0(n - index(params[k]) - index(params[count + k])) for k, n in enumerate(extents))
    # a tile writes a part of the outputs: the rest is kept
    model = extract_model(replace(func, params=params, inouts=func.outputs, assumes=(*func.assumes, *inside)))
    dependences = Dependences(model)
    *others, last = conservative_fusion(dependences)
    group = construct(dependences, _part(model, last, params), others, ())
    if len(group.producers) != len(others):
        raise ScheduleError(
            f"{func.name} is not one group: it has several results, or sums that its tiles would repeat"
        )
    schedule = fuse(model, [group])
    if group.storage:
        schedule = schedule.get_root().child(0).insert_mark(scratch_mark(group.storage)).get_schedule()
    return OneTile(import_tree(model, schedule), origins, sizes, extents)


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
