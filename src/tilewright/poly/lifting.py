"""Lifting: nests whose arrays can be renamed to single assignment become stages of a program.

Every statement gets an array of its own over its parallel loops (:mod:`tilewright.poly.renaming`), reads
load from the arrays of their definitions, and accumulations become reductions: what was order by reuse of
memory is gone, and schedules of programs apply. Statements whose values depend on themselves, other than by
accumulating, are refused: time loops, factorisations, recurrences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

import islpy as isl

from tilewright.analysis import operands_of
from tilewright.ir import (
    I64,
    ZERO,
    Access,
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Index,
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
    loads,
    map_expr,
    substitute_expr,
    var,
)
from tilewright.poly.budget import bounded
from tilewright.poly.renaming import Definition, Piece, Renamed, index_over, range_of, rename
from tilewright.poly.spaces import CONTEXT, DIM
from tilewright.support import ScheduleError, quoted

OPERATIONS: Final = 20_000_000
"""Limit on isl's operations (about a second): what can be lifted of PolyBench takes an eighth at most."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """A nest as a program; ``results`` maps outputs of the program to the arguments that they replace."""

    program: Program
    results: Mapping[str, str]


def lift(func: LoopFunction, *, operations: int = OPERATIONS) -> Lifted:
    """The program that computes what a nest of fixed sizes does.

    Raises ScheduleError, naming the statement, where a value depends on its own statement or arrays would
    grow too much, ResourceError where isl needs more than ``operations``.
    """
    if func.params:
        raise ScheduleError(f"the nest {quoted(func.name)} has symbolic sizes", hint="settle them first")
    what = f"the dataflow of {func.name} is too large"
    return bounded(
        lambda: _Lifter(rename(func)).lifted(), what, "keep the nest as it is", operations=operations
    )


