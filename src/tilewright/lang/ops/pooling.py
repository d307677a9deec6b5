"""Pooling over windows and over whole spatial dimensions, channels first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tilewright.lang.compute import compute
from tilewright.lang.conversions import to_scalar
from tilewright.lang.functions import cast, logical_and, maximum, minimum, select
from tilewright.lang.ops.common import pairs, per_dimension, spatial_names
from tilewright.lang.ops.convolution import Padding, output_extent, pad_spatial, window_axes
from tilewright.lang.ops.reduction import reduce
from tilewright.lang.reductions import max as lang_max, sum as lang_sum
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import Axis, IndexExpr, Scalar


def max_pool(
    x: Tensor,
    window: Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilations: int | Sequence[int] = 1,
    name: str | None = None,
) -> Tensor:
    """The largest element of each window; what lies outside never counts."""
    rank = x.rank - 2
    padded = pad_spatial(x, pairs(padding, rank), x.dtype.min_value)
    axes, where, shape = _windows(padded, window, strides, dilations)

    def element(n: IndexExpr, c: IndexExpr, *at: IndexExpr) -> Scalar:
        value = padded[(n, c, *where(at))]
        return lang_max(value, axis=axes) if axes else value

    names = ("n", "c", *(f"o{s}" for s in spatial_names(rank)))
    return compute(shape, element, name, axes=names, hint="max_pool")


def average_pool(
    x: Tensor,
    window: Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilations: int | Sequence[int] = 1,
    count_padding: bool = False,
    uncounted: Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """The mean of each window over its elements inside of ``x``, or with ``count_padding`` over all of it.

    Of the padding after a dimension the last ``uncounted`` elements (those that rounding an extent up adds)
    never count.
    """
    rank = x.rank - 2
    pads = pairs(padding, rank)
    dilation = per_dimension(dilations, rank, "the dilation")
    stride = per_dimension(strides, rank, "the stride")
    beyond = tuple(uncounted or (0,) * rank)
    padded = pad_spatial(x, pads)
    axes, where, shape = _windows(padded, window, strides, dilations)
    names = ("n", "c", *(f"o{s}" for s in spatial_names(rank)))
    total = compute(
        shape,
        lambda n, c, *at: (
            lang_sum(padded[(n, c, *where(at))], axis=axes) if axes else padded[(n, c, *where(at))]
        ),
        axes=names,
        hint="average_pool_sum",
    )
    # elements that count, in coordinates of the padded tensor
    lows = [0 if count_padding else lo for lo, _ in pads]
    highs = [
        s - (b if count_padding else hi) for s, (_, hi), b in zip(padded.shape[2:], pads, beyond, strict=True)
    ]
    everything = all(p == (0, 0) or (count_padding and not b) for p, b in zip(pads, beyond, strict=True))

    def count(at: Sequence[IndexExpr]) -> Scalar:
        if all(d == 1 for d in dilation):
            out: Scalar | None = None
            for p, s, k, lo, hi in zip(at, stride, window, lows, highs, strict=True):
                inside = to_scalar(minimum(p * s + k, hi) - maximum(p * s, lo), x.dtype)
                out = inside if out is None else out * inside
            assert out is not None
            return out
        tests = [(w >= lo) & (w < hi) for w, lo, hi in zip(where(at), lows, highs, strict=True)]
        return lang_sum(cast(select(logical_and(*tests), 1, 0), x.dtype), axis=axes)

    if everything:
        number = prod(window)
        return compute(shape, lambda *i: total[i] / number, name, axes=names, hint="average_pool")
    return compute(shape, lambda *i: total[i] / count(i[2:]), name, axes=names, hint="average_pool")


def _windows(
    padded: Tensor, window: Sequence[int], strides: int | Sequence[int], dilations: int | Sequence[int]
) -> tuple[list[Axis], Callable[[Sequence[IndexExpr]], list[IndexExpr]], tuple[IndexExpr, ...]]:
    """The window's axes, the element it touches at an output position, and the output's shape."""
    rank = padded.rank - 2
    size = per_dimension(window, rank, "the window")
    stride = per_dimension(strides, rank, "the stride")
    dilation = per_dimension(dilations, rank, "the dilation")
    axes, offsets = window_axes(size)

    def where(at: Sequence[IndexExpr]) -> list[IndexExpr]:
        return [p * s + k * d for p, s, k, d in zip(at, stride, offsets, dilation, strict=True)]

    outer = [
        output_extent(s, w, st, d)
        for s, w, st, d in zip(padded.shape[2:], size, stride, dilation, strict=True)
    ]
    return axes, where, (*padded.shape[:2], *outer)


def global_average_pool(x: Tensor, name: str | None = None) -> Tensor:
    """The mean over all spatial dimensions, which keep the extent 1."""
    return reduce("mean", x, tuple(range(2, x.rank)), keepdims=True, name=name)


def global_max_pool(x: Tensor, name: str | None = None) -> Tensor:
    """The largest element over all spatial dimensions, which keep the extent 1."""
    return reduce("max", x, tuple(range(2, x.rank)), keepdims=True, name=name)
