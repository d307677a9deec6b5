"""Lifting: nests whose arrays can be renamed to single assignment become stages of a program.

Exact value-based dataflow (Feautrier, 1991) says which instance defined each value that a nest reads. Every
statement gets an array of its own over its parallel loops, reads load from the arrays of their definitions,
and accumulations become reductions: what was order by reuse of memory is gone, and schedules of programs
apply. Statements whose values depend on themselves, other than by accumulating, are refused: time loops,
factorisations, recurrences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import islpy as isl

from tilewright.ir import (
    I64,
    ZERO,
    Access,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    Expr,
    For,
    Index,
    Iter,
    Load,
    LoopFunction,
    OfIndex,
    Program,
    Select,
    Stage,
    Stmt,
    Store,
    Unary,
    evaluate_index,
    fresh_name,
    index,
    int_range,
    loads,
    map_expr,
    seq,
    substitute_expr,
    var,
)
from tilewright.poly.budget import OPERATIONS, budget
from tilewright.poly.dependences import Sources, sources
from tilewright.poly.extract import Model, PolyStatement, extract_model
from tilewright.poly.kinds import accumulation
from tilewright.poly.spaces import CONTEXT, DIM, aff_index, maps_of
from tilewright.support import ScheduleError, quoted

MAX_MEMORY: Final = 8
"""Renamed arrays may take so many times the memory of the nest's arguments."""
_SMALL: Final = 1 << 24
"""Renamed arrays of fewer bytes are never too large."""

Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Lifted:
    """A nest as a program; ``results`` maps outputs of the program to the arguments that they replace."""

    program: Program
    results: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Where a read gets its value for some instances of the reader (``where``; ``None``: all others).

    ``definition`` is the defining statement, ``None`` for contents on entry; ``at`` its parallel
    coordinates, or the element, over the reader's loops.
    """

    where: isl.Set | None
    definition: str | None
    at: tuple[Index, ...]


@dataclass(slots=True)
class _Definition:
    """A statement and the array that it gets: ``box`` are the bounds of its loops, ``par`` those that remain.

    ``grown`` says that the box of the parallel loops reaches beyond instances that there are.
    """

    s: PolyStatement
    box: dict[str, Bounds]
    par: tuple[str, ...]
    red: tuple[str, ...]
    op: str = ""
    grown: bool = False
    reads: dict[Load, list[_Piece]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.s.name

    @property
    def write(self) -> Access:
        assert isinstance(self.s.node, Store)
        return self.s.node.writes[0]

    @property
    def own(self) -> Load:
        """The element that it writes, as a load."""
        w = self.write
        return Load(w.buffer, w.indices, w.value.dtype)

    def zero_based(self, e: Expr) -> Expr:
        return substitute_expr(e, {d: var(d) + lo for d, (lo, _) in self.box.items() if lo})

    def iters(self, names: Sequence[str], kind: str) -> tuple[Iter, ...]:
        extents = {d: hi - lo for d, (lo, hi) in self.box.items()}
        return tuple(Iter(d, ZERO, index(extents[d]), kind) for d in names)  # type: ignore[arg-type]  # a kind

    @property
    def shape(self) -> tuple[Index, ...]:
        return tuple(index(self.box[d][1] - self.box[d][0]) for d in self.par)


def lift(func: LoopFunction, *, operations: int = OPERATIONS) -> Lifted:
    """The program that computes what a nest of fixed sizes does.

    Raises ScheduleError, naming the statement, where a value depends on its own statement or arrays would
    grow too much, ResourceError where isl needs more than ``operations``.
    """
    if func.params:
        raise ScheduleError(f"the nest {quoted(func.name)} has symbolic sizes", hint="settle them first")
    with budget(operations, f"the dataflow of {func.name} is too large", "keep the nest as it is"):
        return _Lifter(func).lifted()


def _with_copies(func: LoopFunction) -> tuple[LoopFunction, dict[str, str]]:
    """The function with a copy of each output at its end: what these read are the results."""
    taken: set[str] = {*func.body.names, *(b.name for b in (*func.buffers, *func.body.allocated))}
    copies: list[Stmt] = []
    made: list[Buffer] = []
    results: dict[str, str] = {}
    for name in func.outputs:
        b = func.buffer(name)
        out = fresh_name(f"{name}_out", taken)
        block = fresh_name(f"copy_{name}", taken | {out})
        dims = [fresh_name(f"{block}_{n}", taken) for n in range(len(b.shape))]
        taken |= {out, block, *dims}
        at = tuple(map(var, dims))
        iters = tuple(Iter(d, ZERO, n, "ord") for d, n in zip(dims, b.shape, strict=True))
        store = Store((Access(out, at, Load(name, at, b.dtype)),))
        copy: Stmt = Block(block, block, iters, at, store)
        for d, n in reversed(list(zip(dims, b.shape, strict=True))):
            copy = For(d, ZERO, n, copy)
        copies.append(copy)
        made.append(b.with_(name=out))
        results[out] = name
    body = seq(func.body, *copies)
    whole = replace(
        func, buffers=(*func.buffers, *made), outputs=(*func.outputs, *results), body=body, inouts=func.inouts
    )
    return whole, results


class _Lifter:
    def __init__(self, func: LoopFunction) -> None:
        self.func = func
        whole, self.results = _with_copies(func)
        self.model: Model = extract_model(whole)
        self.found: dict[str, _Definition] = {}
        self.steps: dict[str, isl.Map] = {}  # of accumulations: from each instance to the next one
        self.names: set[str] = {*whole.body.names, *self.model.buffers}
        self.buffers: dict[str, Buffer] = {}
        self.stages: list[Stage] = []
        self.values: dict[str, Expr] = {}  # of statements that need no array, over their loops

    # -- analysis --------------------------------------------------------------------------------------------

    def lifted(self) -> Lifted:
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
        order = self._order(flows)
        for name in order:
            d = self.found[name]
            for slot, r in enumerate(d.s.reads):
                assert r.load is not None
                pieces = self._pieces(d, flows[name, slot], r.load == d.own and bool(d.red))
                known = d.reads.setdefault(r.load, [])
                known += [p for p in pieces if p not in known]
        for name in order:
            for load, pieces in self.found[name].reads.items():
                self.found[name].reads[load] = self._merged(self.found[name], pieces)
        self._memory()
        for name in order:
            self._emit(self.found[name])
        return self._program()

    def _refused(self, s: PolyStatement, why: str) -> ScheduleError:
        return ScheduleError(f"statement {s.name} of {self.func.name} cannot be renamed: {why}")

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

    def _definition(self, s: PolyStatement, flows: Mapping[tuple[str, int], Sources]) -> _Definition:
        box: dict[str, Bounds] = {}
        for n, d in enumerate(s.dims):
            if s.domain.is_empty():
                box[d] = (0, 0)
                continue
            low, high = s.domain.dim_min_val(n), s.domain.dim_max_val(n)
            box[d] = (low.to_python(), high.to_python() + 1)
        out = _Definition(s, box, s.dims, ())
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
        red = tuple(d for d, c in zip(s.dims, changed, strict=True) if c)
        par = tuple(d for d in s.dims if d not in red)
        moving = frozenset[str]().union(*(i.vars for i in out.write.indices))
        if moving & set(red):
            raise self._refused(s, "it accumulates into elements that its own loops move along")
        # one chain for all instances that share their parallel coordinates: it starts once
        starts = s.domain.subtract(step.range())
        if not self._once(starts, changed):
            raise self._refused(s, "its accumulation starts anew between other statements")
        assert isinstance(out.write.value, Binary)
        self.steps[s.name] = step
        out.par, out.red, out.op = par, red, out.write.value.op
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

    def _pieces(self, d: _Definition, found: Sources, own: bool) -> list[_Piece]:
        out: list[_Piece] = []
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
        self, d: _Definition, m: isl.Map, definition: str | None, dropped: Iterable[int], own: bool
    ) -> list[_Piece]:
        """A map from reader instances to single points as pieces."""
        for n in sorted(dropped, reverse=True):
            m = m.project_out(DIM.out, n, 1)
        if own:
            # what an accumulation starts from belongs to all instances on its element
            for x in d.red:
                m = m.eliminate(DIM.in_, d.s.dims.index(x), 1)
        assert m.is_single_valued()  # a sum starts once, and what it reads before that is one element
        context = self._covered(d, own)
        out: list[_Piece] = []
        for where, values in _affine_pieces(m.coalesce()):
            at = [self._affine(d, values.get_at(n)) for n in range(values.dim(DIM.out))]
            rest = where.gist(context).coalesce()
            out.append(_Piece(None if rest.plain_is_universe() else rest, definition, tuple(at)))
        return out

    def _affine(self, d: _Definition, of: isl.Aff) -> Index:
        found = aff_index(of, d.s.dims, self.model.params)
        if found is None:
            raise self._refused(d.s, f"{of} is no index over its loops")
        return found

    def _covered(self, d: _Definition, own: bool) -> isl.Set:
        domain = d.s.domain
        if own:
            for x in d.red:
                domain = domain.eliminate(DIM.set, d.s.dims.index(x), 1)
        return domain

    def _merged(self, d: _Definition, pieces: list[_Piece]) -> list[_Piece]:
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
        first = tuple(_substituted(x, mapping) for x in start[0].at)
        if any((p.definition, p.at) != (start[0].definition, first) for p in pieces if p is not total):
            return pieces
        for x, at in zip(t.par, total.at, strict=True):
            low, high = _range(at, d.box)
            lo, hi = t.box[x]
            if (low, high) != (lo, hi):
                t.box[x] = min(low, lo), max(high, hi)
                t.grown = True
        return [replace(total, where=None)]

    def _memory(self) -> None:
        given = sum(_bytes(b.shape, b) for b in self.func.buffers)
        made = 0
        for d in self.found.values():
            made += _bytes(d.shape, self.model.buffers[d.write.buffer])
        if made > max(_SMALL, MAX_MEMORY * given):
            raise ScheduleError(
                f"the nest {quoted(self.func.name)} cannot be renamed: its arrays would take {made} bytes"
            )

    # -- stages ----------------------------------------------------------------------------------------------

    def _value(self, d: _Definition, load: Load) -> Expr:
        """What a load becomes, over the loops of ``d``."""
        pieces = d.reads.get(load)
        if not pieces:
            raise self._refused(d.s, f"nothing is known of what it reads of {quoted(load.buffer)}")
        # conditions are tried in turn: the last needs none
        out: Expr | None = None
        for p in sorted(pieces, key=lambda p: p.where is None, reverse=True):
            value = self._defined(p, load)
            if out is None:
                out = value
            else:
                assert p.where is not None
                out = value if value == out else Select(self._condition(d, p.where), value, out)
        assert out is not None
        return out

    def _defined(self, p: _Piece, load: Load) -> Expr:
        if p.definition is None:
            return Load(load.buffer, p.at, load.dtype)
        t = self.found[p.definition]
        mapping = dict(zip(t.par, p.at, strict=True))
        if p.definition in self.values:
            return substitute_expr(self.values[p.definition], mapping)
        at = tuple(x - t.box[d][0] for d, x in zip(t.par, p.at, strict=True))
        return Load(p.definition, at, load.dtype)

    def _condition(self, d: _Definition, where: isl.Set) -> Expr:
        either: Expr | None = None
        parts = where.compute_divs().make_disjoint().get_basic_set_list()
        for n in range(parts.n_basic_set()):
            both: Expr | None = None
            constraints = parts.get_at(n).get_constraint_list()
            for k in range(constraints.n_constraint()):
                c = constraints.get_at(k)
                if c.is_div_constraint():
                    continue
                found = self._affine(d, c.get_aff())
                test = Compare("eq" if c.is_equality() else "ge", OfIndex(found, I64), OfIndex(ZERO, I64))
                both = test if both is None else Binary("and", both, test)
            if both is None:  # holds everywhere
                both = Compare("ge", OfIndex(ZERO, I64), OfIndex(ZERO, I64))
            either = both if either is None else Binary("or", either, both)
        assert either is not None
        return either

    def _resolved(self, d: _Definition, e: Expr) -> Expr:
        return map_expr(e, lambda x: self._value(d, x) if isinstance(x, Load) else x)

    def _emit(self, d: _Definition) -> None:
        if d.red:
            self._emit_sum(d)
            return
        value = self._guarded(d, self._resolved(d, d.write.value))
        copies = d.name.startswith("copy_") and d.write.buffer in self.results
        if not copies and isinstance(value, Const | Load):
            self.values[d.name] = value
            return
        self._stage(d, d.name, value)

    def _stage(self, d: _Definition, name: str, value: Expr, declared: str = "") -> None:
        """One stage over the parallel loops, ``value`` over the loops as written."""
        dtype = self.model.buffers[d.write.buffer].dtype
        self.buffers[name] = Buffer(name, d.shape, dtype)
        body = Store((Access(name, tuple(map(var, d.par)), d.zero_based(value)),))
        self.stages.append(Stage(name, d.iters(d.par, "par"), body, role=declared))

    def _guarded(self, d: _Definition, value: Expr) -> Expr:
        """The value where its loads stay inside of arrays at all points of the box; else where it exists."""
        if all(self._inside(d, load) for load in loads(value)):
            return value
        context = _box_set(d, d.s.dims)
        where = d.s.domain.gist(context).coalesce()
        if where.plain_is_universe():
            return value
        return Select(
            self._condition(d, where), value, Const(0 if not value.dtype.is_float else 0.0, value.dtype)
        )

    def _inside(self, d: _Definition, load: Load) -> bool:
        shape = self._shape(load.buffer)
        for x, n in zip(load.indices, shape, strict=True):
            low, high = _range(x, d.box)
            if low < 0 or high > evaluate_index(n, {}):
                return False
        return True

    def _shape(self, buffer: str) -> tuple[Index, ...]:
        return self.buffers[buffer].shape if buffer in self.buffers else self.model.buffers[buffer].shape

    def _emit_sum(self, d: _Definition) -> None:
        """An accumulation: sums of products over the loops that reduce, then what else there is to it."""
        value = d.write.value
        assert isinstance(value, Binary)
        own = d.own
        operand = value.b if value.a == own else value.a
        operand = self._resolved(d, operand)
        start = self._value(d, own)
        dtype = self.model.buffers[d.write.buffer].dtype
        op = "add" if d.op == "sub" else d.op
        terms = _terms(operand, d.op == "sub") if op == "add" else [(False, operand)]
        total: Expr | None = start
        zero = op == "add" and isinstance(start, Const) and start.value == 0
        if zero:
            total = None
        for n, (negative, term) in enumerate(terms):
            inside, outside = _split(term, d.red) if op == "add" else ([term], [])
            last = n == len(terms) - 1
            plain = total is None and not outside and not negative and last
            name = d.name if plain else self._fresh(f"{d.name}_sum")
            self._reduction(d, name, op, inside, dtype)
            if plain:
                return
            result: Expr = Load(name, tuple(var(x) - d.box[x][0] for x in d.par), dtype)
            for factor in outside:
                result = Binary("mul", factor, result)
            if total is None:
                total = Unary("neg", result) if negative else result
            else:
                total = Binary("sub" if negative else op, total, result)
        assert total is not None
        self._stage(d, d.name, self._guarded_start(d, total))

    def _guarded_start(self, d: _Definition, value: Expr) -> Expr:
        if all(self._inside(d, load) for load in loads(value)):
            return value
        raise self._refused(d.s, "what it starts from lies outside of its array")

    def _fresh(self, name: str) -> str:
        out = fresh_name(name, self.names | set(self.buffers))
        self.names.add(out)
        return out

    def _reduction(self, d: _Definition, name: str, op: str, factors: list[Expr], dtype: object) -> None:
        at = tuple(map(var, d.par))
        kind = self.model.buffers[d.write.buffer].dtype
        neutral = _neutral(op)
        if neutral is None or not kind.is_float:
            raise self._refused(d.s, f"reductions by {op} of {kind} are not lifted")
        context = _box_set(d, d.s.dims)
        if not d.grown:
            around = d.s.domain
            for x in d.red:
                around = around.eliminate(DIM.set, d.s.dims.index(x), 1)
            context = context.intersect(around)
        where = d.s.domain.gist(context).coalesce()
        if not where.plain_is_universe():
            cond = self._condition(d, where)
            factors = self._masked(d, cond, factors, Const(neutral, kind))
        value = factors[0]
        for f in factors[1:]:
            value = Binary("mul", value, f)
        if not all(self._inside(d, load) for load in loads(value)) and where.plain_is_universe():
            value = self._guarded(d, value)
        own = Load(name, at, kind)
        self.buffers[name] = Buffer(name, d.shape, kind)
        body = Store((Access(name, at, Binary(op, own, d.zero_based(value))),))
        init = Store((Access(name, at, Const(neutral, kind)),))
        iters = (*d.iters(d.par, "par"), *d.iters(d.red, "red"))
        self.stages.append(Stage(name, iters, body, init))

    def _masked(self, d: _Definition, cond: Expr, factors: list[Expr], neutral: Const) -> list[Expr]:
        """Factors that give the neutral element where a condition does not hold: one of them, as an array."""
        needed = cond.vars
        if len(factors) > 1 and neutral.value == 0:
            for n, f in enumerate(factors):
                if isinstance(f, Load) and needed <= f.vars:
                    dims = tuple(x for x in d.s.dims if x in f.vars)
                    name = self._fresh(f"{d.name}_{f.buffer}")
                    part = replace(d, par=dims, red=(), reads={})
                    self._stage(part, name, Select(cond, f, neutral))
                    own = Load(name, tuple(var(x) - d.box[x][0] for x in dims), f.dtype)
                    return [*factors[:n], own, *factors[n + 1 :]]
        value = factors[0]
        for f in factors[1:]:
            value = Binary("mul", value, f)
        return [Select(cond, value, neutral)]

    # -- the program -----------------------------------------------------------------------------------------

    def _program(self) -> Lifted:
        stages = {s.name: s for s in self.stages}
        renamed: dict[str, str] = {}
        for s in self.stages:
            assert isinstance(s.body, Store)
            copy = self.found.get(s.name)
            if copy is None or copy.write.buffer not in self.results:
                continue
            out = copy.write.buffer
            value = s.body.writes[0].value
            direct = (
                isinstance(value, Load)
                and value.buffer in stages
                and value.buffer not in renamed
                and value.indices == tuple(var(it.name) for it in s.iters)
                and self.buffers[value.buffer].shape == self.buffers[s.name].shape
                and self.buffers[value.buffer].dtype == self.buffers[s.name].dtype
            )
            if direct:
                assert isinstance(value, Load)
                renamed[value.buffer] = out
                del stages[s.name]
            else:
                renamed[s.name] = out
        kept = _needed(list(stages.values()), set(renamed))
        made = [_renamed(s, renamed) for s in kept]
        read = {ld.buffer for s in made for ld in s.operands}
        temps = tuple(self.buffers[s.name] for s in kept if s.name not in renamed)
        outputs = tuple(self.buffers[old].with_(name=new) for old, new in renamed.items())
        outputs = tuple(next(b for b in outputs if b.name == out) for out in self.results)
        inputs = tuple(b for b in self.func.buffers if b.name in read)
        program = Program(self.func.name, (), inputs, outputs, temps, tuple(made))
        return Lifted(program, self.results)


def _needed(stages: list[Stage], outputs: set[str]) -> list[Stage]:
    """The stages that outputs need, in order."""
    wanted = set(outputs)
    out: list[Stage] = []
    for s in reversed(stages):
        if s.name in wanted:
            out.append(s)
            wanted |= set(s.reads)
    return out[::-1]


def _renamed(s: Stage, names: Mapping[str, str]) -> Stage:
    def expr(e: Expr) -> Expr:
        return map_expr(
            e, lambda x: replace(x, buffer=names.get(x.buffer, x.buffer)) if isinstance(x, Load) else x
        )

    def store(of: Stmt) -> Store:
        assert isinstance(of, Store)
        return Store(
            tuple(Access(names.get(w.buffer, w.buffer), w.indices, expr(w.value)) for w in of.writes)
        )

    return replace(s, body=store(s.body), init=None if s.init is None else store(s.init))


def _affine_pieces(m: isl.Map) -> list[tuple[isl.Set, isl.MultiAff]]:
    out: list[tuple[isl.Set, isl.MultiAff]] = []
    isl.PwMultiAff.from_map(m).foreach_piece(lambda where, values: out.append((where, values)))
    return out


def _box_set(d: _Definition, dims: Sequence[str]) -> isl.Set:
    out = isl.Set.universe(d.s.domain.get_space())
    for n, x in enumerate(dims):
        lo, hi = d.box[x]
        low, high = isl.Val.int_from_si(CONTEXT, lo), isl.Val.int_from_si(CONTEXT, hi - 1)
        out = out.lower_bound_val(DIM.set, n, low).upper_bound_val(DIM.set, n, high)
    return out


def _substituted(x: Index, mapping: Mapping[str, Index]) -> Index:
    e = substitute_expr(OfIndex(x, I64), dict(mapping))
    assert isinstance(e, OfIndex)
    return e.index


def _range(x: Index, box: Mapping[str, Bounds]) -> Bounds:
    """The least value of an index in a box, and one more than the largest."""
    low, high = int_range(x, {d: (index(lo), index(hi - 1)) for d, (lo, hi) in box.items()})
    assert low is not None and high is not None
    return low, high + 1


def _bytes(shape: Sequence[Index], b: Buffer) -> int:
    count = 1
    for n in shape:
        count *= evaluate_index(n, {})
    return count * b.dtype.bytes


def _terms(e: Expr, negative: bool) -> list[tuple[bool, Expr]]:
    """The terms of a sum, and whether they are subtracted."""
    if isinstance(e, Binary) and e.op in ("add", "sub"):
        return [*_terms(e.a, negative), *_terms(e.b, negative ^ (e.op == "sub"))]
    if isinstance(e, Unary) and e.op == "neg":
        return _terms(e.a, not negative)
    return [(negative, e)]


def _split(e: Expr, red: Sequence[str]) -> tuple[list[Expr], list[Expr]]:
    """The factors of a term that move along the reducing loops, and the others."""
    factors = _factors(e)
    inside = [f for f in factors if f.vars & set(red)]
    outside = [f for f in factors if not f.vars & set(red)]
    return (inside, outside) if inside else ([e], [])


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op == "mul":
        return [*_factors(e.a), *_factors(e.b)]
    return [e]


def _neutral(op: str) -> float | None:
    return {"add": 0.0, "mul": 1.0, "min": float("inf"), "max": float("-inf")}.get(op)
