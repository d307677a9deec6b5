"""What the scalar operations mean, on numpy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.ir import U64, DType, small_floats

Array: TypeAlias = npt.NDArray[Any]

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """The error function, exact to the last place of a double, in the type of ``x``."""
    return np.asarray(_erf(np.asarray(x, np.float64)), np.float64).astype(x.dtype)


def rsqrt(x: Array) -> Array:
    """``1 / sqrt(x)`` in the type of ``x``."""
    one: Array = np.asarray(1, x.dtype)
    return np.asarray(one / np.sqrt(x))


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c``; of types below f64 with one rounding (and that of f64)."""
    wide = np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)
    return np.asarray(wide).astype(a.dtype)


def ldexp(x: Array, n: Array) -> Array:
    """``x * 2**floor(n)`` in the type of ``x``."""
    wide, power = np.asarray(x, np.float64), np.floor(np.asarray(n, np.float64))
    whole = np.clip(np.nan_to_num(power, nan=0.0), -5000, 5000).astype(np.int64)
    with np.errstate(all="ignore"):
        far = wide * np.exp2(power)
    return np.asarray(np.where(np.isfinite(power), np.ldexp(wide, whole), far)).astype(np.asarray(x).dtype)


def truncdiv(a: Array, b: Array) -> Array:
    """Integer division towards zero."""
    q = np.floor_divide(a, b)
    inexact = (np.multiply(q, b) != a) & ((a < 0) != (b < 0))
    return np.asarray(q + inexact.astype(q.dtype))


BINARY: MappingProxyType[str, Callable[..., Array]] = MappingProxyType(
    {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
        "floordiv": np.floor_divide, "mod": np.mod, "truncdiv": truncdiv, "rem": np.fmod,
        "min": np.minimum, "max": np.maximum,
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
        "shl": np.left_shift, "shr": np.right_shift,
    }
)  # fmt: skip

COMPARE: MappingProxyType[str, Callable[..., Array]] = MappingProxyType(
    {
        "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater,
        "ge": np.greater_equal,
    }
)  # fmt: skip

UNARY: MappingProxyType[str, Callable[..., Array]] = MappingProxyType(
    {"neg": np.negative, "abs": np.absolute, "not": np.logical_not}
)

CALLS: MappingProxyType[str, Callable[..., Array]] = MappingProxyType(
    {
        "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p, "expm1": np.expm1,
        "sqrt": np.sqrt, "rsqrt": rsqrt, "tanh": np.tanh, "erf": erf, "pow": np.power,
        "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
        "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh,
        "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
        "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
        "copysign": np.copysign, "isnan": np.isnan, "isinf": np.isinf, "fma": fma,
        "ldexp": ldexp, "exp_nonpositive": np.exp,
    }
)  # fmt: skip


def cast(a: Array, source: DType, target: DType, mode: str, to: np.dtype[Any]) -> Array:
    """``a`` of type ``source`` converted to ``target``, held in the numpy type ``to``."""
    if mode == "bits":
        # `a` and the result may be held in other types than their own (everything in double)
        raw: Array = np.ascontiguousarray(np.asarray(a, source.numpy)).view(target.numpy).reshape(np.shape(a))
        return raw.astype(to)
    if target.kind == "bool":
        return np.asarray(a != 0)
    if target.is_float and target.small:
        if source.small:
            a = np.asarray(a).astype(np.float32)
        return np.asarray(small_floats(a, target, mode == "saturate"))
    if not target.is_integer:
        return (
            np.asarray(a).astype(target.numpy).astype(to) if source.is_integer else np.asarray(a).astype(to)
        )
    if mode == "saturate":
        return _saturate(a, source, target)
    if source.is_float:
        whole: Array = np.trunc(np.asarray(a, np.float64))
        wide = np.uint64 if target == U64 else np.int64
        inside = (whole >= 0.0) & (whole < 2.0**64) if target == U64 else np.abs(whole) < 2.0**63
        return np.where(inside, whole, 0.0).astype(wide).astype(target.numpy)
    # ml_dtypes has no conversions between its own types
    return np.asarray(a).astype(source.held.numpy if source.small else a.dtype).astype(target.numpy)


def _saturate(a: Array, source: DType, target: DType) -> Array:
    lo, hi = int(target.min_value), int(target.max_value)
    if not source.is_float:
        # limits of the target that the source can reach: in the source's own type nothing wraps
        low, high = max(lo, int(source.min_value)), min(hi, int(source.max_value))
        return np.clip(np.asarray(a, np.int64 if source.kind == "bool" else source.numpy), low, high).astype(
            target.numpy
        )
    x: Array = np.trunc(np.nan_to_num(np.asarray(a, np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    inside = (x > float(lo)) & (x < float(hi))
    out: Array = np.where(inside, x, 0.0).astype(target.numpy)
    return np.where(inside, out, np.where(x <= float(lo), lo, hi).astype(target.numpy))
