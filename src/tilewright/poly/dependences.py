"""Exact dependences of a model: per reading or writing access, against the statements that touch its buffer.

Per pair of a producer and a consumer this is about a hundred times cheaper than one flow analysis of a whole
program, and as exact: only writes of the same buffer can come in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import islpy as isl

from tilewright.ir import index
from tilewright.poly.budget import SECONDS, bounded, is_spent
from tilewright.poly.extract import Model, PolyAccess, PolyStatement
from tilewright.poly.spaces import DIM, Domain, maps_of, union_map
from tilewright.support import ResourceError

DependenceKind = Literal["flow", "anti", "output"]
DEPENDENCE_KINDS: Final[tuple[DependenceKind, ...]] = ("flow", "anti", "output")
KILL: Final = "@kill"
"""What tells writes that replace what others ask for; no name of a statement contains it."""
_HINT: Final = "ask about a smaller nest, or one in fewer tiles"


@dataclass(frozen=True, slots=True)
class Dependence:
    """``relation``: instances of ``source`` to instances of ``sink`` that must run after them.

    ``slot`` numbers the access of the sink among its reads (``flow``) or writes. ``exact`` is false where the
    relation may hold too much.
    """

    kind: DependenceKind
    source: str
    sink: str
    buffer: str
    slot: int
    relation: isl.Map
    exact: bool


@dataclass(frozen=True, slots=True)
class Definition:
    """What one write of a statement defines: writes of one statement are told apart."""

    statement: PolyStatement
    write: int

    @property
    def name(self) -> str:
        """The space of the instances of this write; that of the statement for the first."""
        return f"{self.statement.name}{self.suffix}"

    @property
    def suffix(self) -> str:
        """What tells spaces of this write from those of the first; no name of a statement contains it."""
        return f"@{self.write}" if self.write else ""

    @property
    def access(self) -> PolyAccess:
        """What it writes."""
        return self.statement.writes[self.write]

    def instances(self, m: isl.Map) -> isl.Map:
        """A map of the statement's instances as one of this write's."""
        return m.set_tuple_name(DIM.in_, self.name)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where one read of a statement gets its values.

    ``writers`` maps definitions (instances of :attr:`Definition.name`) to reader instances, ``initial``
    reader instances to elements that nothing has written before.
    """

    writers: isl.UnionMap
    initial: isl.UnionMap
    exact: bool


def writers_of(model: Model, buffer: str) -> list[tuple[PolyStatement, PolyAccess]]:
    """All writing accesses of a buffer."""
    return [(s, w) for s in model.statements for w in s.writes if w.buffer == buffer]


def readers_of(model: Model, buffer: str) -> list[tuple[PolyStatement, PolyAccess]]:
    """All reading accesses of a buffer."""
    return [(s, r) for s in model.statements for r in s.reads if r.buffer == buffer]


def _accesses(found: Iterable[tuple[PolyStatement, PolyAccess]]) -> isl.UnionMap:
    return union_map(a.relation for _, a in found)


def _times(model: Model, statements: Iterable[PolyStatement], lockstep: bool) -> isl.UnionMap:
    unique = {s.name: s for s in statements}
    return union_map(model.time(s, lockstep=lockstep) for s in unique.values())


def definitions(model: Model) -> Iterator[Definition]:
    """All writes of all statements."""
    for s in model.statements:
        for w in range(len(s.writes)):
            yield Definition(s, w)


def sources(model: Model, reader: PolyStatement, slot: int, *, lockstep: bool = False) -> Sources:
    """The last writers of the values that read ``slot`` of ``reader`` gets (value-based flow)."""
    read = reader.reads[slot]
    writers = [d for d in definitions(model) if d.access.buffer == read.buffer]
    times = [model.time(reader, lockstep=lockstep)]
    times += [d.instances(model.time(d.statement, lockstep=lockstep)) for d in writers]
    return _last(read.relation, read.exact, writers, times)


def final_sources(model: Model, exit_space: Domain, read: isl.Map, buffer: str) -> Sources:
    """The last writers of what ``read`` relates to elements of a buffer, after everything has run."""
    writers = [d for d in definitions(model) if d.access.buffer == buffer]
    times: list[isl.Map] = []
    for d in writers:
        s = d.statement
        first = model.space(s).map_to("", [index(0)])
        times.append(d.instances(first.flat_range_product(model.time(s, lockstep=True))))
    length = times[0].dim(DIM.out) if times else 1
    last = exit_space.map_to("", [index(1)] + [index(0)] * (length - 1))
    return _last(read, True, writers, [*times, last])


def _last(read: isl.Map, exact: bool, writers: list[Definition], times: list[isl.Map]) -> Sources:
    if not writers:
        return Sources(union_map(()), read.to_union_map(), exact)
    sure = union_map(d.instances(d.access.relation) for d in writers if d.access.exact)
    unsure = [d.instances(d.access.relation) for d in writers if not d.access.exact]
    found, initial = _preceding(read.to_union_map(), sure, union_map(unsure), union_map(times))
    return Sources(found, initial, exact and not unsure)


