"""Renaming to single assignment: which statement, or argument, gives each value that a nest reads.

Exact value-based dataflow (Feautrier, 1991) says which instance defined each value. Every statement gets an
array of its own over its parallel loops; accumulations along the other loops are sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import islpy as isl

from tilewright.ir import (
    ZERO,
    Access,
    Binary,
    Buffer,
    Expr,
    Index,
    Iter,
    IterKind,
    Load,
    LoopFunction,
    Stmt,
    Store,
    copy_nest,
    evaluate_index,
    fresh_name,
    index,
    int_range,
    seq,
    substitute_expr,
    substitute_index,
    var,
)
from tilewright.poly.dependences import Sources, sources
from tilewright.poly.extract import Model, PolyStatement, extract_model
from tilewright.poly.kinds import accumulation
from tilewright.poly.spaces import DIM, aff_index, maps_of
from tilewright.support import ScheduleError, quoted

MAX_MEMORY: Final = 8
"""Renamed arrays may take so many times the memory of the nest's arguments."""
SMALL: Final = 1 << 24
"""Renamed arrays of fewer bytes are never too large."""

Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a read gets its value for some instances of the reader (``where``; ``None``: all others).

    ``definition`` is the defining statement, ``None`` for contents on entry; ``at`` its parallel
    coordinates, or the element, over the reader's loops.
    """

    where: isl.Set | None
    definition: str | None
    at: tuple[Index, ...]


@dataclass(slots=True)
class Definition:
    """A statement and the array that it gets: ``box`` are the bounds of its loops, ``par`` those that remain.

    ``everywhere`` says that a sum is read at all points of its box, also those that have no instances: what
    it is there is what it starts from.
    """

    s: PolyStatement
    box: dict[str, Bounds]
    par: tuple[str, ...]
    red: tuple[str, ...]
    op: str = ""
    everywhere: bool = False
    reads: dict[Load, list[Piece]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The statement's name, and that of its array."""
        return self.s.name

    @property
    def write(self) -> Access:
        """What it stores."""
        assert isinstance(self.s.node, Store)
        return self.s.node.writes[0]

    @property
    def own(self) -> Load:
        """The element that it writes, as a load."""
        w = self.write
        return Load(w.buffer, w.indices, w.value.dtype)

    def zero_based(self, e: Expr) -> Expr:
        """An expression over its loops, over loops that start at zero."""
        return substitute_expr(e, {d: var(d) + lo for d, (lo, _) in self.box.items() if lo})

    def iters(self, names: Sequence[str], kind: IterKind) -> tuple[Iter, ...]:
        """Iterators from zero for some of its loops."""
        extents = {d: hi - lo for d, (lo, hi) in self.box.items()}
        return tuple(Iter(d, ZERO, index(extents[d]), kind) for d in names)

    @property
    def shape(self) -> tuple[Index, ...]:
        """The shape of its array."""
        return tuple(index(self.box[d][1] - self.box[d][0]) for d in self.par)


@dataclass(frozen=True, slots=True)
class Renamed:
    """A nest with a copy of each output at its end, and where every value comes from.

    ``results`` maps the copies' buffers to outputs; ``definitions`` stand in an order in which each is there
    before it is read.
    """

    func: LoopFunction
    model: Model
    results: Mapping[str, str]
    definitions: tuple[Definition, ...]

    def refused(self, s: PolyStatement, why: str) -> ScheduleError:
        """The error that says why a statement cannot be renamed."""
        return _refused(self.func, s, why)


def rename(func: LoopFunction) -> Renamed:
    """Where all values of a nest of fixed sizes come from.

    Raises ScheduleError, naming the statement, where a value depends on its own statement, other than by
    accumulating, or arrays would grow too much.
    """
    whole, results = _with_copies(func)
    return _Renamer(func, whole, results).renamed()


def _refused(func: LoopFunction, s: PolyStatement, why: str) -> ScheduleError:
    return ScheduleError(f"statement {s.name} of {func.name} cannot be renamed: {why}")


def _with_copies(func: LoopFunction) -> tuple[LoopFunction, dict[str, str]]:
    """The function with a copy of each output at its end: what these read are the results."""
    taken: set[str] = {*func.body.names, *(b.name for b in (*func.buffers, *func.body.allocated))}
    copies: list[Stmt] = []
    made: list[Buffer] = []
    results: dict[str, str] = {}
    for name in func.outputs:
        out = fresh_name(f"{name}_out", taken)
        taken.add(out)
        made.append(func.buffer(name).with_(name=out))
        copies.append(copy_nest(name, made[-1], taken, "ord"))
        results[out] = name
    body = seq(func.body, *copies)
    buffers, outputs = (*func.buffers, *made), (*func.outputs, *results)
    return replace(func, buffers=buffers, outputs=outputs, body=body), results


