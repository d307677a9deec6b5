"""What values are, as relations: logical instances and finished reductions instead of places in loops.

The symbolic counterpart of :mod:`~tilewright.poly.provenance`. Values are points of named spaces: what one
write of a logical instance made ``stage[iterators]``, finished reductions ``stage__all[other iterators]``,
and what :mod:`~tilewright.poly.symbolic_flow` names. Spaces of writes after a statement's first end in
``@1``, ``@2`` and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import islpy as isl

from tilewright.ir import Store, is_opaque
from tilewright.poly.dependences import Definition
from tilewright.poly.extract import Model, PolyStatement
from tilewright.poly.spaces import DIM, maps_of, sets_of, union_map, union_set
from tilewright.poly.symbolic_flow import SymbolicFlow, with_range_name

Key = tuple[str, str, int]


def key_of(s: PolyStatement) -> Key:
    """What identifies a statement across programs."""
    return s.stage, s.part, s.position


def grouped(model: Model) -> dict[Key, list[PolyStatement]]:
    """The statements of a model by what identifies them across programs."""
    out: dict[Key, list[PolyStatement]] = {}
    for s in model.statements:
        out.setdefault(key_of(s), []).append(s)
    return out


@dataclass(slots=True)
class SymbolicValues:
    """The provenance of one model; results are kept.

    A reduction is finished by the instances that finish it in ``reference`` (default: here).
    """

    flow: SymbolicFlow
    reference: SymbolicValues | None = None
    groups: dict[Key, list[PolyStatement]] = field(default_factory=dict)
    _accumulators: dict[tuple[Key, int], dict[str, tuple[int, ...]]] = field(default_factory=dict)
    _unfinished: isl.UnionSet | None = None

    def __post_init__(self) -> None:
        self.groups = grouped(self.model)

    @property
    def model(self) -> Model:
        """The model."""
        return self.flow.model

    def read(self, s: PolyStatement, slot: int, *, computed: bool = False) -> isl.UnionMap:
        """Instances of ``s`` to what read ``slot`` gets; ``computed`` as for the flow's values."""
        return self.logical(self.flow.values(s, slot, computed=computed))

    def final(self, output: str) -> isl.UnionMap:
        """Elements of an output, by logical indices, to the values they end with."""
        return self.logical(self.flow.final(output))

    def logical(self, found: isl.UnionMap) -> isl.UnionMap:
        """Definitions by their logical coordinates, finished reductions by those of their place."""
        out: list[isl.Map] = []
        for m in maps_of(found):
            d = self.flow.definition(m)
            if d is None:
                out.append(m)
                continue
            one = _named(self.model.instances(d.statement), d)
            if not self.accumulators(d.statement, d.write):
                out.append(m.apply_range(one))
                continue
            partial = m.to_union_map().intersect_range(self.unfinished())
            done = m.to_union_map().subtract(partial)
            out.extend(maps_of(done.apply_range(_named(self.places(d.statement), d).to_union_map())))
            out.extend(maps_of(partial.apply_range(one.to_union_map())))
        return union_map(out).coalesce()

    # -- reductions ----------------------------------------------------------------------------------------

    def accumulators(self, s: PolyStatement, w: int) -> tuple[int, ...]:
        """Reads of a reduction that load what its write ``w`` then replaces.

        None where not all instances of all its blocks do.
        """
        key = key_of(s), w
        if key not in self._accumulators:
            members = self.groups[key_of(s)]
            found = {m.name: self._loads_of(m, w) for m in members}
            self._accumulators[key] = found if all(found.values()) else dict.fromkeys(found, ())
        return self._accumulators[key][s.name]

    def _loads_of(self, s: PolyStatement, w: int) -> tuple[int, ...]:
        if "red" not in s.coord_kinds or s.stage not in self.flow.stages:
            return ()
        if not isinstance(s.node, Store) or w >= len(s.node.writes):
            return ()
        target = s.node.writes[w]
        if any(map(is_opaque, target.indices)) and not s.writes[w].exact:
            return ()
        found = [
            slot
            for slot, r in enumerate(s.reads)
            if r.load is not None and (r.load.buffer, r.load.indices) == (target.buffer, target.indices)
        ]
        executed = union_set(s.reads[slot].relation.domain() for slot in found)
        return tuple(found) if s.domain.to_union_set().is_subset(executed) else ()

    def accumulated(self, s: PolyStatement) -> dict[int, int]:
        """Per read that is an accumulator the write that replaces it."""
        return {slot: w for w in range(len(s.writes)) for slot in self.accumulators(s, w)}

    def places(self, s: PolyStatement) -> isl.Map:
        """Instances to the place they accumulate into: all coordinates but those of reductions."""
        kept = [c for c, kind in zip(s.coords, s.coord_kinds, strict=True) if kind != "red"]
        return self.model.space(s).map_to(f"{s.logical}__all", kept).intersect_domain(s.domain)

    def steps(self, s: PolyStatement, w: int) -> isl.UnionMap:
        """Instances of a reduction to the definition whose result they accumulate onto."""
        out: list[isl.Map] = []
        for slot in self.accumulators(s, w):
            for m in maps_of(self.flow.values(s, slot)):
                d = self.flow.definition(m)
                if d is not None and d.write == w and key_of(d.statement) == key_of(s):
                    same = self.places(s).apply_range(self.places(d.statement).reverse())
                    out.append(m.intersect(with_range_name(same, d.name)))
        return union_map(out)

    def starts(self, s: PolyStatement, w: int) -> isl.UnionMap:
        """Instances to where their accumulation starts: what is accumulated onto, steps left out."""
        slots = self.accumulators(s, w)
        found = union_map(m for slot in slots for m in maps_of(self.flow.values(s, slot)))
        return self.logical(found.subtract(self.steps(s, w)))

    def unfinished(self) -> isl.UnionSet:
        """Definitions by reductions that are no finished results."""
        if self._unfinished is None:
            out: list[isl.Set] = []
            for key, members in self.groups.items():
                for w in range(len(members[0].writes)):
                    if self.accumulators(members[0], w):
                        out.extend(self._partial(key, w))
            self._unfinished = union_set(out)
        return self._unfinished

    def _partial(self, key: Key, w: int) -> Iterator[isl.Set]:
        """What other instances go on with, and all that a place gets where that is not one whole chain."""
        members = self.groups[key]
        steps = union_map(m for s in members for m in maps_of(self.steps(s, w)))
        yield from sets_of(steps.range())
        logical = union_map(self.model.instances(s) for s in members)
        chain = union_map(self.places(s) for s in members)
        if not logical.is_injective():
            # recomputed: a chain for each storage that the reduction runs in
            chain = union_map(self.places(s).range_product(s.writes[w].relation) for s in members)
        starts = union_set(s.domain for s in members).subtract(steps.domain())
        wrong = [
            _repeated(chain.range_product(logical)).apply(chain),
            _repeated(steps).apply(chain),
            _repeated(chain.intersect_domain(starts)).apply(chain),
        ]
        if self.reference is not None and key in self.reference.groups:
            wanted, done = self.reference.whole(key), chain.reverse().apply_range(logical)
            places = chain.reverse().apply_range(union_map(self.places(s) for s in members))
            wanted = places.apply_range(wanted)
            wrong += [wanted.subtract(done).domain(), done.subtract(wanted).domain()]
        broken = chain.intersect_range(union_set(s for u in wrong for s in sets_of(u))).domain()
        names = {s.name: Definition(s, w).name for s in members}
        yield from (b.set_tuple_name(names[str(b.get_tuple_name())]) for b in sets_of(broken))

    def whole(self, key: Key) -> isl.UnionMap:
        """The places of a reduction to all instances that accumulate into them."""
        return union_map(
            self.places(s).reverse().apply_range(self.model.instances(s)) for s in self.groups[key]
        )


def _named(m: isl.Map, d: Definition) -> isl.Map:
    """A map of a statement's instances to what they are called as a map of one write's to its values."""
    return with_range_name(d.instances(m), f"{m.get_tuple_name(DIM.out)}{d.suffix}")


def _repeated(m: isl.UnionMap) -> isl.UnionSet:
    """Elements that are mapped to what another element is mapped to."""
    if m.is_injective():
        return union_set(())
    same = m.apply_range(m.reverse())
    return same.subtract(m.domain().identity()).domain()
