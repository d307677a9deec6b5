"""Kinds of iterators, found by exact dependences: which of a nest's loops are parallel, reducing or ordered.

An iterator of a statement S is parallel (``par``) where no chain of dependences, through whatever
statements, leads from one instance of S to another with a different value of it. It reduces (``red``) where
that holds once the accumulation of S itself is left out of account: its instances may then run in any order,
one at a time. All others stay ordered (``ord``). Chains are paths of dependences between statements that lie
on a cycle: their transitive closure is over-approximated by isl, which errs on the side of ``ord``; a budget
bounds it. :func:`check_kinds` of ``kinds_judge.py`` judges kinds by listed instances.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import islpy as isl

from tilewright.analysis import update_of
from tilewright.ir import Block, Iter, IterKind, LoopFunction, Store, loads, map_blocks
from tilewright.poly.budget import bounded
from tilewright.poly.dependences import Dependences
from tilewright.poly.extract import PolyAccess, PolyStatement, extract_model
from tilewright.poly.spaces import maps_of, union_map
from tilewright.support import ResourceError

CLOSURE_OPERATIONS: Final = 50_000
"""Limit on isl's operations of one transitive closure (about a second)."""

_ACCUMULATE: Final = ("add", "mul", "min", "max")


def infer_kinds(func: LoopFunction, *, operations: int = CLOSURE_OPERATIONS) -> LoopFunction:
    """The function with the kinds that dependences allow, for blocks whose iterators all run in order.

    Blocks with bodies of their own, and stages of several blocks, stay as they are. Raises ProgramError for
    bounds that depend on data, ResourceError where isl needs too long for the dependences.
    """
    what = f"the dependences of {func.name} are too many"
    return bounded(lambda: _inferred(func, operations), what)


def _inferred(func: LoopFunction, operations: int) -> LoopFunction:
    model = extract_model(func)
    chains = _Chains(Dependences(model), operations)
    found: dict[str, tuple[IterKind, ...]] = {}
    for s in model.statements:
        alone = [t for t in model.statements if t.stage == s.stage] == [s]
        if alone and s.part == "body" and all(k == "ord" for k in s.coord_kinds) and s.coord_kinds:
            found[s.block.name] = _kinds(chains, s)

    def visit(b: Block) -> Block:
        kinds = found.get(b.name)
        if kinds is None:
            return b
        iters: Iterable[Iter] = (replace(it, kind=k) for it, k in zip(b.iters, kinds, strict=True))
        return replace(b, iters=tuple(iters))

    return func.with_body(map_blocks(func.body, visit))


def _kinds(chains: _Chains, s: PolyStatement) -> tuple[IterKind, ...]:
    free = chains.constant(s, None)
    out: list[IterKind] = ["par" if f else "ord" for f in free]
    if not all(free):
        accumulated = accumulation(s)
        if accumulated is not None:
            without = chains.constant(s, accumulated)
            out = [k if k == "par" or not f else "red" for k, f in zip(out, without, strict=True)]
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Accumulation:
    """What a statement accumulates into, and its loads of the same buffer that are operands."""

    write: PolyAccess
    others: tuple[PolyAccess, ...]


def accumulation(s: PolyStatement) -> Accumulation | None:
    """Whether a statement is ``x = x op e`` with an ``op`` that may be reordered; ``x`` occurs once."""
    if not isinstance(s.node, Store) or len(s.node.writes) != 1 or not s.writes[0].exact:
        return None
    update = update_of(s.node.writes[0])
    if update is None or update.op not in (*_ACCUMULATE, *(("sub",) if update.first else ())):
        return None
    same = [r for r in s.reads if r.buffer == s.writes[0].buffer]
    mine = [r for r in same if r.load == update.old]
    if len(mine) != 1 or update.old in loads(update.term):
        return None
    return Accumulation(s.writes[0], tuple(r for r in same if r is not mine[0]))


