"""Loops whose iterations do not wait for each other, by exact dependences at fixed loops around.

Less than a parallel iterator (:mod:`tilewright.poly.kinds`), which is free wherever its loop stands: the
loops over space of a stencil are independent inside of the loop over time, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import islpy as isl

from tilewright.ir import LoopFunction
from tilewright.poly.budget import OPERATIONS, SECONDS, bounded, limited
from tilewright.poly.dependences import Dependence, Dependences
from tilewright.poly.extract import Model, extract_model
from tilewright.poly.kinds import accumulation
from tilewright.poly.spaces import DIM


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """Loops by what their iterations have to do with each other.

    ``free``: nothing. ``sums``: each adds to what the one before has left, as all do in one statement that
    no other depends on in between; partial sums may be added at the end.
    """

    free: frozenset[str]
    sums: frozenset[str]


def loop_facts(func: LoopFunction, *, operations: int = OPERATIONS, seconds: int = SECONDS) -> LoopFacts:
    """The loops of a function whose iterations may run at the same time, and those that only sum.

    Raises ProgramError for bounds that depend on data, ResourceError where isl needs more than
    ``operations`` or ``seconds`` of a processor.
    """
    what = f"the dependences of {func.name} are too many"
    return bounded(lambda: _facts(func), what, operations=operations, seconds=seconds)


def _facts(func: LoopFunction) -> LoopFacts:
    model = extract_model(func)
    statements = {s.name: s for s in model.statements}
    every = {name for s in model.statements for name in s.dims}
    carrying: set[str] = set()
    ordered: set[str] = set()
    for d in Dependences(model).among():
        same = d.relation
        source, sink = statements[d.source], statements[d.sink]
        for n, (a, b) in enumerate(zip(source.dims, sink.dims, strict=False)):
            if a != b:
                break
            equal = same.equate(DIM.in_, n, DIM.out, n)
            if a not in ordered and not same.is_subset(equal):
                carrying.add(a)
                if not only_sums(model, d, _at_fixed(n)):
                    ordered.add(a)
            same = equal
    return LoopFacts(frozenset(every - carrying), frozenset(carrying - ordered))


@limited("the accesses of {} are too many")
def meet_apart(model: Model, one: tuple[Collection[str], str], two: tuple[Collection[str], str]) -> bool:
    """Whether different iterations of two neighbouring loops touch one element, one of them writing.

    Each loop is the names of its blocks and its variable; loops around both are at equal values.
    """
    for s in model.statements:
        for t in model.statements:
            if s.block.name not in one[0] or t.block.name not in two[0]:
                continue
            n = s.dims.index(one[1])
            pairs = [(a, b) for a in s.writes for b in (*t.reads, *t.writes)]
            pairs += [(a, b) for a in s.reads for b in t.writes]
            for a, b in pairs:
                if a.buffer == b.buffer:
                    both = a.relation.apply_range(b.relation.reverse())
                    for k in range(n):
                        both = both.equate(DIM.in_, k, DIM.out, k)
                    if not both.is_subset(both.equate(DIM.in_, n, DIM.out, n)):
                        return True
    return False


def _at_fixed(count: int) -> Callable[[isl.Map], isl.Map]:
    """Pairs of instances of one statement: equal in the outer ``count`` loops, not in the next."""

    def restrict(m: isl.Map) -> isl.Map:
        for n in range(count):
            m = m.equate(DIM.in_, n, DIM.out, n)
        return m.subtract(m.equate(DIM.in_, count, DIM.out, count))

    return restrict


def only_sums(model: Model, d: Dependence, restrict: Callable[[isl.Map], isl.Map]) -> bool:
    """Whether a dependence, where ``restrict`` leaves it, is one of an accumulation upon itself alone."""
    s = model.statement(d.source)
    own = accumulation(s) if d.source == d.sink else None
    if own is None or d.buffer != own.write.buffer:
        return False
    write = own.write.relation
    if not restrict(d.relation).is_subset(write.apply_range(write.reverse())):
        return False
    # operands in the same array are other elements than those that are summed up
    return all(
        restrict(r.relation.apply_range(write.reverse())).is_empty()
        and restrict(write.apply_range(r.relation.reverse())).is_empty()
        for r in own.others
    )
