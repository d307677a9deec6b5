"""Softmax and the normalisations that compute statistics of their input: chains of reductions over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, Place, bounded, compute, index_value
from tilewright.graph.ops.common import (
    Scalar,
    cast,
    convert_tensor,
    linear_index,
    number,
    read,
    reciprocal,
    size_of,
    split_index,
    stem,
    wide,
)
from tilewright.graph.ops.reduction import as_dtype, reduce_over
from tilewright.graph.registry import Context, Kind, operator


def _row(index: Sequence[At], axes: Sequence[int]) -> Place:
    return tuple(0 if axis in axes else i for axis, i in enumerate(index))


def _softmax_axes(ctx: Context, rank: int) -> tuple[int, ...]:
    if ctx.version >= 13:
        return (ctx.axis("axis", rank, -1),)
    # Before operator set 13 the input was coerced to a matrix at `axis`.
    axis = ctx.integer("axis", 1)
    ctx.require(-rank <= axis <= rank, f"axis {axis} is out of range for rank {rank}")
    return tuple(range(axis + rank if axis < 0 else axis, rank))


@operator("Softmax", "LogSoftmax", kind=Kind.REDUCTION)
def softmax(ctx: Context, x: Operand) -> Operand:
    """exp(x - m) / sum(exp(x - m)) along an axis, m the maximum; or its logarithm, x - m - log(sum)."""
    axes = _softmax_axes(ctx, len(x.shape))
    inner, name = wide(x.dtype), stem(ctx)
    wider = convert_tensor(ctx, x, inner)
    best = reduce_over(ctx, wider, axes, lang.max, name=f"{name}_max")

    def centred(i: Place) -> Scalar:
        return wider[i] - best[_row(i, axes)]

    powers = compute(x.shape, lambda *i: lang.exp_nonpositive(centred(i)), name=f"{name}_exp")
    total = reduce_over(ctx, powers, axes, lang.sum, name=f"{name}_sum")
    if ctx.node.op == "LogSoftmax":
        # one logarithm a row
        logs = compute(total.shape, lambda *i: lang.log(total[i]), name=f"{name}_log")
        return compute(x.shape, lambda *i: cast(centred(i) - logs[_row(i, axes)], inner, x.dtype), name=name)
    # One division a row: there are no numbers whose reciprocal would overflow, the sum is at least 1.
    inverse = compute(total.shape, lambda *i: number(1, inner) / total[i], name=f"{name}_inverse")

    def of(*i: Ix) -> Scalar:
        return cast(powers[i] * inverse[_row(i, axes)], inner, x.dtype)

    return compute(x.shape, of, name=name)


@operator("Hardmax", kind=Kind.REDUCTION)
def hardmax(ctx: Context, x: Operand) -> Operand:
    """1 at the first of the largest elements of a row, 0 elsewhere."""
    axes = _softmax_axes(ctx, len(x.shape))
    row = [x.shape[axis] for axis in axes]
    ctx.require(size_of(row) > 0 or 0 in x.shape, "its rows have no elements")
    k = lang.reduce_axis(size_of(row), "k")

    def element(i: Sequence[At]) -> Scalar:
        place = dict(zip(axes, split_index(k, row), strict=True))
        return x[tuple(place.get(axis, at) for axis, at in enumerate(i))]

    # the largest element, then the first place that holds it: both in vectors, which an argmax is not
    rows = [1 if a in axes else n for a, n in enumerate(x.shape)]
    best = compute(rows, lambda *i: lang.max(element(i), axis=k), name=f"{stem(ctx)}_max")

    def place(*i: Ix) -> Scalar:
        value, largest = element(i), best[i]
        is_float = x.dtype[0] in "fb"
        both = lang.logical_and(value != value, largest != largest) if is_float else None
        here = value == largest if both is None else lang.logical_or(value == largest, both)
        return lang.min(lang.select(here, index_value(k, "i32"), number(size_of(row), "i32")), axis=k)

    first = compute(rows, place, name=f"{stem(ctx)}_place", dtype="i32")

    def of(*i: Ix) -> Scalar:
        here = linear_index([i[axis] for axis in axes], row)
        chosen = first[_row(i, axes)] == index_value(here, "i32")
        return lang.select(chosen, number(1, x.dtype), number(0, x.dtype))

    return compute(x.shape, of, name=stem(ctx))


def moments(ctx: Context, x: Operand, axes: Sequence[int], epsilon: float) -> tuple[Operand, Operand]:
    """The mean and 1 / sqrt(variance + epsilon) along `axes`, sizes of one left there. Two passes over x."""
    count, name = size_of([x.shape[axis] for axis in axes]), stem(ctx)
    factor = reciprocal(count, x.dtype)
    total = reduce_over(ctx, x, axes, lang.sum, name=f"{name}_sum")
    mean = compute(total.shape, lambda *i: total[i] * factor, name=f"{name}_mean")
    centred = compute(x.shape, lambda *i: x[i] - mean[_row(i, axes)], name=f"{name}_centred")
    squares = reduce_over(ctx, centred, axes, lang.sum, lambda a: a * a, name=f"{name}_squares")
    scale = compute(
        squares.shape,
        lambda *i: lang.rsqrt(squares[i] * factor + number(epsilon, x.dtype)),
        name=f"{name}_scale",
    )
    return mean, scale


def _normalised(
    ctx: Context,
    x: Operand,
    axes: Sequence[int],
    epsilon: float,
    affine: Callable[[Scalar, Place], Scalar],
    dtype: str,
) -> tuple[Operand, Operand, Operand]:
    mean, scale = moments(ctx, x, axes, epsilon)

    def of(*i: Ix) -> Scalar:
        row = _row(i, axes)
        return affine((x[i] - mean[row]) * scale[row], i)

    return compute(x.shape, of, name=stem(ctx), dtype=dtype), mean, scale


@operator("LayerNormalization", kind=Kind.REDUCTION)
def layer_normalization(
    ctx: Context, x: Operand, scale: Operand, bias: Operand | None = None
) -> tuple[Operand, ...]:
    """Normalisation over the axes from `axis` on; also the mean and the inverse deviation."""
    rank, dtype, inner = len(x.shape), x.dtype, wide(x.dtype)
    axes = range(ctx.axis("axis", rank, -1), rank)

    def affine(value: Scalar, i: Place) -> Scalar:
        value = value * cast(read(scale, i), scale.dtype, inner)
        if bias is not None:
            value = value + cast(read(bias, i), bias.dtype, inner)
        return cast(value, inner, dtype)

    made = _normalised(ctx, convert_tensor(ctx, x, inner), axes, ctx.real("epsilon", 1e-5), affine, dtype)
    wanted = max((at for at in range(3) if ctx.wants(at)), default=0)
    return made[: wanted + 1]


@operator("RMSNormalization", kind=Kind.REDUCTION)
def rms_normalization(ctx: Context, x: Operand, scale: Operand) -> Operand:
    """`x / sqrt(mean(x * x) + epsilon) * scale` over the axes from `axis` on."""
    rank, dtype, inner = len(x.shape), x.dtype, wide(x.dtype)
    axes = range(ctx.axis("axis", rank, -1), rank)
    wider = convert_tensor(ctx, x, inner)
    squares = reduce_over(ctx, wider, axes, lang.sum, lambda a: a * a, name=f"{stem(ctx)}_squares")
    factor = reciprocal(size_of([x.shape[axis] for axis in axes]), inner)
    epsilon = number(ctx.real("epsilon", 1e-5), inner)

    def of(*i: Ix) -> Scalar:
        normal = wider[i] * lang.rsqrt(squares[_row(i, axes)] * factor + epsilon)
        return cast(cast(normal, inner, scale.dtype) * read(scale, i), scale.dtype, dtype)

    return compute(x.shape, of, name=stem(ctx))


@operator("InstanceNormalization", kind=Kind.REDUCTION)
def instance_normalization(ctx: Context, x: Operand, scale: Operand, bias: Operand) -> Operand:
    """Normalisation of each channel of each image over its pixels, scaled by channel."""
    inner, dtype = wide(x.dtype), x.dtype
    axes = range(2, len(x.shape))

    def affine(value: Scalar, i: Place) -> Scalar:
        c = (i[1],)
        scaled = value * cast(scale[c], scale.dtype, inner) + cast(bias[c], bias.dtype, inner)
        return cast(scaled, inner, dtype)

    wider = convert_tensor(ctx, x, inner)
    return _normalised(ctx, wider, axes, ctx.real("epsilon", 1e-5), affine, dtype)[0]


@operator("GroupNormalization", kind=Kind.REDUCTION)
def group_normalization(ctx: Context, x: Operand, scale: Operand, bias: Operand) -> Operand:
    """Normalisation over groups of channels and their pixels.

    Scale and bias are given by channel, before operator set 21 by group.
    """
    groups, dtype, inner = ctx.integer("num_groups"), x.dtype, wide(x.dtype)
    channels = x.shape[1]
    ctx.require(groups > 0 and channels % groups == 0, f"{channels} channels do not make {groups} groups")
    size = channels // groups
    grouped_shape = (x.shape[0], groups, size, *x.shape[2:])
    grouped = compute(
        grouped_shape,
        lambda n, g, c, *p: cast(x[(n, g * size + c, *p)], dtype, inner),
        name=f"{stem(ctx)}_grouped",
    )
    axes = range(2, len(grouped_shape))
    mean, deviation = moments(ctx, grouped, axes, ctx.real("epsilon", 1e-5))
    by_group = ctx.version < 21

    def of(n: Ix, c: Ix, *p: Ix) -> Scalar:
        group = c // size
        row: Place = (n, group, *(0 for _ in axes))
        value = (cast(x[(n, c, *p)], dtype, inner) - mean[row]) * deviation[row]
        at = (group,) if by_group else (c,)
        scaled = value * cast(scale[at], scale.dtype, inner) + cast(bias[at], bias.dtype, inner)
        return cast(scaled, inner, dtype)

    return compute(x.shape, of, name=stem(ctx))


@operator("MeanVarianceNormalization", kind=Kind.REDUCTION)
def mean_variance_normalization(ctx: Context, x: Operand) -> Operand:
    """(x - mean) / (deviation + 1e-9) over `axes`."""
    axes = [ctx.normal_axis(axis, len(x.shape)) for axis in ctx.integers("axes", (0, 2, 3))]
    count, name = size_of([x.shape[axis] for axis in axes]), stem(ctx)
    factor = reciprocal(count, x.dtype)
    total = reduce_over(ctx, x, axes, lang.sum, name=f"{name}_sum")
    centred = compute(x.shape, lambda *i: x[i] - total[_row(i, axes)] * factor, name=f"{name}_centred")
    squares = reduce_over(ctx, centred, axes, lang.sum, lambda a: a * a, name=f"{name}_squares")

    def of(*i: Ix) -> Scalar:
        return centred[i] / (lang.sqrt(squares[_row(i, axes)] * factor) + number(1e-9, x.dtype))

    return compute(x.shape, of, name=name)


@operator("LpNormalization", kind=Kind.REDUCTION)
def lp_normalization(ctx: Context, x: Operand) -> Operand:
    """The input divided by its 1-norm or 2-norm along an axis; zero where the norm is zero."""
    axis, p = ctx.axis("axis", len(x.shape), -1), ctx.integer("p", 2)
    inner = wide(x.dtype)
    wider = convert_tensor(ctx, x, inner)
    term: Callable[[Scalar], Scalar] = lang.absolute if p == 1 else lambda a: a * a
    total = reduce_over(ctx, wider, [axis], lang.sum, term, name=f"{stem(ctx)}_norm")
    zero = number(0, inner)

    def of(*i: Ix) -> Scalar:
        norm = total[_row(i, [axis])]
        norm = norm if p == 1 else lang.sqrt(norm)
        return lang.select(norm == zero, zero, wider[i] / norm)

    return as_dtype(ctx, compute(x.shape, of, name=stem(ctx)), x.dtype)


@operator("LRN", kind=Kind.WINDOW)
def local_response_normalization(ctx: Context, x: Operand) -> Operand:
    """`x / (bias + alpha / size * squares) ** beta`, the squares summed over a window of channels."""
    size = ctx.integer("size")
    ctx.require(size > 0 and len(x.shape) >= 2, "its size is not positive, or its input has no channels")
    alpha, beta, bias = ctx.real("alpha", 1e-4), ctx.real("beta", 0.75), ctx.real("bias", 1.0)
    before = (size - 1) // 2
    k = lang.reduce_axis(size, "k")
    squared = compute(x.shape, lambda *i: x[i] * x[i], name=f"{stem(ctx)}_squared")
    padded = bounded(squared, 0)
    sums = compute(
        x.shape,
        lambda n, c, *p: lang.sum(padded[(n, c + k - before, *p)], axis=k),
        name=f"{stem(ctx)}_sum",
    )

    def of(*i: Ix) -> Scalar:
        base = number(bias, x.dtype) + number(alpha / size, x.dtype) * sums[i]
        return x[i] / lang.pow(base, number(beta, x.dtype))

    return compute(x.shape, of, name=stem(ctx))
