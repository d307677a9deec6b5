"""Statements to code: loops, branches, storage; the other half of the partial-evaluating emitter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.codegen.expressions import LANE, Expressions, State
from tilewright.codegen.llvm.builder import PTR, Builder, Val
from tilewright.codegen.memory import MemoryBuffer, RegisterBuffer
from tilewright.codegen.uses import loads_of, statement_loads
from tilewright.ir import (
    BOOL,
    I64,
    REGISTER,
    ZERO,
    Alloc,
    Barrier,
    Binary,
    Buffer,
    DType,
    For,
    If,
    Index,
    IndexMap,
    Load,
    LoopFunction,
    Pred,
    Seq,
    Stmt,
    Store,
    Var,
    index,
    prove_ge0,
    stmt_writes,
    substitute_index,
)
from tilewright.support import InternalError, TargetError

#: Vector loops of at most this many vectors are expanded, longer ones become loops over vectors.
MAX_EXPANDED_VECTORS = 8
#: Independent accumulators of a vectorised reduction: hides the latency of the FMA unit.
REDUCTION_ACCUMULATORS = 4

_LANE_INDEX = Index(0, ((Var(LANE), 1),))
_HORIZONTAL = {"add": "add", "mul": "mul", "min": "min", "max": "max"}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes a kernel needs besides its arguments: once a call (workspace) and once a worker (scratch)."""

    workspace: int
    scratch: int


