"""Magnitudes: how large the errors of an operation's operands become in its result.

A value ``v`` computed with error at most ``γ·m`` has magnitude ``m >= |v|``. To first order an operation
``f`` gives ``m' = sum |df/dx| · m_x + |f|``, the last term for its own rounding; for sums and products that
is the program on absolute values of ``support.numerics``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi, sqrt
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def binary(op: str, a: Array, ma: Array, b: Array, mb: Array, value: Array) -> Array:
    """The magnitude of ``op(a, b)``; integers and conditions are exact."""
    if value.dtype.kind in "iub":
        return np.abs(np.asarray(value, np.float64))
    match op:
        case "add" | "sub":
            return ma + mb
        case "mul":
            return ma * mb
        case "div":
            return np.asarray((ma + np.abs(value) * mb) / np.abs(b))
        case _:
            return np.maximum(ma, mb)


#: |f'(x)| in terms of x and f(x).
_SLOPES: MappingProxyType[str, Callable[[Array, Array], Array]] = MappingProxyType(
    {
        "exp": lambda x, f: f,
        "exp_nonpositive": lambda x, f: f,
        "exp2": lambda x, f: f * log(2),
        "expm1": lambda x, f: f + 1,
        "log": lambda x, f: 1 / x,
        "log2": lambda x, f: 1 / (x * log(2)),
        "log1p": lambda x, f: 1 / (1 + x),
        "sqrt": lambda x, f: 0.5 / f,
        "rsqrt": lambda x, f: 0.5 * f / x,
        "tanh": lambda x, f: 1 - f * f,
        "erf": lambda x, f: 2 / sqrt(pi) * np.exp(-x * x),
        "sin": lambda x, f: np.cos(x),
        "cos": lambda x, f: np.sin(x),
        "tan": lambda x, f: 1 + f * f,
        "asin": lambda x, f: 1 / np.sqrt(1 - x * x),
        "acos": lambda x, f: 1 / np.sqrt(1 - x * x),
        "atan": lambda x, f: 1 / (1 + x * x),
        "sinh": lambda x, f: np.cosh(x),
        "cosh": lambda x, f: np.sinh(x),
        "asinh": lambda x, f: 1 / np.sqrt(x * x + 1),
        "acosh": lambda x, f: 1 / np.sqrt(x * x - 1),
        "atanh": lambda x, f: 1 / (1 - x * x),
    }
)


def call(fn: str, args: list[Array], mags: list[Array], value: Array) -> Array:
    """The magnitude of ``fn(*args)``."""
    own = np.abs(np.asarray(value, np.float64))
    if fn in _SLOPES:
        return np.asarray(np.abs(_SLOPES[fn](args[0], value)) * mags[0] + own)
    match fn:
        case "pow":
            x, y = args
            return np.asarray(
                np.abs(y * value / x) * mags[0] + np.abs(value * np.log(np.abs(x))) * mags[1] + own
            )
        case "atan2":
            r = args[0] * args[0] + args[1] * args[1]
            return np.asarray((np.abs(args[1]) * mags[0] + np.abs(args[0]) * mags[1]) / r + own)
        case "fma":
            return mags[0] * mags[1] + mags[2]
        case "ldexp":
            return np.asarray(np.ldexp(mags[0], np.floor(args[1]).astype(np.int64)) + own)
        case "isnan" | "isinf":
            return own
        case _:  # floor, ceil, round, trunc, copysign
            return np.maximum(own, mags[0])
