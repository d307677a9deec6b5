"""Conflicts between iterations of parallel loops, as emptiness of relations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from tilewright.ir import Index, index, is_thread, var
from tilewright.poly.extract import Model, PolyAccess, PolyBarrier, PolyStatement, team_dims
from tilewright.poly.spaces import Domain

_AXES = ("thread.x", "thread.y", "thread.z")


@dataclass(frozen=True, slots=True)
class SymbolicRace:
    """Instances of two statements that conflict in a loop (or among the threads of a block)."""

    loop: str
    buffer: str
    first: PolyStatement
    second: PolyStatement
    pairs: isl.Map


def symbolic_races(model: Model) -> Iterator[SymbolicRace]:
    """Pairs of statements with conflicting iterations; one for each loop, pair and buffer."""
    written = {w.buffer for s in model.statements for w in s.writes}
    for a_at, a in enumerate(model.statements):
        for b in model.statements[a_at:]:
            for p in _accesses(a, written):
                for q in _accesses(b, written):
                    if p[0].buffer == q[0].buffer and (p[1] or q[1]):
                        yield from _between(model, a, p[0], b, q[0])


def _accesses(s: PolyStatement, written: set[str]) -> list[tuple[PolyAccess, bool]]:
    return [(w, True) for w in s.writes] + [(r, False) for r in s.reads if r.buffer in written]


def _between(
    model: Model, a: PolyStatement, p: PolyAccess, b: PolyStatement, q: PolyAccess
) -> Iterator[SymbolicRace]:
    same = p.relation.apply_range(q.relation.reverse())
    if same.is_empty():
        return
    for n, (dim, kind) in enumerate(zip(a.dims, a.kinds, strict=True)):
        if b.dims[: n + 1] != a.dims[: n + 1]:
            break
        if kind.name in ("parallel", "vector") or (kind.name == "thread" and not is_thread(kind)):
            conflict = _constrained(model, same, a, b, a.dims[:n], [(var(dim), var(dim))])
            if not conflict.is_empty():
                yield SymbolicRace(dim, p.buffer, a, b, conflict)
    among = _among_threads(model, same, a, b)
    if among is not None:
        conflict, team = among, team_of(a)
        for barrier in model.barriers:
            conflict = conflict.subtract(parted(model, a, b, barrier))
        if not conflict.is_empty():
            yield SymbolicRace(f"threads of {team[-1] if team else 'the function'}", p.buffer, a, b, conflict)


def thread_conflicts(model: Model) -> Iterator[SymbolicRace]:
    """Pairs of statements that threads of one block may not run at once; barriers are not looked at."""
    written = {w.buffer for s in model.statements for w in s.writes}
    for n, a in enumerate(model.statements):
        team = team_of(a)
        if team is None:
            continue
        for b in model.statements[n:]:
            if team != team_of(b):
                continue
            for p, first in _accesses(a, written):
                for q, second in _accesses(b, written):
                    if p.buffer != q.buffer or not (first or second):
                        continue
                    same = p.relation.apply_range(q.relation.reverse())
                    found = None if same.is_empty() else _among_threads(model, same, a, b)
                    if found is not None and not found.is_empty():
                        yield SymbolicRace(
                            f"threads of {team[-1] if team else 'the function'}", p.buffer, a, b, found
                        )


def _among_threads(model: Model, same: isl.Map, a: PolyStatement, b: PolyStatement) -> isl.Map | None:
    """The pairs of ``same`` that different threads of one block run; ``None`` outside of blocks."""
    team, coordinates = team_of(a), _threads(a, b)
    if team is None or team != team_of(b) or not coordinates:
        return None
    return _constrained(model, same, a, b, team, coordinates)


def parted(model: Model, a: PolyStatement, b: PolyStatement, barrier: PolyBarrier) -> isl.Map:
    """Pairs of instances, in any order, that the team's ``barrier`` stands between."""
    return _separated(model, a, b, barrier).union(_separated(model, b, a, barrier).reverse())


def team_of(s: PolyStatement | PolyBarrier) -> tuple[str, ...] | None:
    """The loops that the block of threads which runs a statement has in common, if there is one."""
    return team_dims(s.dims, s.kinds)


def _threads(a: PolyStatement, b: PolyStatement) -> list[tuple[Index, Index]]:
    """The coordinates of both statements' threads on each hardware axis (0 where no loop spreads over it)."""
    one = {k.axis: d for d, k in zip(a.dims, a.kinds, strict=True) if is_thread(k)}
    two = {k.axis: d for d, k in zip(b.dims, b.kinds, strict=True) if is_thread(k)}
    return [
        (var(one[x]) if x in one else index(0), var(two[x]) if x in two else index(0))
        for x in _AXES
        if x in one or x in two
    ]


def _constrained(
    model: Model,
    pairs: isl.Map,
    a: PolyStatement | PolyBarrier,
    b: PolyStatement | PolyBarrier,
    equal: tuple[str, ...],
    differ: list[tuple[Index, Index]],
) -> isl.Map:
    """Pairs that agree in the loops ``equal``, and differ in some coordinate where ``differ`` has any."""
    left, right = model.space(a), model.space(b)
    same = [var(d) for d in equal]
    out = pairs.intersect(left.map_to("", same).apply_range(right.map_to("", same).reverse()))
    result: isl.Map | None = None
    for x, y in differ:
        one, two = left.map_to("", [x]), right.map_to("", [y])
        unequal = one.lex_lt_map(two).union(one.lex_gt_map(two))
        part = out.intersect(unequal)
        result = part if result is None else result.union(part)
    return result if result is not None else out


def _separated(model: Model, a: PolyStatement, b: PolyStatement, barrier: PolyBarrier) -> isl.Map:
    """Pairs with the barrier of their team between them, ``a`` first."""
    team = team_of(a)
    if team is None or team_of(barrier) != team:
        space = Domain(a.name, a.dims, model.params)
        return isl.Map.from_domain_and_range(space.empty(), model.space(b).universe())
    early, late = model.time(a, threads=False), model.time(b, threads=False)
    at = model.time(barrier, threads=False)
    before = _constrained(model, early.lex_lt_map(at), a, barrier, team, [])
    after = _constrained(model, at.lex_lt_map(late), barrier, b, team, [])
    return before.apply_range(after)
