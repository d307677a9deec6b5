"""The thin typed wrapper over isl: named spaces, and IR indices and predicates as isl objects.

Everything is built from coefficients; no text is parsed. All objects live in isl's default context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import islpy as isl

from tilewright.ir import (
    Condition,
    FloorDiv,
    Index,
    IndexLike,
    MinMax,
    Mod,
    Opaque,
    Param,
    Pred,
    Var,
    floordiv,
    index,
    var,
)
from tilewright.poly.conditions import truth
from tilewright.support import ProgramError

CONTEXT = isl.DEFAULT_CONTEXT
DIM = isl.dim_type


class OpaqueIndexError(ProgramError):
    """An index depends on data: isl has no exact set for it."""


class Domain:
    """The space ``name[dims]`` (``[dims]`` for no name) over symbolic ``params``, and what can be said in it.

    Translates indices and predicates over its dimensions. Raises :class:`OpaqueIndexError` for
    data-dependent ones and ``KeyError`` for variables that are no dimensions.
    """

    __slots__ = ("_params", "_positions", "_zero", "dims", "name", "params", "space")

    def __init__(self, name: str, dims: Sequence[str], params: Sequence[Param] = ()) -> None:
        self.name = name
        self.dims = tuple(dims)
        self.params = tuple(params)
        space = isl.Space.set_alloc(CONTEXT, len(self.params), len(self.dims))
        for n, p in enumerate(self.params):
            space = space.set_dim_name(DIM.param, n, p.name)
        for n, d in enumerate(self.dims):
            space = space.set_dim_name(DIM.set, n, d)
        # no name, not an empty one: isl tells the two apart
        self.space = space.set_tuple_name(DIM.set, name) if name else space
        self._positions = {d: n for n, d in enumerate(self.dims)}
        self._params = {p.name: n for n, p in enumerate(self.params)}
        self._zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(self.space))

    def universe(self) -> isl.Set:
        """All integer points."""
        return isl.Set.universe(self.space)

    def empty(self) -> isl.Set:
        """No point."""
        return isl.Set.empty(self.space)

    def aff(self, x: Index) -> isl.Aff | isl.PwAff:
        """The value of an index; piecewise only where a minimum or maximum takes part."""
        out = self._zero.set_constant_val(x.const) if x.const else self._zero
        pieces: list[isl.PwAff] = []
        for atom, c in x.terms:
            match atom:
                case Var(name):
                    out = out.set_coefficient_val(DIM.in_, self._positions[name], c)
                case Param():
                    out = out.set_coefficient_val(DIM.param, self._params[atom.name], c)
                case FloorDiv(arg, d):
                    inner = self.aff(arg)
                    if isinstance(inner, isl.Aff):
                        out = out.add(inner.scale_down_val(d).floor().scale_val(c))
                    else:
                        pieces.append(inner.scale_down_val(d).floor().scale_val(c))
                case Mod(arg, d):
                    inner = self.aff(arg)
                    if isinstance(inner, isl.Aff):
                        out = out.add(inner.mod_val(d).scale_val(c))
                    else:
                        pieces.append(inner.mod_val(d).scale_val(c))
                case MinMax(op, args):
                    first, *others = [self.pw_aff(a) for a in args]
                    for other in others:
                        first = first.min(other) if op == "min" else first.max(other)
                    pieces.append(first.scale_val(c))
                case Opaque():
                    raise OpaqueIndexError(
                        f"the index {x} depends on data",
                        hint="clamp it and treat the access as one of the whole dimension",
                    )
        if not pieces:
            return out
        total = isl.PwAff.from_aff(out)
        for piece in pieces:
            total = total.add(piece)
        return total

    def pw_aff(self, x: IndexLike) -> isl.PwAff:
        """The value of an index as a piecewise affine expression."""
        found = self.aff(index(x))
        return isl.PwAff.from_aff(found) if isinstance(found, isl.Aff) else found

    def at_least(self, x: IndexLike) -> isl.Set:
        """Points with ``x >= 0``."""
        return self.pw_aff(x).nonneg_set()

    def equal(self, x: IndexLike) -> isl.Set:
        """Points with ``x == 0``."""
        return self.pw_aff(x).zero_set()

    def where(self, pred: Pred) -> tuple[isl.Set, bool]:
        """Points where a predicate may hold, and whether that is exact (no data-dependent conjunct)."""
        out, exact = self.universe(), True
        for c in pred:
            found = self.condition(c)
            if found is None:
                exact = False
            else:
                out = out.intersect(found)
        return out, exact

    def condition(self, c: Condition) -> isl.Set | None:
        """Points where one condition holds; ``None`` where data decides."""
        if c.index is None:
            assert c.expr is not None
            return truth(c.expr, self, {})
        try:
            return self.at_least(c.index) if c.op == "ge" else self.equal(c.index)
        except OpaqueIndexError:
            return None

    def map_to(self, name: str, values: Sequence[IndexLike | None]) -> isl.Map:
        """``name[dims] -> target[values]``; a ``None`` leaves its dimension unconstrained."""
        space = isl.Space.set_alloc(CONTEXT, len(self.params), len(values))
        for n, p in enumerate(self.params):
            space = space.set_dim_name(DIM.param, n, p.name)
        target = space.set_tuple_name(DIM.set, name) if name else space
        both = self.space.map_from_domain_and_range(target)
        affs = isl.PwAffList.alloc(CONTEXT, len(values))
        for v in values:
            affs = affs.add(self.pw_aff(0 if v is None else v))
        out = isl.Map.from_multi_pw_aff(isl.MultiPwAff.from_pw_aff_list(both, affs))
        for n, v in enumerate(values):
            if v is None:
                out = out.eliminate(DIM.out, n, 1)
        return out


def context_set(params: Sequence[Param], assumes: Pred = ()) -> isl.Set:
    """What is known of the parameters: their bounds, multiples, and further conditions."""
    d = Domain("", (), params)
    out = d.universe()
    for p in params:
        out = out.intersect(d.at_least(index(p) - p.lo)).intersect(d.at_least(index(p.hi) - index(p)))
        if p.multiple_of > 1:
            out = out.intersect(d.equal(index(p) % p.multiple_of))
    return out.intersect(d.where(assumes)[0]).params()


def union_map(maps: Iterable[isl.Map]) -> isl.UnionMap:
    """The union of maps of any spaces; empty for none."""
    out: isl.UnionMap | None = None
    for m in maps:
        u = m.to_union_map()
        out = u if out is None else out.union(u)
    return isl.UnionMap.empty(isl.Space.params_alloc(CONTEXT, 0)) if out is None else out


def union_set(sets: Iterable[isl.Set]) -> isl.UnionSet:
    """The union of sets of any spaces; empty for none."""
    out: isl.UnionSet | None = None
    for s in sets:
        u = s.to_union_set()
        out = u if out is None else out.union(u)
    return isl.UnionSet.empty(isl.Space.params_alloc(CONTEXT, 0)) if out is None else out


def maps_of(u: isl.UnionMap) -> list[isl.Map]:
    """The maps of a union, one for each pair of spaces, in a stable order."""
    ml = u.get_map_list()
    found = [ml.get_at(n) for n in range(ml.n_map())]
    return sorted(found, key=lambda m: (str(m.get_tuple_name(DIM.in_)), str(m.get_tuple_name(DIM.out))))


def sets_of(u: isl.UnionSet) -> list[isl.Set]:
    """The non-empty sets of a union, one for each space, in a stable order."""
    found = u.get_set_list()
    sets = [s for n in range(found.n_set()) if not (s := found.get_at(n)).is_empty()]
    return sorted(sets, key=lambda s: str(s.get_tuple_name()) if s.has_tuple_name() else "")


def points(s: isl.Set) -> Iterator[tuple[int, ...]]:
    """All points of a bounded set, in lexicographic order; parameters must have fixed values or none."""
    s = s.project_out(DIM.param, 0, s.dim(DIM.param))
    n = s.dim(DIM.set)
    found: list[tuple[int, ...]] = []

    def note(p: isl.Point) -> None:
        found.append(tuple(p.get_coordinate_val(DIM.set, k).to_python() for k in range(n)))

    s.foreach_point(note)
    yield from sorted(found)


def pairs(m: isl.Map) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of a bounded map; parameters as for :func:`points`."""
    n = m.dim(DIM.in_)
    return {(p[:n], p[n:]) for p in points(m.wrap().flatten())}


def aff_index(aff: isl.Aff, names: Sequence[str], params: Sequence[Param] = ()) -> Index | None:
    """An affine expression as an index; ``None`` where it is no integer, or mentions other dimensions."""
    if not aff.get_denominator_val().is_one():
        return None
    out = index(aff.get_constant_val().to_python())
    known = {p.name: p for p in params}
    for n in range(aff.dim(DIM.param)):
        c = aff.get_coefficient_val(DIM.param, n).to_python()
        if c:
            out = out + index(known[str(aff.get_dim_name(DIM.param, n))]) * c
    for n in range(aff.dim(DIM.in_)):
        c = aff.get_coefficient_val(DIM.in_, n).to_python()
        if c and n >= len(names):
            return None
        if c:
            out = out + var(names[n]) * c
    for n in range(aff.dim(DIM.div)):
        c = aff.get_coefficient_val(DIM.div, n).to_python()
        if c:
            divided = aff.get_div(n)
            by = divided.get_denominator_val()
            inner = aff_index(divided.scale_val(by), names, params)
            if inner is None:
                return None
            out = out + floordiv(inner, by.to_python()) * c
    return out
