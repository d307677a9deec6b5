"""Arithmetic of C: types of integers with their promotions and conversions, quotients towards zero.

A value is affine in loops and sizes where it can be (:class:`Index`), else a scalar expression. Signed
integers that are affine are exact: their overflow has no meaning in C. Unsigned ones are known up to
multiples of ``2**bits``, as C has them, until their size counts: in quotients, comparisons, conversions.
Source: ISO C11, 6.3.1 (conversions) and 6.5 (expressions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tilewright.frontend.nests import FALSE, FUNCTIONS, TRUE, Fail, both, compared, either, opposite
from tilewright.ir import (
    BOOL,
    F32,
    F64,
    I32,
    I64,
    U64,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    DType,
    Env,
    Expr,
    Index,
    OfIndex,
    Select,
    Unary,
    floordiv,
    imax,
    imin,
    index,
    int_range,
    mod,
    prove_ge0,
    simplify,
)

_NAMES: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Number:
    """A value and its type in C; :class:`Index` where loops and sizes decide it by affine arithmetic."""

    value: Index | Expr
    dtype: DType


def number(value: Index | int, dtype: DType = I32) -> Number:
    """An integer that loops and sizes decide."""
    return Number(index(value), dtype)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """C's arithmetic; ``fail`` makes its errors, ``ranges`` says what the loops around range over."""

    fail: Fail
    ranges: Callable[[], Env]

    # -- types -----------------------------------------------------------------------------------------------

    def promoted(self, a: Number) -> Number:
        """Integers shorter than ``int`` as ``int``."""
        if a.dtype.is_float or a.dtype.bits >= I32.bits:
            return a
        return Number(a.value if isinstance(a.value, Index) else Cast(a.value, I32), I32)

    def together(self, a: Number, b: Number) -> tuple[Number, Number]:
        """Two values in their common type."""
        a, b = self.promoted(a), self.promoted(b)
        kind = self._common(a.dtype, b.dtype)
        return self.converted(a, kind), self.converted(b, kind)

    def _common(self, a: DType, b: DType) -> DType:
        if a.is_float or b.is_float:
            return max((t for t in (a, b) if t.is_float), key=lambda t: t.bits)
        if a.bits == b.bits:
            return a if a.kind == "uint" else b
        return a if a.bits > b.bits else b

    def converted(self, a: Number, dtype: DType) -> Number:
        """A value in another type, wrapped around where that is shorter."""
        if a.dtype == dtype:
            return a
        if isinstance(a.value, Index):
            if dtype.kind == "uint" and dtype.bits <= a.dtype.bits and dtype.bits >= I32.bits:
                return Number(a.value, dtype)
            exact = self.exact(a)
            if isinstance(exact.value, Index):
                if dtype.is_float:
                    return Number(self.expr(exact, dtype), dtype)
                if self._within(exact.value, dtype) or (dtype.kind == "uint" and dtype.bits >= I32.bits):
                    return Number(exact.value, dtype)
                if exact.value.is_const and dtype != BOOL:
                    return number(_wrapped(exact.value.const, dtype), dtype)
            return Number(Cast(self.expr(exact, exact.dtype), dtype), dtype)
        if isinstance(a.value, Const):
            held = a.dtype.numpy.type(a.value.value).item() if a.dtype.is_float else a.value.value
            if dtype.is_float:
                return Number(Const(float(held), dtype), dtype)
            if dtype.is_integer and abs(held) < 2**62 and self._within(index(int(held)), dtype):
                return number(int(held), dtype)
        return Number(Cast(a.value, dtype), dtype)

    def _within(self, x: Index, dtype: DType) -> bool:
        if dtype == BOOL:
            return x.is_const and x.const in (0, 1)
        least, most = int_range(x, self.ranges())
        return least is not None and most is not None and dtype.min_value <= least and most <= dtype.max_value

    def exact(self, a: Number) -> Number:
        """The value itself, where an unsigned one is known up to multiples of ``2**bits``."""
        if not isinstance(a.value, Index) or a.dtype.kind != "uint" or self._within(a.value, a.dtype):
            return a
        if a.value.is_const and a.dtype.bits < U64.bits:
            return number(_wrapped(a.value.const, a.dtype), a.dtype)
        return Number(self.expr(a), a.dtype)

    def expr(self, a: Number, dtype: DType | None = None) -> Expr:
        """A value as a scalar expression of its type, or of another (``dtype``)."""
        if dtype is not None and dtype != a.dtype and not (isinstance(a.value, Index) and dtype.is_float):
            return self.expr(self.converted(a, dtype))
        kind = dtype or a.dtype
        if not isinstance(a.value, Index):
            return a.value
        if not a.value.is_const:
            return OfIndex(a.value, kind)
        if kind.is_float:
            return Const(float(a.value.const), kind)
        return Const(_wrapped(a.value.const, kind) if kind != BOOL else bool(a.value.const), kind)

    # -- operators -------------------------------------------------------------------------------------------

    def binary(self, op: str, a: Number, b: Number) -> Number:
        """``add``, ``sub``, ``mul``, ``div``, ``rem``, ``and``, ``or``, ``xor``, ``shl`` or ``shr``."""
        if op in ("shl", "shr"):
            return self._shifted(op, self.promoted(a), self.promoted(b))
        x, y = self.together(a, b)
        if x.dtype.is_float:
            if op not in ("add", "sub", "mul", "div"):
                raise self.fail(f"{_NAMES[op]} is for integers")
            return Number(Binary(op, self.expr(x), self.expr(y)), x.dtype)
        if op in ("div", "rem"):
            return self._divided(op, self.exact(x), self.exact(y))
        if isinstance(x.value, Index) and isinstance(y.value, Index):
            known = self._affine(op, x.value, y.value)
            if known is not None:
                return Number(known, x.dtype)
        return Number(Binary(op, self.expr(x), self.expr(y)), x.dtype)

    def _affine(self, op: str, a: Index, b: Index) -> Index | None:
        match op:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul" if a.is_const or b.is_const:
                return a * b.const if b.is_const else b * a.const
            case "and" if b.is_const and b.const >= 0 and (b.const + 1) & b.const == 0:
                return simplify(mod(a, b.const + 1), self.ranges())
            case "and" | "or" | "xor" if a.is_const and b.is_const:
                return index(
                    {"and": a.const & b.const, "or": a.const | b.const, "xor": a.const ^ b.const}[op]
                )
        return None

    def _divided(self, op: str, a: Number, b: Number) -> Number:
        """A quotient, rounded towards zero, or what it leaves, of the sign of ``a``."""
        if (
            isinstance(a.value, Index)
            and isinstance(b.value, Index)
            and b.value.is_const
            and b.value != index(0)
        ):
            x, d, env = a.value, abs(b.value.const), self.ranges()
            if prove_ge0(x, env):
                quotient = simplify(floordiv(x, d), env)
                left = simplify(mod(x, d), env)
            else:
                quotient = -floordiv(-x, d)
                if not prove_ge0(-x, env):
                    quotient = floordiv(imax(x, index(0)), d) - floordiv(imax(-x, index(0)), d)
                left = x - quotient * d
            return Number(left if op == "rem" else quotient * (1 if b.value.const > 0 else -1), a.dtype)
        return Number(Binary("truncdiv" if op == "div" else "rem", self.expr(a), self.expr(b)), a.dtype)

    def _shifted(self, op: str, a: Number, by: Number) -> Number:
        if a.dtype.is_float or by.dtype.is_float:
            raise self.fail(f"{_NAMES[op]} is for integers")
        if isinstance(by.value, Index):
            least, most = int_range(by.value, self.ranges())
            if (least is not None and least >= a.dtype.bits) or (most is not None and most < 0):
                raise self.fail(f"a shift by {by.value} has no meaning for integers of {a.dtype.bits} bits")
            if by.value.is_const and isinstance(a.value, Index):
                if op == "shl":
                    return Number(a.value * (1 << by.value.const), a.dtype)
                exact = self.exact(a)
                if isinstance(exact.value, Index):
                    return Number(
                        simplify(floordiv(exact.value, 1 << by.value.const), self.ranges()), a.dtype
                    )
        return Number(Binary(op, self.expr(a), self.expr(by, a.dtype)), a.dtype)

    def negative(self, a: Number) -> Number:
        """``-a``."""
        a = self.promoted(a)
        if isinstance(a.value, Const) and a.dtype.is_float:
            return Number(Const(-a.value.value, a.dtype), a.dtype)
        return Number(-a.value if isinstance(a.value, Index) else Unary("neg", a.value), a.dtype)

    def inverted(self, a: Number) -> Number:
        """``~a``."""
        a = self.promoted(a)
        if a.dtype.is_float:
            raise self.fail("~ is for integers")
        return Number(-a.value - 1 if isinstance(a.value, Index) else Unary("not", a.value), a.dtype)

    # -- conditions ------------------------------------------------------------------------------------------

    def compared(self, op: str, a: Number, b: Number) -> Expr:
        """A comparison: ``lt``, ``le``, ``gt``, ``ge``, ``eq`` or ``ne``."""
        x, y = self.together(a, b)
        if not isinstance(x.value, Index) or not isinstance(y.value, Index):
            return Compare(op, self.expr(x), self.expr(y))
        if x.dtype.kind == "int":
            return self._decided(op, x.value, y.value)
        ex, ey = self.exact(x), self.exact(y)
        if isinstance(ex.value, Index) and isinstance(ey.value, Index):
            return self._decided(op, ex.value, ey.value)
        if not (self._half(x) and self._half(y)):
            return Compare(op, self.expr(x), self.expr(y))
        # one that is negative counts as 2**bits more, above all that are not
        zero = index(0)
        below_x, below_y = (compared("lt", v, zero) for v in (x.value, y.value))
        same = either(both(below_x, below_y), both(opposite(below_x), opposite(below_y)))
        inside = both(same, compared(op, x.value, y.value))
        if op in ("eq", "ne"):
            return inside if op == "eq" else either(inside, opposite(same))
        across = both(opposite(below_x), below_y) if op in ("lt", "le") else both(below_x, opposite(below_y))
        return either(inside, across)

    def _half(self, a: Number) -> bool:
        """Whether an unsigned value is known to lie at most half of its type's range away from zero."""
        assert isinstance(a.value, Index)
        least, most = int_range(a.value, self.ranges())
        half = 1 << (a.dtype.bits - 1)
        return least is not None and most is not None and -half <= least and most < half

    def _decided(self, op: str, a: Index, b: Index) -> Expr:
        """A comparison, or what it always is."""
        least, most = int_range(a - b, self.ranges())
        below, above = most is not None and most < 0, least is not None and least > 0
        not_below, not_above = least is not None and least >= 0, most is not None and most <= 0
        always, never = {
            "lt": (below, not_below),
            "le": (not_above, above),
            "gt": (above, not_above),
            "ge": (not_below, below),
            "eq": (least == most == 0, below or above),
            "ne": (below or above, least == most == 0),
        }[op]
        return TRUE if always else FALSE if never else compared(op, a, b)

    def truth(self, a: Number) -> Expr:
        """Whether a value is not zero."""
        match a.value:
            case Cast(inner) if inner.dtype == BOOL:
                return inner
            case Index():
                return self.compared("ne", a, number(0, a.dtype))
            case _ if a.dtype == BOOL:
                return a.value
        zero = Const(0.0 if a.dtype.is_float else 0, a.dtype)
        return Compare("ne", a.value, zero)

    def counted(self, condition: Expr) -> Number:
        """A condition as ``int``: 1 where it holds, 0 elsewhere."""
        if isinstance(condition, Const):
            return number(1 if condition.value else 0)
        return Number(Cast(condition, I32), I32)

    def chosen(self, condition: Expr, a: Number, b: Number) -> Number:
        """``a`` where a condition holds, else ``b``: a minimum or maximum where it is one of integers."""
        x, y = self.together(a, b)
        if isinstance(condition, Const):
            return x if condition.value else y
        if isinstance(x.value, Index) and isinstance(y.value, Index) and x.dtype.kind == "int":
            if x.value == y.value:
                return x
            found = _extreme(condition, x.value, y.value)
            if found is not None:
                return Number(found, x.dtype)
        return Number(Select(condition, self.expr(x), self.expr(y)), x.dtype)

    # -- functions -------------------------------------------------------------------------------------------

    def called(self, name: str, args: list[Number]) -> Number:
        """A function of ``<math.h>`` or ``<stdlib.h>``: it converts what it is given to its own type."""
        wide = name[:-1] if name.endswith("f") and name[:-1] in _MATHEMATICAL else name
        kind = F32 if wide != name else F64
        if wide in ("abs", "labs", "llabs"):
            (a,) = self._arguments(name, args, 1, I32 if wide == "abs" else I64)
            if isinstance(a.value, Index):
                return Number(imax(a.value, -a.value), a.dtype)
            return Number(Unary("abs", a.value), a.dtype)
        if wide in ("isnan", "isinf"):
            if len(args) != 1 or not args[0].dtype.is_float:
                raise self.fail(f"{name} takes one real number")
            return self.counted(Call(wide, (self.expr(args[0]),)))
        if wide not in _MATHEMATICAL:
            raise self.fail(f"there is no function {name!r}")
        values = [self.expr(a) for a in self._arguments(name, args, _MATHEMATICAL[wide], kind)]
        match wide:
            case "fabs":
                return Number(Unary("abs", values[0]), kind)
            case "fmin" | "fmax":
                return Number(Binary(wide[1:], values[0], values[1]), kind)
            case "round":
                # halves away from zero
                whole = Call("trunc", (values[0],))
                left = Unary("abs", Binary("sub", values[0], whole))
                one = Call("copysign", (Const(1.0, kind), values[0]))
                up = Compare("ge", left, Const(0.5, kind))
                return Number(Select(up, Binary("add", whole, one), whole), kind)
            case "rint" | "nearbyint":
                return Number(Call("round", (values[0],)), kind)
        return Number(Call(wide, tuple(values)), kind)

    def _arguments(self, name: str, args: list[Number], several: int, kind: DType) -> list[Number]:
        if len(args) != several:
            raise self.fail(f"{name} takes {several} arguments")
        return [self.converted(a, kind) for a in args]


_MATHEMATICAL: Final[Mapping[str, int]] = MappingProxyType(
    {**FUNCTIONS, **dict.fromkeys(("fabs", "round", "rint", "nearbyint"), 1), "fmin": 2, "fmax": 2, "fma": 3}
)


def _wrapped(value: int, dtype: DType) -> int:
    """An integer as it is in a type of fewer bits."""
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "int" and value >> (dtype.bits - 1) else value


def _extreme(condition: Expr, a: Index, b: Index) -> Index | None:
    """The minimum or maximum that ``condition ? a : b`` is: where its border lies where the values are equal.

    ``i > 0 ? i - 1 : 0``  ->  ``max(i - 1, 0)``.
    """
    if not isinstance(condition, Compare) or not isinstance(condition.a, OfIndex):
        return None
    if not isinstance(condition.b, OfIndex) or not condition.a.dtype.holds_indices:
        return None
    x, y = condition.a.index, condition.b.index
    # the condition holds where this is not negative
    border = {"lt": y - x - 1, "le": y - x, "gt": x - y - 1, "ge": x - y}.get(condition.op)
    if border is None:
        return None
    if a - b in (border, border + 1):
        return imax(a, b)
    return imin(a, b) if b - a in (border, border + 1) else None
