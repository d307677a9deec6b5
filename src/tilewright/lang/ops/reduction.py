"""Reductions over dimensions of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from tilewright import ir
from tilewright.lang import functions, reductions
from tilewright.lang.axes import reduce_axis
from tilewright.lang.compute import compute
from tilewright.lang.conversions import to_scalar
from tilewright.lang.ops.common import axes_of, axis_of
from tilewright.lang.source import problem
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import Axis, IndexExpr, Scalar

_FOLDS: Mapping[str, Callable[..., Scalar]] = MappingProxyType(
    {
        "sum": reductions.sum, "mean": reductions.sum, "prod": reductions.prod, "max": reductions.max,
        "min": reductions.min, "l1": reductions.sum, "l2": reductions.sum, "sum_square": reductions.sum,
        "log_sum": reductions.sum, "any": reductions.any, "all": reductions.all,
    }
)  # fmt: skip


def reduce(
    kind: str,
    x: Tensor,
    axes: Sequence[int] | int | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Tensor:
    """A reduction over ``axes`` (all for ``None``), which keep the extent 1 or vanish.

    Kinds: sum, mean, prod, max, min, l1, l2, sum_square, log_sum, any, all. A mean of integers rounds towards
    zero. Over no axis: the element-wise part of the kind.

    Raises ProgramError for an unknown kind, and for axes that the tensor does not have.
    """
    if kind not in _FOLDS:
        raise problem(f"there is no reduction {kind!r}", f"one of {', '.join(_FOLDS)}")
    dims = axes_of(axes, x.rank, "a reduction")
    reds = {d: reduce_axis(x.shape[d], f"k{n}" if len(dims) > 1 else "k") for n, d in enumerate(dims)}
    shape, names, at = outer_of(x, dims, keepdims)

    def element(*i: IndexExpr) -> Scalar:
        v = x[at(i, reds)]
        if kind == "l1":
            v = abs(v)
        elif kind in ("l2", "sum_square"):
            v = v * v
        found = _FOLDS[kind](v, axis=tuple(reds.values())) if reds else v
        return _finish(kind, found, x, dims)

    return compute(shape, element, name, axes=names, hint=f"reduce_{kind}")


def _finish(kind: str, value: Scalar, x: Tensor, dims: tuple[int, ...]) -> Scalar:
    match kind:
        case "mean":
            count = to_scalar(IndexExpr(ir.ONE), value.dtype)
            for d in dims:
                count = count * to_scalar(x.shape[d], value.dtype)
            known = _count(x, dims)
            divisor = count if known is None else functions.const(known, value.dtype)
            return value / divisor if value.dtype.is_float else functions.truncdiv(value, divisor)
        case "l2":
            return functions.sqrt(value)
        case "log_sum":
            return functions.log(value)
        case _:
            return value


def _count(x: Tensor, dims: tuple[int, ...]) -> int | None:
    out = 1
    for d in dims:
        if not x.shape[d].index.is_const:
            return None
        out *= x.shape[d].index.as_int()
    return out


def outer_of(
    x: Tensor, dims: Sequence[int], keepdims: bool
) -> tuple[
    tuple[IndexExpr, ...],
    tuple[str, ...],
    Callable[[Sequence[IndexExpr], Mapping[int, Axis]], tuple[IndexExpr, ...]],
]:
    """Shape and iterator names of what is left of ``x`` without ``dims``, and the element of ``x`` there."""
    kept = [d for d in range(x.rank) if keepdims or d not in dims]
    one = IndexExpr(ir.ONE)
    shape = tuple(one if d in dims else x.shape[d] for d in kept)
    names = tuple("ijlmpqrs"[n] if n < 8 else f"i{n}" for n in range(len(kept)))

    def at(i: Sequence[IndexExpr], inner: Mapping[int, Axis]) -> tuple[IndexExpr, ...]:
        outer = dict(zip(kept, i, strict=True))
        return tuple(inner[d] if d in inner else outer[d] for d in range(x.rank))

    return shape, names, at


def arg_reduce(
    kind: Literal["argmax", "argmin"],
    x: Tensor,
    axis: int = 0,
    keepdims: bool = False,
    last: bool = False,
    name: str | None = None,
) -> Tensor:
    """The position (i64) of the extremum along ``axis``: the first of equal ones, or the ``last``."""
    d = axis_of(axis, x.rank, kind)
    k = reduce_axis(x.shape[d], "k")
    shape, names, at = outer_of(x, (d,), keepdims)
    fold = reductions.argmax if kind == "argmax" else reductions.argmin

    def element(*i: IndexExpr) -> Scalar:
        if not last:
            return fold(x[at(i, {d: k})], axis=k)
        # the first extremum of the mirrored dimension
        mirrored: dict[int, Any] = {d: x.shape[d] - 1 - k}
        return x.shape[d] - 1 - fold(x[at(i, mirrored)], axis=k)

    return compute(shape, element, name, axes=names, hint=kind)
