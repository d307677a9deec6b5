"""Operators that are evaluated when the model is compiled: from shapes, attributes and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.graph.model import Array
from tilewright.graph.registry import Context, static_operator
from tilewright.graph.size_values import array_of_sizes
from tilewright.ir import dtype_of


@static_operator("Constant")
def constant(ctx: Context) -> Sequence[Array]:
    """The value that an attribute holds."""
    if ctx.has("value"):
        return [ctx.tensor("value")]
    for name, dtype in (("value_int", np.int64), ("value_ints", np.int64)):
        if ctx.has(name):
            return [np.array(ctx.node.attributes[name], dtype)]
    for name in ("value_float", "value_floats"):
        if ctx.has(name):
            return [np.array(ctx.node.attributes[name], np.float32)]
    raise ctx.unsupported("a constant that is no dense tensor of numbers")


@static_operator("Shape")
def shape_of(ctx: Context) -> Sequence[Array]:
    """The sizes of the input, or of some of its axes."""
    sizes = ctx.type(0).sizes
    end = ctx.integer("end") if ctx.has("end") else None
    return [array_of_sizes(sizes[ctx.integer("start", 0) : end])]


@static_operator("Size")
def size_of(ctx: Context) -> Sequence[Array]:
    """The number of elements of the input."""
    return [array_of_sizes([ctx.type(0).elements]).reshape(())]


@static_operator("ConstantOfShape", static=(0,))
def constant_of_shape(ctx: Context) -> Sequence[Array]:
    """A tensor of one value."""
    sizes = ctx.static_ints(0)
    ctx.require(min(sizes, default=0) >= 0, f"the shape {list(sizes)} has a negative size")
    value = ctx.tensor("value").reshape(-1) if ctx.has("value") else np.zeros(1, np.float32)
    ctx.require(value.size == 1, "the attribute value must have one element")
    ctx.limit_bytes(math.prod(sizes) * value.itemsize)
    return [np.full(sizes, value[0])]


@static_operator("Range", static=(0, 1, 2))
def arange(ctx: Context) -> Sequence[Array]:
    """start, start + delta, ... before limit."""
    start, limit, delta = (ctx.static(at).reshape(()) for at in range(3))
    ctx.require(bool(delta != 0), "its step is zero")
    dtype = ctx.type(0).dtype
    span = (float(limit) - float(start)) / float(delta)
    if dtype_of(dtype).is_integer:
        span = -((int(start) - int(limit)) // int(delta))
    count = max(math.ceil(span), 0)
    ctx.limit_bytes(count * dtype_of(dtype).bytes)
    steps = np.arange(count)
    return [(start + steps.astype(start.dtype) * delta).astype(start.dtype)]


@static_operator("NonZero", static=(0,))
def non_zero(ctx: Context) -> Sequence[Array]:
    """The places of elements that are not zero, one row an axis."""
    return [np.array(np.nonzero(ctx.static(0)), np.int64)]


@static_operator("Compress", static=(0, 1))
def compress(ctx: Context) -> Sequence[Array]:
    """The slices along an axis for which a condition holds."""
    x, condition = ctx.static(0), ctx.static(1)
    axis = ctx.axis("axis", x.ndim) if ctx.has("axis") else None
    return [np.compress(condition, x, axis=axis)]


@static_operator("Unique", static=(0,))
def unique(ctx: Context) -> Sequence[Array]:
    """The distinct elements or slices, where each is first, which one each is, how often each occurs."""
    x = ctx.static(0)
    axis = ctx.axis("axis", x.ndim) if ctx.has("axis") else None
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not ctx.flag("sorted", True):
        order = np.argsort(first)
        values = np.take(values, order, axis=0 if axis is None else axis)
        place = np.argsort(order)
        first, counts, inverse = first[order], counts[order], place[inverse]
    return [values, *(np.asarray(part, np.int64) for part in (first, inverse, counts))]