class _Lifter:
    def __init__(self, renamed: Renamed) -> None:
        self.renamed = renamed
        self.found = {d.name: d for d in renamed.definitions}
        model = renamed.model
        self.names: set[str] = {*model.function.body.names, *model.buffers}
        self.buffers: dict[str, Buffer] = {}
        self.stages: list[Stage] = []
        self.values: dict[str, Expr] = {}  # of statements that need no array, over their loops

    def lifted(self) -> Lifted:
        for d in self.renamed.definitions:
            self._emit(d)
        return self._program()

    # -- stages ----------------------------------------------------------------------------------------------

    def _value(self, d: Definition, load: Load) -> Expr:
        """What a load becomes, over the loops of ``d``."""
        pieces = d.reads.get(load)
        if not pieces:
            raise self.renamed.refused(d.s, f"nothing is known of what it reads of {quoted(load.buffer)}")
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

    def _defined(self, p: Piece, load: Load) -> Expr:
        if p.definition is None:
            return Load(load.buffer, p.at, load.dtype)
        t = self.found[p.definition]
        mapping = dict(zip(t.par, p.at, strict=True))
        if p.definition in self.values:
            return substitute_expr(self.values[p.definition], mapping)
        at = tuple(x - t.box[d][0] for d, x in zip(t.par, p.at, strict=True))
        return Load(p.definition, at, load.dtype)

    def _condition(self, d: Definition, where: isl.Set) -> Expr:
        either: Expr | None = None
        parts = where.compute_divs().make_disjoint().get_basic_set_list()
        for n in range(parts.n_basic_set()):
            both: Expr | None = None
            constraints = parts.get_at(n).get_constraint_list()
            for k in range(constraints.n_constraint()):
                c = constraints.get_at(k)
                if c.is_div_constraint():
                    continue
                found = index_over(self.renamed.func, d.s, c.get_aff())
                test = Compare("eq" if c.is_equality() else "ge", OfIndex(found, I64), OfIndex(ZERO, I64))
                both = test if both is None else Binary("and", both, test)
            if both is None:  # holds everywhere
                both = Compare("ge", OfIndex(ZERO, I64), OfIndex(ZERO, I64))
            either = both if either is None else Binary("or", either, both)
        assert either is not None
        return either

    def _resolved(self, d: Definition, e: Expr) -> Expr:
        return map_expr(e, lambda x: self._value(d, x) if isinstance(x, Load) else x)

    def _emit(self, d: Definition) -> None:
        if d.red:
            self._emit_sum(d)
            return
        value = self._guarded(d, self._resolved(d, d.write.value))
        copies = d.write.buffer in self.renamed.results
        if not copies and isinstance(value, Const | Load):
            self.values[d.name] = value
            return
        self._stage(d, d.name, value)

    def _stage(self, d: Definition, name: str, value: Expr) -> None:
        """One stage over the parallel loops, ``value`` over the loops as written."""
        dtype = self.renamed.model.buffers[d.write.buffer].dtype
        self.buffers[name] = Buffer(name, d.shape, dtype)
        body = Store((Access(name, tuple(map(var, d.par)), d.zero_based(value)),))
        self.stages.append(Stage(name, d.iters(d.par, "par"), body))

    def _guarded(self, d: Definition, value: Expr) -> Expr:
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

    def _inside(self, d: Definition, load: Load) -> bool:
        shape = self._shape(load.buffer)
        for x, n in zip(load.indices, shape, strict=True):
            low, high = range_of(x, d.box)
            if low < 0 or high > evaluate_index(n, {}):
                return False
        return True

    def _shape(self, buffer: str) -> tuple[Index, ...]:
        return (
            self.buffers[buffer].shape if buffer in self.buffers else self.renamed.model.buffers[buffer].shape
        )

    def _emit_sum(self, d: Definition) -> None:
        """An accumulation: sums of products over the loops that reduce, then what else there is to it."""
        value = d.write.value
        assert isinstance(value, Binary)
        own = d.own
        operand = value.b if value.a == own else value.a
        operand = self._resolved(d, operand)
        start = self._value(d, own)
        dtype = self.renamed.model.buffers[d.write.buffer].dtype
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
            self._reduction(d, name, op, inside)
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

    def _guarded_start(self, d: Definition, value: Expr) -> Expr:
        if all(self._inside(d, load) for load in loads(value)):
            return value
        raise self.renamed.refused(d.s, "what it starts from lies outside of its array")

    def _fresh(self, name: str) -> str:
        out = fresh_name(name, self.names | set(self.buffers))
        self.names.add(out)
        return out

    def _reduction(self, d: Definition, name: str, op: str, factors: list[Expr]) -> None:
        at = tuple(map(var, d.par))
        kind = self.renamed.model.buffers[d.write.buffer].dtype
        neutral = _neutral(op)
        if neutral is None or not kind.is_float:
            raise self.renamed.refused(d.s, f"reductions by {op} of {kind} are not lifted")
        context = _box_set(d, d.s.dims)
        if not d.everywhere:
            around = d.s.domain
            for x in d.red:
                around = around.eliminate(DIM.set, d.s.dims.index(x), 1)
            context = context.intersect(around)
        where = d.s.domain.gist(context).coalesce()
        if where.plain_is_universe():
            value = _product(factors)
            if not all(self._inside(d, load) for load in loads(value)):
                value = self._guarded(d, value)
        else:
            value = self._masked(d, where, context, factors, Const(neutral, kind))
        own = Load(name, at, kind)
        self.buffers[name] = Buffer(name, d.shape, kind)
        body = Store((Access(name, at, Binary(op, own, d.zero_based(value))),))
        init = Store((Access(name, at, Const(neutral, kind)),))
        iters = (*d.iters(d.par, "par"), *d.iters(d.red, "red"))
        self.stages.append(Stage(name, iters, body, init))

    def _masked(
        self, d: Definition, where: isl.Set, context: isl.Set, factors: list[Expr], neutral: Const
    ) -> Expr:
        """A term that is the neutral element outside of ``where``.

        A product of loads stays one: a factor that moves with the whole condition is an array of its own,
        zero where the condition does not hold. The others are zero where no instance reads them, since
        what lies there may be infinite or no number.
        """
        cond = self._condition(d, where)
        hiding = next((n for n, f in enumerate(factors) if cond.vars <= f.vars), None)
        if neutral.value != 0 or hiding is None or not all(isinstance(f, Load) for f in factors):
            return Select(cond, _product(factors), neutral)
        out: list[Expr] = []
        for n, f in enumerate(factors):
            read, there = (_along(s, d, f.vars) for s in (d.s.domain, context))
            hidden = where if n == hiding else read.gist(there).coalesce()
            out.append(f if n != hiding and there.is_subset(read) else self._hidden(d, f, hidden, neutral))
        return _product(out)

    def _hidden(self, d: Definition, factor: Expr, where: isl.Set, neutral: Const) -> Expr:
        """A factor as an array of its own over the loops it moves along, zero outside of ``where``."""
        assert isinstance(factor, Load)
        dims = tuple(x for x in d.s.dims if x in factor.vars)
        name = self._fresh(f"{d.name}_{factor.buffer}")
        part = replace(d, par=dims, red=(), reads={})
        self._stage(part, name, Select(self._condition(d, where), factor, neutral))
        return Load(name, tuple(var(x) - d.box[x][0] for x in dims), factor.dtype)

    # -- the program -----------------------------------------------------------------------------------------

    def _program(self) -> Lifted:
        stages = {s.name: s for s in self.stages}
        renamed: dict[str, str] = {}
        for s in self.stages:
            assert isinstance(s.body, Store)
            copy = self.found.get(s.name)
            if copy is None or copy.write.buffer not in self.renamed.results:
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
        outputs = tuple(next(b for b in outputs if b.name == out) for out in self.renamed.results)
        inputs = tuple(b for b in self.renamed.func.buffers if b.name in read)
        program = Program(self.renamed.func.name, (), inputs, outputs, temps, tuple(made))
        return Lifted(program, self.renamed.results)


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


