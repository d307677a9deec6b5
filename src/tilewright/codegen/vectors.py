"""Vector loops: lanes side by side, masked tails, and reductions into vector accumulators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import gcd, lcm

from tilewright.analysis import period, update_of
from tilewright.codegen.expressions import Expressions
from tilewright.codegen.joins import can_join, join
from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.llvm.values import Val, iota, literal_lanes, mask_literal
from tilewright.codegen.memory import RegisterBuffer
from tilewright.codegen.operations import binary, horizontal_extreme
from tilewright.codegen.state import LANE, LANE_INDEX, State
from tilewright.codegen.uses import folds_long_values, loads_of, statement_loads, stores_long_values
from tilewright.ir import (
    BF16,
    F16,
    I64,
    ZERO,
    Access,
    Binary,
    Exec,
    Expr,
    For,
    If,
    Index,
    Load,
    Pred,
    Seq,
    Stmt,
    Store,
    Var,
    Window,
    condition_of,
    prove_ge0,
    stmt_children,
    stmt_writes,
    substitute_index,
)

#: Vector loops of at most this many vectors are expanded, longer ones become loops over vectors.
MAX_EXPANDED_VECTORS = 8
#: Independent accumulators of a vectorised reduction: hides the latency of the FMA unit.
REDUCTION_ACCUMULATORS = 4

#: Vectors that are computed side by side where each takes many operations, one after the other: a core looks
#: ahead over about two vectors' worth. Emerald Rapids, 128x3072 elements, of the time one by one, 2 and 4:
#: Exp 0.92 and 0.81, Softplus 0.89 and 0.76, Mish 0.92 and 0.70, Erf 0.93 and 0.90, GELU 0.89 and 0.90.
#: Vectors of 512 bits have 32 registers, which are enough.
VECTORS_TOGETHER = 4
#: The same where they are folded into accumulators, too; a divisor of :data:`REDUCTION_ACCUMULATORS`.
#: Zen 4, softmax 8x50000, us one by one, 2 and 4: one thread 102.4, 98.0, 100.3, two 55.7, 52.0, 55.0.
FOLDED_TOGETHER = 2
TOGETHER_BITS = 512

_JOINED = ("add", "mul", "min", "max")
Emit = Callable[[Stmt], None]
Flat = Callable[[Access | Load], Index | None]
"""The offset of an access in its buffer, where its strides are known."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A loop body that folds ``term`` into one place: ``before; if cond: buffer[indices] op= term``."""

    before: tuple[Stmt, ...]
    cond: Pred
    write: Access
    old: Load
    op: str
    term: Expr


def reduction_of(loop: For) -> Reduction | None:
    """The reduction that the body of a loop is, where it is one that lanes can do apart."""
    body: Stmt = loop.body
    before: tuple[Stmt, ...] = ()
    if isinstance(body, Seq) and body.stmts:
        *first, body = body.stmts
        before = tuple(first)
    cond, body = condition_of(body)
    if not (isinstance(body, Store) and len(body.writes) == 1):
        return None
    w = body.writes[0]
    update = update_of(w)
    if update is None or update.op not in _JOINED or any(loop.var in i.vars for i in w.indices):
        return None
    old, term = update.old, update.term
    if old.dtype.kind == "bool" or old.dtype in (F16, BF16):
        return None
    if any(ld.buffer == w.buffer for ld in loads_of(term)):
        return None
    if any(ld.buffer == w.buffer for c in cond if c.expr is not None for ld in loads_of(c.expr)):
        return None
    if before and not _leaves_alone(loop, before, w.buffer):
        return None
    return Reduction(before, cond, w, old, update.op, term)


def _leaves_alone(loop: For, before: tuple[Stmt, ...], place: str) -> bool:
    """Whether statements may run as lanes, and neither read nor write the buffer ``place``."""
    touched = {name for s in before for name, _ in stmt_writes(s)}
    touched |= {ld.buffer for s in before for ld in statement_loads(s)}
    return place not in touched and lanes_apart(replace(loop, body=Seq(before)))


