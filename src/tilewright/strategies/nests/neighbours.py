"""Neighbours along rows from registers: of places side by side, each vector is loaded once.

    for j in range(1, n - 1):                  w[lanes] = a[lanes]
        b[j] = a[j-1] + a[j] + a[j+1]    ->    for k in range((n - 2) // lanes - 1):
                                                   w[lanes + ...] = a[(k + 1) * lanes + ...]
                                                   b[k * lanes + 1 + ...] = w[...] + w[1 + ...] + w[2 + ...]
                                                   w[...] = w[lanes + ...]
                                               the last vector and the rest as before

A vector as long as a cache line that does not begin at one lies in two, and takes two reads of the first
level. Here one in each row does, and its neighbours are shuffled out of registers. LLVM cannot undo it, as
vectors pass from one turn to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.ir import (
    REGISTER,
    SERIAL,
    VECTOR,
    Alloc,
    Block,
    Buffer,
    Expr,
    For,
    Index,
    Iter,
    Load,
    LoopFunction,
    LoopKind,
    Stmt,
    Store,
    fresh_name,
    index,
    map_loads,
    map_stmt,
    seq,
    stmt_loads,
    store,
    substitute_index,
    var,
)
from tilewright.target import CpuTarget

#: Vectors of a row from which on it pays to begin with one that is loaded ahead.
LEAST_VECTORS: Final = 8
#: The part of the registers that may hold what passes from one turn to the next, two a row.
SHARE: Final = 0.5

#: Where a row's elements lie: the buffer, and the indices without the constant along the row.
Row = tuple[str, tuple[Index, ...]]


def neighbours_in_registers(func: LoopFunction, loop: For, target: CpuTarget) -> LoopFunction | None:
    """A loop in vectors whose neighbours pass through registers; ``None`` where nothing is gained.

    Iterations of ``loop`` are independent, and what it holds moves along rows by single elements.
    """
    b = loop.body
    if not isinstance(b, Block) or b.init is not None or b.where or not isinstance(b.body, Store):
        return None
    if not loop.extent.is_const:
        return None
    bits = 8 * max(e.dtype.bytes for e in (*b.reads, *(w.value for w in b.body.writes)))
    lanes = target.preferred_vector_bits // bits
    full = loop.extent.const // lanes
    whole_line = target.preferred_vector_bits // 8 >= target.memory[0].line
    rows = {row: span for row, span in _rows(b, loop.var).items() if 0 < span[1] - span[0] <= lanes}
    if not rows or not whole_line or full < LEAST_VECTORS:
        return None
    if 2 * len(rows) > SHARE * target.vector_registers:
        return None
    made = _Sliding(func, loop, b, lanes, rows).nest(full)
    return func.with_body(map_stmt(func.body, lambda s: made if s is loop else s))


def _rows(b: Block, loop: str) -> dict[Row, tuple[int, int]]:
    """The first and the last constant along each row that a statement reads and writes nothing to."""
    written = {name for name, _ in b.writes}
    moving = {it.name for it, x in zip(b.iters, b.bind, strict=True) if loop in x.vars}
    out: dict[Row, tuple[int, int]] = {}
    for ld in stmt_loads(b.body):
        if ld.buffer in written or not ld.indices or not moving & ld.indices[-1].vars:
            continue
        if any(ld.indices[-1].coefficient(name) < 0 for name in moving):
            continue
        at = ld.indices[-1].const
        low, high = out.get(_row(ld), (at, at))
        out[_row(ld)] = min(low, at), max(high, at)
    return out


def _row(ld: Load) -> Row:
    return ld.buffer, (*ld.indices[:-1], ld.indices[-1] - ld.indices[-1].const)


class _Sliding:
    """Builds the nest."""

    def __init__(
        self, func: LoopFunction, loop: For, block: Block, lanes: int, rows: dict[Row, tuple[int, int]]
    ) -> None:
        self.loop, self.block, self.lanes, self.rows = loop, block, lanes, rows
        self.taken = {*func.body.inner_names, *(x.name for x in (*func.buffers, *func.body.allocated))}
        self.types = {_row(ld): ld.dtype for ld in stmt_loads(block.body)}
        self.held = {row: self.name(f"{row[0]}_row") for row in rows}
        self.lane = self.name("lane")
        self.inside = self._in_registers()

    def name(self, base: str) -> str:
        """A name that is not taken yet."""
        fresh = fresh_name(base, self.taken)
        self.taken.add(fresh)
        return fresh

    def nest(self, full: int) -> Stmt:
        """The loop over ``full`` vectors, of which the last and what is left over are as they were."""
        loop, lanes = self.loop, self.lanes
        done = loop.lo + (full - 1) * lanes
        sliding = seq(
            *(self.copied(row, 0, loop.lo) for row in self.rows),
            self.over(full - 1, lambda n: self.turn(loop.lo + n * lanes), SERIAL),
        )
        for row, name in self.held.items():
            sliding = Alloc(Buffer(name, (index(2 * lanes),), self.types[row], scope=REGISTER), sliding)
        parts = [sliding, self.over(lanes, lambda k: self.statement(self.block.body, done + k), VECTOR)]
        if loop.extent.const > full * lanes:
            rest = loop.extent.const - full * lanes
            parts.append(self.over(rest, lambda k: self.statement(self.block.body, done + lanes + k), VECTOR))
        return seq(*parts)

    def turn(self, at: Index) -> Stmt:
        """One vector from ``at`` on: what is loaded for it, and for the next."""
        return seq(
            *(self.copied(row, self.lanes, at + self.lanes) for row in self.rows),
            self.over(self.lanes, lambda k: self.statement(self.inside, at + k, k), VECTOR),
            *(self.moved(row) for row in self.rows),
        )

    def _in_registers(self) -> Stmt:
        """The statement with the elements of rows in registers."""

        def element(ld: Load) -> Expr:
            span = self.rows.get(_row(ld))
            if span is None:
                return ld
            return Load(self.held[_row(ld)], (var(self.lane) + ld.indices[-1].const - span[0],), ld.dtype)

        return map_loads(self.block.body, element)

    def copied(self, row: Row, to: int, at: Index) -> Stmt:
        """The vector of a row that iterations from ``at`` on begin with, into registers from ``to`` on."""
        buffer, indices = row
        first = (*indices[:-1], indices[-1] + self.rows[row][0])
        body = store(self.held[row], (var(self.lane) + to,), Load(buffer, first, self.types[row]))
        return self.over(self.lanes, lambda k: self.statement(body, at + k, k), VECTOR)

    def moved(self, row: Row) -> Stmt:
        """The second vector of a row becomes the first."""
        held, lane = self.held[row], var(self.lane)
        body = store(held, (lane,), Load(held, (lane + self.lanes,), self.types[row]))
        return self.over(self.lanes, lambda k: self.statement(body, None, k), VECTOR)

    def over(self, count: int, body: Callable[[Index], Stmt], kind: LoopKind) -> Stmt:
        """A loop."""
        name = self.name(f"{self.loop.var}_n")
        return For(name, index(0), index(count), body(var(name)), kind)

    def statement(self, body: Stmt, at: Index | None, lane: Index | None = None) -> Stmt:
        """A body at one value of the loop (``None``: whatever that is), perhaps in a lane."""
        b = self.block
        pairs = [
            (it, substitute_index(x, {self.loop.var: at}))
            for it, x in zip(b.iters, b.bind, strict=True)
            if at is not None
        ]
        if lane is not None:
            pairs.append((Iter(self.lane, index(0), index(self.lanes), "par"), lane))
        name = self.name(b.name)
        copies = lane is not None and body is not self.inside
        return Block(
            name, name if copies else b.stage, tuple(it for it, _ in pairs), tuple(x for _, x in pairs), body
        )
