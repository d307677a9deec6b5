"""What the scalar operations compute, one value at a time: the meaning of every element type.

Values are numpy scalars of the type's own precision for floats (so each operation rounds once, in that type),
Python integers in range for integers, and Python ``bool``. The reference interpreter and constant folding
share this file; a back end that disagrees with it is wrong.

* integers wrap around (two's complement), also ``neg``/``abs`` of the smallest value and its division by -1
* division by zero, a shift by the width or more, and a float outside of the range of a ``wrap`` cast to an
  integer are errors (:class:`UndefinedError`): the IR leaves them undefined
* functions of :data:`~tilewright.ir.expr.CALLS` are evaluated in f64 and rounded once
* small types (``DType.small``) are compared and converted only; what is out of a small float's range becomes
  infinite, or NaN where there is no infinity, or the largest number where there is neither
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from tilewright.ir.dtypes import DType
from tilewright.support import InternalError

Value: TypeAlias = Any  # np.floating of the dtype, int, or bool


class UndefinedError(InternalError):
    """An operation on values for which the IR gives it no meaning."""


def _f64_to_bf16(x: float) -> Value:
    # through f32 rounded to odd, as rounding twice to nearest errs on ties
    near = np.float32(x)
    if float(near) != x and math.isfinite(x) and np.isfinite(near):
        toward = np.nextafter(near, np.float32(math.inf if x > float(near) else -math.inf))
        if int(near.view(np.uint32)) % 2 == 0:
            near = toward
    return ml_dtypes.bfloat16(near)


def _int_to_bf16(x: int) -> Value:
    extra = x.bit_length() - 50
    if extra > 0:  # keep 50 bits, the last one sticky: exact in f64, and f64 -> bf16 rounds once
        x = (x >> extra | (x & ((1 << extra) - 1) != 0)) << extra
    return _f64_to_bf16(float(x))


def rounder(dtype: DType) -> Callable[[Any], Value]:
    """A function that rounds an ``int``, ``float`` or numpy float to the float type ``dtype``, once."""
    match dtype.name:
        case "f64":
            return np.float64
        case "f32":
            return lambda x: (
                np.float32(np.uint64(x) if x > 0 else np.int64(x)) if type(x) is int else np.float32(x)
            )
        case "f16":
            return lambda x: np.float16(float(x))
        case "bf16":
            return lambda x: _int_to_bf16(x) if type(x) is int else _f64_to_bf16(float(x))
        case _ if dtype.small and dtype.is_float:
            return lambda x: small_floats(np.asarray(x), dtype)[()]
        case _:
            raise ValueError(f"{dtype} is not a float type")


def small_floats(a: np.ndarray[Any, Any] | np.float64, dtype: DType, saturate: bool = False) -> Any:
    """Numbers rounded to a small float type as :mod:`ml_dtypes` does: to f32 first, then to nearest.

    Of two numbers as near it is the even one (the larger one of powers of two). ``saturate`` gives the
    largest number for those beyond it, infinite ones too; NaN stays.
    """
    with np.errstate(all="ignore"):
        given = np.asarray(a).astype(np.float32)
        if saturate:
            given = np.clip(given, -np.float32(dtype.max_value), np.float32(dtype.max_value))
        return given.astype(dtype.numpy)


def wrapper(dtype: DType) -> Callable[[int], int]:
    """A function that wraps an integer into the range of the integer type ``dtype``."""
    mask = (1 << dtype.bits) - 1
    if dtype.kind == "uint":
        return lambda v: v & mask
    half = 1 << (dtype.bits - 1)
    return lambda v: ((v + half) & mask) - half


def constant(value: float | int | bool, dtype: DType) -> Value:
    """A literal as a value of its type, rounded or wrapped into it."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.is_float:
        return rounder(dtype)(value)
    return wrapper(dtype)(int(value))


