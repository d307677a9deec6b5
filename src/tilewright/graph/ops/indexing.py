"""Places that depend on data: gathers, one-hot, sorting, sequences."""

from __future__ import annotations

from collections.abc import Callable

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, Place, clamped, compute, index_value
from tilewright.graph.ops.common import (
    Scalar,
    insert_axes,
    is_signed,
    number,
    size_of,
    split_index,
    stem,
)
from tilewright.graph.registry import Context, Kind, integer_of, operator


def lookup(
    ctx: Context, at: int, indices: Operand, size: int, first: int = 0, stride: int = 1
) -> Callable[[Place], Ix]:
    """How places on an axis are read from the node's input `at`: negative ones count from the end.

    Runs check that they are in range (those meant that `Context.limit_indices` describes). That the code
    clamps them as well keeps it inside of its memory without the checks.
    """
    dtype = indices.dtype
    signed = is_signed(dtype)
    ctx.limit_indices(at, -size if signed else 0, size, first, stride)

    def place(index: Place) -> Ix:
        found = indices[index]
        if signed:
            found = lang.select(found < number(0, dtype), found + number(size, dtype), found)
        return clamped(found, size)

    return place


@operator("Gather", kind=Kind.GATHER)
def gather(ctx: Context, x: Operand, indices: Operand) -> Operand:
    """The slices of x along `axis` that the indices name; the axis is replaced by the axes of the indices."""
    axis = ctx.axis("axis", len(x.shape), 0)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    width = len(indices.shape)
    known = ctx.values[1]
    if known is not None and known.size == 1:
        chosen = integer_of(known.reshape(()).item())
        ctx.require(
            -x.shape[axis] <= chosen < x.shape[axis], f"index {chosen} is out of range for {x.shape[axis]}"
        )
        chosen = chosen + x.shape[axis] if chosen < 0 else chosen
        return compute(shape, lambda *i: x[(*i[:axis], chosen, *i[axis + width :])], name=stem(ctx))

    place = lookup(ctx, 1, indices, x.shape[axis])

    def of(*i: Ix) -> Scalar:
        return x[(*i[:axis], place(i[axis : axis + width]), *i[axis + width :])]

    return compute(shape, of, name=stem(ctx))


@operator("ArrayFeatureExtractor", kind=Kind.GATHER, domain="ai.onnx.ml")
def array_feature_extractor(ctx: Context, x: Operand, indices: Operand) -> Operand:
    """The named elements of the last axis."""
    count = size_of(indices.shape)
    shape = (*x.shape[:-1], count) if len(x.shape) > 1 else (1, count)
    place = lookup(ctx, 1, indices, x.shape[-1])

    def of(*i: Ix) -> Scalar:
        at = place(split_index(i[-1], indices.shape))
        return x[(*i[:-1], at)] if len(x.shape) > 1 else x[(at,)]

    return compute(shape, of, name=stem(ctx))


@operator("GatherElements", kind=Kind.GATHER)
def gather_elements(ctx: Context, x: Operand, indices: Operand) -> Operand:
    """The elements of x at the indices along `axis`, all other axes in step."""
    axis = ctx.axis("axis", len(x.shape), 0)
    ctx.require(len(indices.shape) == len(x.shape), "input and indices differ in rank")

    place = lookup(ctx, 1, indices, x.shape[axis])

    def of(*i: Ix) -> Scalar:
        return x[(*i[:axis], place(i), *i[axis + 1 :])]

    return compute(indices.shape, of, name=stem(ctx))


@operator("GatherND", kind=Kind.GATHER)
def gather_nd(ctx: Context, x: Operand, indices: Operand) -> Operand:
    """The slices of x that the tuples along the last axis of the indices name."""
    batch = ctx.integer("batch_dims", 0)
    ctx.require(len(indices.shape) > batch and len(x.shape) > batch >= 0, "too many batch axes")
    depth, outer = indices.shape[-1], len(indices.shape) - 1
    ctx.require(batch + depth <= len(x.shape), f"tuples of {depth} are too long for rank {len(x.shape)}")

    places = [lookup(ctx, 1, indices, x.shape[batch + at], at, depth) for at in range(depth)]

    def of(*i: Ix) -> Scalar:
        named = [place((*i[:outer], at)) for at, place in enumerate(places)]
        return x[(*i[:batch], *named, *i[outer:])]

    return compute((*indices.shape[:-1], *x.shape[batch + depth :]), of, name=stem(ctx))


@operator("OneHot", kind=Kind.GATHER, static=(1,))
def one_hot(ctx: Context, indices: Operand, depth: Operand, values: Operand) -> Operand:
    """The second of two values where the new axis is at the index, the first elsewhere."""
    size = ctx.static_int(1)
    ctx.require(size >= 0, "its depth is negative")
    rank = len(indices.shape) + 1
    axis = ctx.axis("axis", rank, -1)
    shape = list(indices.shape)
    shape.insert(axis, size)

    def of(*i: Ix) -> Scalar:
        index = lang.cast(indices[(*i[:axis], *i[axis + 1 :])], "i64")
        index = lang.select(index < number(0, "i64"), index + number(size, "i64"), index)
        return lang.select(index == index_value(i[axis], "i64"), values[(1,)], values[(0,)])

    return compute(shape, of, name=stem(ctx))


@operator("ReverseSequence", kind=Kind.GATHER)
def reverse_sequence(ctx: Context, x: Operand, lengths: Operand) -> Operand:
    """The first elements of each sequence in reverse, the rest as it is."""
    rank = len(x.shape)
    time, batch = ctx.axis("time_axis", rank, 0), ctx.axis("batch_axis", rank, 1)
    ctx.limit_indices(1, 0, x.shape[time] + 1)

    def of(*i: Ix) -> Scalar:
        length = lang.cast(lengths[(i[batch],)], "i64")
        at = index_value(i[time], "i64")
        source = lang.select(at < length, length - number(1, "i64") - at, at)
        return x[
            insert_axes(
                [a for axis, a in enumerate(i) if axis != time],
                {time: clamped(source, x.shape[time])},
                rank,
            )
        ]

    return compute(x.shape, of, name=stem(ctx))
