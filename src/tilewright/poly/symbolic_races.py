"""Conflicts between iterations of parallel loops, as emptiness of relations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import islpy as isl

from tilewright.ir import THREAD_AXES, Index, atomic_update, index, is_thread, var
from tilewright.poly.budget import limited
from tilewright.poly.extract import Model, PolyAccess, PolyBarrier, PolyStatement, team_dims
from tilewright.poly.spaces import DIM


@dataclass(frozen=True, slots=True)
class SymbolicRace:
    """Instances of two statements that conflict in a loop (or among the threads of a block)."""

    loop: str
    buffer: str
    first: PolyStatement
    second: PolyStatement
    pairs: isl.Map
    team: tuple[str, ...] = ()


def symbolic_races(model: Model) -> Iterator[SymbolicRace]:
    """Pairs of statements with conflicting iterations; one for each loop, pair and buffer."""
    partings = Partings(model)
    written = {w.buffer for s in model.statements for w in s.writes}
    for a_at, a in enumerate(model.statements):
        for b in model.statements[a_at:]:
            for p in _accesses(a, written):
                for q in _accesses(b, written):
                    if p[0].buffer == q[0].buffer and (p[1] or q[1]):
                        yield from _between(partings, a, p[0], b, q[0])


def _accesses(s: PolyStatement, written: set[str]) -> list[tuple[PolyAccess, bool]]:
    return [(w, True) for w in s.writes] + [(r, False) for r in s.reads if r.buffer in written]


def _between(
    partings: Partings, a: PolyStatement, p: PolyAccess, b: PolyStatement, q: PolyAccess
) -> Iterator[SymbolicRace]:
    model = partings.model
    atomic = _updates_at_once(a, p, b, q)
    same = p.relation.apply_range(q.relation.reverse())
    if same.is_empty():
        return
    for n, (dim, kind) in enumerate(zip(a.dims, a.kinds, strict=True)):
        if b.dims[: n + 1] != a.dims[: n + 1]:
            break
        spread = kind.name == "thread" and not is_thread(kind) and not atomic
        if kind.name in ("parallel", "vector") or spread:
            conflict = _constrained(model, same, a, b, a.dims[:n], [(var(dim), var(dim))])
            if not conflict.is_empty():
                yield SymbolicRace(dim, p.buffer, a, b, conflict)
    # what every thread has of its own meets no other thread's
    among = None if atomic or (p.owned and q.owned) else _among_threads(model, same, a, b)
    if among is not None:
        conflict, team = among, team_of(a) or ()
        for number in range(len(model.barriers)):
            conflict = conflict.subtract(partings.between(a, b, team, number))
        if not conflict.is_empty():
            yield SymbolicRace(f"threads of {team[-1] if team else 'the function'}", p.buffer, a, b, conflict)


def _updates_at_once(a: PolyStatement, p: PolyAccess, b: PolyStatement, q: PolyAccess) -> bool:
    """Whether two accesses are parts of updates that threads may do to one element at once."""
    one, two = (atomic_update(s.node, s.coord_kinds) for s in (a, b))
    if one is None or two is None or one.op != two.op:
        return False
    return p.buffer == q.buffer == one.buffer == two.buffer


@limited("the conflicts between threads of {} are too many")
def thread_conflicts(model: Model) -> tuple[SymbolicRace, ...]:
    """Pairs of statements that threads of one block may not run at once; barriers are not looked at."""
    return tuple(_thread_conflicts(model))


def _thread_conflicts(model: Model) -> Iterator[SymbolicRace]:
    written = {w.buffer for s in model.statements for w in s.writes}
    for n, a in enumerate(model.statements):
        region = _region(a)
        if region is None:
            continue
        for b in model.statements[n:]:
            if region != _region(b):
                continue
            for p, first in _accesses(a, written):
                for q, second in _accesses(b, written):
                    if p.buffer != q.buffer or not (first or second) or (p.owned and q.owned):
                        continue
                    if _updates_at_once(a, p, b, q):
                        continue
                    same = p.relation.apply_range(q.relation.reverse())
                    found = None if same.is_empty() else _among_threads(model, same, a, b)
                    if found is not None and not found.is_empty():
                        team = team_of(a) or ()
                        where = f"threads of {team[-1] if team else 'the function'}"
                        yield SymbolicRace(where, p.buffer, a, b, found, team)


@limited("the conflicts between threads of {} are too many")
def settles_at_barriers(model: Model, s: PolyStatement) -> bool:
    """Whether what a statement writes may arrive at any time up to the next barrier of its block.

    So it is where no instance that comes later, of the same thread or another, touches it before a barrier.
    """
    team = team_of(s)
    if team is None:
        return False
    partings = Partings(model)
    here = model.time(s, threads=False)
    written = {w.buffer for w in s.writes}
    for b in model.statements:
        later = here.lex_lt_map(model.time(b, threads=False))
        for w in s.writes:
            for q, _ in _accesses(b, written):
                if q.buffer != w.buffer:
                    continue
                touched = w.relation.apply_range(q.relation.reverse()).intersect(later)
                if team_of(b) != team:
                    if not touched.is_empty():
                        return False
                    continue
                pairs = _constrained(model, touched, s, b, team, [])
                for number in range(len(model.barriers)):
                    if pairs.is_empty():
                        break
                    pairs = pairs.subtract(partings.between(s, b, team, number))
                if not pairs.is_empty():
                    return False
    return True


@limited("the conflicts between threads of {} are too many")
def outside_of_threads(model: Model, race: SymbolicRace) -> SymbolicRace:
    """A conflict without the loops over threads and inside of them: what barriers around those can part."""
    a, b = _outer(race.first), _outer(race.second)
    one, two = len(race.first.dims), len(race.second.dims)
    pairs = race.pairs.project_out(DIM.in_, len(a.dims), one - len(a.dims))
    pairs = pairs.project_out(DIM.out, len(b.dims), two - len(b.dims))
    pairs = pairs.set_tuple_name(DIM.in_, a.name).set_tuple_name(DIM.out, b.name).coalesce()
    return replace(race, first=a, second=b, pairs=pairs)


def _outer(s: PolyStatement) -> PolyStatement:
    """A statement as its loops outside of those over threads run it."""
    kept = next((n for n, k in enumerate(s.kinds) if is_thread(k)), None)
    if kept is None:
        return s
    at = s.time.index(s.dims[kept])
    domain = s.domain.project_out(DIM.set, kept, len(s.dims) - kept).set_tuple_name(s.name)
    return replace(s, dims=s.dims[:kept], kinds=s.kinds[:kept], domain=domain.coalesce(), time=s.time[:at])


def _among_threads(model: Model, same: isl.Map, a: PolyStatement, b: PolyStatement) -> isl.Map | None:
    """The pairs of ``same`` that different threads of one block run; ``None`` outside of blocks."""
    team, coordinates = team_of(a), _threads(a, b)
    if team is None or _region(a) != _region(b):
        return None
    if a.everyone or b.everyone:
        return _constrained(model, same, a, b, team, [])
    if not coordinates:
        return None
    return _constrained(model, same, a, b, team, coordinates)


def _region(s: PolyStatement | PolyBarrier) -> tuple[str, ...] | None:
    """What names the threads that run a statement together: loops over blocks, else the first of threads."""
    team = team_of(s)
    if team is None or any(k.name == "thread" and not is_thread(k) for k in s.kinds):
        return team
    return s.dims[: len(team) + 1]


class Partings:
    """What the barriers of a model stand between; what conflicts have in common is found once."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._before: dict[tuple[str, int, bool], isl.Map] = {}
        self._parted: dict[tuple[str, str, int], isl.Map] = {}

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.model.name

    def parted(self, race: SymbolicRace, number: int) -> isl.Map:
        """Pairs of a conflict among threads, in any order, that a barrier (by its number) stands between."""
        return self.between(race.first, race.second, race.team, number)

    @limited("the conflicts between threads of {} are too many")
    def between(self, a: PolyStatement, b: PolyStatement, team: tuple[str, ...], number: int) -> isl.Map:
        """Pairs of instances of two statements that a barrier of their team stands between."""
        if team_of(self.model.barriers[number]) != team:
            return isl.Map.empty(isl.Map.from_domain_and_range(a.domain, b.domain).get_space())
        return self._ordered(a, b, number, team).union(self._ordered(b, a, number, team).reverse())

    def _ordered(self, a: PolyStatement, b: PolyStatement, number: int, team: tuple[str, ...]) -> isl.Map:
        key = (a.name, b.name, number)
        if key not in self._parted:
            before = self._side(a, number, team, first=True)
            after = self._side(b, number, team, first=False)
            self._parted[key] = before.apply_range(after)
        return self._parted[key]

    def _side(self, s: PolyStatement, number: int, team: tuple[str, ...], *, first: bool) -> isl.Map:
        key = (s.name, number, first)
        if key not in self._before:
            model, barrier = self.model, self.model.barriers[number]
            at, own = model.time(barrier, threads=False), model.time(s, threads=False)
            self._before[key] = (
                _constrained(model, own.lex_lt_map(at), s, barrier, team, [])
                if first
                else _constrained(model, at.lex_lt_map(own), barrier, s, team, [])
            )
        return self._before[key]


def team_of(s: PolyStatement | PolyBarrier) -> tuple[str, ...] | None:
    """The loops that the block of threads which runs a statement has in common, if there is one."""
    return team_dims(s.dims, s.kinds)


def _threads(a: PolyStatement, b: PolyStatement) -> list[tuple[Index, Index]]:
    """The coordinates of both statements' threads on each hardware axis (0 where no loop spreads over it)."""
    return [
        (a.threads.get(x, index(0)), b.threads.get(x, index(0)))
        for x in THREAD_AXES
        if x in a.threads or x in b.threads
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
    out = pairs
    for d in equal:
        out = out.equate(DIM.in_, a.dims.index(d), DIM.out, b.dims.index(d))
    result: isl.Map | None = None
    for x, y in differ:
        one, two = left.map_to("", [x]), right.map_to("", [y])
        unequal = one.lex_lt_map(two).union(one.lex_gt_map(two))
        part = out.intersect(unequal)
        result = part if result is None else result.union(part)
    return result if result is not None else out