def _preceding(
    sink: isl.UnionMap, sure: isl.UnionMap, unsure: isl.UnionMap, times: isl.UnionMap
) -> tuple[isl.UnionMap, isl.UnionMap]:
    """What accesses of ``sink`` follow: the last ``sure`` one to the element, all ``unsure`` ones since that.

    Also which accesses no sure one precedes. Of strided accesses isl may lose some (its parametric maximum
    leaves out points without a solution): those are asked about again, by themselves.
    """
    found, initial = (isl.UnionMap.empty(sink.get_space()) for _ in range(2))
    while not sink.is_empty():
        info = isl.UnionAccessInfo.from_sink(sink).set_must_source(sure).set_may_source(unsure)
        try:
            flow = info.set_schedule_map(times).compute_flow()
        except isl.Error as error:
            if is_spent(error):
                raise
            raise ResourceError(f"isl finds no order of accesses: {error}", hint=_HINT) from None
        none = flow.get_may_no_source()
        found, initial = found.union(flow.get_may_dependence()), initial.union(none)
        told = flow.get_full_may_dependence().intersect_domain(sure.domain()).range().union(none.wrap())
        left = sink.wrap().subtract(told).unwrap()
        if left.is_equal(sink):
            raise ResourceError("isl finds no order of accesses in steps", hint=_HINT)
        sink = left
    return found, initial


def _flow(model: Model, sink: PolyStatement, slot: int) -> Iterator[Dependence]:
    """The last writers of what a read gets."""
    writers = {d.name: d.statement.name for d in definitions(model)}
    found = sources(model, sink, slot)
    for m in maps_of(found.writers):
        source = writers[str(m.get_tuple_name(DIM.in_))]
        m = m.set_tuple_name(DIM.in_, source)
        yield Dependence("flow", source, sink.name, sink.reads[slot].buffer, slot, m, found.exact)


def _before(
    model: Model,
    kind: DependenceKind,
    sink: PolyStatement,
    slot: int,
    wanted: list[tuple[PolyStatement, PolyAccess]],
) -> Iterator[Dependence]:
    """Accesses of ``wanted`` to what the sink's write replaces, no earlier instance's write in between."""
    write = sink.writes[slot]
    others = writers_of(model, write.buffer)
    if not wanted:
        return
    # names tell what is replaced in between from what is asked for
    kills = {s.name + KILL: s for s, w in others if w.exact}
    sure = union_map(w.relation.set_tuple_name(DIM.in_, s.name + KILL) for s, w in others if w.exact)
    times = _times(model, [sink, *(s for s, _ in wanted)], False).union(
        union_map(model.time(s).set_tuple_name(DIM.in_, name) for name, s in kills.items())
    )
    found, _ = _preceding(write.relation.to_union_map(), sure, _accesses(wanted), times)
    exact = write.exact and all(a.exact for _, a in (*wanted, *others))
    for m in maps_of(found):
        if m.get_tuple_name(DIM.in_) in kills:
            continue
        yield Dependence(kind, m.get_tuple_name(DIM.in_), sink.name, write.buffer, slot, m, exact)


class Dependences:
    """The dependences of a model, each access analysed when it is first asked for.

    ``flow``: a read and the last writers of what it gets; ``anti``: a read and the next write of what it
    read; ``output``: a write and the next one of the same element. What asks about them raises ResourceError
    where isl needs more than ``seconds`` of a processor for an access, or its usual count of operations.
    """

    __slots__ = ("_found", "_seconds", "model")

    def __init__(self, model: Model, *, seconds: int = SECONDS) -> None:
        self.model = model
        self._seconds = seconds
        self._found: dict[tuple[DependenceKind, str, int], tuple[Dependence, ...]] = {}

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.model.name

    def of_access(self, kind: DependenceKind, sink: PolyStatement, slot: int) -> tuple[Dependence, ...]:
        """The dependences of one kind whose sink is one access of a statement."""
        key = kind, sink.name, slot
        if key not in self._found:
            buffer = (sink.reads if kind == "flow" else sink.writes)[slot].buffer
            what = f"the dependences of {sink.name} on {buffer} are too many"
            self._found[key] = bounded(
                lambda: tuple(self._of_access(kind, sink, slot)), what, _HINT, seconds=self._seconds
            )
        return self._found[key]

    def _of_access(self, kind: DependenceKind, sink: PolyStatement, slot: int) -> Iterator[Dependence]:
        if kind == "flow":
            return _flow(self.model, sink, slot)
        buffer = sink.writes[slot].buffer
        others = readers_of(self.model, buffer) if kind == "anti" else writers_of(self.model, buffer)
        return _before(self.model, kind, sink, slot, others)

    def among(
        self, names: Collection[str] | None = None, kinds: Iterable[DependenceKind] = DEPENDENCE_KINDS
    ) -> list[Dependence]:
        """The dependences between statements of ``names`` (default: all), per pair and access.

        Accesses that no two of them have in common are not analysed.
        """
        model = self.model
        chosen = [s for s in model.statements if names is None or s.name in names]
        read = {a.buffer for s in chosen for a in s.reads}
        written = {a.buffer for s in chosen for a in s.writes}
        inside = {s.name for s in chosen}
        out: list[Dependence] = []
        for kind in kinds:
            shared = read if kind == "anti" else written
            for s in chosen:
                for slot, a in enumerate(s.reads if kind == "flow" else s.writes):
                    if a.buffer in shared:
                        out.extend(d for d in self.of_access(kind, s, slot) if d.source in inside)
        return out


def all_dependences(model: Model, kinds: Iterable[DependenceKind] = DEPENDENCE_KINDS) -> list[Dependence]:
    """All dependences of the given kinds, per pair of statements and access.

    Raises ResourceError where isl needs too long.
    """
    return Dependences(model).among(None, kinds)


def violated(dependence: isl.Map, source_time: isl.Map, sink_time: isl.Map) -> isl.Map:
    """Pairs of a dependence that a new schedule (two maps to times of one length) does not run in order."""
    late = source_time.lex_ge_map(sink_time)
    return dependence.intersect(late)