class _Renamer:
    def __init__(self, func: LoopFunction, whole: LoopFunction, results: Mapping[str, str]) -> None:
        self.func = func
        self.results = results
        self.model: Model = extract_model(whole)
        self.found: dict[str, Definition] = {}
        self.steps: dict[str, isl.Map] = {}  # of accumulations: from each instance to the next one

    def renamed(self) -> Renamed:
        flows: dict[tuple[str, int], Sources] = {}
        for s in self.model.statements:
            self._plain(s)
            for slot in range(len(s.reads)):
                flows[s.name, slot] = sources(self.model, s, slot)
                # a read that may not happen (in a choice) is no matter, an element that is not known is
                if not s.reads[slot].relation.is_single_valued():
                    raise self._refused(s, f"what it reads of {quoted(s.reads[slot].buffer)} depends on data")
        for s in self.model.statements:
            self.found[s.name] = self._definition(s, flows)
        order = [self.found[name] for name in self._order(flows)]
        for d in order:
            for slot, r in enumerate(d.s.reads):
                assert r.load is not None
                pieces = self._pieces(d, flows[d.name, slot], r.load == d.own and bool(d.red))
                known = d.reads.setdefault(r.load, [])
                known += [p for p in pieces if p not in known]
        for d in order:
            for load, pieces in d.reads.items():
                d.reads[load] = self._merged(d, pieces)
        self._memory()
        return Renamed(self.func, self.model, self.results, tuple(order))

    def _refused(self, s: PolyStatement, why: str) -> ScheduleError:
        return _refused(self.func, s, why)

    def _plain(self, s: PolyStatement) -> None:
        plain = (
            isinstance(s.node, Store)
            and len(s.node.writes) == 1
            and s.part == "body"
            and s.exact
            and s.coord_names == s.dims
            and all(c == var(d) for c, d in zip(s.coords, s.dims, strict=True))
            and s.writes[0].exact
        )
        if not plain:
            raise self._refused(s, "it is no plain assignment")

    def _definition(self, s: PolyStatement, flows: Mapping[tuple[str, int], Sources]) -> Definition:
        box: dict[str, Bounds] = {}
        for n, d in enumerate(s.dims):
            if s.domain.is_empty():
                box[d] = (0, 0)
                continue
            low, high = s.domain.dim_min_val(n), s.domain.dim_max_val(n)
            box[d] = (low.to_python(), high.to_python() + 1)
        out = Definition(s, box, s.dims, ())
        out.par = _as_met(s.dims, out.write.indices)
        own = accumulation(s)
        slot = next((k for k, r in enumerate(s.reads) if r.load == out.own), None)
        if own is None or slot is None:
            return out
        step = next(
            (m for m in maps_of(flows[s.name, slot].writers) if m.get_tuple_name(DIM.in_) == s.name), None
        )
        if step is None or step.is_empty():
            return out
        distance = step.deltas()
        changed = [
            not (distance.dim_min_val(n).is_zero() and distance.dim_max_val(n).is_zero())
            for n in range(len(s.dims))
        ]
        red = {d for d, c in zip(s.dims, changed, strict=True) if c}
        par = tuple(d for d in out.par if d not in red)
        moving = frozenset[str]().union(*(i.vars for i in out.write.indices))
        if moving & red:
            raise self._refused(s, "it accumulates into elements that its own loops move along")
        # one chain for all instances that share their parallel coordinates: it starts once
        starts = s.domain.subtract(step.range())
        if not self._once(starts, changed):
            raise self._refused(s, "its accumulation starts anew between other statements")
        assert isinstance(out.write.value, Binary)
        self.steps[s.name] = step
        read = [i for r in s.reads if r.load is not None for i in r.load.indices]
        out.par, out.red, out.op = par, _as_met([d for d in s.dims if d in red], read), out.write.value.op
        return out

    def _once(self, starts: isl.Set, changed: Sequence[bool]) -> bool:
        """Whether no two points differ only where ``changed``."""
        identity = starts.identity()
        for n in reversed(range(len(changed))):
            if changed[n]:
                identity = identity.project_out(DIM.in_, n, 1)
        return bool(identity.is_single_valued())

    def _order(self, flows: Mapping[tuple[str, int], Sources]) -> list[str]:
        """Definitions before what reads them, else as written; refuses values that depend on themselves."""
        before: dict[str, set[str]] = {s.name: set() for s in self.model.statements}
        for s in self.model.statements:
            for slot, r in enumerate(s.reads):
                own = r.load == self.found[s.name].own and bool(self.found[s.name].red)
                for m in maps_of(flows[s.name, slot].writers):
                    writer = str(m.get_tuple_name(DIM.in_))
                    if not (own and writer == s.name) and not m.is_empty():
                        before[s.name].add(writer)
        out: list[str] = []
        left = [s.name for s in self.model.statements]
        while left:
            ready = next((n for n in left if before[n] <= set(out)), None)
            if ready is None:
                s = self.model.statement(left[0])
                raise self._refused(s, "its values depend on those of other instances of it")
            out.append(ready)
            left.remove(ready)
        return out

    # -- reads -----------------------------------------------------------------------------------------------

    def _pieces(self, d: Definition, found: Sources, own: bool) -> list[Piece]:
        out: list[Piece] = []
        for m in maps_of(found.writers):
            writer = str(m.get_tuple_name(DIM.in_))
            if m.is_empty() or (own and writer == d.name):
                continue
            t = self.found[writer]
            if writer in self.steps:
                late = t.s.domain.subtract(self.steps[writer].domain())
                if not m.domain().is_subset(late):
                    raise self._refused(d.s, f"it reads a sum of {writer} before it is complete")
            out += self._single(d, m.reverse(), writer, [t.s.dims.index(x) for x in t.red], own)
        for m in maps_of(found.initial):
            if m.is_empty():
                continue
            buffer = str(m.get_tuple_name(DIM.out))
            if all(b.name != buffer for b in self.func.buffers) or (
                buffer in self.func.outputs and buffer not in self.func.inouts
            ):
                raise self._refused(d.s, f"it reads {quoted(buffer)} before anything is written there")
            out += self._single(d, m, None, (), own)
        return out

    def _single(
        self, d: Definition, m: isl.Map, definition: str | None, dropped: Iterable[int], own: bool
    ) -> list[Piece]:
        """A map from reader instances to single points as pieces."""
        for n in sorted(dropped, reverse=True):
            m = m.project_out(DIM.out, n, 1)
        if own:
            # what an accumulation starts from belongs to all instances on its element
            for x in d.red:
                m = m.eliminate(DIM.in_, d.s.dims.index(x), 1)
        assert m.is_single_valued()  # a sum starts once, and what it reads before that is one element
        context = self._covered(d, own)
        out: list[Piece] = []
        for where, values in _affine_pieces(m.coalesce()):
            at = [index_over(self.func, d.s, values.get_at(n)) for n in range(values.dim(DIM.out))]
            if definition is not None:
                t = self.found[definition]
                kept = [x for x in t.s.dims if x not in t.red]
                at = [at[kept.index(x)] for x in t.par]
            rest = where.gist(context).coalesce()
            out.append(Piece(None if rest.plain_is_universe() else rest, definition, tuple(at)))
        return out

    def _covered(self, d: Definition, own: bool) -> isl.Set:
        domain = d.s.domain
        if own:
            for x in d.red:
                domain = domain.eliminate(DIM.set, d.s.dims.index(x), 1)
        return domain

    def _merged(self, d: Definition, pieces: list[Piece]) -> list[Piece]:
        """Pieces with those left out that an empty sum gives as well."""
        sums = [p for p in pieces if p.definition in self.steps]
        if len(sums) != 1 or len(pieces) < 2:
            return pieces
        (total,) = sums
        t = self.found[total.definition or ""]
        start = t.reads[t.own]
        if len(start) != 1 or start[0].where is not None:
            return pieces
        mapping = dict(zip(t.par, total.at, strict=True))
        first = tuple(substitute_index(x, mapping) for x in start[0].at)
        if any((p.definition, p.at) != (start[0].definition, first) for p in pieces if p is not total):
            return pieces
        for x, at in zip(t.par, total.at, strict=True):
            low, high = range_of(at, d.box)
            lo, hi = t.box[x]
            t.box[x] = min(low, lo), max(high, hi)
        t.everywhere = True
        return [replace(total, where=None)]

    def _memory(self) -> None:
        given = sum(_bytes(b.shape, b) for b in self.func.buffers)
        made = 0
        for d in self.found.values():
            made += _bytes(d.shape, self.model.buffers[d.write.buffer])
        if made > max(SMALL, MAX_MEMORY * given):
            raise ScheduleError(
                f"the nest {quoted(self.func.name)} cannot be renamed: its arrays would take {made} bytes"
            )