class _Chains:
    """Paths of dependences that lead from a statement back to it."""

    def __init__(self, dependences: Dependences, operations: int) -> None:
        self.model = dependences.model
        self.operations = operations
        self._closures: dict[tuple[str | None, frozenset[str]], isl.UnionMap | None] = {}
        self.edges = [(d.source, d.sink, d.buffer, d.relation) for d in dependences.among()]

    def constant(self, s: PolyStatement, accumulated: Accumulation | None) -> tuple[bool, ...]:
        """Per iterator whether no chain from S to S changes it; ``accumulated`` is left out of account."""
        edges = self.edges if accumulated is None else self._without(s, accumulated)
        cycle = _component({(a, b) for a, b, _, _ in edges}, s.name)
        inside = [m for a, b, _, m in edges if a in cycle and b in cycle]
        if not inside:
            return (True,) * len(s.coords)
        direct = self._changed(s, union_map(m for a, b, _, m in edges if a == b == s.name))
        if len(cycle) > 1 and not all(direct):
            # chains of two steps are cheap, and often tell all there is
            out = union_map(m for a, b, _, m in edges if a == s.name != b and b in cycle)
            back = union_map(m for a, b, _, m in edges if b == s.name != a and a in cycle)
            twice = self._changed(s, out.apply_range(back))
            direct = tuple(a or b for a, b in zip(direct, twice, strict=True))
        if all(direct) or (len(cycle) == 1 and not any(direct)):
            return tuple(not changed for changed in direct)
        closure = self._closure(None if accumulated is None else s.name, cycle, inside)
        if closure is None:
            return (False,) * len(s.coords)
        own = s.domain.to_union_set()
        changed = self._changed(s, closure.intersect_domain(own).intersect_range(own))
        return tuple(not c for c in changed)

    def _closure(
        self, without: str | None, cycle: frozenset[str], edges: list[isl.Map]
    ) -> isl.UnionMap | None:
        """All paths inside of a cycle; ``None`` where they cost too much."""
        key = without, cycle
        if key not in self._closures:
            try:
                self._closures[key] = bounded(
                    lambda: union_map(edges).coalesce().transitive_closure()[0],
                    "the chains of dependences",
                    operations=self.operations,
                )
            except ResourceError:
                self._closures[key] = None
        return self._closures[key]

    def _changed(self, s: PolyStatement, chains: isl.UnionMap) -> tuple[bool, ...]:
        """Per iterator whether it differs between the two ends of some pair."""
        out = [False] * len(s.coords)
        where = self.model.space(s).map_to("", s.coords).to_union_map()
        for m in maps_of(chains.apply_domain(where).apply_range(where)):
            distance = m.deltas()
            for n in range(len(out)):
                if not distance.is_empty() and not out[n]:
                    low, high = distance.dim_min_val(n), distance.dim_max_val(n)
                    out[n] = not (low.is_zero() and high.is_zero())
        return tuple(out)

    def _without(self, s: PolyStatement, a: Accumulation) -> list[tuple[str, str, str, isl.Map]]:
        """The dependences without those of the accumulation itself.

        Its instances on one element then stand for each other: what waits for one waits for all.
        """
        write = a.write.relation
        same = write.apply_range(write.reverse())
        out: list[tuple[str, str, str, isl.Map]] = []
        for source, sink, buffer, m in self.edges:
            if source == sink == s.name and buffer == a.write.buffer:
                continue
            if buffer == a.write.buffer and source == s.name:
                m = same.apply_range(m)
            if buffer == a.write.buffer and sink == s.name:
                m = m.apply_range(same)
            out.append((source, sink, buffer, m))
        time = self.model.time(s)
        before = time.lex_lt_map(time)
        for r in a.others:
            meets = r.relation.apply_range(write.reverse())
            meets = meets.union(meets.reverse()).intersect(before)
            if not meets.is_empty():
                out.append((s.name, s.name, a.write.buffer, meets))
        return out


def _component(edges: set[tuple[str, str]], name: str) -> frozenset[str]:
    """The statements on cycles through ``name``, itself included."""
    return _reached(edges, name) & _reached({(b, a) for a, b in edges}, name)


def _reached(edges: set[tuple[str, str]], name: str) -> frozenset[str]:
    out, new = {name}, [name]
    while new:
        at = new.pop()
        for a, b in edges:
            if a == at and b not in out:
                out.add(b)
                new.append(b)
    return frozenset(out)
