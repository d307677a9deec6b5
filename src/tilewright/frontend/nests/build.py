"""Nests to loop functions: loops, statements and variables as a front end meets them.

Every assignment becomes a block of its own whose iterators are the loops around it, in order (``ord``): what
may be reordered is found out later, from exact dependences. A loop whose bounds data decide becomes one block
with all that it holds, a *black box* (Zhao & Di, Sec. 6): its loops stay as they are, and what it reads and
writes is over-approximated. Indices that data decide are as large as the program says, as in C: nothing
checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

from tilewright import poly
from tilewright.frontend.nests.guards import Place, both, opposite, under
from tilewright.frontend.nests.values import Arithmetic, Value
from tilewright.ir import (
    I32,
    NOTHING,
    Alloc,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    DType,
    Expr,
    For,
    If,
    Index,
    Iter,
    Load,
    LoopFunction,
    Opaque,
    Param,
    Select,
    Seq,
    Stmt,
    Store,
    fresh_name,
    holds,
    index,
    loads,
    locate,
    map_blocks,
    map_stmt,
    seq,
    stmt_exprs,
    stmt_loads,
    stmt_writes,
    store,
    var,
    walk_index,
)
from tilewright.support import Location

MAX_STATEMENTS: Final = 10_000
"""Most statements of one nest."""
LARGEST_SIZE: Final = 1 << 31
"""Largest value of a symbolic size."""


@dataclass(slots=True)
class NestBuilder:
    """A loop function in the making. ``arith`` has the language's rules and makes its errors."""

    name: str
    arith: Arithmetic
    buffers: dict[str, Buffer] = field(default_factory=dict)
    params: dict[str, Param] = field(default_factory=dict)
    temps: list[str] = field(default_factory=list)
    places: dict[str, Location] = field(default_factory=dict)
    """Where statements stand in the user's text, by the names of their blocks."""
    _names: set[str] = field(default_factory=set)
    _blocks: int = 0

    def size(self, name: str, least: int = 0) -> Index:
        """The symbolic size ``name``, made when first met; it is ``least`` at least."""
        if name not in self.params:
            self._claim(name)
            self.params[name] = Param(name, least, LARGEST_SIZE)
        return index(self.params[name])

    def known(self, name: str, at: Place) -> bool:
        """Whether a name means something at a place."""
        return name in self.buffers or name in self.params or at.value(name) is not None

    def _claim(self, name: str) -> None:
        if name in self._names:
            raise self.arith.fail(f"the name {name!r} is declared twice")
        self._names.add(name)

    def array(self, name: str, shape: Sequence[Index], dtype: DType, *, local: bool = False) -> None:
        """Declare an argument, or a variable of the nest (``local``)."""
        self._claim(name)
        self.buffers[name] = Buffer(name, tuple(shape), dtype)
        if local:
            self.temps.append(name)

    def local(self, name: str, shape: Sequence[Index], dtype: DType) -> str:
        """Declare a variable of the nest by a name like this one; its name."""
        own = fresh_name(name, self._names)
        self.array(own, shape, dtype, local=True)
        return own

    def argument(self, name: str, dtype: DType) -> str:
        """Declare a scalar argument by a name like this one; its name."""
        own = fresh_name(name, self._names)
        self.array(own, (), dtype)
        return own

    def load(self, name: str, indices: Sequence[Value]) -> Expr:
        """An element of an array or the value of a scalar."""
        b = self._buffer(name, indices)
        return Load(name, self._indices(name, indices), b.dtype)

    def _buffer(self, name: str, indices: Sequence[Value]) -> Buffer:
        if name not in self.buffers:
            raise self.arith.fail(f"the name {name!r} is not declared")
        b = self.buffers[name]
        if len(indices) != len(b.shape):
            raise self.arith.fail(f"{name!r} has {len(b.shape)} dimensions, got {len(indices)} indices")
        return b

    def _indices(self, name: str, indices: Sequence[Value]) -> tuple[Index, ...]:
        return tuple(self._integer(x, f"index {n} of {name!r} is no integer") for n, x in enumerate(indices))

    def _integer(self, x: Value, otherwise: str) -> Index:
        """A value as an index: affine, or what data decide."""
        if isinstance(x, Index):
            return x
        if isinstance(x, float) or not x.dtype.is_integer:
            raise self.arith.fail(otherwise)
        return index(Opaque(x))

    def loop(
        self, at: Place, name: str, lo: Value, hi: Value, step: int, body: Callable[[Place], Stmt]
    ) -> Stmt:
        """A loop over ``range(lo, hi, step)``; steps down are allowed where its bounds are affine.

        Its variable has no storage, and no value after the loop.
        """
        if step == 0:
            raise self.arith.fail(f"loop {name!r} has no step")
        if at.value(name) is not None:
            raise self.arith.fail(f"{name!r} is the variable of a loop around this one: name it otherwise")
        if name in self.buffers:
            raise self.arith.fail(f"loop {name!r} needs a variable to itself: {name!r} is assigned to before")
        return self.counting(at, name, lo, hi, step, body)

    def counting(
        self, at: Place, name: str, lo: Value, hi: Value, step: int, body: Callable[[Place], Stmt]
    ) -> Stmt:
        """A loop as :meth:`loop` makes it, whatever else has the name."""
        box = at.box or not isinstance(lo, Index) or not isinstance(hi, Index)
        loop = fresh_name(name, self._names)
        self._names.add(loop)
        lo, hi = (self._integer(x, f"the bounds of loop {name!r} are no integers") for x in (lo, hi))
        if box:
            if step != 1:
                raise self.arith.fail(
                    f"loop {name!r} must go up in steps of 1: data decide how often it runs"
                )
            inside = replace(at, names=(*at.names, (name, var(loop))), where=(), conds=(), box=True)
            whole: Stmt = For(loop, lo, hi, body(inside))
            if at.conds or (at.box and at.where):
                whole = If((*(at.where if at.box else ()), *map(holds, at.conds)), whole)
            return whole if at.box else self._statement(at, whole)
        distance = hi - lo if step > 0 else lo - hi
        if step == 1:
            first, last, value = lo, hi, var(loop)
        else:
            first, last = index(0), (distance + (abs(step) - 1)) // abs(step)
            value = lo + var(loop) * step
        inside = replace(at, loops=(*at.loops, (loop, first, last)), names=(*at.names, (name, value)))
        return For(loop, first, last, body(inside))

    def assign(self, at: Place, name: str, indices: Sequence[Value], value: Value) -> Stmt:
        """One assignment to an element or a scalar."""
        if at.value(name) is not None:
            raise self.arith.fail(f"{name!r} is the variable of a loop: only the loop changes it")
        if name in self.params:
            raise self.arith.fail(f"{name!r} is a size, which a nest does not change")
        b = self._buffer(name, indices)
        where = self._indices(name, indices)
        e = self.arith.converted(value, b.dtype)
        if at.box:
            body: Stmt = store(name, where, e)
            return If((*at.where, *map(holds, at.conds)), body) if at.where or at.conds else body
        if at.conds and any(True for i in where for _ in walk_index(i)):
            # where the condition does not hold the index may be anything, and nothing lies there
            return self._statement(at, If(tuple(map(holds, at.conds)), store(name, where, e)))
        for cond in reversed(at.conds):
            # a condition on data: the element keeps its value otherwise
            e = Select(cond, e, Load(name, where, b.dtype))
        return self._statement(at, store(name, where, e))

    def branch(
        self,
        at: Place,
        cond: Expr,
        changed: Collection[str],
        then: Callable[[Place], Stmt],
        orelse: Callable[[Place], Stmt] | None = None,
    ) -> Stmt:
        """A branch; its condition is evaluated once, into a variable, if it reads what that ``changed``."""
        if isinstance(cond, Const):
            return then(at) if cond.value else orelse(at) if orelse is not None else NOTHING
        first: Stmt = NOTHING
        inside, outside = under(at, cond), under(at, opposite(cond))
        data = inside.conds[len(at.conds) :]
        if any(load.buffer in changed for part in data for load in loads(part)):
            name = self.local("held", (), I32)
            # an else needs the condition in all places
            there, asked = (at, (*at.conds, cond)) if orelse is not None else (inside, inside.conds)
            value = Select(reduce(both, asked), Const(1, I32), Const(0, I32))
            first = self.assign(replace(there, conds=()), name, (), value)
            kept = Compare("ne", Load(name, (), I32), Const(0, I32))
            inside = replace(inside, conds=(kept,))
            outside = replace(at, conds=(*at.conds, opposite(kept)))
        done = seq(first, then(inside))
        return done if orelse is None else seq(done, orelse(outside))

    def counted(
        self, at: Place, name: str, end: Value, changed: Collection[str], body: Callable[[Place], Stmt]
    ) -> Stmt:
        """``while name < end: body; name += 1``, where ``body`` and ``end`` leave each other alone.

        ``changed`` are the names that are assigned to in the body.
        """
        if name in changed or name not in self.buffers or not self.buffers[name].dtype.is_integer:
            raise self.arith.fail(f"{name!r} must be an integer that only the end of the loop changes")
        first = self.load(name, ())
        if isinstance(end, Expr) and any(load.buffer in changed for load in loads(end)):
            raise self.arith.fail(f"the bound of the loop over {name!r} changes in it")
        loop = self.counting(at, name, first, end, 1, body)
        last = Binary("max", *self.arith.together(first, end))
        return seq(loop, self.assign(at, name, (), last))

    def _statement(self, at: Place, body: Stmt) -> Stmt:
        """A block over the loops around."""
        block = fresh_name(f"S{self._blocks}", self._names)
        self._blocks += 1
        if self._blocks > MAX_STATEMENTS:
            raise self.arith.fail(f"the nest has more than {MAX_STATEMENTS} statements")
        self._names.add(block)
        # an error that is made here would say where
        where = self.arith.fail("").where
        if where is not None:
            self.places[block] = where
        iters = tuple(Iter(v, lo, hi, "ord") for v, lo, hi in at.loops)
        bind = tuple(var(v) for v, _, _ in at.loops)
        return Block(block, block, iters, bind, body, None, at.where)

    def function(self, body: Stmt) -> LoopFunction:
        """The finished function: outputs are what it writes, in-out arguments what counts on entry."""
        written = {name for name, _ in stmt_writes(body)}
        outputs = tuple(n for n in self.buffers if n in written and n not in self.temps)
        body = _without_unread(body, self.temps)
        used = {name for name, _ in stmt_writes(body)} | {load.buffer for load in stmt_loads(body)}
        for name in reversed(self.temps):
            if name in used:
                body = _allocated(body, self.buffers[name])
        arguments = tuple(b for n, b in self.buffers.items() if n not in self.temps)
        func = LoopFunction(
            self.name, tuple(self.params.values()), arguments, outputs, seq(body), (), outputs
        )
        kept = poly.contents_that_count(func)
        return replace(func, inouts=tuple(n for n in outputs if n in kept))


