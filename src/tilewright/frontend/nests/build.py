"""Nests to loop functions: loops, statements and variables as a front end meets them.

Every assignment becomes a block of its own whose iterators are the loops around it, in order (``ord``): what
may be reordered is found out later, from exact dependences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tilewright import poly
from tilewright.frontend.nests.values import Arithmetic, Value
from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    DType,
    Expr,
    For,
    Index,
    Iter,
    Load,
    LoopFunction,
    Param,
    Pred,
    Select,
    Stmt,
    fresh_name,
    index,
    seq,
    stmt_loads,
    stmt_writes,
    store,
    var,
)

MAX_STATEMENTS: Final = 10_000
"""Most statements of one nest."""
LARGEST_SIZE: Final = 1 << 31
"""Largest value of a symbolic size."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a front end is in a nest: loops around, conditions, and what names of loops mean."""

    loops: tuple[tuple[str, Index, Index], ...] = ()
    names: tuple[tuple[str, Index], ...] = ()
    where: Pred = ()
    conds: tuple[Expr, ...] = ()

    def value(self, name: str) -> Index | None:
        """The value of a loop's variable; ``None`` for other names."""
        return next((v for n, v in reversed(self.names) if n == name), None)


@dataclass(slots=True)
class NestBuilder:
    """A loop function in the making. ``arith`` has the language's rules and makes its errors."""

    name: str
    arith: Arithmetic
    buffers: dict[str, Buffer] = field(default_factory=dict)
    params: dict[str, Param] = field(default_factory=dict)
    temps: list[str] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _blocks: int = 0

    def size(self, name: str) -> Index:
        """The symbolic size ``name``, made when first met."""
        if name not in self.params:
            self._claim(name)
            self.params[name] = Param(name, 0, LARGEST_SIZE)
        return index(self.params[name])

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
        for n, x in enumerate(indices):
            if not isinstance(x, Index):
                raise self.arith.fail(f"index {n} of {name!r} is not affine in loop variables and sizes")
        return tuple(x for x in indices if isinstance(x, Index))

    def loop(
        self, at: Place, name: str, lo: Value, hi: Value, step: int, body: Callable[[Place], Stmt]
    ) -> Stmt:
        """A loop over ``range(lo, hi, step)`` with affine bounds; steps down are allowed."""
        if not isinstance(lo, Index) or not isinstance(hi, Index):
            raise self.arith.fail(f"the bounds of loop {name!r} are not affine in loop variables and sizes")
        if step == 0:
            raise self.arith.fail(f"loop {name!r} has no step")
        loop = fresh_name(name, self._names)
        self._names.add(loop)
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
        b = self._buffer(name, indices)
        where = self._indices(name, indices)
        e = self.arith.converted(value, b.dtype)
        for cond in reversed(at.conds):
            # a condition on data: the element keeps its value otherwise
            e = Select(cond, e, Load(name, where, b.dtype))
        block = fresh_name(f"S{self._blocks}", self._names)
        self._blocks += 1
        if self._blocks > MAX_STATEMENTS:
            raise self.arith.fail(f"the nest has more than {MAX_STATEMENTS} statements")
        self._names.add(block)
        iters = tuple(Iter(v, lo, hi, "ord") for v, lo, hi in at.loops)
        bind = tuple(var(v) for v, _, _ in at.loops)
        return Block(block, block, iters, bind, store(name, where, e), None, at.where)

    def function(self, body: Stmt) -> LoopFunction:
        """The finished function: outputs are what it writes, in-out arguments what counts on entry."""
        written = {name for name, _ in stmt_writes(body)}
        used = written | {load.buffer for load in stmt_loads(body)}
        outputs = tuple(n for n in self.buffers if n in written and n not in self.temps)
        for name in reversed(self.temps):
            if name in used:
                body = Alloc(self.buffers[name], body)
        arguments = tuple(b for n, b in self.buffers.items() if n not in self.temps)
        func = LoopFunction(
            self.name, tuple(self.params.values()), arguments, outputs, seq(body), (), outputs
        )
        kept = poly.contents_that_count(func)
        return replace(func, inouts=tuple(n for n in outputs if n in kept))
