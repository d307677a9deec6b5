"""Updates of a matrix by its own rows and columns, several steps at a time: the others wait for them.

    for k: for i: for j:                for each 16 steps:
        a[i, j] = f(a[i, j],       ->       for the 16 rows of these steps: a step after the other
                    a[i, k],                for all other i: columns of these steps, a step after the other
                    a[k, j])                    for k in steps: for all other j:
                                                    a[i, j] = f(a[i, j], column[k], row[k, j])

Shortest paths of all pairs, closures, Gauss and Jordan's elimination: every step reads one row and one
column of what all steps change, so the whole matrix passes by in every step. What a step does to rows and
columns of its group reads nothing but these. All others may wait for the end of the group, if they read what
row and column held at their step (``row``, ``column``: copies): before it for elements up to ``k``, after it
for those behind. Each element goes through the same operations in the same order, so results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tilewright.ir import (
    GLOBAL,
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
    floordiv,
    fresh_name,
    index,
    map_loads,
    seq,
    stmt_loads,
    store,
    var,
)
from tilewright.poly import LoopFacts
from tilewright.target import CpuTarget

#: A buffer and the indices of an element of it.
Place: TypeAlias = tuple[str, tuple[Index, ...]]

#: What a loop goes through of another one's range: from where on, and where it ends.
Side: TypeAlias = tuple[Index, Index]

#: Copies of what a step changes.
WHEN: Final = ("before", "after")
#: The part of the registers that elements of columns take, one a step of a group.
SHARE: Final = 0.5
#: Groups from which on it pays: rows of a group are computed step by step.
LEAST_GROUPS: Final = 8


@dataclass(frozen=True, slots=True)
class Grouped:
    """A nest in groups of so many steps, and which of its loops are independent."""

    func: LoopFunction
    facts: LoopFacts
    steps: int


@dataclass(frozen=True, slots=True)
class _Closure:
    """The loops of a nest that updates a matrix by its own rows and columns, and the statement in them."""

    step: For
    row: For
    column: For
    block: Block
    buffer: str


def delayed_updates(func: LoopFunction, target: CpuTarget) -> Grouped | None:
    """A nest in groups of steps; ``None`` for other nests.

    One statement ``a[i, j] = f(...)`` under three loops over ``k`` and, in either order, ``i`` and ``j``, of
    fixed extents; of ``a`` it reads ``a[i, j]``, ``a[i, k]`` and ``a[k, j]`` alone.
    """
    found, count = _closure(func), int(SHARE * target.vector_registers)
    if found is None or found.step.extent.const < LEAST_GROUPS * count:
        return None
    bits = next(b.dtype.bits for b in func.buffers if b.name == found.buffer)
    grouped = _Builder(func, found, count, target.preferred_vector_bits // bits)
    made = func.with_body(grouped.nest())
    return Grouped(made, LoopFacts(frozenset(grouped.free), frozenset()), count)


def _closure(func: LoopFunction) -> _Closure | None:
    loops: list[For] = []
    s = func.body
    while isinstance(s, For):
        if s.kind.name != "serial" or s.step != 1 or not (s.lo.is_const and s.hi.is_const):
            return None
        loops.append(s)
        s = s.body
    if len(loops) != 3 or not isinstance(s, Block) or s.init is not None or s.where:
        return None
    if not isinstance(s.body, Store) or len(s.body.writes) != 1:
        return None
    if s.bind != tuple(var(loop.var) for loop in loops):
        return None
    (w,) = s.body.writes
    k, first, second = (var(it.name) for it in s.iters)
    if w.indices not in ((first, second), (second, first)):
        return None
    i, j = w.indices
    read = {ld.indices for ld in stmt_loads(s.body) if ld.buffer == w.buffer}
    if not {(i, k), (k, j)} <= read <= {(i, j), (i, k), (k, j)}:
        return None
    step, row, column = loops[0], *(loops[1:] if i == first else loops[:0:-1])
    inside = all(x.lo.const <= step.lo.const and step.hi.const <= x.hi.const for x in (row, column))
    return _Closure(step, row, column, s, w.buffer) if inside else None


class _Builder:
    """Builds the nest. Loops that are independent are in ``free``."""

    def __init__(self, func: LoopFunction, found: _Closure, steps: int, lanes: int) -> None:
        self.step, self.row, self.column, self.block = found.step, found.row, found.column, found.block
        self.buffer = next(b for b in func.buffers if b.name == found.buffer)
        self.steps, self.lanes = steps, lanes
        self.taken = {*func.body.inner_names, *(x.name for x in (*func.buffers, *func.body.allocated))}
        own = {x.as_var(): it.name for it, x in zip(self.block.iters, self.block.bind, strict=True)}
        self.k, self.i, self.j = (own[x.var] for x in (self.step, self.row, self.column))
        self.at, self.lane = self.name("step"), self.name("lane")
        self.free: set[str] = set()
        # of each step of a group its row before and after it, and the group's elements of its column
        at, k, i, j = (var(name) for name in (self.at, self.k, self.i, self.j))
        rows, corner = ([self.name(f"{what}_{when}") for when in WHEN] for what in ("row", "column"))
        self.rows: list[Place] = [(name, (at, j)) for name in rows]
        self.corner: list[Place] = [(name, (at, i - k + at)) for name in corner]
        self.element: Place = self.buffer.name, (i, j)
        self.of_column: Place = self.buffer.name, (i, k)
        self.of_row: Place = self.buffer.name, (k, j)

    def nest(self) -> Stmt:
        """Groups of steps, and what is left over as a group of its own."""
        lo, steps = self.step.lo, self.steps
        groups, rest = divmod(self.step.extent.const, steps)
        parts = [self.over(groups, lambda g: self.group(lo + g * steps, steps))]
        if rest:
            parts.append(self.group(lo + groups * steps, rest))
        shapes = ((self.rows, self.column.hi), (self.corner, index(steps)))
        held = [(name, (index(steps), n)) for places, n in shapes for name, _ in places]
        return self.allocated(held, seq(*parts))

    def group(self, first: Index, count: int) -> Stmt:
        """All that ``count`` steps from ``first`` on do."""

        def others(row: Place, side: Side) -> Stmt:
            return self.between(*side, lambda i: self.other_row(first, i, row, count))

        sides = self.around(self.row, first, first + count)
        return seq(self.over(count, lambda n: self.own_rows(first, n, count)), *map(others, self.rows, sides))

    def own_rows(self, first: Index, n: Index, count: int) -> Stmt:
        """What one step does to the rows of its group: to its own before the others."""
        k, columns = first + n, self.column

        def copied(to: Place, source: Place, i: Index, j: Index) -> Stmt:
            return self.statement(self.copy(to, source), n, k, i, j)

        def updated(i: Index, j: Index, c: int, r: int) -> Stmt:
            return self.statement(self.update(self.corner[c], self.rows[r]), n, k, i, j)

        def one(i: Index, r: int) -> Stmt:
            before, behind = self.around(columns, k, k + 1)
            return seq(
                updated(i, k, 0, r),
                copied(self.corner[1], self.of_column, i, k),
                self.between(*before, lambda j: updated(i, j, 0, r)),
                self.between(*behind, lambda j: updated(i, j, 1, r)),
            )

        return seq(
            self.between(first, first + count, lambda i: copied(self.corner[0], self.of_column, i, k)),
            self.between(columns.lo, columns.hi, lambda j: copied(self.rows[0], self.of_row, k, j)),
            one(k, 0),
            self.between(columns.lo, columns.hi, lambda j: copied(self.rows[1], self.of_row, k, j)),
            self.between(first, k, lambda i: one(i, 0)),
            self.between(k + 1, first + count, lambda i: one(i, 1)),
        )

    def other_row(self, first: Index, i: Index, row: Place, count: int) -> Stmt:
        """What all steps of a group do to another row: to the group's columns, then to all others."""
        held: list[Place] = [(self.name(f"own_{when}"), (var(self.at),)) for when in WHEN]
        end, columns = first + count, self.column

        def of_step(n: Index) -> Stmt:
            k = first + n

            def at(body: Stmt, j: Index) -> Stmt:
                return self.statement(body, n, k, i, j)

            return seq(
                at(self.copy(held[0], self.of_column), k),
                at(self.update(held[0], row), k),
                at(self.copy(held[1], self.of_column), k),
                # too short for lanes
                self.between(first, k, lambda j: at(self.update(held[0], row), j), free=False),
                self.between(k + 1, end, lambda j: at(self.update(held[1], row), j), free=False),
            )

        sides = self.around(columns, first, end)
        rest = (self.waiting(first, i, count, side, c, row) for side, c in zip(sides, held, strict=True))
        own = [(name, (index(self.steps),)) for name, _ in held]
        return self.allocated(own, seq(self.over(count, of_step), *rest))

    def waiting(self, first: Index, i: Index, count: int, side: Side, column: Place, row: Place) -> Stmt:
        """All steps of a group, for the elements of a row on one side of its columns.

        A vector of them stays in a register meanwhile, and so do the elements of the columns.
        """
        (lo, hi), lanes, steps = side, self.lanes, [index(n) for n in range(count)]
        own, kept = self.name("own"), self.name("kept")
        vector: Place = own, (var(self.lane),)

        def at(body: Stmt, n: Index, j: Index, lane: Index | None = None) -> Stmt:
            return self.statement(body, n, first + n, i, j, lane)

        def in_lanes(body: Stmt, n: Index, j: Index) -> Stmt:
            return self.between(index(0), index(lanes), lambda x: at(body, n, j + x, x), kind=VECTOR)

        def of_vector(v: Index) -> Stmt:
            j = lo + v * lanes
            parts = [in_lanes(self.copy(vector, self.element), index(0), j)]
            parts += [in_lanes(self.update((kept, (n,)), row, vector), n, j) for n in steps]
            parts.append(in_lanes(self.copy(self.element, vector), index(0), j))
            return self.allocated([(own, (index(lanes),))], seq(*parts), REGISTER)

        def one(j: Index) -> Stmt:
            return seq(*(at(self.update(column, row), n, j) for n in steps))

        loaded = [at(self.copy((kept, (n,)), column), n, first) for n in steps]
        vectors = floordiv(hi - lo, lanes)
        made = seq(*loaded, self.between(index(0), vectors, of_vector, free=False))
        return seq(
            self.allocated([(kept, (index(count),))], made, REGISTER),
            self.between(lo + vectors * lanes, hi, one, free=False),
        )

    def copy(self, to: Place, source: Place) -> Stmt:
        """An element copied."""
        return store(*to, Load(*source, self.buffer.dtype))

    def update(self, column: Place, row: Place, own: Place | None = None) -> Stmt:
        """The statement with the elements of column and row from copies, perhaps its own, too."""
        places = {self.of_column: column, self.of_row: row, self.element: own or self.element}

        def element(ld: Load) -> Expr:
            return Load(*places.get((ld.buffer, ld.indices), (ld.buffer, ld.indices)), ld.dtype)

        body = map_loads(self.block.body, element)
        assert isinstance(body, Store)
        return body if own is None else store(*own, body.writes[0].value)

    def statement(
        self, body: Stmt, n: Index, k: Index, i: Index, j: Index, lane: Index | None = None
    ) -> Stmt:
        """A body in step ``n`` of a group, perhaps in a lane."""
        at = {self.k: k, self.i: i, self.j: j, self.at: n, self.lane: lane or index(0)}
        own = (
            Iter(self.at, index(0), index(self.steps), "ord"),
            Iter(self.lane, index(0), index(self.lanes), "par"),
        )
        iters = (*self.block.iters, *own)
        name = self.name(self.block.name)
        return Block(name, name, iters, tuple(at[it.name] for it in iters), body)

    def around(self, loop: For, lo: Index, hi: Index) -> tuple[Side, Side]:
        """What of a loop's range is before and behind a part of it."""
        return (loop.lo, lo), (hi, loop.hi)

    def allocated(
        self, held: Sequence[tuple[str, tuple[Index, ...]]], body: Stmt, scope: str = GLOBAL
    ) -> Stmt:
        """A statement with storage around it."""
        for name, shape in held:
            body = Alloc(Buffer(name, shape, self.buffer.dtype, scope=scope), body)
        return body

    def name(self, base: str) -> str:
        """A name that is not taken yet."""
        fresh = fresh_name(base, self.taken)
        self.taken.add(fresh)
        return fresh

    def over(self, count: int, body: Callable[[Index], Stmt]) -> Stmt:
        """A loop over steps or groups of them, one after the other."""
        return self.between(index(0), index(count), body, free=False)

    def between(
        self,
        lo: Index,
        hi: Index,
        body: Callable[[Index], Stmt],
        *,
        free: bool = True,
        kind: LoopKind = SERIAL,
    ) -> Stmt:
        """A loop, whose iterations are independent where it is ``free``."""
        name = self.name("n")
        if free:
            self.free.add(name)
        return For(name, lo, hi, body(var(name)), kind)