def from_array(array: np.ndarray[Any, Any], dtype: DType) -> list[Value]:
    """The elements of an array of the type's numpy dtype, in row-major order, as values."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return list(flat) if dtype.is_float else flat.tolist()


def unary(op: str, dtype: DType) -> Callable[[Value], Value]:
    """The unary operation ``op`` on values of ``dtype``; UndefinedError where it has no meaning."""
    if dtype.small:
        raise UndefinedError(f"{op} has no meaning on {dtype}")
    if dtype.is_float:
        if op == "neg":
            return operator.neg
        if op == "abs":
            return operator.abs
    elif dtype.kind == "bool":
        if op == "not":
            return operator.not_
    else:
        wrap = wrapper(dtype)
        if op == "neg":
            return lambda a: wrap(-a)
        if op == "abs":
            return lambda a: wrap(abs(a))
        if op == "not":
            return lambda a: wrap(~a)
    raise UndefinedError(f"{op} has no meaning on {dtype}")


def _minimum(a: Value, b: Value) -> Value:
    return a if a <= b or a != a else b


def _maximum(a: Value, b: Value) -> Value:
    return a if a >= b or a != a else b


def _trunc_div(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _nonzero(fn: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def checked(a: int, b: int) -> int:
        if b == 0:
            raise UndefinedError(f"division of {a} by zero")
        return fn(a, b)

    return checked


def _shift(fn: Callable[[int, int], int], bits: int) -> Callable[[int, int], int]:
    def checked(a: int, b: int) -> int:
        if not 0 <= b < bits:
            raise UndefinedError(f"shift of a {bits}-bit value by {b}")
        return fn(a, b)

    return checked


def _float_binary(op: str, dtype: DType) -> Callable[[Value, Value], Value] | None:
    as_type = rounder(dtype)
    match op:
        case "add":
            return operator.add
        case "sub":
            return operator.sub
        case "mul":
            return operator.mul
        case "div":
            return operator.truediv
        case "min":
            return _minimum
        case "max":
            return _maximum
        case "floordiv":
            return lambda a, b: as_type(np.floor_divide(np.float64(a), np.float64(b)))
        case "mod":
            return lambda a, b: as_type(np.mod(np.float64(a), np.float64(b)))
        case "truncdiv":
            return lambda a, b: as_type(np.trunc(np.float64(a) / np.float64(b)))
        case "rem":
            return lambda a, b: as_type(np.fmod(np.float64(a), np.float64(b)))
        case _:
            return None


def _int_binary(op: str, dtype: DType) -> Callable[[int, int], int] | None:
    wrap = wrapper(dtype)
    wrapped: dict[str, Callable[[int, int], int]] = {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "floordiv": _nonzero(operator.floordiv),
        "truncdiv": _nonzero(_trunc_div),
        "shl": _shift(operator.lshift, dtype.bits),
    }
    if op in wrapped:
        fn = wrapped[op]
        return lambda a, b: wrap(fn(a, b))
    plain: dict[str, Callable[[int, int], int]] = {
        "mod": _nonzero(operator.mod),
        "rem": _nonzero(lambda a, b: a - _trunc_div(a, b) * b),
        "shr": _shift(operator.rshift, dtype.bits),
        "min": min,
        "max": max,
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
    }
    return plain.get(op)


def binary(op: str, dtype: DType) -> Callable[[Value, Value], Value]:
    """The binary operation ``op`` on values of ``dtype``; UndefinedError where it has no meaning."""
    found: Callable[[Value, Value], Value] | None
    if dtype.small:
        found = None
    elif dtype.is_float:
        found = _float_binary(op, dtype)
    elif dtype.kind == "bool":
        logic: dict[str, Callable[[bool, bool], bool]] = {
            "and": operator.and_,
            "or": operator.or_,
            "xor": operator.xor,
            "min": operator.and_,
            "max": operator.or_,
        }
        found = logic.get(op)
    else:
        found = _int_binary(op, dtype)
    if found is None:
        raise UndefinedError(f"{op} has no meaning on {dtype}")
    return found


def comparison(op: str) -> Callable[[Value, Value], bool]:
    """The comparison ``op``; false for NaN except ``ne``. Its result may be a numpy ``bool``: wrap it."""
    table: dict[str, Callable[[Value, Value], bool]] = {
        "lt": operator.lt,
        "le": operator.le,
        "eq": operator.eq,
        "ne": operator.ne,
        "gt": operator.gt,
        "ge": operator.ge,
    }
    return table[op]


def cast(source: DType, target: DType, mode: str) -> Callable[[Value], Value]:
    """The conversion from ``source`` to ``target``; see :data:`~tilewright.ir.expr.CAST_MODES`.

    Raises UndefinedError for ``bits`` between types of different sizes.
    """
    if mode == "bits":
        return _bit_cast(source, target)
    if target.kind == "bool":
        return lambda a: bool(a != 0)
    if target.small and target.is_float and mode == "saturate":
        return lambda a: small_floats(np.asarray(a), target, saturate=True)[()]
    if target.is_float:
        return rounder(target) if source.kind != "bool" else lambda a: rounder(target)(int(a))
    low, high = int(target.min_value), int(target.max_value)
    if mode == "saturate":

        def saturate(a: Value) -> int:
            if a != a:
                return 0
            # narrow floats of numpy compare with no integer beyond 64 bits
            x = float(a) if source.is_float else a
            return low if x <= low else high if x >= high else int(x)

        return saturate
    if source.is_float:

        def truncate(a: Value) -> int:
            x = float(a)
            if math.isfinite(x) and low <= (whole := int(x)) <= high:
                return whole
            raise UndefinedError(f"cast of {x!r} to {target} is out of range; use the mode 'saturate'")

        return truncate
    wrap = wrapper(target)
    return lambda a: wrap(int(a))


def _bit_cast(source: DType, target: DType) -> Callable[[Value], Value]:
    if source.bits != target.bits:
        raise UndefinedError(f"the bits of a {source} do not fit a {target}")

    def reinterpret(a: Value) -> Value:
        return from_array(np.array([a], source.numpy).view(target.numpy), target)[0]

    return reinterpret


def _round_to_odd_sum(x: float, y: float) -> float:
    """The sum in f64, its last bit set where it is inexact: rounding it again, to less, is then right."""
    s = x + y
    if not math.isfinite(s):
        return s
    yy = s - x
    error = (x - (s - yy)) + (y - yy)
    if error != 0.0 and np.float64(s).view(np.int64) % 2 == 0:
        s = math.nextafter(s, math.inf if error > 0 else -math.inf)
    return s


def _fma(dtype: DType) -> Callable[[Value, Value, Value], Value]:
    as_type = rounder(dtype)

    def narrow(a: Value, b: Value, c: Value) -> Value:
        # a product of two numbers of at most 24 bits is exact in f64 (but for f64's own underflow)
        return as_type(_round_to_odd_sum(float(a) * float(b), float(c)))

    def wide(a: Value, b: Value, c: Value) -> Value:
        if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
            return a * b + c
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if exact == 0:
            return a * b + c
        try:
            return np.float64(float(exact))
        except OverflowError:
            return np.float64(math.inf if exact > 0 else -math.inf)

    return wide if dtype.name == "f64" else narrow


def _ldexp(x: np.float64, n: np.float64) -> np.float64:
    """``x * 2**floor(n)``: of values of f32 and shorter types exact, but for the ends of f64."""
    if not np.isfinite(n):
        return np.float64(x * np.exp2(n))
    return np.float64(np.ldexp(x, int(np.clip(np.floor(n), -5000, 5000))))


_UFUNCS: Mapping[str, Callable[..., Any]] = MappingProxyType({
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p, "expm1": np.expm1,
    "sqrt": np.sqrt, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "trunc": np.trunc, "erf": lambda x: math.erf(x), "rsqrt": lambda x: np.float64(1.0) / np.sqrt(x),
    "pow": np.power, "atan2": np.arctan2, "copysign": np.copysign,
    "ldexp": lambda x, n: _ldexp(x, n), "exp2_fraction": lambda x: np.exp2(x - np.floor(x)),
    "exp_nonpositive": np.exp,
})  # fmt: skip

#: Number of arguments of the functions that do not take exactly one.
CALL_ARITY = MappingProxyType({"pow": 2, "atan2": 2, "copysign": 2, "ldexp": 2, "fma": 3})


def call(fn: str, dtype: DType) -> Callable[..., Value]:
    """The pure function ``fn`` on values of ``dtype``; ``round`` is to even."""
    if not dtype.is_float or dtype.small:
        raise UndefinedError(f"{fn} has no meaning on {dtype}")
    if fn == "fma":
        return _fma(dtype)
    if fn == "isnan":
        return lambda a: bool(a != a)
    if fn == "isinf":
        return lambda a: math.isinf(float(a))
    ufunc, as_type = _UFUNCS[fn], rounder(dtype)
    if CALL_ARITY.get(fn, 1) == 2:
        return lambda a, b: as_type(ufunc(np.float64(a), np.float64(b)))
    return lambda a: as_type(ufunc(np.float64(a)))
