"""Reductions of ATen, positions of extrema, running sums, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

from tilewright.frontend.torch.writer import Made, Number, Rule, Rules, Value, Writer, wide

Axes = int | Sequence[int] | None


def reduction(op: str) -> Rule:
    """Elements along axes combined, in the type of the result; sums of half precision in single."""

    def rule(w: Writer, self: Value, dim: Axes = None, keepdim: bool = False, **_: Any) -> Made:
        x = w.to(w.to(self, w.out.dtype), w.inner)
        return w.to(reduced(w, op, x, w.axes(dim, x.rank), keepdim), w.out.dtype)

    return rule


def reduced(w: Writer, op: str, x: Value, axes: Sequence[int], keepdim: bool) -> Value:
    """A reduction along axes; one of rank 0 is its only element."""
    if not x.rank:
        return x
    return w.add(op, x, w.ints(axes), keepdims=int(keepdim), noop_with_empty_axes=0)


def extreme(op: str) -> Rule:
    """The largest or smallest along axes."""

    def rule(w: Writer, self: Value, dim: Axes = None, keepdim: bool = False) -> Made:
        axes = w.axes(dim, self.rank)
        w.require(all(self.shape[axis] for axis in axes), "there is nothing along its axes")
        return reduced(w, op, self, axes, keepdim)

    return rule


def quantifier(op: str) -> Rule:
    """Whether some or all elements along axes are true."""

    def rule(w: Writer, self: Value, dim: Axes = None, keepdim: bool = False) -> Made:
        axes = w.axes(dim, self.rank)
        if any(self.shape[axis] == 0 for axis in axes):
            return w.to(w.full(w.out.sizes, op == "ReduceMin", "bool"), w.out.dtype)
        return w.to(reduced(w, op, w.to(self, "bool"), axes, keepdim), w.out.dtype)

    return rule


def position(op: str) -> Rule:
    """Where the largest or smallest is along an axis, or in all; the first of equals."""

    def rule(w: Writer, self: Value, dim: int | None = None, keepdim: bool = False) -> Made:
        if not self.rank:
            return w.full((), 0, "i64")
        x = _searched(w, self)
        if dim is None:
            flat = w.reshape(x, [math.prod(x.shape)])
            return w.reshape(_place(w, op, flat, 0), w.out.sizes)
        return w.reshape(_place(w, op, x, w.axis(dim, x.rank)), w.out.sizes)

    return rule


def _searched(w: Writer, x: Value) -> Value:
    """What positions are searched in: numbers that compare as they are."""
    return w.to(x, "u8" if x.dtype == "bool" else wide(x.dtype))


def _place(w: Writer, op: str, x: Value, axis: int) -> Value:
    """The first place of what is no number, if there is any, else of the extremum."""
    w.require(x.shape[axis] > 0, "there is nothing along its axis")
    place = w.add(op, x, axis=axis, keepdims=1, select_last_index=0)
    if not x.is_float:
        return place
    strange = w.to(w.add("IsNaN", x), "u8")
    first = w.add("ArgMax", strange, axis=axis, keepdims=1, select_last_index=0)
    some = w.to(w.add("ReduceMax", strange, w.ints([axis]), keepdims=1), "bool")
    return w.add("Where", some, first, place)


def extreme_with_place(op: str, find: str) -> Rule:
    """The largest or smallest along an axis, and where the first of them is."""

    def rule(w: Writer, self: Value, dim: int, keepdim: bool = False) -> Made:
        if not self.rank:
            return [self, w.full((), 0, "i64")]
        axis, x = w.axis(dim, self.rank), _searched(w, self)
        place = _place(w, find, x, axis)
        best = w.add("GatherElements", self, place, axis=axis)
        kept = [n for at, n in enumerate(best.shape) if keepdim or at != axis]
        return [w.reshape(best, kept), w.reshape(place, kept)]

    return rule


def variance(
    w: Writer, self: Value, dim: Axes = None, correction: Number | None = None, keepdim: bool = False
) -> Made:
    """The mean square distance from the mean, its count less by a correction."""
    return _variance(w, self, dim, correction, keepdim)[0]


def variance_and_mean(
    w: Writer, self: Value, dim: Axes = None, correction: Number | None = None, keepdim: bool = False
) -> Made:
    """The variance, and the mean."""
    return _variance(w, self, dim, correction, keepdim)


def _variance(
    w: Writer, self: Value, dim: Axes, correction: Number | None, keepdim: bool
) -> tuple[Value, Value]:
    x, axes = w.to(self, w.inner), w.axes(dim, self.rank)
    w.require(x.rank > 0, "a variance of one number")
    count = math.prod(x.shape[axis] for axis in axes)
    less = 1 if correction is None else correction
    # too few numbers are divided by zero, as in torch
    left = max(count - (int(less) if less == int(less) else less), 0)
    mean = w.add("ReduceMean", x, w.ints(axes), keepdims=1)
    centred = w.add("Sub", x, mean)
    squares = w.add("ReduceSum", w.add("Mul", centred, centred), w.ints(axes), keepdims=int(keepdim))
    made = w.add("Div", squares, w.number(left, w.inner))
    return w.to(made, w.out.dtype), w.to(w.reshape(mean, squares.shape), w.out.dtype)


def norm(
    w: Writer,
    self: Value,
    ord: Number = 2,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: object = None,
) -> Made:
    """A norm of vectors: the sum, the root of the sum of squares, the largest or the smallest, the count."""
    x = w.add("Abs", w.to(w.to(self, w.out.dtype), w.inner))
    axes = w.axes(dim, x.rank)
    if ord in (math.inf, -math.inf):
        w.require(all(x.shape[axis] for axis in axes), "there is nothing along its axes")
        made = reduced(w, "ReduceMax" if ord > 0 else "ReduceMin", x, axes, keepdim)
    elif ord == 0:
        there = w.to(w.add("Not", w.add("Equal", x, w.number(0, x.dtype))), x.dtype)
        made = reduced(w, "ReduceSum", there, axes, keepdim)
    else:
        order = w.number(float(ord), x.dtype)
        terms = x if ord == 1 else w.add("Mul", x, x) if ord == 2 else w.add("Pow", x, order)
        made = reduced(w, "ReduceSum", terms, axes, keepdim)
        if ord == 2:
            made = w.add("Sqrt", made)
        elif ord != 1:
            made = w.add("Pow", made, w.number(1 / ord, x.dtype))
    return w.to(made, w.out.dtype)


def cumulative(op: str) -> Rule:
    """Sums or products of the elements up to each."""

    def rule(w: Writer, self: Value, dim: int, **_: Any) -> Made:
        x = w.to(w.to(self, w.out.dtype), w.inner)
        if not x.rank or 0 in x.shape:
            return w.to(x, w.out.dtype)
        made = w.add(op, x, w.number(w.axis(dim, x.rank), "i64"))
        return w.to(made, w.out.dtype)

    return rule


def top(w: Writer, self: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Made:
    """The largest or smallest along an axis, in order, and where they are."""
    if not self.rank:
        w.require(k == 1, "none of one number")
        return [self, w.full((), 0, "i64")]
    x = _searched(w, self)
    attributes = {"axis": w.axis(dim, x.rank), "largest": int(largest), "sorted": 1}
    made = w.several("TopK", (x, w.ints([k])), 2, attributes=attributes)
    return [w.to(made[0], self.dtype), made[1]]


def sort(w: Writer, self: Value, dim: int = -1, descending: bool = False, **kwargs: Any) -> Made:
    """All along an axis, in order, and where they were; equal ones stay in theirs."""
    if not self.rank:
        return [self, w.full((), 0, "i64")]
    return top(w, self, self.shape[w.axis(dim, self.rank)], dim, descending)


RULES: Final[Rules] = MappingProxyType(
    {
        **{f"sum.{kind}": reduction("ReduceSum") for kind in ("default", "dim_IntList")},
        **{f"mean.{kind}": reduction("ReduceMean") for kind in ("default", "dim")},
        **{f"prod.{kind}": reduction("ReduceProd") for kind in ("default", "dim_int")},
        "amax.default": extreme("ReduceMax"),
        "amin.default": extreme("ReduceMin"),
        "max.default": extreme("ReduceMax"),
        "min.default": extreme("ReduceMin"),
        **{f"any.{kind}": quantifier("ReduceMax") for kind in ("default", "dim", "dims")},
        **{f"all.{kind}": quantifier("ReduceMin") for kind in ("default", "dim", "dims")},
        "argmax.default": position("ArgMax"),
        "argmin.default": position("ArgMin"),
        "max.dim": extreme_with_place("ReduceMax", "ArgMax"),
        "min.dim": extreme_with_place("ReduceMin", "ArgMin"),
        "var.correction": variance,
        "var_mean.correction": variance_and_mean,
        "linalg_vector_norm.default": norm,
        "cumsum.default": cumulative("CumSum"),
        "cumprod.default": cumulative("CumProd"),
        "topk.default": top,
        "sort.default": sort,
        "sort.stable": lambda w, self, stable=None, dim=-1, descending=False: sort(w, self, dim, descending),
    }
)