def _unknown(_: Access | Load) -> Index | None:
    return None


def lanes_apart(loop: For, flat: Flat = _unknown) -> bool:
    """Whether the iterations of a vector loop may run as lanes: no two write or carry the same place.

    Loops that may not (an argmax, storage of each iteration's own, bounds that depend on the lane) run one
    iteration after the other.
    """
    v = loop.var

    def visit(s: Stmt) -> bool:
        match s:
            case For():
                if v in s.lo.vars or v in s.hi.vars:
                    return False
            case Store():
                return all(map(store, s.writes))
            case Exec():
                return all(map(window, s.windows))
            case Seq() | If():
                pass
            case _:
                return False
        return all(map(visit, stmt_children(s)))

    def window(w: Window) -> bool:
        """A window that is written must be another one in each lane, one element wide."""
        return w.mode == "r" or (max(w.extents) == 1 and any(_moves_with(i, v) for i in w.offsets))

    def store(w: Access) -> bool:
        involved = [i for i in w.indices if v in i.vars]
        place = flat(w)
        distinct = any(_moves_with(i, v) for i in involved) or (place is not None and _moves_with(place, v))
        carries = any(ld.buffer == w.buffer for ld in loads_of(w.value))
        if not involved:
            # every lane writes the same element: right only where all write the same value
            return v not in w.value.vars and not carries
        return distinct or not carries

    return visit(loop.body)


def _moves_with(x: Index, v: str) -> bool:
    """Whether an index takes different values for different ``v``: ``c*v`` plus terms without it."""
    c = x.coefficient(v)
    rest = x - Index(0, ((Var(v), c),))
    return c != 0 and v not in rest.vars