def _without_unread(body: Stmt, temps: Collection[str]) -> Stmt:
    """A nest without the variables that nothing reads, one after another."""
    while unread := set(temps) & {name for name, _ in stmt_writes(body)} - {
        load.buffer for load in stmt_loads(body)
    }:

        def kept(s: Stmt, unread: Collection[str] = frozenset(unread)) -> Stmt:
            match s:
                case Store(writes=(w,)) if w.buffer in unread:
                    return NOTHING
                case Block() if s.body == NOTHING:
                    return NOTHING
                case For() if s.body == NOTHING:
                    return NOTHING
                case If(orelse=None) if s.then == NOTHING:
                    return NOTHING
                case Seq():
                    return seq(*s.stmts)
            return s

        body = map_stmt(map_blocks(body, lambda b: replace(b, body=map_stmt(b.body, kept))), kept)
    return body


def _allocated(body: Stmt, buffer: Buffer) -> Stmt:
    """A nest with the storage of a variable: inside of the black box that uses it, if values stay there."""
    using = [b.node for b in locate(body, Block) if _uses(b.node.body, buffer.name)]
    inside = _defined(using[0].body, buffer) if len(using) == 1 else None
    if inside is None:
        return Alloc(buffer, body)
    (block,) = using
    return map_blocks(body, lambda b: replace(b, body=inside) if b is block else b)


