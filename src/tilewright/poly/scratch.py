"""Storage of tiles: the constant box that holds what a part of a schedule tree accesses of a buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import islpy as isl

from tilewright.ir import ZERO, Index, floordiv, imax, index, var
from tilewright.poly.executions import MarkedPart
from tilewright.poly.extract import Model
from tilewright.poly.spaces import DIM, Domain, aff_index
from tilewright.support import InternalError, ProgramError


@dataclass(frozen=True, slots=True)
class Scratch:
    """A buffer of one tile: the first element and the extent per physical dimension.

    ``origin`` is over the names ``o0``, ``o1``, ... of the loops above the mark, outermost first.
    """

    buffer: str
    origin: tuple[Index, ...]
    extents: tuple[Index, ...]


def scratch_of(model: Model, part: MarkedPart, buffer: str) -> Scratch:
    """The box of ``buffer`` that any execution of a marked part accesses.

    Extents are constant where that is possible, else over the parameters. Raises
    :class:`~tilewright.support.ProgramError` where nothing below the mark accesses the buffer.
    """
    found: isl.Map | None = None
    tiles = part.executed.reverse()
    for s in model.statements:
        for a in (*s.reads, *s.writes):
            touched = tiles.apply_range(a.relation.to_union_map()) if a.buffer == buffer else None
            if touched is not None and not touched.is_empty():
                one = isl.Map.from_union_map(touched)
                found = one if found is None else found.union(one)
    if found is None:
        raise ProgramError(f"nothing below the mark that allocates {buffer!r} accesses it")
    names = [f"o{k}" for k in range(part.depth)]
    first = found.dim(DIM.out) - len(model.buffers[buffer].physical_shape)
    shape = model.buffers[buffer].physical_shape
    boxes = [_one_dimension(model, found, first + k, names, whole) for k, whole in enumerate(shape)]
    return Scratch(buffer, tuple(low for low, _ in boxes), tuple(extent for _, extent in boxes))


def _one_dimension(
    model: Model, m: isl.Map, k: int, names: Sequence[str], whole: Index
) -> tuple[Index, Index]:
    """The best lower bound of dimension ``k``, of extent ``whole``, and how far above it any tile reaches."""
    n = m.dim(DIM.out)
    one = m.project_out(DIM.out, k + 1, n - k - 1).project_out(DIM.out, 0, k).coalesce()
    x = "x"
    region = one.wrap().flatten().compute_divs()  # the tile's coordinates, then the element's
    space = Domain("", (*names, x), model.params)
    region = region.align_params(space.space)
    best: tuple[Index, Index] | None = None
    for low in dict.fromkeys((*_lower_bounds(model, one, region, names), ZERO)):
        reached = region.apply(isl.Map.from_pw_aff(space.pw_aff(var(x) - low)))
        if reached.dim_min_val(0).is_neg():
            continue  # no bound of all elements
        extent = _reach(model, reached)
        if extent is not None and (best is None or _rank(low, extent, whole) < _rank(*best, whole)):
            best = (low, extent)
    if best is None:
        raise InternalError(f"no bounds of {m}")
    return best


def _rank(low: Index, extent: Index, whole: Index) -> tuple[bool, bool, int, int, str]:
    """Small constant boxes first, all of the buffer last; of equal ones the one that is written shortest."""
    size = extent.const if extent.is_const else len(str(extent))
    return extent == whole, not extent.is_const, size, len(str(low)), str(low)


def _reach(model: Model, distances: isl.Set) -> Index | None:
    """How many elements the distances from a bound span: constant unless that depends on parameters alone."""
    pieces = distances.dim_max(0).get_pieces()
    values = [aff_index(aff, (), model.params) for _, aff in pieces]
    most = distances.dim_max_val(0)
    if most.is_int() and any(v is not None and v == index(most.to_python()) for v in values):
        return index(most.to_python() + 1)
    if any(v is None for v in values):
        return index(most.to_python() + 1) if most.is_int() else None
    return imax(*(v + 1 for v in values if v is not None))


def _lower_bounds(model: Model, one: isl.Map, region: isl.Set, names: Sequence[str]) -> Iterator[Index]:
    """Indices over the tile's coordinates that may bound the elements from below."""
    at = len(names)
    for c in region.simple_hull().get_constraints():
        rest = c.get_aff()
        scale = rest.get_coefficient_val(DIM.in_, at).to_python()
        if scale < 0 and c.is_equality():
            rest, scale = rest.neg(), -scale
        if scale <= 0:
            continue
        # scale * x + rest >= 0
        found = aff_index(rest.set_coefficient_val(DIM.in_, at, 0), names, model.params)
        if found is not None:
            yield floordiv(-found + (scale - 1), scale)
    for _, least in one.dim_min(0).get_pieces():
        found = aff_index(least, names, model.params)
        if found is not None:
            yield found