def sunk(loop: For) -> For | None:
    """A reduction loop moved into the loops that make up its body: ``for j: for v: c[j] += …``."""
    inner = loop.body
    if not isinstance(inner, For) or inner.kind.name not in ("serial", "unroll"):
        return None
    if loop.var in inner.lo.vars or loop.var in inner.hi.vars or inner.var in (loop.hi - loop.lo).vars:
        return None
    moved = replace(loop, body=inner.body)
    deeper = moved if reduction_of(moved) is not None else sunk(moved)
    return None if deeper is None else replace(inner, body=deeper)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A vector's worth of iterations: the loop's variable in terms of the lane, and the lanes if not all."""

    at: Index
    mask: Val | None


@dataclass(frozen=True, slots=True)
class _Way:
    """How a vector loop is emitted."""

    loop: For  # kept, as ways are found by its identity
    reduction: Reduction | None
    apart: bool
    sunk: For | None
    element_bytes: int
    lanes: int
    chunks: tuple[_Chunk, ...]  # where the loop is known to consist of them


def _chunks(lo: Index, extent: int, lanes: int) -> Iterator[_Chunk]:
    for c in range(0, extent, lanes):
        active = min(lanes, extent - c)
        mask = None if active == lanes else mask_literal([n < active for n in range(lanes)])
        yield _Chunk(lo + c + LANE_INDEX, mask)


class VectorLoops(Expressions):
    """Emits vector loops; what is in them is emitted by the statement emitter."""

    def __init__(self, builder: Builder, state: State, vector_bits: int) -> None:
        super().__init__(builder, state)
        self.vector_bits = vector_bits
        self._ways: dict[int, _Way] = {}

    @abstractmethod
    def stmt(self, s: Stmt) -> None:
        """Emit a statement."""

    @abstractmethod
    def store(self, s: Store) -> list[Val]:
        """Emit assignments; their values."""

    @abstractmethod
    def serial_loop(self, s: For, lo: Index, hi: Index, unroll: int, emit: Emit) -> None:
        """Emit a counted loop."""

    @abstractmethod
    def ask_later(self, s: For, at: Index, step: int) -> None:
        """Emit the prefetches that a loop's hints ask for in the turn that begins at ``at``."""

    def _element_bytes(self, body: Stmt) -> int:
        """Bytes of the widest element stored or loaded."""
        sizes = [ld.dtype.bytes for ld in statement_loads(body)]
        for name, _ in stmt_writes(body):
            known = self.state.buffers.get(name)
            sizes.append(known.buffer.dtype.bytes if known is not None else 1)
        return max(sizes, default=4)

    def _lanes(self, element_bytes: int, extent: int | None) -> int:
        """As many lanes as fill a register, fewer for short loops."""
        lanes = max(2, self.vector_bits // 8 // element_bytes)
        while extent is not None and lanes > 2 and lanes // 2 >= extent:
            lanes //= 2
        return lanes

    def known_chunks(self, s: For) -> bool:
        """Emit a vector loop that consists of a few vectors, whatever surrounds it; ``False`` for others."""
        way = self._way(s)
        for c in way.chunks:
            self._chunk(s, c, way.lanes)
        return bool(way.chunks)

    def vector_loop(self, s: For, lo: Index, hi: Index) -> bool:
        """Emit a vector loop; ``False`` where its iterations depend on each other."""
        way = self._way(s)
        if way.sunk is not None:
            self.stmt(way.sunk)
            return True
        if way.reduction is None and not way.apart:
            return False
        extent = hi - lo
        n = extent.const if extent.is_const else None
        lanes = self._lanes(way.element_bytes, n)
        if way.reduction is not None:
            together = self._folded_together(s, way.reduction)
            _ReductionLoop(self, s, way.reduction, lanes, together).emit(lo, hi)
        elif n is not None and -(-n // lanes) <= MAX_EXPANDED_VECTORS:
            for c in _chunks(lo, n, lanes):
                self._chunk(s, c, lanes)
        else:
            together = lanes * VECTORS_TOGETHER
            if n is not None and self.vector_bits >= TOGETHER_BITS and stores_long_values(s, self._in_memory):
                whole = Index(n // together * together)
                self._loop_of_vectors(s, lo, whole, together)
                lo, extent = lo + whole, extent - whole
            copies = self._phases(s, lanes)
            if n is not None and copies > 1 and extent.as_int() >= copies * lanes:
                whole = Index(extent.as_int() // (copies * lanes) * (copies * lanes))
                self._loop_of_vectors(s, lo, whole, lanes, copies)
                for c in _chunks(lo + whole, extent.as_int() - whole.as_int(), lanes):
                    self._chunk(s, c, lanes)
            elif extent != ZERO:
                self._loop_of_vectors(s, lo, extent, lanes)
        return True

    def _phases(self, s: For, lanes: int) -> int:
        """Vectors after which lanes lie as they did in the first one, by quotients and remainders of them.

        Where that is known lanes are picked from whole vectors. 1 where nothing becomes known.
        """
        steps = 1
        for ld in statement_loads(s.body):
            place = self._in_memory(ld)
            found = None if place is None or s.var not in place.vars else period(place, s.var)
            steps = steps if found is None else lcm(steps, found[0])
        copies = steps // gcd(steps, lanes)
        return copies if copies <= MAX_EXPANDED_VECTORS else 1

    def _folded_together(self, s: For, r: Reduction) -> int:
        """How many vectors of what a reduction folds are computed side by side."""
        long = self.vector_bits >= TOGETHER_BITS and not r.cond
        long = long and folds_long_values(s.var, r.before, r.term, self._in_memory)
        return FOLDED_TOGETHER if long else 1

    def _way(self, s: For) -> _Way:
        way = self._ways.get(id(s))
        if way is None:
            reduction = reduction_of(s)
            apart = reduction is None and lanes_apart(s, self._flat)
            moved = None if reduction or apart else sunk(s)
            size = self._element_bytes(s.body)
            n = s.extent.const if s.extent.is_const else None
            lanes = self._lanes(size, n)
            chunks: tuple[_Chunk, ...] = ()
            if apart and s.lo.is_const and n is not None and -(-n // lanes) <= MAX_EXPANDED_VECTORS:
                chunks = tuple(_chunks(s.lo, n, lanes))
            way = self._ways[id(s)] = _Way(s, reduction, apart, moved, size, lanes, chunks)
        return way

    def _flat(self, w: Access | Load) -> Index | None:
        """The offset of an access in its buffer, ``None`` where strides are symbolic."""
        buf = self.state.buffers.get(w.buffer)
        if buf is None:
            return None
        total = Index(0)
        for i, stride in zip(buf.buffer.physical(w.indices), buf.strides, strict=True):
            if not isinstance(stride, int):
                return None
            total = total + i * stride
        return total

    def _in_memory(self, access: Access | Load) -> Index | None:
        """The offset of an access in memory; ``None`` where it is in registers, too."""
        kept = isinstance(self.state.buffers.get(access.buffer), RegisterBuffer)
        return None if kept else self._flat(access)

    def join_lanes(self, s: For) -> bool:
        """Emit a loop, in a vector loop, that adds up a register for each lane; ``False`` for others."""
        st, r = self.state, reduction_of(s)
        if r is None or r.cond or r.before or not isinstance(r.term, Load):
            return False
        buf = st.buffers[r.term.buffer]
        lo, n = self.resolve(s.lo), self.resolve(s.hi) - self.resolve(s.lo)
        if not isinstance(buf, RegisterBuffer) or not n.is_const or n.const < 2:
            return False
        used = (True,) * st.width if st.mask is None else literal_lanes(st.mask)
        cells = self._cells_of_lanes(s.var, buf, r.term, (lo, lo + 1))
        lanes = next((w for c, d, w in buf.values if c == cells[0][0] and d == 1), 0)
        if not used or not lanes or n.const % lanes or any(b - a != 1 for a, b in cells):
            return False
        if not can_join(st.width, lanes, r.old.dtype.bytes):
            return False
        parts = [
            [buf.values.get((cell + at, 1, lanes)) for cell, _ in cells] for at in range(0, n.const, lanes)
        ]
        known = next((v for v in parts[0] if v is not None), None)
        if known is None or any(v is None and used[k] for part in parts for k, v in enumerate(part)):
            return False
        rows = [known if v is None else v for v in parts[0]]
        for part in parts[1:]:
            rows = [x if v is None else binary(self.b, r.op, x, v) for x, v in zip(rows, part, strict=True)]
        total = binary(self.b, r.op, self.load(r.old), join(self.b, r.op, rows))
        self.assign(r.write.buffer, r.write.indices, total)
        return True

    def _cells_of_lanes(
        self, var: str, buf: RegisterBuffer, ld: Load, values: tuple[Index, Index]
    ) -> list[tuple[int, int]]:
        """For each lane the cells of a register that ``ld`` reads for two values of a variable."""
        st = self.state
        moving = {name: e for name, e in st.env.items() if LANE in e.vars}
        cells: list[tuple[int, int]] = []
        for lane in range(st.width):
            for name, e in moving.items():
                st.env[name] = substitute_index(e, {LANE: Index(lane)})
            pair: list[int] = []
            for value in values:
                st.env[var] = value
                pair.append(self.register_key(buf, ld.indices)[0])
            cells.append((pair[0], pair[1]))
        st.env.update(moving)
        del st.env[var]
        return cells

    def _loop_of_vectors(self, s: For, lo: Index, extent: Index, lanes: int, copies: int = 1) -> None:
        """Whole vectors in a loop, so many ``copies`` a turn, the rest under a mask."""

        def emit() -> None:
            self.stmt(s.body)

        def vector(_: Stmt) -> None:
            for n in range(copies):
                base = lo + self.state.env[loop.var] * (copies * lanes) + n * lanes
                self.ask_for_vectors(s, base, lanes)
                self.chunk(s, base, lanes, lanes, emit)

        whole = extent // (copies * lanes)
        loop = For(f"{s.var}$", ZERO, whole, Seq(()))
        self.serial_loop(loop, ZERO, whole, 1, vector)
        rest = extent - whole * (copies * lanes)
        if rest.is_const:
            if rest != ZERO:
                self.chunk(s, lo + whole * lanes, lanes, rest.const, emit)
            return
        # a vector of no lanes takes as long as any other: only where there is a rest
        last, some = For(f"{s.var}$r", ZERO, (rest + lanes - 1) // lanes, s.body), lo + whole * lanes
        self.serial_loop(last, ZERO, last.hi, 1, lambda _: self.chunk(s, some, lanes, rest, emit))

    def ask_for_vectors(self, s: For, base: Index, lanes: int) -> None:
        """Emit the prefetches of a turn over ``lanes`` iterations, for each vector of them: its own line."""
        one = min(lanes, self._way(s).lanes)
        for at in range(0, lanes, one):
            self.ask_later(s, base + at, one)

    def _chunk(self, s: For, chunk: _Chunk, lanes: int) -> None:
        """One vector's worth of iterations, known beforehand."""
        st = self.state
        st.open_lanes(lanes)
        st.mask = chunk.mask
        st.env[s.var] = chunk.at
        self.stmt(s.body)
        del st.env[s.var]
        st.mask = None
        st.close_lanes()

    def chunk(self, s: For, base: Index, lanes: int, active: int | Index, emit: Callable[[], None]) -> None:
        """One vector's worth of iterations from ``base`` on, the first ``active`` lanes of it."""
        st, b = self.state, self.b
        st.open_lanes(lanes)
        guarded = False
        if isinstance(active, int):
            st.mask = None if active == lanes else mask_literal([n < active for n in range(lanes)])
        else:
            # perhaps no lane at all: what is read for all lanes together then waits for this too
            st.mask = b.compare("icmp slt", iota(I64, lanes), b.splat(self.index_value(active), lanes))
            st.guards.append(st.mask)
            guarded = True
        st.env[s.var] = base + LANE_INDEX
        emit()
        del st.env[s.var]
        if guarded:
            st.guards.pop()
        st.mask = None
        st.close_lanes()


class _ReductionLoop:
    """A vector loop that accumulates into one place: vector accumulators, joined at the end."""

    def __init__(self, owner: VectorLoops, loop: For, r: Reduction, lanes: int, together: int) -> None:
        self.x = owner
        self.loop = loop
        self.r = r
        self.lanes = lanes
        self.together = together
        self.dtype = r.old.dtype
        self.identity: float | int = {
            "add": -0.0 if self.dtype.is_float else 0, "mul": 1,
            "min": self.dtype.max_value, "max": self.dtype.min_value,
        }[r.op]  # fmt: skip
        self.written = {name for s in r.before for name, _ in stmt_writes(s)}
        self.neutral = owner.b.const(self.identity, self.dtype, lanes)
        self.accs: list[Val] = []

    def emit(self, lo: Index, hi: Index) -> None:
        """Emit the loop and the update of its place."""
        x, lanes = self.x, self.lanes
        extent = hi - lo
        n = extent.as_int() if extent.is_const else None
        copies = REDUCTION_ACCUMULATORS
        if n is not None:
            copies = max(1, min(copies, n // lanes))
        self.accs = [self.neutral] * copies
        block = lanes * copies
        whole = Index(n // block) if n is not None else extent // block
        start = whole * block
        if n is not None and n // lanes <= MAX_EXPANDED_VECTORS:
            for c in range(0, n, lanes):
                self._step(c // lanes % copies, lo + c, min(lanes, n - c))
        elif n is not None:
            self._loop_together(whole, lo, copies)
            for c in range(n // block * block, n, lanes):
                self._step(0, lo + c, min(lanes, n - c))
        else:
            self._loop_together(whole, lo, copies)
            more = (extent - start) // lanes
            self._loop(x.resolve(more), lambda at: self._steps(lo + start + at * lanes, 1))
            done = start + more * lanes
            # a vector of no lanes takes as long as any other: only where there is a rest
            some = x.resolve((extent - done + lanes - 1) // lanes)
            self._loop(some, lambda _: self._step(0, lo + done, extent - done))
        total = self.accs[0]
        for a in self.accs[1:]:
            total = binary(x.b, self.r.op, total, a)
        previous = x.load(self.r.old)
        w = self.r.write
        x.assign(w.buffer, w.indices, binary(x.b, self.r.op, previous, self._join(total)))

    def _loop_together(self, trips: Index, start: Index, copies: int) -> None:
        """:meth:`_loop` over vectors of several registers, whose accumulators become those of single ones."""
        one, b = self.lanes, self.x.b
        self.lanes = wide = one * self.together
        self.accs = [b.const(self.identity, self.dtype, wide)] * (copies // self.together)
        self._loop(trips, lambda at: self._steps(start + at * (wide * len(self.accs)), len(self.accs)))
        self.lanes = one
        if wide != one:
            parts = [range(at, at + one) for at in range(0, wide, one)]
            self.accs = [b.pick(a, a, part) for a in self.accs for part in parts]

    def _loop(self, trips: Index, emit: Callable[[Index], None]) -> None:
        """A loop that carries the accumulators, whose turns get their number."""
        x, b, st = self.x, self.x.b, self.x.state
        if trips.is_const and trips.as_int() <= 1:
            if trips.as_int() == 1:
                emit(ZERO)
            return
        once = prove_ge0(trips - 1, st.ranges)
        x.forget(self.written)
        i, phis = b.begin_loop(b.const(0, I64), x.index_value(trips), 1, self.accs, not once)
        at = st.symbol(i, ZERO, trips - 1)
        self.accs = phis
        emit(at)
        self.accs = b.end_loop(self.accs)
        st.forget_symbol(at)
        x.forget(self.written)

    def _steps(self, base: Index, copies: int) -> None:
        for k in range(copies):
            self._step(k, base + k * self.lanes, self.lanes)

    def _step(self, k: int, base: Index, active: int | Index) -> None:
        self.x.ask_for_vectors(self.loop, base, self.lanes)
        self.x.chunk(self.loop, base, self.lanes, active, lambda: self._fold(k))

    def _fold(self, k: int) -> None:
        """Fold the terms of one vector into accumulator ``k``."""
        x, b, st, term = self.x, self.x.b, self.x.state, self.r.term
        known: dict[int, Val] = {}
        for s in self.r.before:
            if isinstance(s, Store):
                known = self._stored(s)
            else:
                x.stmt(s)
                known = {}
        tests = x.conjuncts(self.r.cond)
        if tests is None:
            return
        outer = mask = st.mask
        guards = [c for c in tests if c.depth]
        for c in tests:
            mask = b.both(mask, b.splat(c, self.lanes))
        st.mask = mask
        st.guards.extend(guards)
        product = isinstance(term, Binary) and term.op == "mul" and self.dtype.name in ("f32", "f64")
        if self.r.op == "add" and product and mask is None:
            assert isinstance(term, Binary)
            factors = (x.value(term.a, known), x.value(term.b, known))
            self.accs[k] = b.fma(*factors, self.accs[k])
        else:
            v = b.splat(x.value(term, known), self.lanes)
            if mask is not None:
                v = b.select(mask, v, self.neutral)
            self.accs[k] = binary(b, self.r.op, self.accs[k], v)
        st.mask = outer
        del st.guards[len(st.guards) - len(guards) :]

    def _stored(self, s: Store) -> dict[int, Val]:
        """Store, and the values of the loads in the term that read what has just been stored.

        Lanes under a mask are not in the cache yet, and a load would wait until they are.
        """
        values = self.x.store(s)
        return {
            id(ld): v
            for w, v in zip(s.writes, values, strict=True)
            for ld in loads_of(self.r.term)
            if ld.buffer == w.buffer and ld.indices == w.indices and ld.dtype == w.value.dtype
        }

    def _join(self, total: Val) -> Val:
        """All lanes as one."""
        b, op, dtype = self.x.b, self.r.op, self.dtype
        if dtype.is_float and op in ("min", "max"):
            return horizontal_extreme(b, op, total)
        if dtype.is_float:
            return b.reduce("f" + op, total, b.const(-0.0 if op == "add" else 1.0, dtype))
        sign = "" if op in ("add", "mul") else ("s" if dtype.kind == "int" else "u")
        return b.reduce(sign + op, total)