def _as_met(dims: Sequence[str], indices: Iterable[Index]) -> tuple[str, ...]:
    """Loops in the order in which indices move along them: the order that a nest has makes no difference.

    Loops that none does stand in front.
    """
    met = tuple(dict.fromkeys(x for i in indices for x in sorted(i.vars) if x in dims))
    return (*(d for d in dims if d not in met), *met)


def index_over(func: LoopFunction, s: PolyStatement, of: isl.Aff) -> Index:
    """An affine function of isl as an index over a statement's loops; raises ScheduleError if it is none."""
    found = aff_index(of, s.dims, ())
    if found is None:
        raise _refused(func, s, f"{of} is no index over its loops")
    return found


def _affine_pieces(m: isl.Map) -> list[tuple[isl.Set, isl.MultiAff]]:
    out: list[tuple[isl.Set, isl.MultiAff]] = []
    isl.PwMultiAff.from_map(m).foreach_piece(lambda where, values: out.append((where, values)))
    return out


def range_of(x: Index, box: Mapping[str, Bounds]) -> Bounds:
    """The least value of an index in a box, and one more than the largest."""
    low, high = int_range(x, {d: (index(lo), index(hi - 1)) for d, (lo, hi) in box.items()})
    assert low is not None and high is not None
    return low, high + 1


def _bytes(shape: Sequence[Index], b: Buffer) -> int:
    count = 1
    for n in shape:
        count *= evaluate_index(n, {})
    return count * b.dtype.bytes
