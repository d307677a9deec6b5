"""Neighbours along rows from registers: of places side by side, each vector is loaded once.

    for v in range(n):                         w[k] = a[k]
        vector k:                        ->    for v in range(n - 1):
            j = v * lanes + k                      w[lanes + k] = a[(v + 1) * lanes + k]
            b[j] = a[j] + a[j+1] + a[j+2]          b[v * lanes + k] = w[k] + w[k + 1] + w[k + 2]
                                                   w[k] = w[k + lanes]
                                               the last vector as before

A vector as long as a cache line that does not begin at one lies in two, and takes two reads of the first
level. Here one in each row does, and its neighbours are shuffled out of registers. LLVM cannot undo it, as
vectors pass from one turn to the next. This is for our own code generation: C compilers keep such a window in
memory, where loads wait for stores of other lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from tilewright.ir import (
    REGISTER,
    Alloc,
    Block,
    Buffer,
    Expr,
    For,
    Index,
    Iter,
    Load,
    LoopFunction,
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
Row: TypeAlias = tuple[str, tuple[Index, ...]]
#: The first and the last constant along a row.
Span: TypeAlias = tuple[int, int]


def neighbours_in_registers(func: LoopFunction, target: CpuTarget) -> LoopFunction:
    """The function with rows that loops over vectors read at neighbouring places passed through registers.

    Such a loop holds a vector loop with one statement alone, which moves along rows by single elements, and
    does not write what it reads there.
    """
    if target.preferred_vector_bits // 8 < target.memory[0].line:
        return func
    taken = {*func.body.inner_names, *(x.name for x in (*func.buffers, *func.body.allocated))}

    def visit(s: Stmt) -> Stmt:
        found = _window(s, target)
        return s if found is None else _Sliding(found, taken).nest()

    return func.with_body(map_stmt(func.body, visit))


@dataclass(frozen=True, slots=True)
class _Window:
    """A loop over vectors, the one in lanes, the statement, and the rows that are read at several places."""

    loop: For
    lane: For
    block: Block
    rows: dict[Row, Span]


def _window(s: Stmt, target: CpuTarget) -> _Window | None:
    if not isinstance(s, For) or s.kind.name != "serial" or s.step != 1 or not isinstance(s.body, For):
        return None
    inner, b = s.body, s.body.body
    if inner.kind.name != "vector" or inner.lo != index(0) or not isinstance(b, Block):
        return None
    if b.init is not None or b.where or not isinstance(b.body, Store) or not inner.hi.is_const:
        return None
    lanes = inner.hi.const
    if not s.extent.is_const or s.extent.const < LEAST_VECTORS:
        return None
    rows = {row: span for row, span in _rows(b, s.var, inner.var, lanes).items() if span[0] < span[1]}
    fitting = {row: span for row, span in rows.items() if span[1] - span[0] <= lanes}
    if not fitting or 2 * len(fitting) > SHARE * target.vector_registers:
        return None
    whole = lanes * max(ld.dtype.bits for ld in b.reads) == target.preferred_vector_bits
    return _Window(s, inner, b, fitting) if whole else None


def _rows(b: Block, loop: str, lane: str, lanes: int) -> dict[Row, Span]:
    """The first and the last constant along each row that a statement reads, of what it does not write."""
    written = {name for name, _ in b.writes}
    bound = {it.name: x for it, x in zip(b.iters, b.bind, strict=True) if {loop, lane} & x.vars}
    along = {n for n, x in bound.items() if (x.coefficient(lane), x.coefficient(loop)) == (1, lanes)}
    out: dict[Row, Span] = {}
    for ld in stmt_loads(b.body):
        moving = [bound.keys() & i.vars for i in ld.indices]
        if ld.buffer in written or not moving or any(moving[:-1]) or len(moving[-1]) != 1:
            continue
        (name,) = moving[-1]
        if name not in along or ld.indices[-1].coefficient(name) != 1:
            continue
        at = ld.indices[-1].const
        low, high = out.get(_row(ld), (at, at))
        out[_row(ld)] = min(low, at), max(high, at)
    return out


def _row(ld: Load) -> Row:
    return ld.buffer, (*ld.indices[:-1], ld.indices[-1] - ld.indices[-1].const)


class _Sliding:
    """Builds the nest; names that it gives are ``taken`` from then on."""

    def __init__(self, found: _Window, taken: set[str]) -> None:
        self.loop, self.lane, self.block, self.rows = found.loop, found.lane, found.block, found.rows
        self.lanes, self.taken = self.lane.hi.const, taken
        self.types = {_row(ld): ld.dtype for ld in stmt_loads(self.block.body)}
        self.held = {row: self.name(f"{row[0]}_row") for row in self.rows}
        self.at = self.name("lane")

    def nest(self) -> Stmt:
        """The loop, of which the last turn is as it was."""
        loop = self.loop
        last, n = loop.hi - 1, self.name(loop.var)
        made = seq(
            *(self.copied(row, 0, loop.lo) for row in self.rows), For(n, loop.lo, last, self.turn(var(n)))
        )
        for row, name in self.held.items():
            made = Alloc(Buffer(name, (index(2 * self.lanes),), self.types[row], scope=REGISTER), made)
        return seq(made, self.in_lanes(self.block.body, last, self.block.stage))

    def turn(self, n: Index) -> Stmt:
        """One vector, and what is loaded for the next."""
        return seq(
            *(self.copied(row, self.lanes, n + 1) for row in self.rows),
            self.in_lanes(map_loads(self.block.body, self.element), n, self.block.stage),
            *(self.moved(row) for row in self.rows),
        )

    def element(self, ld: Load) -> Expr:
        """What the statement reads, from registers where it is there."""
        span = self.rows.get(_row(ld))
        if span is None:
            return ld
        return Load(self.held[_row(ld)], (var(self.at) + ld.indices[-1].const - span[0],), ld.dtype)

    def copied(self, row: Row, to: int, n: Index) -> Stmt:
        """The vector of a row that turn ``n`` begins with, into registers from ``to`` on."""
        buffer, indices = row
        first = (*indices[:-1], indices[-1] + self.rows[row][0])
        body = store(self.held[row], (var(self.at) + to,), Load(buffer, first, self.types[row]))
        return self.in_lanes(body, n)

    def moved(self, row: Row) -> Stmt:
        """The second vector of a row becomes the first."""
        held, at = self.held[row], var(self.at)
        return self.in_lanes(store(held, (at,), Load(held, (at + self.lanes,), self.types[row])), None)

    def in_lanes(self, body: Stmt, n: Index | None, stage: str = "") -> Stmt:
        """A body in lanes in turn ``n`` (``None``: whichever that is)."""
        b, k, name = self.block, self.name(self.lane.var), self.name(self.block.name)
        pairs = [(Iter(self.at, index(0), index(self.lanes), "par"), var(k))]
        if n is not None:
            at = {self.loop.var: n, self.lane.var: var(k)}
            pairs += [(it, substitute_index(x, at)) for it, x in zip(b.iters, b.bind, strict=True)]
        block = Block(name, stage or name, tuple(it for it, _ in pairs), tuple(x for _, x in pairs), body)
        return replace(self.lane, var=k, body=block)

    def name(self, base: str) -> str:
        """A name that is not taken yet."""
        fresh = fresh_name(base, self.taken)
        self.taken.add(fresh)
        return fresh
