"""Scalar expressions to values. Expressions are graphs: shared nodes are evaluated once."""

from __future__ import annotations

from tilewright.codegen.accesses import Accesses
from tilewright.codegen.llvm.values import Val
from tilewright.codegen.operations import binary, call, cast, unary
from tilewright.codegen.uses import loads_of
from tilewright.ir import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    U8,
    U16,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    OfIndex,
    Select,
    Unary,
    index,
)

_NARROW = (U8, I8, U16, I16)

Memo = dict[int, Val]  # by identity of the node


class Expressions(Accesses):
    """Evaluates scalar expressions."""

    def value(self, e: Expr, memo: Memo | None = None) -> Val:
        """The value of an expression; shared sub-expressions (by identity) are evaluated once."""
        memo = {} if memo is None else memo
        got = memo.get(id(e))
        if got is None:
            got = memo[id(e)] = self._value(e, memo)
        return got

    def _value(self, e: Expr, memo: Memo) -> Val:
        b = self.b
        match e:
            case Binary():
                return self._binary(e, memo)
            case Const():
                return b.const(e.value, e.dtype)
            case OfIndex():
                return self._of_index(e)
            case Load():
                return self.load(e)
            case Unary():
                return unary(b, e.op, self.value(e.a, memo))
            case Compare():
                return self._compare(e, memo)
            case Select():
                return self._select(e, memo)
            case Cast(Call("round", (x,)), t, "wrap") if x.dtype == F32 and (t == I32 or t in _NARROW):
                return cast(b, b.nearest(self._limited(x, memo)), t, "wrap")
            case Cast():
                return cast(b, self.value(e.a, memo), e.dtype, e.mode)
            case Call():
                return call(b, e.fn, [self.value(a, memo) for a in e.args])

    def _limited(self, e: Expr, memo: Memo) -> Val:
        """The value of a float of which NaN is of no meaning: minima and maxima are one instruction each."""
        if not isinstance(e, Binary) or e.op not in ("min", "max") or id(e) in memo:
            return self.value(e, memo)
        x, y = self._limited(e.a, memo), self._limited(e.b, memo)
        return self.b.select(self.b.compare("fcmp olt" if e.op == "min" else "fcmp ogt", x, y), x, y)

    def _of_index(self, e: OfIndex) -> Val:
        x = self.resolve(e.index)
        if not x.terms and not e.dtype.is_float:
            bits = e.dtype.bits
            n = x.const & ((1 << bits) - 1)
            if e.dtype.kind == "bool":
                return self.b.const(x.const != 0, BOOL)
            return self.b.const(n - (1 << bits) if e.dtype.kind == "int" and n >> (bits - 1) else n, e.dtype)
        return cast(self.b, self.index_value(x), e.dtype, "wrap")

    def _binary(self, e: Binary, memo: Memo) -> Val:
        # a*b + c, c + a*b, c - a*b and a*b - c are one rounding
        if e.op in ("add", "sub") and e.dtype in (F32, F64):
            fused = self._fused(e, memo)
            if fused is not None:
                return fused
        a = self.value(e.a, memo)
        if e.dtype.kind == "bool" and e.op in ("and", "or") and a.text in ("true", "false"):
            return self.value(e.b, memo) if (e.op == "and") == (a.text == "true") else a
        c = self.value(e.b, memo)
        if e.dtype.kind == "bool" and e.op in ("and", "or") and c.text in ("true", "false"):
            return a if (e.op == "and") == (c.text == "true") else c
        return binary(self.b, e.op, a, c)

    def _fused(self, e: Binary, memo: Memo) -> Val | None:
        b, left, right = self.b, e.a, e.b
        if isinstance(right, Binary) and right.op == "mul" and id(right) not in memo:
            x, y = self.value(right.a, memo), self.value(right.b, memo)
            return b.fma(b.fneg(x) if e.op == "sub" else x, y, self.value(left, memo))
        if isinstance(left, Binary) and left.op == "mul" and id(left) not in memo:
            x, y = self.value(left.a, memo), self.value(left.b, memo)
            z = self.value(right, memo)
            return b.fma(x, y, b.fneg(z) if e.op == "sub" else z)
        return None

    def _compare(self, e: Compare, memo: Memo) -> Val:
        b = self.b
        if isinstance(e.a, OfIndex) and isinstance(e.b, OfIndex | Const) and e.a.dtype.holds_indices:
            right = e.b.index if isinstance(e.b, OfIndex) else index(int(e.b.value))
            diff = self.resolve(e.a.index - right)
            forms = {
                "ge": ("ge", diff, False), "gt": ("ge", diff - 1, False), "le": ("ge", -diff, False),
                "lt": ("ge", -diff - 1, False), "eq": ("eq", diff, False), "ne": ("eq", diff, True),
            }  # fmt: skip
            op, signed, negate = forms[e.op]
            r = self.sign(signed, op)
            if isinstance(r, bool):
                return b.const(r != negate, BOOL)
            return b.op("xor", r, b.const(True, BOOL)) if negate else r
        x, y = self.value(e.a, memo), self.value(e.b, memo)
        if x.dtype.is_float:
            name = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une", "gt": "ogt", "ge": "oge"}[e.op]
            return b.compare(f"fcmp {name}", x, y)
        sign = "s" if x.dtype.kind == "int" else "u"
        return b.compare(f"icmp {e.op if e.op in ('eq', 'ne') else sign + e.op}", x, y)

    def _select(self, e: Select, memo: Memo) -> Val:
        b = self.b
        c = self.value(e.cond, memo)
        if c.text in ("true", "false"):
            return self.value(e.a if c.text == "true" else e.b, memo)
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

    def _may_fault(self, e: Expr, memo: Memo) -> bool:
        """Whether evaluating ``e`` would load something that is neither known nor shown to be in bounds."""
        return not all(self.in_bounds(ld.buffer, ld.indices) for ld in loads_of(e, set(memo)))
