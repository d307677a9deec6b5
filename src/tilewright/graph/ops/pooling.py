"""Sliding-window pooling: maximum, average, p-norm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, Place, bounded, compute, index_value
from tilewright.graph.ops.common import (
    Scalar,
    convert_tensor,
    linear_index,
    number,
    size_of,
    split_index,
    stem,
    wide,
)
from tilewright.graph.ops.convolution import Window, window_of
from tilewright.graph.ops.reduction import as_dtype
from tilewright.graph.registry import Context, Kind, operator
from tilewright.ir import OpenSizeError, dtype_of, is_open, least, most


def _window(ctx: Context, x: Operand) -> tuple[Window, tuple[int, ...]]:
    """The window, and the sizes of the output; with `ceil_mode` the last window may hang over."""
    ctx.require(len(x.shape) >= 3, "pooling needs batch, channels and a spatial axis")
    sizes = x.shape[2:]
    window = window_of(ctx, ctx.integers("kernel_shape"), sizes)
    ceil = ctx.flag("ceil_mode", False)
    out = []
    for axis, size in enumerate(sizes):
        stride = window.strides[axis]
        room = size + window.before[axis] + window.after[axis] - window.span(axis)
        ctx.require(room >= 0 or ceil, f"a window of {window.span(axis)} does not fit into {size} elements")
        count = (-(-room // stride) if ceil else room // stride) + 1
        # A window that would begin in the padding after the input is left out.
        if ceil:
            count = least(count, most(-(-(size + window.before[axis]) // stride), count - 1))
        ctx.require(count > 0, f"a window of {window.span(axis)} does not fit into {size} elements")
        out.append(count)
    ctx.limit_elements((*x.shape[:2], *out), x.dtype)
    return window, tuple(out)


def _overhangs(window: Window, sizes: Sequence[int], out: Sequence[int]) -> bool:
    """Whether some window reaches beyond the input."""

    def beyond(axis: int, count: int) -> bool:
        try:
            reach = (count - 1) * window.strides[axis] + window.span(axis) - window.before[axis]
            return reach > sizes[axis]
        except OpenSizeError:
            # at some sizes of a run: what stays inside reads what is there
            return True

    return any(before != 0 for before in window.before) or any(map(beyond, range(len(out)), out))


def _places(window: Window, o: Sequence[At], k: Sequence[At]) -> Place:
    return tuple(
        at * window.strides[axis] + k[axis] * window.dilations[axis] - window.before[axis]
        for axis, at in enumerate(o)
    )


@operator("MaxPool", kind=Kind.WINDOW)
def max_pool(ctx: Context, x: Operand) -> tuple[Operand, ...]:
    """The largest element of each window, and where it is in the flattened input."""
    window, out = _window(ctx, x)
    shape = (*x.shape[:2], *out)
    lowest = dtype_of(x.dtype).min_value
    source = bounded(x, lowest) if _overhangs(window, x.shape[2:], out) else x
    reduced = [lang.reduce_axis(size, f"k{axis}") for axis, size in enumerate(window.kernel)]
    best = compute(
        shape,
        lambda n, c, *o: lang.max(source[(n, c, *_places(window, o, reduced))], axis=reduced),
        name=stem(ctx),
    )
    if not ctx.wants(1):
        return (best,)
    k = lang.reduce_axis(size_of(window.kernel), "k")
    where = compute(
        shape,
        lambda n, c, *o: lang.argmax(
            source[(n, c, *_places(window, o, split_index(k, window.kernel)))], axis=k
        ),
        name=f"{stem(ctx)}_where",
    )
    # The standard's storage order 1 counts the positions of an image column by column.
    by_column = ctx.flag("storage_order", False)

    def position(n: Ix, c: Ix, *o: Ix) -> Scalar:
        found = lang.cast(where[(n, c, *o)], "i64")
        total = index_value(linear_index((n, c, *(0 for _ in o)), x.shape), "i64")
        step = size_of(window.kernel)
        weight = 1 if by_column else size_of(x.shape[2:])
        for axis, at in enumerate(o):
            step //= window.kernel[axis]
            inside = lang.truncdiv(found, number(step, "i64"))
            inside = lang.rem(inside, number(window.kernel[axis], "i64"))
            start = index_value(at * window.strides[axis] - window.before[axis], "i64")
            weight = weight if by_column else weight // x.shape[2 + axis]
            place = start + inside * number(window.dilations[axis], "i64")
            total = total + place * number(weight, "i64")
            weight = weight * x.shape[2 + axis] if by_column else weight
        return total

    return best, compute(shape, position, name=f"{stem(ctx)}_position", dtype="i64")


@operator("AveragePool", kind=Kind.WINDOW)
def average_pool(ctx: Context, x: Operand) -> Operand:
    """The mean of each window; elements of the padding count where `count_include_pad` is set."""
    window, out = _window(ctx, x)
    inner = wide(x.dtype)
    wider = convert_tensor(ctx, x, inner)
    overhangs = _overhangs(window, x.shape[2:], out)
    source = bounded(wider, 0) if overhangs else wider
    reduced = [lang.reduce_axis(size, f"k{axis}") for axis, size in enumerate(window.kernel)]
    total = compute(
        (*x.shape[:2], *out),
        lambda n, c, *o: lang.sum(source[(n, c, *_places(window, o, reduced))], axis=reduced),
        name=stem(ctx),
    )
    with_padding = ctx.flag("count_include_pad", False)
    if any(map(is_open, out)):
        return as_dtype(ctx, _open_mean(ctx, total, window, x.shape[2:], with_padding), x.dtype)
    counts = _counts(window, x.shape[2:], out, with_padding)
    if int(counts.min()) == int(counts.max()):
        factor = number(1.0 / float(counts.flat[0]), inner)
        mean = compute(total.shape, lambda *i: total[i] * factor, name=f"{stem(ctx)}_mean")
    else:
        shares = ctx.table((1.0 / counts).astype(dtype_of(inner).numpy), "shares")
        mean = compute(total.shape, lambda n, c, *o: total[(n, c, *o)] * shares[o], name=f"{stem(ctx)}_mean")
    return as_dtype(ctx, mean, x.dtype)


def _open_mean(
    ctx: Context, total: Operand, window: Window, sizes: Sequence[int], with_padding: bool
) -> Operand:
    """The sums over how many elements each window averages over, where only a run knows the sizes."""

    def inside(axis: int, at: Ix) -> At:
        low = -window.before[axis] if with_padding else 0
        high = sizes[axis] + (window.after[axis] if with_padding else 0)
        start, step = at * window.strides[axis] - window.before[axis], window.dilations[axis]
        first = lang.maximum((low - start + step - 1) // step, 0)
        last = lang.minimum((high - 1 - start) // step, window.kernel[axis] - 1)
        return lang.maximum(last - first + 1, 1)

    def mean(n: Ix, c: Ix, *o: Ix) -> Scalar:
        made = total[(n, c, *o)]
        for axis, at in enumerate(o):
            made = made / index_value(inside(axis, at), total.dtype)
        return made

    return compute(total.shape, mean, name=f"{stem(ctx)}_mean")


def _counts(
    window: Window, sizes: Sequence[int], out: Sequence[int], with_padding: bool
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """How many elements each window averages over."""
    counts = np.ones(tuple(out), np.int64)
    for axis, count in enumerate(out):
        low = -window.before[axis] if with_padding else 0
        high = sizes[axis] + (window.after[axis] if with_padding else 0)
        starts = np.arange(count) * window.strides[axis] - window.before[axis]
        # The window's places are start + k dilation: those from the first k inside to the last one.
        step = window.dilations[axis]
        first = np.maximum(-((starts - low) // step), 0)
        last = np.minimum((high - 1 - starts) // step, window.kernel[axis] - 1)
        inside = np.maximum(last - first + 1, 0)
        counts = counts * inside.reshape([-1 if a == axis else 1 for a in range(len(out))])
    return np.maximum(counts, 1)


@operator("LpPool", kind=Kind.WINDOW)
def lp_pool(ctx: Context, x: Operand) -> Operand:
    """The p-norm of each window."""
    window, out = _window(ctx, x)
    p, inner = ctx.integer("p", 2), wide(x.dtype)
    wider = convert_tensor(ctx, x, inner)
    source = bounded(wider, 0) if _overhangs(window, x.shape[2:], out) else wider
    reduced = [lang.reduce_axis(size, f"k{axis}") for axis, size in enumerate(window.kernel)]

    def powers(n: Ix, c: Ix, *o: Ix) -> Scalar:
        element = lang.absolute(source[(n, c, *_places(window, o, reduced))])
        return lang.sum(element * element if p == 2 else lang.pow(element, number(p, inner)), axis=reduced)

    total = compute((*x.shape[:2], *out), powers, name=stem(ctx))

    def root(*i: Ix) -> Scalar:
        return lang.sqrt(total[i]) if p == 2 else lang.pow(total[i], number(1.0 / p, inner))

    return as_dtype(ctx, compute(total.shape, root, name=f"{stem(ctx)}_root"), x.dtype)
