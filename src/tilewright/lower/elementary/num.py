"""Writing formulas: a thin wrapper of expressions with operators, constants of the operand's type, and bit
tricks.

Formulas share sub-expressions as Python objects. Products that must be rounded before use go through
:func:`rounded_product`: code generation is free to contract a product and a sum into one operation.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tilewright.ir import BOOL, F32, I32, I64, Binary, Call, Cast, Compare, Const, DType, Expr, Select, Unary

INF: Final = float("inf")
NAN: Final = float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class Num:
    """An expression with operators; operands that are Python numbers become constants of its type."""

    e: Expr

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.e.dtype

    @property
    def single(self) -> bool:
        """Whether values are of type f32 (otherwise f64)."""
        return self.e.dtype == F32

    def const(self, value: float) -> Num:
        """A constant of this type, rounded to it."""
        if self.dtype == F32 and abs(value) != INF and value == value:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        return Num(Const(value if self.dtype.is_float else int(value), self.dtype))

    def of(self, value: Num | float) -> Num:
        """``value`` as an operand beside this one."""
        return value if isinstance(value, Num) else self.const(value)

    def _with(self, op: str, other: Num | float) -> Num:
        return Num(Binary(op, self.e, self.of(other).e))

    def __add__(self, other: Num | float) -> Num:
        return self._with("add", other)

    def __sub__(self, other: Num | float) -> Num:
        return self._with("sub", other)

    def __mul__(self, other: Num | float) -> Num:
        return self._with("mul", other)

    def __truediv__(self, other: Num | float) -> Num:
        return self._with("div", other)

    def __radd__(self, other: float) -> Num:
        return self.const(other) + self

    def __rsub__(self, other: float) -> Num:
        return self.const(other) - self

    def __rmul__(self, other: float) -> Num:
        return self.const(other) * self

    def __rtruediv__(self, other: float) -> Num:
        return self.const(other) / self

    def __and__(self, other: Num | float) -> Num:
        return self._with("and", other)

    def __or__(self, other: Num | float) -> Num:
        return self._with("or", other)

    def __xor__(self, other: Num | float) -> Num:
        return self._with("xor", other)

    def __lshift__(self, other: int) -> Num:
        return self._with("shl", other)

    def __rshift__(self, other: int) -> Num:
        return self._with("shr", other)

    def __neg__(self) -> Num:
        return Num(Unary("neg", self.e))

    def __abs__(self) -> Num:
        return Num(Unary("abs", self.e))

    def _compare(self, op: str, other: Num | float) -> Num:
        return Num(Compare(op, self.e, self.of(other).e))

    def __lt__(self, other: Num | float) -> Num:
        return self._compare("lt", other)

    def __le__(self, other: Num | float) -> Num:
        return self._compare("le", other)

    def __gt__(self, other: Num | float) -> Num:
        return self._compare("gt", other)

    def __ge__(self, other: Num | float) -> Num:
        return self._compare("ge", other)

    def equals(self, other: Num | float) -> Num:
        """Whether the values are equal; false for NaN."""
        return self._compare("eq", other)

    def differs(self, other: Num | float) -> Num:
        """Whether the values are not equal; true for NaN."""
        return self._compare("ne", other)

    def at_most(self, bound: float) -> Num:
        """The smaller of this and a bound; NaN stays."""
        return self._with("min", bound)

    def at_least(self, bound: float) -> Num:
        """The larger of this and a bound; NaN stays."""
        return self._with("max", bound)

    def bits(self) -> Num:
        """The bit pattern as a signed integer."""
        return Num(Cast(self.e, I32 if self.single else I64, "bits"))

    def from_bits(self) -> Num:
        """The floating-point number with this bit pattern."""
        return Num(Cast(self.e, F32 if self.dtype == I32 else _F64, "bits"))

    def to(self, dtype: DType) -> Num:
        """The value converted."""
        return Num(Cast(self.e, dtype))


_F64: Final = DType("f64", "float", 64)
Pair: TypeAlias = tuple[Num, Num]
"""An unevaluated sum of a number and a much smaller one."""


def truth(value: bool) -> Num:
    """A boolean constant."""
    return Num(Const(value, BOOL))


def fma(a: Num, b: Num | float, c: Num | float) -> Num:
    """``a * b + c`` with one rounding."""
    return Num(Call("fma", (a.e, a.of(b).e, a.of(c).e)))


def rounded_product(a: Num, b: Num | float) -> Num:
    """``a * b``, rounded, that no later addition can absorb."""
    return fma(a, b, -0.0)


def select(cond: Num, a: Num, b: Num | float) -> Num:
    """``a`` where ``cond`` else ``b``."""
    return Num(Select(cond.e, a.e, a.of(b).e))


def call(fn: str, *args: Num) -> Num:
    """A function that every target has: ``sqrt``, ``round``, ``trunc``, ``copysign`` …"""
    return Num(Call(fn, tuple(arg.e for arg in args)))


def with_sign(magnitude: Num, sign: Num) -> Num:
    """``magnitude`` with the sign of ``sign``, zeros and infinities included."""
    return call("copysign", magnitude, sign)


def poly(x: Num, coefficients: Sequence[float]) -> Num:
    """``c[0] + c[1]*x + c[2]*x**2 + …`` by Horner's rule."""
    acc: Num | float = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        acc = fma(x, acc, c)
    return x.of(acc)


def exact_product(a: Num, b: Num) -> Pair:
    """The product as a pair, exactly (short of underflow)."""
    high = rounded_product(a, b)
    return high, fma(a, b, -high)


def fast_two_sum(a: Num, b: Num) -> Pair:
    """The sum as a pair, exactly where ``|a| >= |b|`` or ``a`` is zero (Dekker 1971)."""
    total = a + b
    return total, b - (total - a)


def two_sum(a: Num, b: Num) -> Pair:
    """The sum as a pair, exactly (Knuth, The Art of Computer Programming 2, 4.2.2)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
