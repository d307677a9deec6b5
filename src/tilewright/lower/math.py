"""Elementary functions become arithmetic, and divisions by constants and remainders.

What remains for code generation: arithmetic, ``fma``, comparisons and selections, bit casts and shifts, and
the functions that machines have (:data:`NATIVE`). No branch and no table in memory, so that the result
vectorises as it stands. Errors are at most 4 units in the last place; each function's file says how it works
and what it is good for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tilewright.ir import (
    F32,
    F64,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    LoopFunction,
    children,
    map_exprs,
    with_children,
)
from tilewright.lower.elementary.error_function import erf
from tilewright.lower.elementary.exponential import (
    exp,
    exp2,
    exp2_fraction,
    exp_by_ldexp,
    exp_by_table,
    exp_nonpositive,
    exp_nonpositive_by_ldexp,
    exp_nonpositive_by_table,
    expm1,
    ldexp,
)
from tilewright.lower.elementary.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from tilewright.lower.elementary.inverse_trigonometric import acos, asin, atan, atan2
from tilewright.lower.elementary.logarithm import log, log1p, log2
from tilewright.lower.elementary.num import Num
from tilewright.lower.elementary.power import pow
from tilewright.lower.elementary.quotient import by_constant
from tilewright.lower.elementary.remainder import remainder
from tilewright.lower.elementary.trigonometric import cos, sin, tan

NATIVE: Final = frozenset(
    {"fma", "sqrt", "rsqrt", "floor", "ceil", "round", "trunc", "copysign", "isnan", "isinf"}
)
"""Functions that code generation handles itself, in f32 and f64."""

_EXPANSIONS: Final[MappingProxyType[str, Callable[..., Num]]] = MappingProxyType(
    {
        "exp": exp,
        "exp_nonpositive": exp_nonpositive,
        "exp2": exp2,
        "expm1": expm1,
        "log": log,
        "log2": log2,
        "log1p": log1p,
        "pow": pow,
        "tanh": tanh,
        "sinh": sinh,
        "cosh": cosh,
        "asinh": asinh,
        "acosh": acosh,
        "atanh": atanh,
        "sin": sin,
        "cos": cos,
        "tan": tan,
        "asin": asin,
        "acos": acos,
        "atan": atan,
        "atan2": atan2,
        "erf": erf,
        "ldexp": ldexp,
        "exp2_fraction": exp2_fraction,
    }
)


_BY_MACHINE: Final[tuple[tuple[frozenset[str], str, Callable[..., Num]], ...]] = (
    (frozenset({"ldexp", "exp2_fraction"}), "exp", exp_by_table),
    (frozenset({"ldexp", "exp2_fraction"}), "exp_nonpositive", exp_nonpositive_by_table),
    (frozenset({"ldexp"}), "exp", exp_by_ldexp),
    (frozenset({"ldexp"}), "exp_nonpositive", exp_nonpositive_by_ldexp),
)
"""Functions by others that the machine must have, best first."""


def expand_math(e: Expr, native: frozenset[str] = frozenset()) -> Expr:
    """Replace calls of elementary functions by arithmetic, and divisions by constants.

    ``e`` itself where there are none.

    ``native`` are functions that the machine has besides :data:`NATIVE` (``ldexp``, ``exp2_fraction``): they
    stay, and others make use of them. Calls in f16 and bf16 are computed in f32. The result shares
    sub-expressions as objects: walk it with a memo by identity. Expressions inside opaque indices are left
    alone.
    """
    return _expand(e, {}, native)


def expand_math_calls(func: LoopFunction, native: frozenset[str] = frozenset()) -> LoopFunction:
    """:func:`expand_math` in all expressions of a function."""
    memo: dict[int, tuple[Expr, Expr]] = {}
    body = map_exprs(func.body, lambda i: i, lambda e: _expand(e, memo, native))
    return func if body is func.body else replace(func, body=body)


def _expand(e: Expr, memo: dict[int, tuple[Expr, Expr]], native: frozenset[str]) -> Expr:
    known = memo.get(id(e))
    if known is not None:
        return known[1]
    new = with_children(e, tuple(_expand(k, memo, native) for k in children(e)))
    if isinstance(new, Call):
        new = _expand_call(new, native)
    elif isinstance(new, Binary) and new.op == "div" and isinstance(new.b, Const):
        new = _quotient(new, new.b)
    elif isinstance(new, Binary) and new.op == "rem" and new.dtype == F32:
        new = remainder(Num(new.a), Num(new.b)).e
    # the key's object is kept, so that its identity is not used again
    memo[id(e)] = (e, new)
    return new


def _quotient(e: Binary, divisor: Const) -> Expr:
    if e.dtype not in (F32, F64):
        return e
    quotient = by_constant(Num(e.a), float(divisor.value))
    return e if quotient is None else quotient.e


def _expand_call(e: Call, native: frozenset[str]) -> Expr:
    dtype = e.args[0].dtype
    if dtype not in (F32, F64) and dtype.is_float:
        wide = _expand_call(Call(e.fn, tuple(Cast(arg, F32) for arg in e.args)), native)
        return wide if e.fn in ("isnan", "isinf") else Cast(wide, dtype)
    if e.fn in NATIVE or e.fn in native:
        return e
    ways = (way for needs, fn, way in _BY_MACHINE if fn == e.fn and needs <= native)
    return next(ways, _EXPANSIONS[e.fn])(*(Num(arg) for arg in e.args)).e