class Emitter:
    """Emits one lowered :class:`LoopFunction` through a :class:`Builder`."""

    def __init__(self, builder: Builder, vector_bits: int) -> None:
        self.b = builder
        self.vector_bits = vector_bits
        self.state = State()
        self.x = Expressions(builder, self.state)
        self._symbols = 0
        self._parallel = False
        self._offset = {"workspace": 0, "scratch": 0}
        self._high = {"workspace": 0, "scratch": 0}
        self._name = ""

    def kernel(self, func: LoopFunction) -> Memory:
        """Emit ``func`` as a kernel with the runtime's calling convention; returns what it needs."""
        b, st = self.b, self.state
        self._name = func.name
        names = ("ctx", "buffers", "params", "workspace", "scratch")
        args = b.begin_function([(f"%{n}", PTR) for n in names])
        self._ctx, table, params, self._workspace, self._scratch = (
            Val(v.text, v.dtype, 1, v.depth, v.text) for v in args
        )
        for n, p in enumerate(func.params):
            slot = b.gep(params, n, I64, local=True)
            st.params[p.name] = b.load(slot, I64, 1, 0)
        for n, buf in enumerate(func.buffers):
            slot = b.gep(table, n, PTR, local=True)
            ptr = b.impure(
                PTR, 1, [slot], lambda o: f"load ptr, ptr {o[0].text}, align 8", root=buf.alias or buf.name
            )
            self._declare(buf, ptr)
        self.stmt(func.body)
        b.end_kernel(func.name, args)
        return Memory(self._high["workspace"], self._high["scratch"])

    # -- statements -----------------------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> None:
        """Emit a statement in the current state."""
        match s:
            case Seq():
                for k in s.stmts:
                    self.stmt(k)
            case Store():
                self._store(s)
            case For():
                self._for(s)
            case If():
                self._if(s)
            case Alloc():
                self._alloc(s)
            case Barrier():
                pass  # one thread a block on this machine
            case _:
                raise InternalError(f"{type(s).__name__} reaches code generation")

    def _symbol(self, v: Val, lo: Index, hi: Index) -> Index:
        """A fresh variable that stands for a value with a known range."""
        self._symbols += 1
        name = f"${self._symbols}"
        self.state.ssa[name] = v
        self.state.ranges[name] = (lo, hi)
        return Index(0, ((Var(name), 1),))

    def _for(self, s: For) -> None:
        lo, hi = self.x.resolve(s.lo), self.x.resolve(s.hi)
        if any(k == "outline" for k, _ in s.hints):
            self._loop(s, lo, hi, self._outlined)
        else:
            self._loop(s, lo, hi, self.stmt)

    def _outlined(self, body: Stmt) -> None:
        self.b.begin_function([])
        # what is loaded or multiplied inside belongs to the outlined function
        self.stmt(body)
        self.b.end_outlined(f"{self._name}_tile")

    def _loop(self, s: For, lo: Index, hi: Index, emit: Callable[[Stmt], None]) -> None:
        st = self.state
        extent = hi - lo
        kind = s.kind.name
        if kind == "thread":
            raise TargetError(f"loop {s.var} is bound to {s.kind.axis}, which this target does not have")
        if extent.is_const and (extent.as_int() <= s.step or kind == "unroll"):
            for n in range(0, extent.as_int(), s.step):
                st.env[s.var] = lo + n
                emit(s.body)
            st.env.pop(s.var, None)
            return
        if kind == "vector" and st.width == 1 and s.step == 1:
            self._vector(s, lo, hi)
        elif kind == "parallel" and not self._parallel and s.step == 1 and st.width == 1:
            self._parallel_loop(s, lo, hi, emit)
        else:
            unroll = next((int(v) for k, v in s.hints if k == "unroll"), 1)
            self._serial(s, lo, hi, unroll, emit)

    def _serial(self, s: For, lo: Index, hi: Index, unroll: int, emit: Callable[[Stmt], None]) -> None:
        extent = hi - lo
        step = s.step * unroll
        if unroll > 1 and extent.is_const:
            whole = extent.as_int() // step * step
            if whole:
                self._run(s, lo, lo + whole, step, emit)
            if whole < extent.as_int():
                self._run(s, lo + whole, hi, s.step, emit)
        else:
            self._run(s, lo, hi, s.step, emit)

    def _run(self, s: For, lo: Index, hi: Index, step: int, emit: Callable[[Stmt], None]) -> None:
        """A counted loop that carries the registers its body writes; several copies of the body a turn."""
        st, b = self.state, self.b
        copies = step // s.step
        trips = hi - lo
        if trips.is_const and trips.as_int() <= step:
            for n in range(0, trips.as_int(), s.step):
                st.env[s.var] = lo + n
                emit(s.body)
            st.env.pop(s.var, None)
            return
        at_least_once = prove_ge0(hi - lo - 1, st.ranges)
        written = {name for name, _ in stmt_writes(s.body)}
        registers = [
            (buf, key) for name, buf in st.buffers.items()
            if isinstance(buf, RegisterBuffer) and name in written for key in buf.values
        ]  # fmt: skip
        inits = [buf.values[key] for buf, key in registers]
        self._forget(written)
        i, phis = b.begin_loop(self.x.index_value(lo), self.x.index_value(hi), step, inits, not at_least_once)
        for (buf, key), phi in zip(registers, phis, strict=True):
            buf.values[key] = phi
        before = {id(buf): set(buf.values) for buf, _ in registers}
        var = self._symbol(i, lo, hi - 1 if step == 1 else hi - step if _divides(hi - lo, step) else hi - 1)
        for n in range(copies):
            st.env[s.var] = var + n * s.step
            emit(s.body)
        st.env.pop(s.var, None)
        fresh = [
            (buf, key) for name, buf in st.buffers.items()
            if isinstance(buf, RegisterBuffer) and name in written
            for key in buf.values if key not in before.get(id(buf), set())
        ]  # fmt: skip
        outs = b.end_loop([buf.values[key] for buf, key in registers])
        for (buf, key), v in zip(registers, outs, strict=True):
            buf.values[key] = v
        for buf, key in fresh:
            if not at_least_once:
                del buf.values[key]
            else:
                v = buf.values[key]
                buf.values[key] = Val(v.text, v.dtype, v.lanes, min(v.depth, b.depth), v.root)
        self._forget(written)
        name = next(iter(var.vars))
        del st.ssa[name], st.ranges[name]

    def _forget(self, written: set[str]) -> None:
        """Loads of buffers in ``written`` (and their aliases) are no longer known."""
        roots = set()
        for name in written:
            buf = self.state.buffers.get(name)
            if isinstance(buf, MemoryBuffer):
                roots.add(buf.pointer.root)
        for buf in self.state.buffers.values():
            if isinstance(buf, MemoryBuffer) and buf.pointer.root in roots:
                self._symbols += 1
                buf.version = self._symbols

    def _parallel_loop(self, s: For, lo: Index, hi: Index, emit: Callable[[Stmt], None]) -> None:
        b, st = self.b, self.state
        count = self.x.index_value(hi - lo)
        start = self.x.index_value(lo)
        written = {name for name, _ in stmt_writes(s.body)}
        args = b.begin_function([("%closure", PTR), ("%begin", I64), ("%end", I64), ("%scratch", PTR)])
        _, begin, end, scratch = args
        outer_scratch, self._scratch = self._scratch, Val(scratch.text, PTR, 1, scratch.depth, "%scratch")
        self._parallel = True
        self._forget(written)
        first = b.op("add nsw", begin, start)
        last = b.op("add nsw", end, start)
        i, _ = b.begin_loop(first, last, 1, [], True)
        var = self._symbol(i, lo, hi - 1)
        st.env[s.var] = var
        emit(s.body)
        st.env.pop(s.var, None)
        b.end_loop([])
        b.end_parallel(f"{self._name}_par", self._ctx, count, args)
        self._parallel = False
        self._scratch = outer_scratch
        self._forget(written)
        name = next(iter(var.vars))
        del st.ssa[name], st.ranges[name]

    # -- vector loops ---------------------------------------------------------------------------------------

    def _lanes(self, body: Stmt, extent: int | None) -> int:
        """Lanes of a vector loop: as many of the widest element stored or loaded as fill a register."""
        sizes = [ld.dtype.bytes for ld in statement_loads(body)]
        for name, _ in stmt_writes(body):
            sizes.append(self.state.buffers[name].buffer.dtype.bytes if name in self.state.buffers else 1)
        lanes = max(2, self.vector_bits // 8 // max(sizes, default=4))
        while extent is not None and lanes > 2 and lanes // 2 >= extent:
            lanes //= 2
        return lanes

    def _vector(self, s: For, lo: Index, hi: Index) -> None:
        st = self.state
        extent = hi - lo
        n = extent.as_int() if extent.is_const else None
        lanes = self._lanes(s.body, n)
        if self._reduction(s, lo, hi, lanes):
            return
        if n is not None and -(-n // lanes) <= MAX_EXPANDED_VECTORS:
            for c in range(0, n, lanes):
                self._chunk(s, lo + c, lanes, min(lanes, n - c))
            return
        # whole vectors in a loop, the rest under a mask
        whole = Index(n // lanes) if n is not None else _floor(extent, lanes)
        loop = For(f"{s.var}$", ZERO, whole, Seq(()))
        self._serial(
            loop, ZERO, whole, 1, lambda _: self._chunk(s, lo + st.env[loop.var] * lanes, lanes, lanes)
        )
        if n is not None:
            if n % lanes:
                self._chunk(s, lo + n // lanes * lanes, lanes, n % lanes)
            return
        rest = extent - whole * lanes
        if prove_ge0(-rest, st.ranges):
            return
        self._chunk(s, lo + whole * lanes, lanes, rest)

    def _chunk(
        self, s: For, base: Index, lanes: int, active: int | Index, emit: Callable[[], None] | None = None
    ) -> None:
        """One vector's worth of iterations from ``base`` on, the first ``active`` lanes of it."""
        st, b = self.state, self.b
        outer_width, outer_mask = st.width, st.mask
        st.width = lanes
        st.ranges[LANE] = (ZERO, Index(lanes - 1))
        if isinstance(active, int):
            st.mask = None if active == lanes else b.mask_literal(active, lanes)
        else:
            bound = self.x.index_value(active)
            st.mask = b.compare("icmp slt", b.iota(I64, lanes), b.splat(bound, lanes))
        st.env[s.var] = base + _LANE_INDEX
        if emit is None:
            self.stmt(s.body)
        else:
            emit()
        st.env.pop(s.var, None)
        del st.ranges[LANE]
        st.width, st.mask = outer_width, outer_mask

    def _reduction(self, s: For, lo: Index, hi: Index, lanes: int) -> bool:
        """A vector loop that accumulates into one place: vector accumulators, joined at the end."""
        body: Stmt = s.body
        cond: Pred = ()
        if isinstance(body, If) and body.orelse is None:
            cond, body = body.cond, body.then
        if not (isinstance(body, Store) and len(body.writes) == 1):
            return False
        w = body.writes[0]
        if any(s.var in i.vars for i in w.indices) or not isinstance(w.value, Binary):
            return False
        op, e = w.value.op, w.value
        old = Load(w.buffer, w.indices, e.dtype)
        if op not in _HORIZONTAL or old not in (e.a, e.b):
            return False
        term = e.b if e.a == old else e.a
        if any(ld.buffer == w.buffer for ld in loads_of(term)):
            return False
        dtype = e.dtype
        if dtype.kind == "bool":
            return False
        identity: float | int = {"add": 0, "mul": 1, "min": dtype.max_value, "max": dtype.min_value}[op]
        if dtype.is_float and op == "add":
            identity = -0.0
        st, b = self.state, self.b
        zero = b.const(identity, dtype, lanes)
        extent = hi - lo
        n = extent.as_int() if extent.is_const else None
        vectors = None if n is None else n // lanes
        copies = REDUCTION_ACCUMULATORS if vectors is None else max(1, min(REDUCTION_ACCUMULATORS, vectors))
        accs = [zero] * copies

        def step(k: int, base: Index, active: int | Index) -> None:
            def one() -> None:
                mask = st.mask
                for c in cond:
                    got = self.x.condition(c)
                    if got is False:
                        return
                    if got is not True:
                        assert isinstance(got, Val)
                        got = b.splat(got, lanes)
                        mask = got if mask is None else b.op("and", mask, got)
                outer, st.mask = st.mask, mask
                if (
                    op == "add"
                    and isinstance(term, Binary)
                    and term.op == "mul"
                    and dtype.is_float
                    and mask is None
                ):
                    accs[k] = b.intrinsic("fma", dtype, [self.x.value(term.a), self.x.value(term.b), accs[k]])
                else:
                    v = b.splat(self.x.value(term), lanes)
                    if mask is not None:
                        v = b.select(mask, v, zero)
                    accs[k] = self.x.binary(op, accs[k], v)
                st.mask = outer

            self._chunk(s, base, lanes, active, one)

        block = lanes * copies
        whole = Index(n // block) if n is not None else _floor(extent, block)
        if not (whole.is_const and whole.as_int() == 0):
            once = prove_ge0(whole - 1, st.ranges)
            i, phis = b.begin_loop(b.const(0, I64), self.x.index_value(whole), 1, accs, not once)
            var = self._symbol(i, ZERO, whole - 1)
            accs[:] = phis
            for k in range(copies):
                step(k, lo + var * block + k * lanes, lanes)
            accs[:] = b.end_loop(accs)
            name = next(iter(var.vars))
            del st.ssa[name], st.ranges[name]
        if n is not None:
            for c in range(n // block * block, n, lanes):
                step(0, lo + c, min(lanes, n - c))
        else:
            start = whole * block
            more = _floor(extent - start, lanes)
            i, phis = b.begin_loop(
                b.const(0, I64), self.x.index_value(self.x.resolve(more)), 1, [accs[0]], True
            )
            var = self._symbol(i, ZERO, Index(copies - 1))
            accs[0] = phis[0]
            step(0, lo + start + var * lanes, lanes)
            accs[0] = b.end_loop([accs[0]])[0]
            name = next(iter(var.vars))
            del st.ssa[name], st.ranges[name]
            done = start + more * lanes
            step(0, lo + done, extent - done)
        total = accs[0]
        for a in accs[1:]:
            total = self.x.binary(op, total, a)
        if dtype.is_float and op in ("min", "max"):
            name = "fminimum" if op == "min" else "fmaximum"
            scalar = b.reduce(name, total)
        elif dtype.is_float:
            scalar = b.reduce("f" + op, total, b.const(-0.0 if op == "add" else 1.0, dtype))
        else:
            sign = "" if op in ("add", "mul") else ("s" if dtype.kind == "int" else "u")
            scalar = b.reduce(sign + op, total)
        previous = self.x.load(old)
        self._assign(w.buffer, w.indices, self.x.binary(op, previous, scalar))
        return True

    # -- stores ---------------------------------------------------------------------------------------------

    def _store(self, s: Store) -> None:
        memo: dict[int, Val] = {}
        values = [self.x.value(w.value, memo) for w in s.writes]
        for w, v in zip(s.writes, values, strict=True):
            self._assign(w.buffer, w.indices, v)

    def _assign(self, name: str, indices: tuple[Index, ...], v: Val) -> None:
        st, b = self.state, self.b
        buf = st.buffers[name]
        if isinstance(buf, RegisterBuffer):
            key = self.x.register_key(name, indices)
            lanes = key[2]
            if lanes == 1 and v.lanes > 1:
                raise InternalError(f"lanes of a vector loop all write {name}{list(key[0])}")
            if st.mask is not None and lanes > 1 and key in buf.values:
                v = b.select(st.mask, b.splat(v, lanes), buf.values[key])
            buf.values[key] = b.splat(v, lanes)
            return
        x, products = self.x.offset(name, indices)
        self._forget({name})
        lane = x.coefficient(LANE)
        rest = x - _LANE_INDEX * lane
        irregular = LANE in rest.vars or any(LANE in i.vars for i, _ in products)
        if not irregular and lane == 0:
            if v.lanes > 1:
                raise InternalError(f"lanes of a vector loop all write {name}[{x}]: not a reduction")
            if st.mask is not None and st.mask.depth:
                # some lane is active whenever this is reached in a tail; a guard may leave none
                any_lane = b.reduce("or", st.mask)
                b.begin_if(any_lane)
                b.store(self.x.address(name, rest, products), v)
                thens = b.begin_else([])
                b.end_if(thens, [])
            else:
                b.store(self.x.address(name, rest, products), v)
        elif not irregular and lane == 1:
            b.store(self.x.address(name, rest, products), b.splat(v, st.width), st.mask)
        else:
            offsets = self.x._offsets(x, products)
            b.scatter(buf.pointer, offsets, v, st.mask)

    # -- branches -------------------------------------------------------------------------------------------

    def _if(self, s: If) -> None:
        st, b = self.state, self.b
        scalar: Val | None = None
        lanes: Val | None = None
        for c in s.cond:
            got = self.x.condition(c)
            if got is True:
                continue
            if got is False:
                if s.orelse is not None:
                    self.stmt(s.orelse)
                return
            assert isinstance(got, Val)
            if got.lanes > 1:
                lanes = got if lanes is None else b.op("and", lanes, got)
            else:
                scalar = got if scalar is None else b.op("and", scalar, got)
        if lanes is not None:
            if scalar is not None:
                lanes = b.op("and", lanes, b.splat(scalar, st.width))
            outer = st.mask
            st.mask = lanes if outer is None else b.op("and", outer, lanes)
            self.stmt(s.then)
            if s.orelse is not None:
                off = b.op("xor", lanes, b.const(True, BOOL, st.width))
                st.mask = off if outer is None else b.op("and", outer, off)
                self.stmt(s.orelse)
            st.mask = outer
            return
        if scalar is None:
            self.stmt(s.then)
            return
        self._branch(scalar, s)

    def _branch(self, cond: Val, s: If) -> None:
        """A jump; registers that either side writes are merged after it."""
        st, b = self.state, self.b
        written = {name for name, _ in stmt_writes(s.then)}
        if s.orelse is not None:
            written |= {name for name, _ in stmt_writes(s.orelse)}
        registers = [
            (buf, key) for name, buf in st.buffers.items()
            if isinstance(buf, RegisterBuffer) and name in written for key in buf.values
        ]  # fmt: skip
        before = [buf.values[key] for buf, key in registers]
        b.begin_if(cond)
        self.stmt(s.then)
        thens = b.begin_else([buf.values[key] for buf, key in registers])
        for (buf, key), v in zip(registers, before, strict=True):
            buf.values[key] = v
        self._forget(written)
        if s.orelse is not None:
            self.stmt(s.orelse)
        merged = b.end_if(thens, [buf.values[key] for buf, key in registers])
        for (buf, key), v in zip(registers, merged, strict=True):
            buf.values[key] = v
        for name, owned in st.buffers.items():
            if isinstance(owned, RegisterBuffer) and name in written:
                known = {key for owner, key in registers if owner is owned}
                owned.values = {key: v for key, v in owned.values.items() if key in known}
        self._forget(written)

    # -- storage --------------------------------------------------------------------------------------------

    def _declare(self, buf: Buffer, pointer: Val) -> None:
        """Make a buffer in memory known under its name."""
        st = self.state
        layout = buf.layout
        if layout is not None:
            env = {k: v for k, v in st.env.items() if k not in layout.dims}
            exprs = tuple(substitute_index(e, env) for e in layout.exprs)
            buf = buf.with_(layout=IndexMap(layout.dims, exprs, layout.shape))
        strides: list[int | Val] = []
        shift = 0
        stride: int | Val = 1
        halo = buf.halo or ((0, 0),) * len(buf.physical_shape)
        for extent, (before, after) in zip(reversed(buf.physical_shape), reversed(halo), strict=True):
            strides.append(stride)
            if before and not isinstance(stride, int):
                raise InternalError(f"halo of {buf.name} on a dimension with a symbolic stride")
            if isinstance(stride, int):
                shift += before * stride
            size = extent + (before + after)
            if size.is_const and isinstance(stride, int):
                stride = stride * size.as_int()
            else:
                left = self.b.const(stride, I64) if isinstance(stride, int) else stride
                stride = self.b.op("mul nsw", left, self.x.index_value(self.x.resolve(size)))
        st.buffers[buf.name] = MemoryBuffer(buf, pointer, tuple(reversed(strides)), shift)

    def _alloc(self, s: Alloc) -> None:
        buf = s.buffer
        st, b = self.state, self.b
        if buf.scope == REGISTER:
            shape = [self.x.resolve(e) for e in buf.physical_shape]
            if not all(e.is_const for e in shape):
                raise InternalError(f"register buffer {buf.name} has a symbolic shape")
            if buf.layout is not None:
                env = {k: v for k, v in st.env.items() if k not in buf.layout.dims}
                exprs = tuple(substitute_index(e, env) for e in buf.layout.exprs)
                buf = buf.with_(layout=IndexMap(buf.layout.dims, exprs, buf.layout.shape))
            st.buffers[buf.name] = RegisterBuffer(buf)
            self.stmt(s.body)
            del st.buffers[buf.name]
            return
        size = index(buf.dtype.bytes)
        elements = 1
        halo = buf.halo or ((0, 0),) * len(buf.physical_shape)
        dynamic: Val | None = None
        for extent, (before, after) in zip(buf.physical_shape, halo, strict=True):
            e = self.x.resolve(extent + (before + after))
            if e.is_const:
                elements *= e.as_int()
            else:
                v = self.x.index_value(e)
                dynamic = v if dynamic is None else b.op("mul nsw", dynamic, v)
        nbytes = elements * size.as_int()
        if dynamic is not None:
            self._dynamic_alloc(s, b.op("mul nsw", dynamic, b.const(nbytes, I64)))
            return
        arena = "scratch" if self._parallel else "workspace"
        base = self._scratch if self._parallel else self._workspace
        at = -(-self._offset[arena] // 64) * 64
        self._offset[arena] = at + nbytes
        self._high[arena] = max(self._high[arena], -(-(at + nbytes) // 64) * 64)
        p = b.gep(base, at, DType("i8", "int", 8))
        self._declare(buf, Val(p.text, PTR, 1, p.depth, buf.alias or buf.name))
        self.stmt(s.body)
        del st.buffers[buf.name]
        self._offset[arena] = at

    def _dynamic_alloc(self, s: Alloc, nbytes: Val) -> None:
        """Memory of a size known at run time, from the context's allocator."""
        b = self.b
        ctx = self._ctx
        slot = b.gep(ctx, 1, PTR, local=True)
        fn = b.impure(PTR, 1, [slot], lambda o: f"load ptr, ptr {o[0].text}, align 8")
        p = b.impure(PTR, 1, [fn, ctx, nbytes], lambda o: f"call ptr {o[0].text}({o[1].typed}, {o[2].typed})")
        self._declare(s.buffer, Val(p.text, PTR, 1, p.depth, s.buffer.alias or s.buffer.name))
        self.stmt(s.body)
        del self.state.buffers[s.buffer.name]
        slot = b.gep(ctx, 2, PTR, local=True)
        fn = b.impure(PTR, 1, [slot], lambda o: f"load ptr, ptr {o[0].text}, align 8")
        b.effect(lambda o: f"call void {o[0].text}({o[1].typed}, {o[2].typed})", [fn, ctx, p])


def _floor(x: Index, d: int) -> Index:
    return x // d


def _divides(x: Index, d: int) -> bool:
    return x.is_const and x.as_int() % d == 0
