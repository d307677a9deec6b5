"""From what users write to expressions, indices and element types: conversions at the language's edges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tilewright import ir
from tilewright.ir import DType, Expr, Index
from tilewright.lang.source import problem
from tilewright.lang.values import Clamped, IndexExpr, IndexLike, Scalar, as_index, literal


def to_expr(value: object, dtype: DType | None, what: str) -> Expr:
    """``value`` as an expression, of ``dtype`` where given; literals without one become f32, i64 or bool.

    Raises ProgramError for another type than ``dtype``, and for what is no scalar expression.
    """
    if isinstance(value, Scalar):
        if dtype is not None and value.dtype != dtype:
            raise problem(f"{what} is {value.dtype}, not {dtype}", f"convert it: lang.cast(x, '{dtype}')")
        return value.expr
    if isinstance(value, IndexExpr):
        return ir.OfIndex(value.index, dtype or ir.I64)
    if isinstance(value, np.generic):
        value = value.item()
    if dtype is None:
        dtype = ir.BOOL if isinstance(value, bool) else ir.I64 if isinstance(value, int) else ir.F32
    result = literal(value, dtype)
    if result is None:
        raise problem(
            f"{what} is {type(value).__name__}, not a scalar expression", "return numbers built from A[i, j]"
        )
    return result


def common_dtype(values: Iterable[object], what: str) -> DType:
    """The type of the scalars among ``values``; f32 or i64 where all are literals.

    Raises ProgramError where they do not agree.
    """
    found: DType | None = None
    for v in values:
        if isinstance(v, Scalar):
            if found is not None and v.dtype != found:
                raise problem(f"{what} mixes {found} and {v.dtype}", f"convert one: lang.cast(x, '{found}')")
            found = v.dtype
    if found is not None:
        return found
    return ir.I64 if all(as_index(v) is not None for v in values) else ir.F32


def to_index(value: IndexLike | Scalar, what: str = "the index") -> IndexExpr:
    """An index value of an integer, an index, a clamped integer scalar or one of a narrow range.

    Raises ``ProgramError`` for a data-dependent value without :func:`clamp`.
    """
    return IndexExpr(index_of(value, what))


def index_of(value: object, what: str, bounds: tuple[int, int] | None = None) -> Index:
    """The :class:`~tilewright.ir.Index` behind anything that may index a tensor.

    A data-dependent value is clamped (:func:`clamp`), moved into ``bounds`` (first and last), of a type of at
    most 16 bits, or a remainder, mask or shift by a constant. Raises ProgramError for slices, floats, and
    other data-dependent values.
    """
    if isinstance(value, Clamped):
        return value.index
    found = as_index(value)
    if found is not None:
        return found
    if isinstance(value, Scalar):
        if isinstance(value.expr, ir.OfIndex):
            return value.expr.index
        if value.dtype.is_integer and bounds is not None:
            return ir.imin(ir.imax(ir.index(ir.Opaque(value.expr)), bounds[0]), bounds[1])
        if ir.value_range(value.expr) is not None:
            return ir.index(ir.Opaque(value.expr))
        if value.dtype.is_integer:
            raise problem(
                f"{what} depends on data and is not clamped",
                "a data-dependent index must be bounded: lang.clamp(x, 0, n - 1), or a stage with bounds=",
            )
        raise problem(f"{what} has type {value.dtype}", "an index is an integer: cast and clamp it")
    if isinstance(value, slice):
        raise problem(f"{what} is a slice", "index one element: A[i, j]")
    raise problem(f"{what} is {type(value).__name__} {value!r}, not an integer", "use axes and integers")


def to_scalar(value: IndexLike, dtype: DType | str = "i64") -> Scalar:
    """The value of an index as a scalar of type ``dtype`` (a number, not ``bool``).

    Raises ProgramError for what is no index, and for ``bool``.
    """
    found = as_index(value)
    if found is None:
        raise problem("lang.to_scalar needs an index", "use lang.cast for scalars")
    t = dtype_from(dtype)
    if t.kind == "bool":
        raise problem("an index has no value of type bool", "compare it instead: i == 0")
    return Scalar(ir.OfIndex(found, t))


def dtype_from(value: DType | str | np.dtype[Any] | type) -> DType:
    """The element type called ``value``; ``ProgramError`` where there is none."""
    try:
        return ir.dtype_of(value)
    except (KeyError, TypeError):
        raise problem(f"there is no element type {value!r}", f"one of {', '.join(ir.DTYPES)}") from None
