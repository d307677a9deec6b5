"""Operators of ATen whose places depend on data: gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from tilewright.frontend.torch.writer import Made, Number, Rules, Value, Writer, wide

Indices = Sequence[Value | None]


def embedding(w: Writer, weight: Value, indices: Value, *_: object) -> Made:
    """Rows of a matrix by their numbers."""
    return w.add("Gather", weight, indices, axis=0)


def index_select(w: Writer, self: Value, dim: int, index: Value) -> Made:
    """Elements of an axis by their numbers."""
    if not self.rank:
        return self
    return w.add("Gather", self, w.reshape(index, [math.prod(index.shape)]), axis=w.axis(dim, self.rank))


def _along(w: Writer, self: Value, dim: int, *others: Value) -> tuple[int, list[Value]]:
    """The axis, and the operands with one at least."""
    values = [x if x.rank else w.reshape(x, [1]) for x in (self, *others)]
    return w.axis(dim, max(self.rank, 1)), values


def gather(w: Writer, self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Made:
    """Elements by their places along an axis."""
    if 0 in index.shape:
        return w.full(index.shape, 0, self.dtype)
    axis, (x, at) = _along(w, self, dim, index)
    return w.reshape(w.add("GatherElements", x, w.to(at, "i64"), axis=axis), w.out.sizes)


def _scattered(w: Writer, self: Value, dim: int, index: Value, src: Value, how: str) -> Value:
    if 0 in index.shape:
        return self
    axis, (x, at, new) = _along(w, self, dim, index, src)
    for a in range(at.rank):
        new = w.slice(new, a, 0, at.shape[a])
    inner = wide(x.dtype) if how != "none" else x.dtype
    made = w.add(
        "ScatterElements", w.to(x, inner), w.to(at, "i64"), w.to(new, inner), axis=axis, reduction=how
    )
    return w.reshape(w.to(made, self.dtype), self.shape)


def scatter(w: Writer, self: Value, dim: int, index: Value, src: Value) -> Made:
    """A tensor with elements at places along an axis set."""
    return _scattered(w, self, dim, index, src, "none")


def scatter_value(w: Writer, self: Value, dim: int, index: Value, value: Number) -> Made:
    """The same, all to one number."""
    return _scattered(w, self, dim, index, w.full(index.shape, value, self.dtype), "none")


def scatter_add(w: Writer, self: Value, dim: int, index: Value, src: Value) -> Made:
    """The same, added to."""
    w.require(self.dtype != "bool", "sums of truth values")
    return _scattered(w, self, dim, index, src, "add")


def scatter_reduce(
    w: Writer, self: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Made:
    """The same, combined."""
    known = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    w.require(reduce in known and include_self and self.dtype != "bool", f"it combines by {reduce}")
    return _scattered(w, self, dim, index, src, known[reduce])


def _places(w: Writer, self: Value, indices: Indices) -> tuple[list[int], list[Value], tuple[int, ...]]:
    """The axes that are indexed, the indices of one shape, and that."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    w.require(all(x.dtype in ("i64", "i32") for x in given), "its indices are no whole numbers")
    # as torch has seen that they broadcast, each axis is as long as the first that is not 1
    rank = max(x.rank for x in given)
    columns = zip(*((1,) * (rank - x.rank) + x.shape for x in given), strict=True)
    shape = tuple(next((n for n in sizes if n != 1), 1) for sizes in columns)
    return axes, [w.to(w.expand(x, shape), "i64") for x in given], shape


def _front(axes: Sequence[int]) -> int:
    """Where the indices' axes stand in the result: in place of axes that are next to each other, or first."""
    return axes[0] if list(axes) == [*range(axes[0], axes[-1] + 1)] else 0


def _order(rank: int, width: int, front: int) -> list[int]:
    """From axes with the indices' first to the result's."""
    rest = [*range(width, rank)]
    return [*rest[:front], *range(width), *rest[front:]]


def index(w: Writer, self: Value, indices: Indices) -> Made:
    """Elements by indices of some axes, as numpy has it."""
    axes, given, shape = _places(w, self, indices)
    if not math.prod(w.out.sizes):
        return w.full(w.out.sizes, 0, self.dtype)
    if len(axes) == 1:
        return w.add("Gather", self, given[0], axis=axes[0])
    rest = [axis for axis in range(self.rank) if axis not in axes]
    x = w.transpose(self, [*axes, *rest])
    made = w.add("GatherND", x, _tuples(w, given, shape))
    return w.transpose(made, _order(made.rank, len(shape), _front(axes)))


def _tuples(w: Writer, given: Sequence[Value], shape: Sequence[int]) -> Value:
    columns = [w.reshape(x, [*shape, 1]) for x in given]
    return columns[0] if len(columns) == 1 else w.add("Concat", *columns, axis=len(shape))


def index_put(w: Writer, self: Value, indices: Indices, values: Value, accumulate: bool = False) -> Made:
    """A tensor with elements at such places set, or added to."""
    axes, given, shape = _places(w, self, indices)
    if not math.prod(shape) or 0 in self.shape:
        return self
    w.require(not (accumulate and self.dtype == "bool"), "sums of truth values")
    rest = [axis for axis in range(self.rank) if axis not in axes]
    order = [*axes, *rest]
    inner = wide(self.dtype) if accumulate else self.dtype
    x = w.to(w.transpose(self, order), inner)
    wanted = [*shape, *(self.shape[axis] for axis in rest)]
    back = _order(len(wanted), len(shape), _front(axes))
    new = w.expand(w.to(values, inner), [wanted[axis] for axis in back])
    new = w.transpose(new, [back.index(axis) for axis in range(len(back))])
    how = "add" if accumulate else "none"
    made = w.add("ScatterND", x, _tuples(w, given, shape), new, reduction=how)
    return w.transpose(w.to(made, self.dtype), [order.index(axis) for axis in range(self.rank)])


RULES: Final[Rules] = MappingProxyType(
    {
        "embedding.default": embedding,
        "index_select.default": index_select,
        "gather.default": gather,
        "scatter.src": scatter,
        "scatter.value": scatter_value,
        "scatter_add.default": scatter_add,
        "scatter_reduce.two": scatter_reduce,
        **dict.fromkeys(("index.Tensor", "_unsafe_index.Tensor"), index),
        **dict.fromkeys(("index_put.default", "_unsafe_index_put.default"), index_put),
    }
)
