"""Where values come from, as relations: the writers of every read of a model, for all sizes at once.

The symbolic counterpart of :mod:`~tilewright.poly.dataflow` and of how
:mod:`~tilewright.poly.provenance` looks through copies. Definitions are instances of writes (see
:class:`~tilewright.poly.dependences.Definition`); other values are elements of arguments
``argument__A[indices]``, constants, and ``undefined[]``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import islpy as isl

from tilewright.ir import Const, Expr, Load, Select, Store, var
from tilewright.poly.conditions import truth
from tilewright.poly.dependences import Definition, Sources, definitions, final_sources, sources
from tilewright.poly.extract import Model, PolyStatement
from tilewright.poly.provenance import fingerprint
from tilewright.poly.spaces import DIM, Domain, maps_of, union_map
from tilewright.poly.violations import constant_value
from tilewright.support import ProgramError

#: Copies of copies are followed this often; a buffer that copies itself round and round is refused.
MAX_COPIES = 12


def with_range_name(m: isl.Map, name: str) -> isl.Map:
    """The map with its target space renamed."""
    return m.set_tuple_name(DIM.out, name)


@dataclass(slots=True)
class SymbolicFlow:
    """The dataflow of one model; ``stages`` (those of both programs) are no copies. Results are kept."""

    model: Model
    stages: Collection[str]
    _definitions: dict[str, Definition] = field(default_factory=dict)
    _values: dict[tuple[str, int, bool], isl.UnionMap] = field(default_factory=dict)
    _raw: dict[tuple[str, int], isl.UnionMap] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._definitions = {d.name: d for d in definitions(self.model)}

    def raw(self, s: PolyStatement, slot: int) -> isl.UnionMap:
        """Reader instances to definitions or initial contents, copies not looked through."""
        if (s.name, slot) not in self._raw:
            self._raw[s.name, slot] = self.written(sources(self.model, s, slot, lockstep=True))
        return self._raw[s.name, slot]

    def written(self, found: Sources) -> isl.UnionMap:
        """What is read to its definitions or initial contents."""
        return found.writers.reverse().union(self.initial(found.initial))

    def initial(self, elements: isl.UnionMap) -> isl.UnionMap:
        """Instances to the values of elements that nothing wrote before."""
        arguments = {b.name for b in self.model.function.buffers}
        out = []
        for m in maps_of(elements):
            name = m.get_tuple_name(DIM.out)
            if name in arguments:
                out.append(with_range_name(m, f"argument__{name}"))
            else:
                out.append(self.to_point(m.domain(), "undefined"))
        return union_map(out)

    def to_point(self, s: isl.Set, name: str) -> isl.Map:
        """Every element of a set to the one point of a space."""
        space = Domain(name, (), self.model.params)
        return isl.Map.from_domain_and_range(s, space.universe())

    def looked_through(self, d: Definition, computed: bool) -> isl.UnionMap | None:
        """For a constant or a copy of a stage that only one program has: its instances to what they hold.

        With ``computed`` also for other values of such stages: they stand for all that their statement reads.
        """
        s = d.statement
        constant = constant_value(s, d.write)
        if constant is not None:
            name = f"constant__{fingerprint('constant', constant):x}"
            return self.to_point(s.domain, name).to_union_map()
        if s.stage in self.stages:
            return None
        if isinstance(s.node, Store) and all(r.load is not None and r.exact for r in s.reads):
            parts = self.leaves(s, s.node.writes[d.write].value, s.domain)
            if parts is not None:
                return union_map(m for u in parts for m in maps_of(u))
        if not computed:
            return None
        return union_map(m for slot in range(len(s.reads)) for m in maps_of(self.raw(s, slot)))

    def leaves(self, s: PolyStatement, e: Expr, region: isl.Set) -> list[isl.UnionMap] | None:
        """The values of a copying expression on a region; ``None`` where it computes."""
        match e:
            case Const():
                name = f"constant__{fingerprint('constant', e):x}"
                return [self.to_point(region, name).to_union_map()]
            case Load():
                out = []
                for slot, r in enumerate(s.reads):
                    if r.load == e:
                        out.append(self.raw(s, slot).intersect_domain(region.to_union_set()))
                return out
            case Select():
                scope = dict(zip(s.coord_names, s.coords, strict=True))
                holds = truth(e.cond, self.model.space(s), scope)
                if holds is None:
                    return None
                a = self.leaves(s, e.a, region.intersect(holds))
                b = self.leaves(s, e.b, region.subtract(holds))
                return None if a is None or b is None else [*a, *b]
            case _:
                return None

    def values(self, s: PolyStatement, slot: int, *, computed: bool = False) -> isl.UnionMap:
        """Instances of ``s`` to the values that read ``slot`` gets, copies looked through."""
        key = s.name, slot, computed
        if key not in self._values:
            self._values[key] = self.resolved(self.raw(s, slot), computed=computed)
        return self._values[key]

    def resolved(self, found: isl.UnionMap, *, computed: bool = False) -> isl.UnionMap:
        """Replace definitions of copies by what they copy; see :meth:`looked_through`."""
        for _ in range(MAX_COPIES):
            kept: list[isl.Map] = []
            again = False
            for m in maps_of(found):
                d = self.definition(m)
                through = None if d is None else self.looked_through(d, computed)
                if d is None or through is None:
                    kept.append(m)
                else:
                    again = True
                    held = union_map(d.instances(held) for held in maps_of(through))
                    kept.extend(maps_of(m.to_union_map().apply_range(held)))
            found = union_map(kept)
            if not again:
                return found.coalesce()
        raise ProgramError(
            "values are copied on and on from buffer to buffer",
            hint="check this function at small sizes, in the list mode",
        )

    def definition(self, m: isl.Map) -> Definition | None:
        """The write whose instances are a map's values, ``None`` for other values."""
        d = self._definitions.get(str(m.get_tuple_name(DIM.out)))
        return d if d is not None and len(d.statement.dims) == m.dim(DIM.out) else None

    def final(self, output: str) -> isl.UnionMap:
        """Elements of an output, by logical indices, to what defines them at last, copies looked through."""
        model = self.model
        buffer = model.buffers[output]
        dims = tuple(f"e{n}" for n in range(len(buffer.shape)))
        space = Domain("exit", dims, model.params)
        box = space.universe()
        for d, extent in zip(dims, buffer.shape, strict=True):
            box = box.intersect(space.at_least(var(d))).intersect(space.at_least(extent - var(d) - 1))
        box = box.intersect_params(model.context)
        read = space.map_to(output, list(buffer.physical(tuple(var(d) for d in dims)))).intersect_domain(box)
        return self.resolved(self.written(final_sources(model, space, read, output)))
