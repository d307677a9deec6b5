"""Scalar functions: literals, conversions, selection, integer division, mathematical calls."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from tilewright import ir
from tilewright.ir import DType, Expr
from tilewright.lang.conversions import common_dtype, dtype_from, to_expr
from tilewright.lang.source import problem
from tilewright.lang.values import Clamped, IndexExpr, IndexLike, Scalar, ValueLike, as_index, operand


def const(value: float | int | bool, dtype: DType | str | np.dtype[Any]) -> Scalar:
    """A literal of an explicit type."""
    return Scalar(to_expr(value, dtype_from(dtype), "the literal"))


def cast(x: Scalar, dtype: DType | str | np.dtype[Any], mode: str = "wrap") -> Scalar:
    """``x`` converted: ``wrap`` as C does, ``saturate`` clamps to the range, ``bits`` reinterprets.

    ``wrap`` truncates floats towards zero and is undefined for floats out of range; ``saturate`` maps NaN to
    0.

    Raises ProgramError for an unknown mode or type, an index or a literal, and ``bits`` of another width.
    """
    t = dtype_from(dtype)
    if mode not in ir.CAST_MODES:
        raise problem(f"lang.cast has no mode {mode!r}", f"one of {', '.join(ir.CAST_MODES)}")
    if not isinstance(x, Scalar):
        raise problem(
            "lang.cast needs a scalar", "use lang.to_scalar for an index and lang.const for a literal"
        )
    if mode == "bits" and t.bits != x.dtype.bits:
        raise problem(
            f"lang.cast cannot reinterpret {x.dtype} as {t}", "both types need the same number of bits"
        )
    return x if x.dtype == t and type(x) is Scalar else Scalar(ir.Cast(x.expr, t, mode))


def tf32(x: Scalar) -> Scalar:
    """An f32 ``x`` rounded to TF32, 11 significant bits: what matrix units of devices multiply for f32.

    A product whose two factors are rounded so is done by them where the device has some; each factor errs by
    at most 2**-11 of itself. Raises ProgramError for another type.
    """
    if x.dtype != ir.F32:
        raise problem("lang.tf32 rounds scalars of f32", "convert with lang.cast first")
    return Scalar(ir.tf32_rounded(x.expr))


def select(condition: Scalar, a: ValueLike, b: ValueLike) -> Scalar:
    """``a`` where ``condition`` holds, else ``b``; only the chosen side is evaluated."""
    c = condition_of(condition, "the condition of lang.select")
    t = common_dtype((a, b), "lang.select")
    return Scalar(ir.Select(c, _operand(a, t, "select"), _operand(b, t, "select")))


def condition_of(value: object, what: str) -> Expr:
    """A ``bool`` expression; ``ProgramError`` for anything else."""
    if isinstance(value, bool):
        return ir.Const(value, ir.BOOL)
    if not isinstance(value, Scalar) or value.dtype.kind != "bool":
        kind = value.dtype if isinstance(value, Scalar) else type(value).__name__
        raise problem(f"{what} is {kind}, not a condition", "compare something: x > 0, i < n")
    return value.expr


def _operand(value: object, dtype: DType, what: str) -> Expr:
    found = operand(value, dtype, what)
    if found is None:
        raise problem(f"lang.{what} of {type(value).__name__}", "it needs scalars, indices or literals")
    return found


def _binary(op: str, name: str, a: ValueLike, b: ValueLike, integers: bool = False) -> Scalar:
    t = common_dtype((a, b), f"lang.{name}")
    if integers and not t.is_integer:
        raise problem(f"lang.{name} on values of type {t}", "it is for integers")
    return Scalar(ir.Binary(op, _operand(a, t, name), _operand(b, t, name)))


# A number is both: then the first overload holds, which is what happens.
@overload
def minimum(  # type: ignore[overload-overlap]
    a: IndexLike, b: IndexLike
) -> IndexExpr: ...
@overload
def minimum(a: ValueLike, b: ValueLike) -> Scalar: ...
def minimum(a: Any, b: Any) -> IndexExpr | Scalar:
    """The smaller value; NaN where one is NaN. Of two indices: an index."""
    x, y = as_index(a), as_index(b)
    if x is not None and y is not None:
        return IndexExpr(ir.imin(x, y))
    return _binary("min", "minimum", a, b)


# As above.
@overload
def maximum(  # type: ignore[overload-overlap]
    a: IndexLike, b: IndexLike
) -> IndexExpr: ...
@overload
def maximum(a: ValueLike, b: ValueLike) -> Scalar: ...
def maximum(a: Any, b: Any) -> IndexExpr | Scalar:
    """The larger value; NaN where one is NaN. Of two indices: an index."""
    x, y = as_index(a), as_index(b)
    if x is not None and y is not None:
        return IndexExpr(ir.imax(x, y))
    return _binary("max", "maximum", a, b)


@overload
def clamp(x: IndexLike, lo: IndexLike, hi: IndexLike) -> IndexExpr: ...
@overload
def clamp(x: Scalar, lo: ValueLike, hi: ValueLike) -> Scalar: ...
def clamp(x: Any, lo: Any, hi: Any) -> IndexExpr | Scalar:
    """``min(max(x, lo), hi)``.

    A clamped integer scalar may index a tensor: ``A[lang.clamp(idx[i], 0, n - 1)]``.

    Raises ProgramError where an index is clamped by something that is none.
    """
    low, high = as_index(lo), as_index(hi)
    i = as_index(x)
    if i is not None:
        if low is None or high is None:
            raise problem(
                "lang.clamp of an index by something that is no index", "use integers and axes as bounds"
            )
        return IndexExpr(ir.imin(ir.imax(i, low), high))
    value = _binary("min", "clamp", _binary("max", "clamp", x, lo), hi)
    if value.dtype.is_integer and low is not None and high is not None:
        return Clamped(value.expr, ir.imin(ir.imax(ir.index(ir.Opaque(x.expr)), low), high))
    return value


def truncdiv(a: ValueLike, b: ValueLike) -> Scalar:
    """Integer division towards zero (``//`` rounds towards minus infinity)."""
    return _binary("truncdiv", "truncdiv", a, b, integers=True)


def rem(a: ValueLike, b: ValueLike) -> Scalar:
    """The remainder of a division towards zero, exactly, with the sign of ``a`` (``%`` has that of ``b``)."""
    return _binary("rem", "rem", a, b)


def logical_and(*conditions: Scalar) -> Scalar:
    """True where all conditions hold (both sides may be evaluated)."""
    return _logical("and", "logical_and", conditions)


def logical_or(*conditions: Scalar) -> Scalar:
    """True where some condition holds."""
    return _logical("or", "logical_or", conditions)


def _logical(op: str, name: str, conditions: tuple[Scalar, ...]) -> Scalar:
    if not conditions:
        raise problem(f"lang.{name} of nothing")
    out = condition_of(conditions[0], f"an operand of lang.{name}")
    for c in conditions[1:]:
        out = ir.Binary(op, out, condition_of(c, f"an operand of lang.{name}"))
    return Scalar(out)


def logical_not(condition: Scalar) -> Scalar:
    """True where the condition does not hold."""
    return Scalar(ir.Unary("not", condition_of(condition, "the operand of lang.logical_not")))


def _call(fn: str, *args: ValueLike) -> Scalar:
    t = common_dtype(args, f"lang.{fn}")
    if all(as_index(a) is not None for a in args):
        t = ir.F32  # an index is a number here
    if not t.is_float:
        raise problem(
            f"lang.{fn} on values of type {t}", f"cast to a float type: lang.{fn}(lang.cast(x, 'f32'))"
        )
    return Scalar(ir.Call(fn, tuple(_operand(a, t, fn) for a in args)))


def absolute(x: Scalar) -> Scalar:
    """``|x|``."""
    return abs(x)


def exp(x: ValueLike) -> Scalar:
    """``e ** x``."""
    return _call("exp", x)


def exp_nonpositive(x: ValueLike) -> Scalar:
    """``e ** x`` where ``x`` is known not to be positive, or is NaN. Of others any number.

    Results below the least normal number may be zero: processors take a hundred times as long for products
    of such numbers, which masks of -100 would leave to what follows a softmax.
    """
    return _call("exp_nonpositive", x)


def exp2(x: ValueLike) -> Scalar:
    """``2 ** x``."""
    return _call("exp2", x)


def expm1(x: ValueLike) -> Scalar:
    """``e ** x - 1``, accurate near 0."""
    return _call("expm1", x)


def log(x: ValueLike) -> Scalar:
    """The natural logarithm."""
    return _call("log", x)


def log2(x: ValueLike) -> Scalar:
    """The logarithm to base 2."""
    return _call("log2", x)


def log1p(x: ValueLike) -> Scalar:
    """``log(1 + x)``, accurate near 0."""
    return _call("log1p", x)


def sqrt(x: ValueLike) -> Scalar:
    """The square root."""
    return _call("sqrt", x)


def rsqrt(x: ValueLike) -> Scalar:
    """``1 / sqrt(x)``."""
    return _call("rsqrt", x)


def pow(x: ValueLike, y: ValueLike) -> Scalar:
    """``x ** y`` for floats."""
    return _call("pow", x, y)


def tanh(x: ValueLike) -> Scalar:
    """The hyperbolic tangent."""
    return _call("tanh", x)


def erf(x: ValueLike) -> Scalar:
    """The error function."""
    return _call("erf", x)


def sin(x: ValueLike) -> Scalar:
    """The sine of an angle in radians."""
    return _call("sin", x)


def cos(x: ValueLike) -> Scalar:
    """The cosine of an angle in radians."""
    return _call("cos", x)


def tan(x: ValueLike) -> Scalar:
    """The tangent of an angle in radians."""
    return _call("tan", x)


def asin(x: ValueLike) -> Scalar:
    """The inverse sine, in radians."""
    return _call("asin", x)


def acos(x: ValueLike) -> Scalar:
    """The inverse cosine, in radians."""
    return _call("acos", x)


def atan(x: ValueLike) -> Scalar:
    """The inverse tangent, in radians."""
    return _call("atan", x)


def atan2(y: ValueLike, x: ValueLike) -> Scalar:
    """The angle of the point ``(x, y)``, in radians."""
    return _call("atan2", y, x)


def sinh(x: ValueLike) -> Scalar:
    """The hyperbolic sine."""
    return _call("sinh", x)


def cosh(x: ValueLike) -> Scalar:
    """The hyperbolic cosine."""
    return _call("cosh", x)


def asinh(x: ValueLike) -> Scalar:
    """The inverse hyperbolic sine."""
    return _call("asinh", x)


def acosh(x: ValueLike) -> Scalar:
    """The inverse hyperbolic cosine."""
    return _call("acosh", x)


def atanh(x: ValueLike) -> Scalar:
    """The inverse hyperbolic tangent."""
    return _call("atanh", x)


def floor(x: ValueLike) -> Scalar:
    """The largest whole number not above ``x``."""
    return _call("floor", x)


def ceil(x: ValueLike) -> Scalar:
    """The smallest whole number not below ``x``."""
    return _call("ceil", x)


def round(x: ValueLike) -> Scalar:
    """The nearest whole number, halves to the even one."""
    return _call("round", x)


def trunc(x: ValueLike) -> Scalar:
    """``x`` without its fraction."""
    return _call("trunc", x)


def copysign(x: ValueLike, y: ValueLike) -> Scalar:
    """``|x|`` with the sign of ``y``."""
    return _call("copysign", x, y)


def ldexp(x: ValueLike, n: ValueLike) -> Scalar:
    """``x * 2**n``, rounded once; ``n``, of the type of ``x``, is rounded down to an integer."""
    return _call("ldexp", x, n)


def isnan(x: ValueLike) -> Scalar:
    """Whether ``x`` is NaN."""
    return _call("isnan", x)


def isinf(x: ValueLike) -> Scalar:
    """Whether ``x`` is infinite."""
    return _call("isinf", x)


def fma(a: ValueLike, b: ValueLike, c: ValueLike) -> Scalar:
    """``a * b + c`` with one rounding."""
    return _call("fma", a, b, c)
