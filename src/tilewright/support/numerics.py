"""The one error bound, used by every comparison of numbers in the package and its tests.

A program computes y in floating point, its sums in any order. Replace every operand by its absolute value
and every subtraction by an addition: the result Y (the *magnitude*) satisfies |computed - exact| <= γ·Y for
a γ that depends on the number of roundings behind one element only. Here

    bound = SAFETY · (growth(terms) · u(dtype) · Y + smallest_normal(dtype))          for terms >= 1

    terms      roundings on the longest way to one element: the length of its reductions plus its depth
    growth(n)  n for short sums: γ_n = n·u / (1 - n·u), Higham, Accuracy and Stability of Numerical
               Algorithms, §3.1; λ·√n for long ones: Higham & Mary 2019, doi:10.1137/18M1226312 (for rounding
               errors independent with mean zero it fails with probability 2·exp(-λ²/2) a rounding)
    SAFETY     room for the roundings of the reference, for multiplying by a reciprocal, for multiply-adds
               fused or not, and for functions of at most 4 ulp = 8·u (exp, tanh, erf ...)

The bound stays below the size of one average term of a sum up to about 4,000 terms in f32, so a lost or
doubled term is found. Integers and booleans are exact: their bound is zero.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SAFETY: Final = 8.0
"""The stated constant of the bound."""

DEVIATIONS: Final = 8.0
"""λ of the probabilistic bound: a failure by chance has probability 2·exp(-32) < 3e-14 a rounding."""

NORM_SAFETY: Final = 4.0
"""Room in the bound of whole arrays: for sums that cancel, and for errors that are not independent."""

NORM_ELEMENTS: Final = 16
"""Elements of an array from which on the norm of its errors says something."""

#: Names in numpy, and of each the short name, the bits of the fraction and the least normal exponent.
_FLOATS: Final = {
    "float64": ("f64", 52, -1022),
    "float32": ("f32", 23, -126),
    "float16": ("f16", 10, -14),
    "bfloat16": ("bf16", 7, -126),
    "float8_e4m3fn": ("f8e4m3fn", 3, -6),
    "float8_e4m3fnuz": ("f8e4m3fnuz", 3, -7),
    "float8_e5m2": ("f8e5m2", 2, -14),
    "float8_e5m2fnuz": ("f8e5m2fnuz", 2, -15),
    "float8_e8m0fnu": ("f8e8m0", 0, -127),
    "float4_e2m1fn": ("f4e2m1", 1, 0),
}
_UNIT_ROUNDOFF: Final = {name: 2.0 ** -(fraction + 1) for name, fraction, _ in _FLOATS.values()}
_SMALLEST_NORMAL: Final = {name: 2.0**exponent for name, _, exponent in _FLOATS.values()}
_NUMPY_NAMES: Final = {numpy_name: name for numpy_name, (name, _, _) in _FLOATS.items()}
_EXACT: Final = frozenset(
    {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool", "i4", "u4", "i2", "u2"}
)

DTypeLike = str | np.dtype[Any]


def unit_roundoff(dtype: DTypeLike) -> float:
    """The largest relative error of one rounding: half the distance from 1 to the next number; 0 if exact.

    `dtype` is a name ("f32", "bf16", "i8") or a numpy dtype.
    """
    name = _short_name(dtype)
    return 0.0 if name in _EXACT else _UNIT_ROUNDOFF[name]


def growth(terms: int) -> float:
    """How rounding errors add up over `terms` roundings: n, or λ·√n where that is less."""
    if terms < 0:
        raise ValueError(f"terms must be at least 0, got {terms}")
    return min(float(terms), DEVIATIONS * math.sqrt(terms))


def error_bound(magnitude: npt.ArrayLike, dtype: DTypeLike, terms: int = 1) -> npt.NDArray[np.float64]:
    """The largest error allowed in each element.

    `magnitude` is the program's result on absolute values, `dtype` the least precise type of the computation,
    `terms` the roundings on the longest way to one element. A magnitude that is not finite gives inf.
    """
    name = _short_name(dtype)
    size = np.abs(_as_f64(np.asarray(magnitude)))
    if name in _EXACT or terms == 0:
        return np.zeros_like(size)
    bound = SAFETY * (growth(terms) * _UNIT_ROUNDOFF[name] * size + _SMALLEST_NORMAL[name])
    return np.where(np.isnan(bound), np.inf, bound)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing two arrays; true if every element is within its bound."""

    ratio: float
    """The largest error in units of its bound; at most 1 when the arrays agree."""
    index: tuple[int, ...] | None
    """The first offending element, in row-major order; None when the arrays agree."""
    actual: float = 0.0
    """The value found there."""
    expected: float = 0.0
    """The value expected there."""
    allowed: float = 0.0
    """The error allowed there."""
    count: int = 0
    """How many elements offend."""

    def __bool__(self) -> bool:
        return self.index is None

    def __str__(self) -> str:
        if self.index is None:
            return f"equal within the bound (largest error {self.ratio:.3g} of it)"
        if not self.allowed and self.actual != self.expected:
            return (
                f"{self.count} elements differ that must be equal; the first at {list(self.index)}: got "
                f"{self.actual!r}, expected {self.expected!r}"
            )
        return (
            f"{self.count} elements out of bound (largest error {self.ratio:.3g} times it); the first at "
            f"{list(self.index)}: got {self.actual!r}, expected {self.expected!r} +- {self.allowed:.3g}"
        )