def _defined(s: Stmt, buffer: Buffer) -> Stmt | None:
    """A part of a black box with a variable's storage, where it is written before it is read there."""
    match s:
        case For():
            inner = (
                None
                if _reads((*walk_index(s.lo), *walk_index(s.hi)), buffer.name)
                else _defined(s.body, buffer)
            )
            return None if inner is None else replace(s, body=inner)
        case If(orelse=None):
            exprs = [c.expr for c in s.cond if c.expr is not None]
            inner = None if _reads(exprs, buffer.name) else _defined(s.then, buffer)
            return None if inner is None else replace(s, then=inner)
        case Seq():
            parts = [n for n, part in enumerate(s.stmts) if _uses(part, buffer.name)]
            first = s.stmts[parts[0]]
            if len(parts) == 1 and not isinstance(first, Store):
                inner = _defined(first, buffer)
                return None if inner is None else Seq((*s.stmts[: parts[0]], inner, *s.stmts[parts[0] + 1 :]))
            return (
                Alloc(buffer, s) if _defined(first, buffer) is not None and isinstance(first, Store) else None
            )
        case Store() if not _reads(stmt_exprs(s), buffer.name):
            return Alloc(buffer, s)
    return None


def _uses(s: Stmt, name: str) -> bool:
    return _reads(stmt_exprs(s), name) or any(written == name for written, _ in stmt_writes(s))


def _reads(exprs: Iterable[Expr], name: str) -> bool:
    return any(load.buffer == name for e in exprs for load in loads(e))
