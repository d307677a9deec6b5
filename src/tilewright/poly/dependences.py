"""Exact dependences of a model: per reading or writing access, against the statements that touch its buffer.

Per pair of a producer and a consumer this is about a hundred times cheaper than one flow analysis of a whole
program, and as exact: only writes of the same buffer can come in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import islpy as isl

from tilewright.poly.extract import Model, PolyAccess, PolyStatement
from tilewright.poly.spaces import DIM, maps_of, union_map

DependenceKind = Literal["flow", "anti", "output"]


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
class Sources:
    """Where one read of a statement gets its values.

    ``writers`` maps writer instances to reader instances, ``initial`` reader instances to elements that
    nothing has written before.
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


def sources(model: Model, reader: PolyStatement, slot: int, *, lockstep: bool = False) -> Sources:
    """The last writers of the values that read ``slot`` of ``reader`` gets (value-based flow)."""
    read = reader.reads[slot]
    writers = writers_of(model, read.buffer)
    if not writers:
        empty = union_map(())
        return Sources(empty, read.relation.to_union_map(), read.exact)
    info = isl.UnionAccessInfo.from_sink(read.relation.to_union_map())
    sure = [(s, w) for s, w in writers if w.exact]
    unsure = [(s, w) for s, w in writers if not w.exact]
    if sure:
        info = info.set_must_source(_accesses(sure))
    if unsure:
        info = info.set_may_source(_accesses(unsure))
    info = info.set_schedule_map(_times(model, [reader, *(s for s, _ in writers)], lockstep))
    flow = info.compute_flow()
    return Sources(flow.get_may_dependence(), flow.get_may_no_source(), read.exact and not unsure)


def flow_dependences(model: Model) -> Iterator[Dependence]:
    """Every read's last writers."""
    for s in model.statements:
        for slot, r in enumerate(s.reads):
            found = sources(model, s, slot)
            for m in maps_of(found.writers):
                source = m.get_tuple_name(DIM.in_)
                yield Dependence("flow", source, s.name, r.buffer, slot, m, found.exact)


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
    info = isl.UnionAccessInfo.from_sink(write.relation.to_union_map())
    info = info.set_may_source(_accesses(wanted))
    kills = [(s, w) for s, w in others if w.exact]
    if kills:
        info = info.set_kill(_accesses(kills))
    info = info.set_schedule_map(_times(model, [sink, *(s for s, _ in (*wanted, *others))], False))
    exact = write.exact and all(a.exact for _, a in (*wanted, *others))
    for m in maps_of(info.compute_flow().get_may_dependence()):
        yield Dependence(kind, m.get_tuple_name(DIM.in_), sink.name, write.buffer, slot, m, exact)


def anti_dependences(model: Model) -> Iterator[Dependence]:
    """Reads that must run before the next write of what they read."""
    for s in model.statements:
        for slot, w in enumerate(s.writes):
            yield from _before(model, "anti", s, slot, readers_of(model, w.buffer))


def output_dependences(model: Model) -> Iterator[Dependence]:
    """Writes and the next write of the same element."""
    for s in model.statements:
        for slot, w in enumerate(s.writes):
            yield from _before(model, "output", s, slot, writers_of(model, w.buffer))


def all_dependences(
    model: Model, kinds: Iterable[DependenceKind] = ("flow", "anti", "output")
) -> list[Dependence]:
    """All dependences of the given kinds, per pair of statements and access."""
    functions = {"flow": flow_dependences, "anti": anti_dependences, "output": output_dependences}
    return [d for kind in kinds for d in functions[kind](model)]


def violated(dependence: isl.Map, source_time: isl.Map, sink_time: isl.Map) -> isl.Map:
    """Pairs of a dependence that a new schedule (two maps to times of one length) does not run in order."""
    late = source_time.lex_ge_map(sink_time)
    return dependence.intersect(late)
