"""Values in nests of Python: affine integers stay indices, all others become scalar expressions.

Literals have no type of their own and take that of what they meet (``weak``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from tilewright.frontend.nests.guards import compared
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
    Const,
    DType,
    Expr,
    Index,
    OfIndex,
    Select,
    Unary,
    floordiv,
    imax,
    imin,
    mod,
)
from tilewright.support import ProgramError

Value: TypeAlias = "Index | Expr | float"
"""An affine integer, a scalar expression, or a real literal without a type."""

Fail: TypeAlias = Callable[[str], ProgramError]

FUNCTIONS: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "exp", "exp2", "log", "log2", "log1p", "expm1", "sqrt", "tanh", "erf", "sin", "cos", "tan",
                "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "floor", "ceil", "trunc",
            ),
            1,
        ),
        **dict.fromkeys(("pow", "atan2", "copysign"), 2),
    }
)  # fmt: skip
"""Functions by their names in C's <math.h>, Python's math and the IR, and how many arguments they take."""
_RANK: Final = (BOOL, I32, I64, F32, F64)
_SYMBOLS: Final = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The arithmetic of Python; ``fail`` makes its errors."""

    fail: Fail

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """``add``, ``sub``, ``mul``, ``div`` (of reals), ``floordiv`` or ``mod`` (of integers)."""
        if isinstance(a, Index) and isinstance(b, Index):
            return self._affine(op, a, b)
        if isinstance(a, float | Index) and isinstance(b, float | Index):
            if isinstance(a, float) and isinstance(b, float) and op in ("add", "sub", "mul"):
                return {"add": a + b, "sub": a - b, "mul": a * b}[op]
            return Binary(op, self.typed(a, F64), self.typed(b, F64))
        x, y = self.together(a, b)
        if op in ("floordiv", "mod"):
            raise self.fail("divisions of integers are supported by constants in indices only")
        if op == "div" and not x.dtype.is_float:
            x, y = Cast(x, F64), Cast(y, F64)
        return Binary(op, x, y)

    def _affine(self, op: str, a: Index, b: Index) -> Value:
        match op:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul" if a.is_const or b.is_const:
                return a * b.const if b.is_const else b * a.const
            case "mul":
                return Binary("mul", OfIndex(a, I64), OfIndex(b, I64))
            case "floordiv" | "mod" if b.is_const and b.const > 0:
                return floordiv(a, b.const) if op == "floordiv" else mod(a, b.const)
            case "div":
                return Binary("div", OfIndex(a, F64), OfIndex(b, F64))
        raise self.fail(f"the integers of {_SYMBOLS.get(op, op)} must be affine")

    def negative(self, a: Value) -> Value:
        """``-a``."""
        return -a if isinstance(a, Index | float) else Unary("neg", a)

    def extreme(self, op: str, a: Value, b: Value) -> Value:
        """``min`` or ``max`` of two values."""
        if isinstance(a, Index) and isinstance(b, Index):
            return imin(a, b) if op == "min" else imax(a, b)
        x, y = self.together(a, b)
        return Binary(op, x, y)

    def compared(self, op: str, a: Value, b: Value) -> Expr:
        """A comparison: ``lt``, ``le``, ``gt``, ``ge``, ``eq`` or ``ne``."""
        if isinstance(a, Index) and isinstance(b, Index):
            return compared(op, a, b)
        x, y = self.together(a, b)
        return Compare(op, x, y)

    def chosen(self, cond: Expr, a: Value, b: Value) -> Value:
        """``a`` where ``cond`` else ``b``."""
        x, y = self.together(a, b)
        return Select(cond, x, y)

    def called(self, name: str, args: list[Value]) -> Value:
        """A mathematical function by its name."""
        if name in ("abs", "fabs") and len(args) == 1:
            (a,) = args
            return imax(a, -a) if isinstance(a, Index) else Unary("abs", self.typed(a, F64))
        if name in ("fmin", "fmax") and len(args) == 2:
            return self.extreme(name[1:], self.typed(args[0], F64), self.typed(args[1], F64))
        if name not in FUNCTIONS:
            raise self.fail(f"there is no function {name!r}")
        if len(args) != FUNCTIONS[name]:
            raise self.fail(f"{name} takes {FUNCTIONS[name]} arguments")
        values = [self.typed(a, F64) for a in args]
        if not all(v.dtype.is_float for v in values):
            values = [Cast(v, F64) for v in values]
        return Call(name, tuple(values))

    def typed(self, a: Value, dtype: DType) -> Expr:
        """A value as an expression; integers and literals without a type get ``dtype``."""
        if isinstance(a, float):
            return Const(a, dtype if dtype.is_float else F64)
        if isinstance(a, Index):
            if a.is_const:
                return Const(float(a.const) if dtype.is_float else a.const, dtype)
            return OfIndex(a, dtype)
        return a

    def together(self, a: Value, b: Value) -> tuple[Expr, Expr]:
        """Two values as expressions of one type: the wider of their types ."""
        if isinstance(a, float | Index) and isinstance(b, float | Index):
            kind = F64 if isinstance(a, float) or isinstance(b, float) else I64
            return self.typed(a, kind), self.typed(b, kind)
        x = a if not isinstance(a, float | Index) else None
        y = b if not isinstance(b, float | Index) else None
        if x is None or y is None:
            known = x if x is not None else y
            assert known is not None
            weak = (
                F64 if (isinstance(a, float) or isinstance(b, float)) and not known.dtype.is_float else None
            )
            if weak is not None:
                known = Cast(known, weak)
            return (
                (known, self.typed(b, known.dtype)) if x is not None else (self.typed(a, known.dtype), known)
            )
        kind = max((x.dtype, y.dtype), key=self._rank)
        return self.converted(x, kind), self.converted(y, kind)

    def converted(self, a: Value, dtype: DType) -> Expr:
        """A value in a type."""
        e = self.typed(a, dtype)
        if e.dtype == dtype:
            return e
        if isinstance(e, Const):
            # a literal has been rounded to its own type before it becomes another
            value = e.dtype.numpy.type(e.value).item() if e.dtype.is_float else e.value
            return Const(float(value) if dtype.is_float else int(value), dtype)
        return Cast(e, dtype)

    def _rank(self, dtype: DType) -> int:
        if dtype not in _RANK:
            raise self.fail(f"the type {dtype} is not supported in nests")
        return _RANK.index(dtype)


def type_of(value: Value) -> DType:
    """The type of a variable that begins with a value."""
    if isinstance(value, float):
        return F64
    return I64 if isinstance(value, Index) else value.dtype
