"""Provenance as relations: where every read of a model gets its value, for all sizes at once.

The symbolic counterpart of :mod:`~tilewright.poly.provenance`. Values are points of named spaces: logical
instances ``stage[iterators]``, finished reductions ``stage__all[other iterators]``, elements of arguments
``argument__A[indices]``, constants, and ``undefined[]``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import islpy as isl

from tilewright.ir import Const, Expr, Load, Select, Store, index, var
from tilewright.poly.conditions import truth
from tilewright.poly.dependences import Sources, sources
from tilewright.poly.extract import Model, PolyStatement
from tilewright.poly.provenance import fingerprint
from tilewright.poly.spaces import DIM, Domain, maps_of, sets_of, union_map, union_set
from tilewright.poly.violations import constant_value
from tilewright.support import ProgramError

#: Copies of copies are followed this often; a buffer that copies itself round and round is refused.
MAX_COPIES = 12

Key = tuple[str, str, int]


def key_of(s: PolyStatement) -> Key:
    """What identifies a statement across programs."""
    return s.stage, s.part, s.position


def place_name(s: PolyStatement) -> str:
    """The space of finished reductions of a statement."""
    return f"{s.logical}__all"


def with_range_name(m: isl.Map, name: str) -> isl.Map:
    """The map with its target space renamed."""
    return m.set_tuple_name(DIM.out, name)


@dataclass(slots=True)
class SymbolicFlow:
    """The provenance of one model relative to the stages that both programs have. Results are kept."""

    model: Model
    stages: Collection[str]
    _sources: dict[tuple[str, int], Sources] = field(default_factory=dict)
    _continued: isl.UnionSet | None = None

    def sources(self, s: PolyStatement, slot: int) -> Sources:
        """The last writers of a read."""
        if (s.name, slot) not in self._sources:
            self._sources[s.name, slot] = sources(self.model, s, slot, lockstep=True)
        return self._sources[s.name, slot]

    def raw(self, s: PolyStatement, slot: int) -> isl.UnionMap:
        """Reader instances to writer instances or initial contents, copies not looked through."""
        found = self.sources(s, slot)
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

    def looked_through(self, s: PolyStatement, w: int) -> isl.UnionMap | None:
        """For a constant, a copy or a stage of one program only: its instances to what they hold."""
        constant = constant_value(s, w)
        if constant is not None:
            name = f"constant__{fingerprint('constant', constant):x}"
            return self.to_point(s.domain, name).to_union_map()
        if s.stage in self.stages:
            return None
        if isinstance(s.node, Store):
            parts = self.leaves(s, s.node.writes[w].value, s.domain)
            if parts is not None:
                return union_map(m for u in parts for m in maps_of(u))
        # computed: it stands for everything that it reads
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

    def values(self, s: PolyStatement, slot: int) -> isl.UnionMap:
        """Instances of ``s`` to the values that read ``slot`` gets, copies looked through."""
        return self.resolved(self.raw(s, slot))

    def resolved(self, found: isl.UnionMap) -> isl.UnionMap:
        """Replace writer instances of copies by what they copy."""
        for _ in range(MAX_COPIES):
            kept: list[isl.Map] = []
            again = False
            for m in maps_of(found):
                writer = self.writer(m)
                through = None if writer is None else self.looked_through(writer, 0)
                if writer is not None and len(writer.writes) > 1:
                    through = self.which_write(writer)
                if through is None:
                    kept.append(m)
                else:
                    again = True
                    kept.extend(maps_of(m.to_union_map().apply_range(through)))
            found = union_map(kept)
            if not again:
                return found.coalesce()
        raise ProgramError(
            "values are copied on and on from buffer to buffer",
            hint="check this function at small sizes, in the list mode",
        )

    def which_write(self, s: PolyStatement) -> isl.UnionMap | None:
        """What a statement with several writes holds where all of them are looked through."""
        parts = [self.looked_through(s, w) for w in range(len(s.writes))]
        if any(p is None for p in parts):
            return None
        return union_map(m for p in parts if p is not None for m in maps_of(p))

    def writer(self, m: isl.Map) -> PolyStatement | None:
        """The statement whose instances are a map's values, ``None`` for other values."""
        name = m.get_tuple_name(DIM.out)
        for s in self.model.statements:
            if s.name == name and len(s.dims) == m.dim(DIM.out):
                return s
        return None

    def logical(self, found: isl.UnionMap) -> isl.UnionMap:
        """Writer instances by their logical coordinates, finished reductions by those of their place."""
        out: list[isl.Map] = []
        for m in maps_of(found):
            writer = self.writer(m)
            if writer is None:
                out.append(m)
            elif not self.accumulators(writer):
                out.append(m.apply_range(self.model.instances(writer)))
            else:
                going_on = self.continued().intersect(writer.domain.to_union_set())
                partial = m.to_union_map().intersect_range(going_on)
                done = m.to_union_map().subtract(partial)
                out.extend(maps_of(done.apply_range(self.places(writer).to_union_map())))
                out.extend(maps_of(partial.apply_range(self.model.instances(writer).to_union_map())))
        return union_map(out).coalesce()

    def continued(self) -> isl.UnionSet:
        """Instances of reductions whose result another instance of the same reduction goes on with."""
        if self._continued is None:
            found = [
                self.steps(s, slot).range()
                for s in self.model.statements
                for slot in sorted(self.accumulators(s))
            ]
            self._continued = union_set(s for u in found for s in sets_of(u))
        return self._continued

    def steps(self, s: PolyStatement, slot: int) -> isl.UnionMap:
        """Instances of a reduction to the instance whose result they accumulate onto."""
        out: list[isl.Map] = []
        for m in maps_of(self.values(s, slot)):
            writer = self.writer(m)
            if writer is not None and key_of(writer) == key_of(s):
                out.append(m.intersect(self.places(s).apply_range(self.places(writer).reverse())))
        return union_map(out)

    def places(self, s: PolyStatement) -> isl.Map:
        """Instances to the place they accumulate into: all coordinates but those of reductions."""
        kept = [c for c, kind in zip(s.coords, s.coord_kinds, strict=True) if kind != "red"]
        return self.model.space(s).map_to(place_name(s), kept).intersect_domain(s.domain)

    def accumulators(self, s: PolyStatement, write: int | None = None) -> set[int]:
        """Reads of a reduction that load what it then replaces; with ``write`` what that write replaces."""
        if "red" not in s.coord_kinds or not isinstance(s.node, Store) or s.stage not in self.stages:
            return set()
        writes = s.node.writes if write is None else s.node.writes[write : write + 1]
        targets = {(w.buffer, w.indices) for w in writes}
        return {
            slot
            for slot, r in enumerate(s.reads)
            if r.load is not None and (r.load.buffer, r.load.indices) in targets
        }

    def final(self, output: str) -> isl.UnionMap:
        """Elements of an output, by logical indices, to the values they end with."""
        model = self.model
        buffer = model.buffers[output]
        dims = tuple(f"e{n}" for n in range(len(buffer.shape)))
        space = Domain("exit", dims, model.params)
        box = space.universe()
        for d, extent in zip(dims, buffer.shape, strict=True):
            box = box.intersect(space.at_least(var(d))).intersect(space.at_least(extent - var(d) - 1))
        box = box.intersect_params(model.context)
        read = space.map_to(output, list(buffer.physical(tuple(var(d) for d in dims)))).intersect_domain(box)
        writers = [s for s in model.statements if any(w.buffer == output for w in s.writes)]
        if not writers:
            return self.initial(read.to_union_map())
        info = isl.UnionAccessInfo.from_sink(read.to_union_map())
        sure = [w.relation for s in writers for w in s.writes if w.buffer == output and w.exact]
        unsure = [w.relation for s in writers for w in s.writes if w.buffer == output and not w.exact]
        if sure:
            info = info.set_must_source(union_map(sure))
        if unsure:
            info = info.set_may_source(union_map(unsure))
        times = [model.time(s, lockstep=True) for s in writers]
        length = times[0].dim(DIM.out)
        first = [
            model.space(s).map_to("", [index(0)]).flat_range_product(t)
            for s, t in zip(writers, times, strict=True)
        ]
        last = space.map_to("", [index(1)] + [index(0)] * length)
        flow = info.set_schedule_map(union_map([*first, last])).compute_flow()
        found = flow.get_may_dependence().reverse().union(self.initial(flow.get_may_no_source()))
        return self.logical(self.resolved(found))
