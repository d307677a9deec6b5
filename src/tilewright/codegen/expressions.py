"""Expressions and indices to values: the partial-evaluating half of the emitter.

Indices are evaluated symbolically as far as constants reach: an unrolled loop variable is a number, a running
one a value with a known range, and the lane of a vector loop the variable ``$lane``, whose coefficient in an
access decides between one scalar load, one vector load and a gather.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.codegen.llvm.builder import Builder, Val
from tilewright.codegen.memory import MemoryBuffer, RegisterBuffer, RegisterKey
from tilewright.codegen.uses import loads_of
from tilewright.ir import (
    BOOL,
    F32,
    F64,
    I32,
    I64,
    Binary,
    Call,
    Cast,
    Compare,
    Condition,
    Const,
    DType,
    Expr,
    FloorDiv,
    Index,
    Load,
    MinMax,
    Mod,
    OfIndex,
    Opaque,
    Param,
    Select,
    Unary,
    Var,
    index,
    int_lower,
    int_upper,
    prove_ge0,
    simplify,
    substitute_index,
)
from tilewright.support import InternalError

LANE = "$lane"
_LANE_INDEX = Index(0, ((Var(LANE), 1),))


@dataclass(slots=True)
class State:
    """What the emitter knows at a point of the program."""

    env: dict[str, Index] = field(default_factory=dict)  # loop variables to indices over SSA names
    ranges: dict[str, tuple[Index, Index]] = field(default_factory=dict)  # of SSA names, outermost first
    ssa: dict[str, Val] = field(default_factory=dict)  # SSA names to values
    buffers: dict[str, MemoryBuffer | RegisterBuffer] = field(default_factory=dict)
    params: dict[str, Val] = field(default_factory=dict)
    width: int = 1  # lanes of the open vector loop, 1 outside
    mask: Val | None = None  # active lanes
    guards: list[Val] = field(default_factory=list)  # conditions of lazily selected sides


class Expressions:
    """Evaluates indices and scalar expressions in a :class:`State`, writing through a :class:`Builder`."""

    def __init__(self, builder: Builder, state: State) -> None:
        self.b = builder
        self.state = state
        self._resolved: dict[tuple[Index, int, tuple[Index | None, ...]], Index] = {}

    # -- indices --------------------------------------------------------------------------------------------

    def resolve(self, x: Index) -> Index:
        """``x`` over SSA names, simplified by their ranges."""
        if not x.terms:
            return x
        st = self.state
        key = (x, st.width, tuple(st.env.get(v) for v in sorted(x.vars)))
        got = self._resolved.get(key)
        if got is None:
            got = simplify(substitute_index(x, st.env), st.ranges)
            if not _has_opaque(got):
                self._resolved[key] = got
        return got

    def index_value(self, x: Index) -> Val:
        """The value of a resolved index: a scalar ``i64``, or lanes where ``$lane`` occurs."""
        b = self.b
        parts: list[tuple[Val, int]] = []
        for atom, c in x.terms:
            parts.append((self._atom_value(atom), c))
        parts.sort(key=lambda p: p[0].depth)
        acc: Val | None = None
        for v, c in parts:
            term = v if abs(c) == 1 else b.op("mul nsw", v, b.const(abs(c), I64))
            if acc is None:
                acc = term if c > 0 else b.op("sub nsw", b.const(0, I64), term)
            else:
                acc = b.op("add nsw" if c > 0 else "sub nsw", acc, term)
        if acc is None:
            return b.const(x.const, I64)
        return acc if x.const == 0 else b.op("add nsw", acc, b.const(x.const, I64))

    def _atom_value(self, atom: object) -> Val:
        b, st = self.b, self.state
        match atom:
            case Var(name):
                if name == LANE:
                    return b.iota(I64, st.width)
                return st.ssa[name]
            case Param():
                return st.params[atom.name]
            case FloorDiv(arg, d):
                return self._floordiv(arg, d)
            case Mod(arg, d):
                v = self.index_value(arg)
                if d & (d - 1) == 0:
                    return b.op("and", v, b.const(d - 1, I64))
                if prove_ge0(arg, st.ranges):
                    return b.op("urem", v, b.const(d, I64))
                q = self._floordiv(arg, d)
                return b.op("sub nsw", v, b.op("mul nsw", q, b.const(d, I64)))
            case MinMax(op, args):
                vals = [self.index_value(a) for a in args]
                acc = vals[0]
                for v in vals[1:]:
                    acc = b.intrinsic("smin" if op == "min" else "smax", I64, [acc, v])
                return acc
            case Opaque(expr):
                return self.cast(self.value(expr), I64, "wrap")
            case _:
                raise InternalError(f"unknown index atom {atom}")

    def _floordiv(self, arg: Index, d: int) -> Val:
        b = self.b
        v = self.index_value(arg)
        if d & (d - 1) == 0:
            return b.op("ashr", v, b.const(d.bit_length() - 1, I64))
        if prove_ge0(arg, self.state.ranges):
            return b.op("udiv", v, b.const(d, I64))
        q = b.op("sdiv", v, b.const(d, I64))
        r = b.op("srem", v, b.const(d, I64))
        neg = b.compare("icmp slt", r, b.const(0, I64))
        return b.op("sub nsw", q, b.convert("zext", neg, I64))

    def condition(self, c: Condition) -> bool | Val:
        """A conjunct: a known truth, or a value (lanes where it depends on the lane)."""
        if c.expr is not None:
            v = self.value(c.expr)
            return v if v.depth or v.text not in ("true", "false") else v.text == "true"
        assert c.index is not None
        x = self.resolve(c.index)
        return self._sign(x, c.op)

    def _sign(self, x: Index, op: str) -> bool | Val:
        """Whether ``x >= 0`` (``ge``) or ``x == 0`` (``eq``)."""
        st, b = self.state, self.b
        low, high = int_lower(x, st.ranges), int_upper(x, st.ranges)
        if op == "ge":
            if low is not None and low >= 0:
                return True
            if high is not None and high < 0:
                return False
        else:
            if low == 0 and high == 0:
                return True
            if (low is not None and low > 0) or (high is not None and high < 0):
                return False
        lane = x.coefficient(LANE)
        rest = x - _LANE_INDEX * lane
        if lane and LANE not in rest.vars:
            # r + c*lane >= 0 as a comparison of 32-bit lanes with the clamped scalar r
            big = (1 << 30) - 1
            r = self.index_value(rest)
            r = b.intrinsic(
                "smax", I64, [b.intrinsic("smin", I64, [r, b.const(big, I64)]), b.const(-big, I64)]
            )
            lanes = (
                b.op("mul", b.iota(I32, st.width), b.const(lane, I32)) if lane != 1 else b.iota(I32, st.width)
            )
            total = b.op("add", b.splat(b.convert("trunc", r, I32), st.width), lanes)
            return b.compare("icmp sge" if op == "ge" else "icmp eq", total, b.const(0, I32))
        return b.compare("icmp sge" if op == "ge" else "icmp eq", self.index_value(x), b.const(0, I64))

    # -- accesses -------------------------------------------------------------------------------------------

    def offset(self, name: str, indices: tuple[Index, ...]) -> tuple[Index, tuple[tuple[Index, Val], ...]]:
        """The element offset of an access: an index over SSA names plus products with symbolic strides."""
        buf = self.state.buffers[name]
        assert isinstance(buf, MemoryBuffer)
        lin = buf.linear.get(indices)
        if lin is None:
            total = Index(buf.shift)
            products: list[tuple[Index, Val]] = []
            for i, stride in zip(buf.buffer.physical(indices), buf.strides, strict=True):
                if isinstance(stride, int):
                    total = total + i * stride
                else:
                    products.append((i, stride))
            lin = (total, tuple(products))
            buf.linear[indices] = lin
        return self.resolve(lin[0]), tuple((self.resolve(i), s) for i, s in lin[1])

    def register_key(self, name: str, indices: tuple[Index, ...]) -> RegisterKey:
        """The register of an access; an error where its indices are not constants but for the lane."""
        buf = self.state.buffers[name]
        assert isinstance(buf, RegisterBuffer)
        physical = buf.physical.get(indices)
        if physical is None:
            physical = buf.physical[indices] = buf.buffer.physical(indices)
        first: list[int] = []
        along = -1
        for d, i in enumerate(physical):
            x = self.resolve(i)
            lane = x.coefficient(LANE)
            x = x - _LANE_INDEX * lane
            if not x.is_const or lane not in (0, 1) or (lane and along >= 0):
                raise InternalError(
                    f"register buffer {name} is addressed by {i}: unroll or vectorize the loops around it"
                )
            first.append(x.const)
            along = d if lane else along
        return tuple(first), along, self.state.width if along >= 0 else 1

    def address(self, name: str, x: Index, products: tuple[tuple[Index, Val], ...]) -> Val:
        """Pointer to a lane-free offset: outer terms first, each computed where it is invariant."""
        b = self.b
        buf = self.state.buffers[name]
        assert isinstance(buf, MemoryBuffer)
        dtype = buf.buffer.dtype
        p = buf.pointer
        terms: list[tuple[int, Val, int]] = []
        for atom, c in x.terms:
            v = self._atom_value(atom)
            terms.append((v.depth, v, c))
        for i, stride in products:
            v = b.op("mul nsw", self.index_value(i), stride)
            terms.append((v.depth, v, 1))
        terms.sort(key=lambda t: t[0])
        n = 0
        while n < len(terms):
            depth = terms[n][0]
            acc: Val | None = None
            while n < len(terms) and terms[n][0] == depth:
                _, v, c = terms[n]
                t = v if c == 1 else b.op("mul nsw", v, b.const(c, I64))
                acc = t if acc is None else b.op("add nsw", acc, t)
                n += 1
            assert acc is not None
            p = b.gep(p, acc, dtype)
        return b.gep(p, x.const, dtype, local=True)

    def in_bounds(self, name: str, indices: tuple[Index, ...]) -> bool:
        """Whether an access is shown to stay inside the buffer's logical box."""
        buf = self.state.buffers[name]
        for i, extent in zip(indices, buf.buffer.shape, strict=True):
            x = self.resolve(i)
            if not (prove_ge0(x, self.state.ranges) and prove_ge0(extent - 1 - x, self.state.ranges)):
                return False
        return True

    def load(self, ld: Load) -> Val:
        """Load an element, or one a lane."""
        st, b = self.state, self.b
        buf = st.buffers[ld.buffer]
        if isinstance(buf, RegisterBuffer):
            key = self.register_key(ld.buffer, ld.indices)
            value = buf.values.get(key)
            if value is None:
                raise InternalError(f"register {ld.buffer}{list(key[0])} is read before it is written")
            return value
        x, products = self.offset(ld.buffer, ld.indices)
        guard = self._guard() if st.guards and not self.in_bounds(ld.buffer, ld.indices) else None
        lane = x.coefficient(LANE)
        rest = x - _LANE_INDEX * lane
        irregular = LANE in rest.vars or any(LANE in i.vars for i, _ in products)
        dtype = buf.buffer.dtype
        if not irregular and lane == 0:
            p = self.address(ld.buffer, rest, products)
            if guard is not None:
                if guard.lanes > 1:
                    guard = b.reduce("or", guard)
                p = b.select(guard, p, b.zeros(p.root))
            return b.load(p, dtype, 1, buf.version)
        mask = st.mask
        if guard is not None and guard.lanes > 1:
            mask = guard if mask is None else b.op("and", mask, guard)
            guard = None
        if not irregular and lane == 1:
            p = self.address(ld.buffer, rest, products)
            if guard is not None:
                p = b.select(guard, p, b.zeros(p.root))
            return b.load(p, dtype, st.width, buf.version, mask)
        if guard is not None:
            g = b.splat(guard, st.width)
            mask = g if mask is None else b.op("and", mask, g)
        offsets = self._offsets(x, products)
        return b.gather(buf.pointer, offsets, dtype, mask)

    def _offsets(self, x: Index, products: tuple[tuple[Index, Val], ...]) -> Val:
        offsets = self.index_value(x)
        for i, stride in products:
            offsets = self.b.op("add nsw", offsets, self.b.op("mul nsw", self.index_value(i), stride))
        return self.b.splat(offsets, self.state.width)

    def _guard(self) -> Val:
        acc = self.state.guards[0]
        for g in self.state.guards[1:]:
            acc = self.b.op("and", acc, g)
        return acc

    # -- scalar expressions ---------------------------------------------------------------------------------

    def value(self, e: Expr, memo: dict[int, Val] | None = None) -> Val:
        """The value of an expression; shared sub-expressions (by identity) are evaluated once."""
        memo = {} if memo is None else memo
        got = memo.get(id(e))
        if got is None:
            got = self._value(e, memo)
            memo[id(e)] = got
        return got

    def _value(self, e: Expr, memo: dict[int, Val]) -> Val:
        b = self.b
        match e:
            case Const():
                return b.const(e.value, e.dtype)
            case OfIndex():
                v = self.index_value(self.resolve(e.index))
                return self.cast(v, e.dtype, "wrap")
            case Load():
                return self.load(e)
            case Unary():
                return self._unary(e.op, self.value(e.a, memo))
            case Binary():
                return self._binary_node(e, memo)
            case Compare():
                return self._compare_node(e, memo)
            case Select():
                return self._select(e, memo)
            case Cast():
                return self.cast(self.value(e.a, memo), e.dtype, e.mode)
            case Call():
                return self._call(e.fn, [self.value(a, memo) for a in e.args])

    def _unary(self, op: str, a: Val) -> Val:
        b = self.b
        if op == "not":
            ones = b.const(True, BOOL) if a.dtype.kind == "bool" else b.const(-1, a.dtype)
            return b.op("xor", a, ones)
        if op == "neg":
            if a.dtype.is_float:
                return b.pure(("fneg",), a.dtype, a.lanes, [a], lambda o: f"fneg {o[0].typed}")
            return b.op("sub", b.const(0, a.dtype), a)
        if a.dtype.is_float:
            return b.intrinsic("fabs", a.dtype, [a])
        if a.dtype.kind != "int":
            return a
        return b.intrinsic("abs", a.dtype, [a], extra="i1 false")

    def _binary_node(self, e: Binary, memo: dict[int, Val]) -> Val:
        # a*b + c, c + a*b, c - a*b and a*b - c are one rounding
        if e.op in ("add", "sub") and e.dtype in (F32, F64):
            a, c = e.a, e.b
            if isinstance(c, Binary) and c.op == "mul" and id(c) not in memo:
                x, y = self.value(c.a, memo), self.value(c.b, memo)
                if e.op == "sub":
                    x = self._unary("neg", x)
                return self.b.intrinsic("fma", e.dtype, [x, y, self.value(a, memo)])
            if isinstance(a, Binary) and a.op == "mul" and id(a) not in memo:
                x, y = self.value(a.a, memo), self.value(a.b, memo)
                z = self.value(c, memo)
                if e.op == "sub":
                    z = self._unary("neg", z)
                return self.b.intrinsic("fma", e.dtype, [x, y, z])
        a_val = self.value(e.a, memo)
        if e.dtype.kind == "bool" and e.op in ("and", "or") and a_val.text in ("true", "false"):
            if (e.op == "and") == (a_val.text == "true"):
                return self.value(e.b, memo)
            return a_val
        b_val = self.value(e.b, memo)
        if e.dtype.kind == "bool" and e.op in ("and", "or") and b_val.text in ("true", "false"):
            return a_val if (e.op == "and") == (b_val.text == "true") else b_val
        return self.binary(e.op, a_val, b_val)

    def binary(self, op: str, a: Val, c: Val) -> Val:
        """One of the IR's binary operations on values of one dtype."""
        b, t = self.b, a.dtype
        if t.is_float:
            simple = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}.get(op)
            if simple:
                return b.op(simple, a, c)
            if op in ("min", "max"):
                return self._float_extreme(op, a, c)
            if op in ("rem", "mod", "floordiv"):
                return self._float_division(op, a, c)
            raise InternalError(f"no native code for {op} of {t}")
        signed = t.kind == "int"
        if t.kind == "bool" and op in ("min", "max", "add", "mul"):
            return b.op("and" if op in ("min", "mul") else "or", a, c)
        match op:
            case "add" | "sub" | "mul" | "and" | "or" | "xor" | "shl":
                return b.op(op, a, c)
            case "shr":
                return b.op("ashr" if signed else "lshr", a, c)
            case "min" | "max":
                return b.intrinsic(("s" if signed else "u") + op, t, [a, c])
            case "truncdiv":
                return b.op("sdiv" if signed else "udiv", *self._safe_divisor(a, c))
            case "rem":
                return b.op("srem" if signed else "urem", *self._safe_divisor(a, c))
            case "floordiv" | "mod":
                a, c = self._safe_divisor(a, c)
                if not signed:
                    return b.op("udiv" if op == "floordiv" else "urem", a, c)
                q, r = b.op("sdiv", a, c), b.op("srem", a, c)
                zero = b.const(0, t)
                opposite = b.compare("icmp slt", b.op("xor", r, c), zero)
                fix = b.op("and", opposite, b.compare("icmp ne", r, zero))
                if op == "floordiv":
                    return b.op("sub", q, b.convert("zext", fix, t))
                return b.select(fix, b.op("add", r, c), r)
            case _:
                raise InternalError(f"no native code for {op} of {t}")

    def _safe_divisor(self, a: Val, c: Val) -> tuple[Val, Val]:
        """Keep masked-off lanes and unselected sides from trapping on a division by zero."""
        if c.depth == 0:
            return a, c
        return a, self.b.select(
            self.b.compare("icmp eq", c, self.b.const(0, c.dtype)), self.b.const(1, c.dtype), c
        )

    def _float_extreme(self, op: str, a: Val, c: Val) -> Val:
        b = self.b
        if a.depth == 0 and c.depth:
            a, c = c, a
        if c.depth == 0 and "0x7FF8" not in c.text:
            # with a constant, the machine's min/max (second operand on NaN) propagates NaN in one instruction
            cmp = b.compare("fcmp olt" if op == "min" else "fcmp ogt", c, a)
            return b.select(cmp, c, a)
        return b.intrinsic("minimum" if op == "min" else "maximum", a.dtype, [a, c])

    def _float_division(self, op: str, a: Val, c: Val) -> Val:
        b = self.b
        if op == "floordiv":
            return b.intrinsic("floor", a.dtype, [b.op("fdiv", a, c)])
        r = b.op("frem", a, c)
        if op == "rem":
            return r
        zero = b.const(0.0, a.dtype)
        differs = b.op("xor", b.compare("fcmp olt", r, zero), b.compare("fcmp olt", c, zero))
        fix = b.op("and", differs, b.compare("fcmp one", r, zero))
        return b.select(fix, b.op("fadd", r, c), r)

    def _compare_node(self, e: Compare, memo: dict[int, Val]) -> Val:
        b = self.b
        if isinstance(e.a, OfIndex) and isinstance(e.b, OfIndex | Const) and e.a.dtype.is_integer:
            right = e.b.index if isinstance(e.b, OfIndex) else index(int(e.b.value))
            diff = self.resolve(e.a.index - right)
            forms = {
                "ge": ("ge", diff, False), "gt": ("ge", diff - 1, False), "le": ("ge", -diff, False),
                "lt": ("ge", -diff - 1, False), "eq": ("eq", diff, False), "ne": ("eq", diff, True),
            }  # fmt: skip
            op, signed, negate = forms[e.op]
            r = self._sign(signed, op)
            if isinstance(r, bool):
                return b.const(r != negate, BOOL)
            return b.op("xor", r, b.const(True, BOOL)) if negate else r
        x, y = self.value(e.a, memo), self.value(e.b, memo)
        if x.dtype.is_float:
            name = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une", "gt": "ogt", "ge": "oge"}[e.op]
            return b.compare(f"fcmp {name}", x, y)
        sign = "s" if x.dtype.kind == "int" else "u"
        name = e.op if e.op in ("eq", "ne") else sign + e.op
        return b.compare(f"icmp {name}", x, y)

    def _select(self, e: Select, memo: dict[int, Val]) -> Val:
        b = self.b
        c = self.value(e.cond, memo)
        if c.text == "true":
            return self.value(e.a, memo)
        if c.text == "false":
            return self.value(e.b, memo)
        if not (self._may_fault(e.a, memo) or self._may_fault(e.b, memo)):
            return b.select(c, self.value(e.a, memo), self.value(e.b, memo))
        guards = self.state.guards
        # sides get memos of their own: a load guarded by one side's condition is not valid elsewhere
        guards.append(c)
        x = self.value(e.a, dict(memo))
        guards[-1] = b.op("xor", c, b.const(True, BOOL))
        y = self.value(e.b, dict(memo))
        guards.pop()
        return b.select(c, x, y)

    def _may_fault(self, e: Expr, memo: dict[int, Val]) -> bool:
        """Whether evaluating ``e`` would load something that is neither known nor shown to be in bounds."""
        return not all(self.in_bounds(ld.buffer, ld.indices) for ld in loads_of(e, set(memo)))

    def cast(self, a: Val, t: DType, mode: str) -> Val:
        """Convert a value; see ``CAST_MODES`` of the IR."""
        b, s = self.b, a.dtype
        if s == t:
            return a
        if mode == "bits":
            return b.convert("bitcast", a, t)
        if t.kind == "bool":
            if s.is_float:
                return b.compare("fcmp une", a, b.const(0.0, s))
            return b.compare("icmp ne", a, b.const(0, s))
        if s.kind == "bool":
            if t.is_float:
                return b.convert("uitofp", a, t)
            return b.convert("zext", a, t)
        if s.is_float and t.is_float:
            return self._float_to_float(a, t)
        if s.is_float:
            if mode == "saturate":
                kind = "fptosi" if t.kind == "int" else "fptoui"
                target = Val("", t, a.lanes)
                name = f"llvm.{kind}.sat.{_vec_suffix(target)}.{_vec_suffix(a)}"
                b.declare(name, target.type, [a.type])
                return b.pure((name,), t, a.lanes, [a], lambda o: f"call {target.type} @{name}({o[0].typed})")
            if t.kind == "uint" and t.bits < 64:
                # through i64, so that negative values wrap as they do for integers
                return b.convert("trunc", b.convert("fptosi", a, I64), t)
            return b.convert("fptosi" if t.kind == "int" else "fptoui", a, t)
        if t.is_float:
            if a.depth == 0 and a.lanes == 1:
                return b.const(float(int(a.text)), t)
            return b.convert("sitofp" if s.kind == "int" else "uitofp", a, t)
        if mode == "saturate":
            a = self._saturate(a, t)
        if t.bits == s.bits:
            return Val(a.text, t, a.lanes, a.depth, a.root)
        if t.bits < s.bits:
            return b.convert("trunc", a, t)
        return b.convert("sext" if s.kind == "int" else "zext", a, t)

    def _float_to_float(self, a: Val, t: DType) -> Val:
        b, s = self.b, a.dtype
        if t.bits > s.bits:
            return b.convert("fpext", a, t)
        if t.bits < s.bits:
            return b.convert("fptrunc", a, t)
        return b.convert("fptrunc", b.convert("fpext", a, F32), t)

    def _saturate(self, a: Val, t: DType) -> Val:
        b, s = self.b, a.dtype
        prefix = "s" if s.kind == "int" else "u"
        low, high = max(int(s.min_value), int(t.min_value)), min(int(s.max_value), int(t.max_value))
        a = b.intrinsic(f"{prefix}max", s, [a, b.const(low, s)])
        return b.intrinsic(f"{prefix}min", s, [a, b.const(high, s)])

    def _call(self, fn: str, args: list[Val]) -> Val:
        b = self.b
        t = args[0].dtype
        if fn == "fma":
            return b.intrinsic("fma", t, args)
        if fn == "rsqrt":
            return b.op("fdiv", b.const(1.0, t), b.intrinsic("sqrt", t, [args[0]]))
        if fn == "isnan":
            return b.compare("fcmp uno", args[0], args[0])
        if fn == "isinf":
            return b.compare("fcmp oeq", b.intrinsic("fabs", t, [args[0]]), b.const(float("inf"), t))
        name = {
            "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc",
            "copysign": "copysign",
        }.get(fn)  # fmt: skip
        if name is None:
            raise InternalError(f"{fn} reaches code generation: the lowering expands it into arithmetic")
        return b.intrinsic(name, t, args)


def _vec_suffix(v: Val) -> str:
    t = {"f64": "f64", "f32": "f32", "f16": "f16", "bf16": "bf16"}.get(v.dtype.name, f"i{v.dtype.bits}")
    return t if v.lanes == 1 else f"v{v.lanes}{t}"


def _has_opaque(x: Index) -> bool:
    for atom, _ in x.terms:
        match atom:
            case Opaque():
                return True
            case FloorDiv(arg, _) | Mod(arg, _):
                if _has_opaque(arg):
                    return True
            case MinMax(_, args):
                if any(map(_has_opaque, args)):
                    return True
            case _:
                pass
    return False
