"""Barriers between the threads of a block: where they must stand, found from dependences.

Two statements conflict where different threads of one block touch one element in them, one writing. The
pairs of instances that do are exact relations (:mod:`tilewright.poly`), and so are the pairs that a
barrier at a given place stands between. What is inserted covers all conflicts and nothing less does:
without any one of the barriers some conflict is open.

A place is where all threads of a block come: no loop or condition around it depends on the thread, and
loops over threads around it have one iteration for each thread of their axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from tilewright import poly
from tilewright.ir import (
    GLOBAL,
    NOTHING,
    PRIVATE,
    SHARED,
    Alloc,
    Barrier,
    Block,
    Exec,
    For,
    If,
    Located,
    LoopFunction,
    Pred,
    Seq,
    Stmt,
    Sync,
    Team,
    Teams,
    buffers_of,
    is_thread,
    locate,
    map_stmt,
    print_function,
    replace_at,
    seq,
    simplify_seqs,
    stmt_children,
    stmt_loads,
    stmt_writes,
    walk_index,
    with_stmt_children,
)
from tilewright.lower.warp_reads import with_reads_of_warps
from tilewright.support import ScheduleError

if TYPE_CHECKING:
    import islpy as isl

#: What an iteration more of depth costs, in barriers further out.
COST_OF_DEPTH = 4


def insert_barriers(func: LoopFunction) -> LoopFunction:
    """Place barriers so that no two threads of a block touch one element at once, one of them writing.

    Functions without loops over threads stay as they are, and barriers that are there stay. A barrier has
    scope ``global`` where it orders accesses to other than shared memory.

    Raises ScheduleError where threads conflict and no place between them is reached by all, ResourceError
    where isl needs too long to tell.
    """
    if not func.body.has_threads:
        return func
    for place in locate(func.body, Teams):
        # each team's own: what different teams do is ordered by channels, or not at all
        bodies = [_alone(func, place, team) for team in place.node.teams]
        made = [replace(t, body=b) for t, b in zip(place.node.teams, bodies, strict=True)]
        return func.with_body(replace_at(func.body, place.path, replace(place.node, teams=tuple(made))))
    for inside in (False, True):
        places = _Places(func, inside)
        body = places.visit(func.body, _At())
        candidates = with_reads_of_warps(func.with_body(map_stmt(body, _unsaid)))
        chosen, left = poly.bounded(
            partial(_of_function, candidates, places),
            f"the conflicts between threads of {func.name} are too many",
            "make it of several functions, or give each thread elements of its own",
        )
        if left is None:
            given = frozenset(n for n, depth in enumerate(places.depths) if depth < 0)
            return func.with_body(_kept(body, chosen, given)) if chosen else func
    assert left is not None
    a, b = left.first.block.name, left.second.block.name
    both = repr(a) if a == b else f"{a!r} and {b!r}"
    raise ScheduleError(
        f"threads of one block touch the same elements of {left.buffer!r} in {both}; no barrier orders them",
        hint="give each thread elements of its own, or put the blocks into loops over threads of their own",
        program=print_function(func),
    )


def _alone(func: LoopFunction, place: Located[Teams], team: Team) -> Stmt:
    """The body of a team with its barriers."""
    made = insert_barriers(func.with_body(replace_at(func.body, place.path, team.body))).body
    for n in place.path:
        made = stmt_children(made)[n]
    return made


def _unsaid(s: Stmt) -> Stmt:
    """Nothing in place of what is said to a channel, which orders other teams' accesses."""
    return NOTHING if isinstance(s, Sync) else s


@dataclass(frozen=True, slots=True)
class _At:
    """Where in the tree: whether all threads of a block come here, how many loops are around, which vary."""

    uniform: bool = True
    depth: int = 0
    inside: bool = False
    varying: frozenset[str] = frozenset()

    def same_for_all(self, vars: frozenset[str]) -> bool:
        """Whether an expression of these variables has one value for all threads."""
        return not vars & self.varying


@dataclass(slots=True)
class _Places:
    """Puts a barrier in every place that may have one; ``inside`` of loops over threads too."""

    func: LoopFunction
    inside: bool
    #: By the order in which they stand in the function: the depth of each barrier, -1 of those that were
    #: there.
    depths: list[int] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)
    private: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        counts: dict[str, int] = {}
        for p in locate(self.func.body, For):
            if is_thread(p.node.kind):
                counts[p.node.kind.axis] = max(counts.get(p.node.kind.axis, 0), _iterations(p.node) or 0)
        self.counts = counts
        self.private = frozenset(b.name for b in buffers_of(self.func).values() if b.scope in PRIVATE)

    def _carries(self, loop: For) -> bool:
        """Whether a loop reads what it writes, of buffers that threads share: its iterations may conflict."""
        read = {ld.buffer for ld in stmt_loads(loop.body)}
        read |= {w.buffer for s in _executions(loop.body) for w in s.windows if w.mode != "w"}
        return any(name in read and name not in self.private for name, _ in stmt_writes(loop.body))

    def barrier(self, at: _At) -> Iterator[Stmt]:
        """A candidate, where there may be one."""
        if at.uniform and (self.inside or not at.inside):
            self.depths.append(at.depth)
            yield Barrier(SHARED)

    def visit(self, s: Stmt, at: _At) -> Stmt:
        """The statement with candidates in it."""
        match s:
            case Barrier():
                self.depths.append(-1)
                return s
            case Seq():
                out: list[Stmt] = []
                for n, k in enumerate(s.stmts):
                    if n:
                        out.extend(self.barrier(at))
                    out.append(self.visit(k, at))
                return Seq(tuple(out))
            case For() if s.kind.name == "thread" and not is_thread(s.kind):
                return replace(s, body=self.visit(s.body, at))
            case For() if is_thread(s.kind):
                full = _iterations(s) == self.counts[s.kind.axis]
                inner = replace(at, uniform=at.uniform and full, inside=True, varying=at.varying | {s.var})
                return replace(s, body=self.visit(s.body, inner))
            case For():
                uniform = s.kind.name in ("serial", "unroll") and at.same_for_all(s.lo.vars | s.hi.vars)
                inner = replace(at, uniform=at.uniform and uniform and not _loads(s), depth=at.depth + 1)
                if not self.inside and not self._carries(s):
                    # what orders its iterations' accesses and others' stands before it or after it
                    return s
                return replace(
                    s,
                    body=seq(*self.barrier(inner), self.visit(s.body, inner), *self.barrier(inner)),
                )
            case If():
                same = all(c.index is not None and at.same_for_all(c.vars) for c in s.cond)
                inner = replace(at, uniform=at.uniform and same and not _data(s.cond))
                kids = tuple(self.visit(k, inner) for k in stmt_children(s))
                return with_stmt_children(s, kids)
            case Alloc():
                return Alloc(s.buffer, self.visit(s.body, at))
            case _:
                return s


