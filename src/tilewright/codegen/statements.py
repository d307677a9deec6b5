"""Statements to code: loops, branches and functions; the top of the partial-evaluating emitter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tilewright.codegen.instructions import Instructions
from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.llvm.values import PTR, Val, literal_lanes, poison
from tilewright.codegen.memory import Keys, RegisterBuffer, RegisterKey, RegistersReusedError
from tilewright.codegen.nontemporal import NonTemporal
from tilewright.codegen.prefetch import Prefetching, Request
from tilewright.codegen.spread import Spreading, reduction_steps
from tilewright.codegen.state import Gathers, Reloads, State
from tilewright.codegen.storage import Memory, Storage
from tilewright.codegen.uses import LONG_VALUE, neighbours_of, operations_of, unchanging
from tilewright.ir import (
    BOOL,
    CONST,
    F32,
    F64,
    I64,
    Access,
    Alloc,
    Barrier,
    Binary,
    Exec,
    For,
    If,
    Index,
    Load,
    LoopFunction,
    PrefetchHint,
    Seq,
    Stmt,
    Store,
    Var,
    is_opaque,
    is_outlined,
    locate,
    nontemporal_hints,
    prefetch_hints,
    prove_ge0,
    reloaded_part,
    stmt_loads,
    stmt_writes,
    unroll_factor,
)
from tilewright.support import InternalError, ScheduleError, TargetError
from tilewright.target import BUILT_IN, Operations

#: Vector loops that cannot run as lanes and serial loops around registers are expanded up to this many times.
MAX_FORCED_COPIES = 64
#: The fewest bytes of elements that instructions gather: AVX2 and AVX-512 from 4, SVE into lanes of 4.
GATHERED = 4


Register: TypeAlias = tuple[RegisterBuffer, RegisterKey]


@dataclass(frozen=True, slots=True)
class _Form:
    """What a loop node says about how it is emitted, found out once: nodes in copies are met many times."""

    loop: For  # kept, as forms are found by its identity
    kind: str
    copies: tuple[Index, ...] | None  # the values of the variable, where the loop is expanded for certain
    unroll: int  # copies of the body in one turn
    outlined: bool
    prefetched: Mapping[str, PrefetchHint]
    nontemporal: frozenset[str]

    @staticmethod
    def of(s: For) -> _Form:
        """The form of a loop."""
        kind = s.kind.name
        copies = None
        if kind != "thread" and s.lo.is_const and s.hi.is_const:
            extent = s.hi.const - s.lo.const
            if kind == "unroll" or extent <= s.step:
                copies = tuple(_copies(s.lo, extent, s.step))
        prefetched = {p.name: p for p in prefetch_hints(s) if not (p.ahead or p.further or p.spread)}
        return _Form(s, kind, copies, unroll_factor(s), is_outlined(s), prefetched, nontemporal_hints(s))


def _copies(lo: Index, extent: int, step: int) -> Iterator[Index]:
    return (lo + n for n in range(0, extent, step))


class Emitter(Storage, Prefetching, Spreading, NonTemporal, Instructions):
    """Emits one lowered :class:`LoopFunction` through a :class:`Builder`."""

    def __init__(
        self,
        builder: Builder,
        vector_bits: int,
        operations: Operations = BUILT_IN,
        *,
        keeps_lanes: bool = False,
        kept: Keys = frozenset(),
        apart: bool = False,
    ) -> None:
        super().__init__(builder, State(operations), vector_bits)
        self.keeps_lanes = keeps_lanes
        self.kept = kept
        # LLVM believes of the pointers of functions alone that they do not alias
        self._body: Callable[[Stmt], None] = partial(self._outlined, wanted={}) if apart else self.stmt
        self._apart = apart
        self._name = ""
        self._writes: dict[int, tuple[Stmt, frozenset[str]]] = {}
        self._forms: dict[int, _Form] = {}
        self._long: dict[int, tuple[Store, bool]] = {}
        self._beside: dict[int, tuple[Store, Mapping[int, tuple[Load, int]]]] = {}

    def kernel(self, func: LoopFunction, symbol: str) -> Memory:
        """Emit ``func`` as a kernel with the runtime's calling convention; returns what it needs.

        It returns 0, or ``n`` where assumption number ``n`` (from 1) of the function does not hold.
        """
        b, st = self.b, self.state
        self._name = symbol
        names = ("ctx", "buffers", "params", "workspace", "scratch")
        args = b.begin_function([(f"%{n}", PTR) for n in names])
        self._ctx, table, params, self._workspace, self._scratch = (
            Val(v.text, v.dtype, 1, v.depth, v.text) for v in args
        )
        for n, p in enumerate(func.params):
            st.params[p.name] = b.load(b.gep(params, n, I64, local=True), I64, 1)
        for n, c in enumerate(func.assumes):
            holds = self.condition(c)
            if holds is not True:
                b.return_unless(holds if isinstance(holds, Val) else b.const(False, BOOL), n + 1)
        if not self._apart:
            b.overlapping = frozenset(buf.alias or buf.name for buf in func.buffers if buf.scope != CONST)
        st.unchanging = unchanging(func)
        for n, buf in enumerate(func.buffers):
            slot = b.gep(table, n, PTR, local=True)
            self.declare(buf, b.load_pointer(slot, buf.alias or buf.name))
        with self.tiles_configured(func.body, parallel=False):
            self._body(func.body)
        b.end_kernel(symbol, args)
        return self.needs()

    # -- statements -----------------------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> None:
        """Emit a statement in the current state."""
        match s:
            case Store():
                self.store(s)
            case For():
                self._for(s)
            case Seq():
                self._in_turn(s.stmts, self.stmt)
            case If():
                self._if(s)
            case Alloc():
                self.alloc(s)
            case Exec():
                self.execute(s)
            case Barrier():
                pass  # one thread a block on this machine
            case _:
                raise InternalError(f"{type(s).__name__} reaches code generation")

    def _in_turn(self, stmts: Iterable[Stmt], emit: Callable[[Stmt], None]) -> None:
        """Statements one after the other, counting the steps of reductions where loops ask ahead."""
        st = self.state
        before = st.step
        for k in stmts:
            emit(k)
            if st.spreads:
                st.step = st.step + reduction_steps(k, st.outlined)
        st.step = before

    def store(self, s: Store) -> list[Val]:
        """Emit assignments; their values."""
        memo: dict[int, Val] = {}
        st = self.state
        partners = self._neighbours(s) if st.width > 1 else None
        st.gathers = Gathers(partners, len(st.guards)) if partners else None
        if len(s.writes) == 1:
            w = s.writes[0]
            st.in_turn = self._is_long(s)
            v = self._accumulated(w, memo) if self._apart and st.width == 1 else None
            v = self.value(w.value, memo) if v is None else v
            st.in_turn, st.gathers = False, None
            self.assign(w.buffer, w.indices, v)
            return [v]
        values = [self.value(w.value, memo) for w in s.writes]
        st.gathers = None
        for w, v in zip(s.writes, values, strict=True):
            self.assign(w.buffer, w.indices, v)
        return values

    def _accumulated(self, w: Access, memo: dict[int, Val]) -> Val | None:
        """The value of ``x = x + e`` or ``x = x - e`` as a sum that may be in another order; else ``None``.

        A product in it is rounded once where LLVM finds that, which knows no sums of its own fused operation.
        """
        e = w.value
        if not isinstance(e, Binary) or e.op not in ("add", "sub") or e.dtype not in (F32, F64):
            return None
        own = Load(w.buffer, w.indices, e.dtype)
        added = e.b if e.a == own else e.a if e.b == own and e.op == "add" else None
        if added is None:
            return None
        b, x = self.b, self.value(own, memo)
        if isinstance(added, Binary) and added.op == "mul":
            y = b.op("fmul contract", self.value(added.a, memo), self.value(added.b, memo))
        else:
            y = self.value(added, memo)
        return b.op(f"f{e.op} reassoc contract", x, y)

    def _is_long(self, s: Store) -> bool:
        """Whether the vectors that a store to memory writes take many operations each: made one by one.

        LLVM would make all at once, and spill (24 vectors of GELU: 162 stores and loads).
        """
        st = self.state
        if st.width == 1 or isinstance(st.buffers[s.writes[0].buffer], RegisterBuffer):
            return False
        known = self._long.get(id(s))
        if known is None:
            known = self._long[id(s)] = (s, operations_of(s.writes[0].value) >= LONG_VALUE)
        return known[1]

    def _neighbours(self, s: Store) -> Mapping[int, tuple[Load, int]]:
        """Which loads of a store's values read elements side by side, at places that data tell."""
        known = self._beside.get(id(s))
        if known is None:
            pairs = neighbours_of([w.value for w in s.writes], self._in_memory)
            known = self._beside[id(s)] = (s, pairs)
        return known[1]

    def written(self, s: Stmt) -> frozenset[str]:
        """Names of the buffers that a statement writes."""
        got = self._writes.get(id(s))
        if got is None:
            got = self._writes[id(s)] = (s, frozenset(name for name, _ in stmt_writes(s)))
        return got[1]

    def _registers(self, written: frozenset[str]) -> list[RegisterBuffer]:
        buffers = self.state.buffers
        return [r for name, r in buffers.items() if name in written and isinstance(r, RegisterBuffer)]

    # -- loops ----------------------------------------------------------------------------------------------

    def _for(self, s: For) -> None:
        form = self._forms.get(id(s))
        if form is None:
            form = self._forms[id(s)] = _Form.of(s)
        if self.state.width > 1 and self.join_lanes(s):
            return
        if form.nontemporal:
            self.past_caches(form.nontemporal, self.written(s), partial(self._loop_of, s, form))
        else:
            self._loop_of(s, form)

    def _loop_of(self, s: For, form: _Form) -> None:
        # a function gives no values back: it cannot write its surroundings' registers
        if form.outlined and not self._registers(self.written(s.body)):
            emit: Callable[[Stmt], None] = partial(self._outlined, wanted=form.prefetched)
        else:
            emit = self.stmt
        if form.copies is not None:
            self._expand(s, form.copies, emit)
        elif form.kind == "vector" and self.state.width == 1 and s.step == 1:
            if not self.known_chunks(s):
                self._vector(s, emit)
        else:
            self._loop(s, form, self.resolve(s.lo), self.resolve(s.hi), emit)

    def _outlined(self, body: Stmt, wanted: Mapping[str, PrefetchHint]) -> None:
        b = self.b
        with self.keeping_storage():
            b.begin_function([])
            if wanted:
                self.ask(body, Request(wanted, False))
            outside, self.state.outlined = self.state.outlined, True
            self.stmt(body)
            self.state.outlined = outside
            b.end_outlined(f"{self._name}_tile")

    def _vector(self, s: For, emit: Callable[[Stmt], None]) -> None:
        """A vector loop; where iterations depend on each other, copies of its body, or a serial loop."""
        lo, hi = self.resolve(s.lo), self.resolve(s.hi)
        extent = hi - lo
        if extent.is_const and extent.const <= 1:
            self._expand(s, _copies(lo, extent.const, 1), emit)
        elif self.vector_loop(s, lo, hi):
            pass
        elif extent.is_const and extent.const <= MAX_FORCED_COPIES:
            self._expand(s, _copies(lo, extent.const, 1), emit)
        else:
            self.serial_loop(s, lo, hi, 1, emit)

    def _loop(self, s: For, form: _Form, lo: Index, hi: Index, emit: Callable[[Stmt], None]) -> None:
        extent = hi - lo
        if form.kind == "thread":
            raise TargetError(f"loop {s.var} is bound to {s.kind.axis}, which this target does not have")
        if extent.is_const and (extent.const <= s.step or form.kind == "unroll"):
            self._expand(s, _copies(lo, extent.const, s.step), emit)
        elif form.kind == "parallel" and not self.parallel and self.state.width == 1:
            self._parallel_loop(s, lo, hi, emit)
        else:
            self.serial_loop(s, lo, hi, form.unroll, emit)

    def _expand(self, s: For, copies: Iterable[Index], emit: Callable[[Stmt], None]) -> None:
        """One copy of the body for each value of the variable, one after the other."""
        env, body, name, st = self.state.env, s.body, s.var, self.state
        numbered, before = st.copies, st.step
        values = tuple(copies)
        for n, value in enumerate(values):
            env[name] = value
            numbered[name] = (n, len(values))
            emit(body)
            if st.spreads:
                st.step = st.step + reduction_steps(body, st.outlined or is_outlined(s))
        st.step = before
        env.pop(name, None)
        numbered.pop(name, None)

    def serial_loop(self, s: For, lo: Index, hi: Index, unroll: int, emit: Callable[[Stmt], None]) -> None:
        """A counted loop, ``unroll`` copies of the body a turn; what is left over one by one."""
        if (part := reloaded_part(s)) is not None:
            emit = partial(self._reloading, emit, part)
        extent = hi - lo
        step = s.step * unroll
        if unroll > 1 and extent.is_const:
            whole = extent.const // step * step
            if whole:
                self._run(s, lo, lo + whole, step, emit)
            if whole < extent.const:
                self._run(s, lo + whole, hi, s.step, emit)
        elif unroll > 1 and s.step == 1:
            whole_symbolic = extent // unroll * unroll
            self._run(s, lo, lo + whole_symbolic, step, emit)
            self._run(s, lo + whole_symbolic, hi, s.step, emit)
        else:
            self._run(s, lo, hi, s.step, emit)

    def _reloading(self, emit: Callable[[Stmt], None], part: tuple[int, int], body: Stmt) -> None:
        """A copy of a loop's body in which instructions load a part of single elements for themselves."""
        outside, self.state.reloads = self.state.reloads, Reloads(*part)
        emit(body)
        self.state.reloads = outside

    def _run(self, s: For, lo: Index, hi: Index, step: int, emit: Callable[[Stmt], None]) -> None:
        """A counted loop that carries the registers its body writes; several copies of the body a turn."""
        st, b = self.state, self.b
        trips = hi - lo
        if trips.is_const and trips.const <= step:
            self._expand(s, _copies(lo, trips.const, s.step), emit)
            return
        once = prove_ge0(trips - 1, st.ranges)
        written = self.written(s.body)
        registers = self._registers(written)
        for buf in registers:
            for key in (key for name, key in self.kept if name == buf.buffer.name and key not in buf.values):
                buf.put(b, key, buf.get(b, key) or Val("poison", buf.buffer.dtype, key[2]))
                buf.put_in_part(key)
        carried = [(buf, key) for buf in registers for key in buf.values]
        self.forget(written)
        blanks = [set(buf.blank) for buf in registers]
        inits = [buf.values[key] for buf, key in carried]
        i, phis = b.begin_loop(self.index_value(lo), self.index_value(hi), step, inits, not once)
        for (buf, key), phi in zip(carried, phis, strict=True):
            buf.values[key] = phi
        last = hi - step if trips.is_const and trips.const % step == 0 else hi - 1
        var = st.symbol(i, lo, last)
        spreading = self.begin_spreading(s, var, hi)
        below = reduction_steps(s.body, st.outlined or is_outlined(s)) if st.spreads else 0
        before = st.step
        if st.spreads and spreading is None and s.step == 1:
            st.step = before + (var - self.resolve(s.lo)) * (below or 1)
            if st.outlined and not below:
                self.ask_ahead(step)
        for n in range(step // s.step):
            if n and carried:
                # LLVM would load neighbours of several steps together, and then spill accumulators
                b.fence()
            self.ask_later(s, var + n * s.step, s.step)
            st.env[s.var] = var + n * s.step
            st.copies[s.var] = (n, step // s.step)
            emit(s.body)
            st.step = st.step + below
        st.env.pop(s.var, None)
        del st.copies[s.var]
        st.step = before
        self.end_spreading(spreading)
        fresh = self._fresh(registers, carried)
        self.keep(
            not all(blank <= buf.blank for blank, buf in zip(blanks, registers, strict=True)),
            frozenset((buf.buffer.name, key) for buf, key in fresh if buf.is_partial(key)),
        )
        if not once:
            for buf, key in fresh:
                buf.put_in_part(key)
        innermost = self._apart and st.width == 1 and not any(True for _ in locate(s.body, For))
        scalar = innermost and (_gathers_bytes(s.body) or _stores_apart(s))
        outs = b.end_loop(self._values(carried), self._values(fresh), scalar=scalar)
        st.forget_symbol(var)
        _reset(registers, [*carried, *fresh], outs)
        self.forget(written)

    def keep(self, lanes: bool, keys: Keys) -> None:
        """Begin again where the next turn of a loop would lose what one has written there."""
        if keys or (lanes and not self.keeps_lanes):
            raise RegistersReusedError(lanes, keys)

    def ask_later(self, s: For, at: Index, step: int) -> None:
        """Emit the prefetches that a loop's hints ask for in the turn that begins at ``at``."""
        for p in prefetch_hints(s):
            if p.ahead or p.further:
                self.state.env[s.var] = at + p.ahead * step
                self.ask(s.body, Request({p.name: p}, True))
                del self.state.env[s.var]

    def _values(self, registers: list[Register]) -> list[Val]:
        values = [buf.get(self.b, key) for buf, key in registers]
        assert all(v is not None for v in values)
        return [v for v in values if v is not None]

    def _fresh(self, buffers: list[RegisterBuffer], known: list[Register]) -> list[Register]:
        """What the buffers hold besides the known registers."""
        return [
            (buf, key) for buf in buffers for key in buf.others([k for owner, k in known if owner is buf])
        ]  # fmt: skip

    def _parallel_loop(self, s: For, lo: Index, hi: Index, emit: Callable[[Stmt], None]) -> None:
        b, st = self.b, self.state
        count = self.index_value((hi - lo + (s.step - 1)) // s.step)
        start = self.index_value(lo)
        written = self.written(s.body)
        if self._registers(written):
            raise ScheduleError(
                f"parallel loop {s.var} writes registers allocated around it",
                hint="allocate them inside of the loop, or make the loop serial",
            )
        args = b.begin_function([("%closure", PTR), ("%begin", I64), ("%end", I64), ("%scratch", PTR)])
        _, begin, end, scratch = args
        self.forget(written)
        with self.in_parallel(scratch), self.tiles_configured(s.body, parallel=True):
            first = b.op("add nsw", self._scaled(begin, s.step), start)
            last = b.op("add nsw", self._scaled(end, s.step), start)
            i, _ = b.begin_loop(first, last, s.step, [], True)
            var = st.symbol(i, lo, hi - 1)
            spreading = self.begin_spreading(s, var, hi)
            st.env[s.var] = var
            (self._body if self._apart else emit)(s.body)
            st.env.pop(s.var, None)
            self.end_spreading(spreading)
            b.end_loop([])
        if st.nontemporal & written:
            b.order_nontemporal()
        b.end_parallel(f"{self._name}_par", self._ctx, count, args)
        self.configure_again(s.body)
        self.forget(written)
        st.forget_symbol(var)

    def _scaled(self, iteration: Val, step: int) -> Val:
        return iteration if step == 1 else self.b.op("mul nsw", iteration, self.b.const(step, I64))

    # -- branches -------------------------------------------------------------------------------------------

    def _if(self, s: If) -> None:
        st, b = self.state, self.b
        conditions = self.conjuncts(s.cond)
        if conditions is None:
            if s.orelse is not None:
                self.stmt(s.orelse)
            return
        scalar: Val | None = None
        lanes: Val | None = None
        for got in conditions:
            if got.lanes > 1:
                lanes = b.both(lanes, got)
            else:
                scalar = b.also(scalar, got)
        if lanes is not None:
            if scalar is not None:
                lanes = b.also(b.splat(scalar, st.width), lanes)
            self._masked(lanes, s.then)
            if s.orelse is not None:
                self._masked(b.inverse(lanes), s.orelse)
        elif scalar is None:
            self.stmt(s.then)
        else:
            orelse = s.orelse
            other = None if orelse is None else partial(self.stmt, orelse)
            self.branch(scalar, self.written(s), partial(self.stmt, s.then), other)

    def _masked(self, lanes: Val, s: Stmt) -> None:
        """A statement in some of the lanes, perhaps none."""
        st = self.state
        outer = st.mask
        st.mask = self.b.both(outer, lanes)
        known = literal_lanes(st.mask)
        if known is None:
            st.guards.append(lanes)
            self.stmt(s)
            st.guards.pop()
        elif any(known):
            self.stmt(s)
        st.mask = outer

    def branch(
        self,
        cond: Val,
        written: frozenset[str],
        then: Callable[[], None],
        orelse: Callable[[], None] | None = None,
    ) -> None:
        """A jump; the registers that either side writes (``written``: buffers) are merged after it."""
        b = self.b
        registers = self._registers(written)
        carried = [(buf, key) for buf in registers for key in buf.values]
        before = self._values(carried)
        blanks = [set(buf.blank) for buf in registers]
        partials = [set(buf.partial) for buf in registers]
        b.begin_if(cond)
        then()
        fresh = self._fresh(registers, carried)
        firsts = self._values(fresh)
        thens = b.begin_else([*self._values(carried), *firsts])
        then_blanks = [buf.blank for buf in registers]
        then_partials = [buf.partial for buf in registers]
        _reset(registers, carried, before)
        for buf, blank, partial_cells in zip(registers, blanks, partials, strict=True):
            buf.blank, buf.partial = blank, partial_cells
        self.forget(written)
        if orelse is not None:
            orelse()
        # what only one side writes is undefined after the other
        known = [*carried, *fresh]
        late = self._fresh(registers, known)
        elses = self._values(carried)
        others = [buf.get(b, key) for buf, key in fresh]
        elses += [v or poison(first) for v, first in zip(others, firsts, strict=True)]
        lates = self._values(late)
        merged = b.end_if([*thens, *map(poison, lates)], [*elses, *lates])
        for buf, blank, partial_cells in zip(registers, then_blanks, then_partials, strict=True):
            buf.blank &= blank
            buf.partial |= partial_cells
        for buf, key in (*(r for r, v in zip(fresh, others, strict=True) if v is None), *late):
            buf.put_in_part(key)
        _reset(registers, [*known, *late], merged)
        self.forget(written)


def _reset(buffers: list[RegisterBuffer], registers: list[Register], values: list[Val]) -> None:
    """Make the buffers hold exactly these registers."""
    for buf in buffers:
        values_of = {key: v for (owner, key), v in zip(registers, values, strict=True) if owner is buf}
        buf.reset(values_of, buf.blank)


def _gathers_bytes(body: Stmt) -> bool:
    """Whether data say where short elements are: lanes take those one by one, and then join them."""
    return any(ld.dtype.bytes < GATHERED and any(map(is_opaque, ld.indices)) for ld in stmt_loads(body))


def _stores_apart(s: For) -> bool:
    """Whether a loop leaves elements out between those that it writes: lanes are stored one by one then."""
    steps: dict[str, list[int]] = {}
    for name, at in stmt_writes(s.body):
        if any(s.var in x.vars for x in at):
            moved = dict(at[-1].terms).get(Var(s.var), 0)
            steps.setdefault(name, []).append(0 if any(s.var in x.vars for x in at[:-1]) else abs(moved))
    return any(step > len(each) or step == 0 for each in steps.values() for step in each)