def compare(
    actual: npt.NDArray[Any],
    expected: npt.NDArray[Any],
    *,
    magnitude: npt.ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    terms: int = 1,
) -> Comparison:
    """Compare an array with its reference under `error_bound`.

    `magnitude` defaults to the reference (right only where nothing cancels), `dtype` to that of `actual`.
    A NaN agrees with a NaN, an infinity with itself. Raises ValueError where the shapes differ.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"shapes differ: {actual.shape} and {expected.shape}")
    if actual.size == 0:
        return Comparison(ratio=0.0, index=None)
    name = _short_name(actual.dtype if dtype is None else dtype)
    if name in _EXACT and actual.dtype.kind in "iub" and expected.dtype.kind in "iub":
        # f64 does not hold every i64: compare the integers themselves.
        ratios = np.where(actual == expected, 0.0, np.inf)
        allowed = np.zeros(actual.shape)
    else:
        size = np.abs(_as_f64(expected)) if magnitude is None else _as_f64(np.asarray(magnitude))
        allowed = np.broadcast_to(error_bound(size, name, terms), actual.shape)
        ratios = _error_ratios(_as_f64(actual), _as_f64(expected), allowed)
    offending = ratios > 1.0
    worst = float(ratios.max())
    if not offending.any():
        return Comparison(ratio=worst, index=None)
    where = tuple(int(at) for at in np.unravel_index(int(np.argmax(offending)), actual.shape))
    return Comparison(
        ratio=worst,
        index=where,
        actual=actual[where].item() if actual.dtype.kind in "iub" else float(actual[where]),
        expected=expected[where].item() if expected.dtype.kind in "iub" else float(expected[where]),
        allowed=float(allowed[where]),
        count=int(np.count_nonzero(offending)),
    )


def compare_norms(
    actual: npt.NDArray[Any], expected: npt.NDArray[Any], *, dtype: DTypeLike, terms: int
) -> Comparison:
    """Compare whole arrays: the norm of the errors with ``NORM_SAFETY * sqrt(terms) * u(dtype)`` of the norm.

    For values rounded to a short type ``terms`` times on their way, whose errors are mostly independent: the
    bound of single elements must then allow for more than the size of most of them. Arrays of fewer than
    ``NORM_ELEMENTS`` elements, or that are not finite, always agree here.
    """
    x, y = _as_f64(actual), _as_f64(expected)
    if x.size < NORM_ELEMENTS or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return Comparison(ratio=0.0, index=None)
    norm, error = float(np.linalg.norm(y)), np.abs(x - y)
    allowed = NORM_SAFETY * math.sqrt(terms) * unit_roundoff(dtype)
    found = float(np.linalg.norm(error))
    ratio = 0.0 if found == 0.0 else found / (allowed * norm) if norm else math.inf
    if ratio <= 1.0:
        return Comparison(ratio=ratio, index=None)
    where = tuple(int(at) for at in np.unravel_index(int(error.argmax()), error.shape))
    return Comparison(
        ratio=ratio,
        index=where,
        actual=float(x[where]),
        expected=float(y[where]),
        allowed=allowed * norm / math.sqrt(x.size),
        count=x.size,
    )


def max_error_ratio(
    actual: npt.NDArray[Any],
    expected: npt.NDArray[Any],
    *,
    magnitude: npt.ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    terms: int = 1,
) -> float:
    """The largest error in units of its bound, see `compare`."""
    return compare(actual, expected, magnitude=magnitude, dtype=dtype, terms=terms).ratio


def assert_close(
    actual: npt.NDArray[Any],
    expected: npt.NDArray[Any],
    *,
    magnitude: npt.ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    terms: int = 1,
    what: str = "result",
) -> None:
    """Raise AssertionError, naming the first offending element, unless `compare` finds the arrays equal."""
    outcome = compare(actual, expected, magnitude=magnitude, dtype=dtype, terms=terms)
    if not outcome:
        raise AssertionError(f"{what}: {outcome}")


def _short_name(dtype: DTypeLike) -> str:
    name = dtype if isinstance(dtype, str) else dtype.name
    name = _NUMPY_NAMES.get(name, name)
    if name not in _UNIT_ROUNDOFF and name not in _EXACT:
        name = name.replace("uint", "u").replace("int", "i")
    if name not in _UNIT_ROUNDOFF and name not in _EXACT:
        raise ValueError(f"no unit roundoff is known for dtype {dtype}")
    return name


def _as_f64(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.asarray(array, dtype=np.float64)


def _error_ratios(
    actual: npt.NDArray[np.float64], expected: npt.NDArray[np.float64], allowed: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(actual - expected)
        ratios = np.where(error <= allowed, error / np.where(allowed > 0, allowed, 1.0), error / allowed)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    wild = ~np.isfinite(actual) | ~np.isfinite(expected)
    return np.where(same, 0.0, np.where(wild, np.inf, ratios))