def _executions(s: Stmt) -> Iterator[Exec]:
    """The instructions in a statement, those of blocks as well."""
    if isinstance(s, Exec):
        yield s
    for k in (s.body,) if isinstance(s, Block) else stmt_children(s):
        yield from _executions(k)


def _iterations(loop: For) -> int | None:
    extent = loop.extent
    return -(-extent.const // loop.step) if extent.is_const else None


def _loads(loop: For) -> bool:
    return any(True for x in (loop.lo, loop.hi) for _ in walk_index(x))


def _data(cond: Pred) -> bool:
    return any(c.index is None or any(True for _ in walk_index(c.index)) for c in cond)


@dataclass(slots=True)
class _Conflict:
    """A race that barriers must resolve: the pairs of instances still open, and what each barrier parts."""

    race: poly.SymbolicRace
    pairs: isl.Map
    parted: dict[int, isl.Map]

    def left(self, chosen: set[int]) -> isl.Map:
        """Pairs that stay open with these barriers."""
        out = self.pairs
        for n in sorted(chosen & self.parted.keys()):
            if out.is_empty():
                break
            out = out.subtract(self.parted[n])
        return out


def _of_function(func: LoopFunction, places: _Places) -> tuple[dict[int, str], poly.SymbolicRace | None]:
    return _choose(poly.extract_model(func), places)


def _choose(model: poly.Model, places: _Places) -> tuple[dict[int, str], poly.SymbolicRace | None]:
    """Barriers, by their order in the function, with their scopes; and a race that none resolves."""
    races = poly.thread_conflicts(model)
    if not places.inside:
        races = tuple(poly.outside_of_threads(model, race) for race in races)
    if not races:
        return {}, None
    given = [n for n, depth in enumerate(places.depths) if depth < 0]
    conflicts: list[_Conflict] = []
    partings = poly.Partings(model)
    for race in races:
        pairs = race.pairs
        for n in given:
            pairs = pairs.subtract(partings.parted(race, n))
        if pairs.is_empty():
            continue
        found: dict[int, isl.Map] = {}
        for n, depth in enumerate(places.depths):
            if depth >= 0:
                parts = partings.parted(race, n).intersect(pairs)
                if not parts.is_empty():
                    found[n] = parts
        conflicts.append(_Conflict(race, pairs, found))
    cost = {n: COST_OF_DEPTH**depth for n, depth in enumerate(places.depths) if depth >= 0}
    chosen: set[int] = set()
    todo = conflicts
    while todo:
        useful = sorted({n for c in todo for n in c.parted if n not in chosen})
        if not useful:
            return {}, todo[0].race
        value = {n: sum(c.left(chosen | {n}).is_empty() for c in todo if n in c.parted) for n in useful}
        if any(value.values()):
            chosen.add(max(useful, key=lambda n: (value[n] / cost[n], -n)))
        else:
            # no one resolves a conflict alone: take one that helps with the first
            able = [n for n in useful if n in todo[0].parted]
            if not able:
                return {}, todo[0].race
            chosen.add(min(able, key=lambda n: (cost[n], n)))
        todo = [c for c in todo if not c.left(chosen).is_empty()]
    for n in sorted(chosen, key=lambda n: (-cost[n], n)):
        if all(c.left(chosen - {n}).is_empty() for c in conflicts if n in c.parted):
            chosen.remove(n)
    scopes = dict.fromkeys(sorted(chosen), SHARED)
    for c in conflicts:
        if model.buffers[c.race.buffer].scope != SHARED:
            scopes.update(dict.fromkeys(chosen & c.parted.keys(), GLOBAL))
    return scopes, None


def _kept(body: Stmt, chosen: Mapping[int, str], given: frozenset[int]) -> Stmt:
    """The tree with the chosen candidates, and the barriers that were there."""
    number = -1

    def visit(s: Stmt) -> Stmt:
        nonlocal number
        if isinstance(s, Barrier):
            number += 1
            if number in given:
                return s
            return Barrier(chosen[number]) if number in chosen else NOTHING
        return with_stmt_children(s, tuple([visit(k) for k in stmt_children(s)]))

    return simplify_seqs(visit(body))