def _box_set(d: Definition, dims: Sequence[str]) -> isl.Set:
    out = isl.Set.universe(d.s.domain.get_space())
    for n, x in enumerate(dims):
        lo, hi = d.box[x]
        low, high = isl.Val.int_from_si(CONTEXT, lo), isl.Val.int_from_si(CONTEXT, hi - 1)
        out = out.lower_bound_val(DIM.set, n, low).upper_bound_val(DIM.set, n, high)
    return out


def _along(s: isl.Set, d: Definition, names: Set[str]) -> isl.Set:
    """The points of a set by the coordinates ``names`` alone."""
    for n, x in enumerate(d.s.dims):
        if x not in names:
            s = s.eliminate(DIM.set, n, 1)
    return s


def _product(factors: Sequence[Expr]) -> Expr:
    out = factors[0]
    for f in factors[1:]:
        out = Binary("mul", out, f)
    return out


def _terms(e: Expr, negative: bool) -> list[tuple[bool, Expr]]:
    """The terms of a sum, and whether they are subtracted."""
    if isinstance(e, Binary) and e.op in ("add", "sub"):
        return [*_terms(e.a, negative), *_terms(e.b, negative ^ (e.op == "sub"))]
    if isinstance(e, Unary) and e.op == "neg":
        return _terms(e.a, not negative)
    return [(negative, e)]


def _split(e: Expr, red: Sequence[str]) -> tuple[list[Expr], list[Expr]]:
    """The factors of a term that move along the reducing loops, and the others."""
    factors = operands_of(e, "mul")
    inside = [f for f in factors if f.vars & set(red)]
    outside = [f for f in factors if not f.vars & set(red)]
    return (inside, outside) if inside else ([e], [])


def _neutral(op: str) -> float | None:
    return {"add": 0.0, "mul": 1.0, "min": float("inf"), "max": float("-inf")}.get(op)
