"""Element-wise operators with broadcasting."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.lang.compute import compute
from tilewright.lang.functions import (
    cast as cast_scalar,
    maximum as maximum_scalar,
    minimum as minimum_scalar,
    select as select_scalar,
    truncdiv,
)
from tilewright.lang.ops.common import broadcast_indices, broadcast_shape
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import IndexExpr, Scalar, ValueLike


def elementwise(
    fn: Callable[..., ValueLike], *tensors: Tensor, name: str | None = None, hint: str = "e"
) -> Tensor:
    """``fn(a[…], b[…], …)`` for every element of the tensors broadcast to their common shape."""
    shape = broadcast_shape([t.shape for t in tensors], "an element-wise operator")

    def element(*i: IndexExpr) -> ValueLike:
        return fn(*(t[broadcast_indices(t.shape, i)] for t in tensors))

    return compute(shape, element, name, hint=hint)


def add(a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
    """``a + b``."""
    return elementwise(lambda x, y: x + y, a, b, name=name, hint="add")


def subtract(a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
    """``a - b``."""
    return elementwise(lambda x, y: x - y, a, b, name=name, hint="sub")


def multiply(a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
    """``a * b``."""
    return elementwise(lambda x, y: x * y, a, b, name=name, hint="mul")


def divide(a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
    """``a / b`` of floats, division towards zero of integers."""
    if a.dtype.is_float:
        return elementwise(lambda x, y: x / y, a, b, name=name, hint="div")
    return elementwise(truncdiv, a, b, name=name, hint="div")


def maximum(a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
    """The larger of two elements."""
    return elementwise(maximum_scalar, a, b, name=name, hint="max")


def minimum(a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
    """The smaller of two elements."""
    return elementwise(minimum_scalar, a, b, name=name, hint="min")


def where(condition: Tensor, a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
    """``a`` where the condition holds, else ``b``."""
    return elementwise(select_scalar, condition, a, b, name=name, hint="where")


def cast(x: Tensor, dtype: str, mode: str = "wrap", name: str | None = None) -> Tensor:
    """Every element converted, see ``lang.cast``."""
    return elementwise(lambda v: cast_scalar(v, dtype, mode), x, name=name, hint="cast")


def bias_add(x: Tensor, bias: Tensor, axis: int = 1, name: str | None = None) -> Tensor:
    """``x`` plus a vector along dimension ``axis``."""
    at = axis % x.rank

    def element(*i: IndexExpr) -> Scalar:
        return x[i] + bias[i[at]]

    return compute(x.shape, element, name, hint="bias")
