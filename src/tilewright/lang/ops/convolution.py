"""Convolutions of any number of spatial dimensions, channels first.

A convolution is one reduction stage over ``ic`` and the window; padding is a stage of its own before it, so
that a schedule can inline it or write it into a halo.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import ir
from tilewright.ir import DType
from tilewright.lang.axes import reduce_axis
from tilewright.lang.boundary import boundary
from tilewright.lang.compute import compute
from tilewright.lang.conversions import dtype_from
from tilewright.lang.functions import cast, logical_and, select
from tilewright.lang.ops.common import constant, is_one, pairs, per_dimension, same, spatial_names
from tilewright.lang.ops.elementwise import bias_add
from tilewright.lang.reductions import sum as lang_sum
from tilewright.lang.source import problem
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import Axis, IndexExpr, Scalar, ValueLike

Padding = int | Sequence[int | tuple[int, int]]


def pad_spatial(
    x: Tensor, padding: Sequence[tuple[int, int]], value: ValueLike | None = None, name: str | None = None
) -> Tensor:
    """``x[n, c, …]`` with ``value`` around its spatial dimensions; ``x`` itself where nothing is added."""
    if all(p == (0, 0) for p in padding):
        return x
    view = boundary(x, value)
    before = (0, 0, *(lo for lo, _ in padding))
    shape = (*x.shape[:2], *(s + lo + hi for s, (lo, hi) in zip(x.shape[2:], padding, strict=True)))
    names = ("n", "c", *spatial_names(len(padding)))

    def element(*i: IndexExpr) -> Scalar:
        return view[tuple(at - b for at, b in zip(i, before, strict=True))]

    return compute(shape, element, name, axes=names, hint=f"{x.name or x.hint}_pad")


def output_extent(extent: IndexExpr, window: int, stride: int, dilation: int) -> IndexExpr:
    """Positions of a window in a padded extent: ``(extent - dilation (window - 1) - 1) // stride + 1``."""
    return (extent - dilation * (window - 1) - 1) // stride + 1


def window_axes(window: Sequence[int]) -> tuple[list[Axis], list[IndexExpr]]:
    """Reduction axes of a window, and its indices: extents of 1 have no axis and the index 0."""
    axes: list[Axis] = []
    indices: list[IndexExpr] = []
    for n, size in zip(spatial_names(len(window)), window, strict=True):
        if size == 1:
            indices.append(IndexExpr(ir.ZERO))
        else:
            axes.append(reduce_axis(size, f"k{n}"))
            indices.append(axes[-1])
    return axes, indices


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    strides: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
    accumulate: DType | str | None = None,
    name: str | None = None,
) -> Tensor:
    """The convolution of ``x[n, ic, …]`` with ``weight[oc, ic / groups, …]``.

    ``sum over (ic, kh, kw) of Xpad[n, ic, oh·s + kh·d, ow·s + kw·d] · W[oc, ic, kh, kw]``; reduction axes of
    extent 1 (a depthwise ``ic``, a 1x1 window) are left out. ``padding`` is one number, one a dimension, or
    pairs ``(before, after)``. ``accumulate`` is the type of the sum where that is not the operands'.

    Raises ProgramError for ranks, groups or channels that do not fit each other.
    """
    rank = x.rank - 2
    if rank < 1 or weight.rank != x.rank:
        raise problem(
            f"a convolution of {x.rank} with {weight.rank} dimensions",
            "data and weights have as many: batch or output channels, channels, and the spatial ones",
        )
    window = [constant(s, "the extent of a window") for s in weight.shape[2:]]
    stride = per_dimension(strides, rank, "the stride")
    dilation = per_dimension(dilations, rank, "the dilation")
    oc, icg = constant(weight.shape[0], "the number of output channels"), weight.shape[1]
    if groups < 1 or oc % groups or not same(x.shape[1], icg * groups):
        raise problem(
            f"{groups} groups of {icg.index} input channels for {x.shape[1].index}, {oc} output channels",
            "input channels = groups * weight.shape[1], and the groups divide the output channels",
        )
    padded = pad_spatial(x, pairs(padding, rank))
    outer = [
        output_extent(s, w, st, d)
        for s, w, st, d in zip(padded.shape[2:], window, stride, dilation, strict=True)
    ]
    axes, offsets = window_axes(window)
    channel = IndexExpr(ir.ZERO)
    if not is_one(icg):
        ic = reduce_axis(icg, "ic")
        axes, channel = [ic, *axes], ic
    wide = None if accumulate is None else dtype_from(accumulate)

    def element(n: IndexExpr, o: IndexExpr, *at: IndexExpr) -> Scalar:
        first = channel if groups == 1 else o // (oc // groups) * icg.__index__() + channel
        where = [p * s + k * d for p, s, k, d in zip(at, stride, offsets, dilation, strict=True)]
        left, right = padded[(n, first, *where)], weight[(o, channel, *offsets)]
        if wide is not None:
            left, right = cast(left, wide), cast(right, wide)
        return lang_sum(left * right, axis=axes) if axes else left * right

    names = ("n", "oc", *(f"o{s}" for s in spatial_names(rank)))
    plain = name if bias is None else None
    y = compute((x.shape[0], oc, *outer), element, plain, axes=names, hint="conv")
    return y if bias is None else bias_add(y, bias, 1, name)


def depthwise_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    strides: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilations: int | Sequence[int] = 1,
    name: str | None = None,
) -> Tensor:
    """:func:`conv` with one group a channel: ``weight[c·m, 1, …]``; no reduction over channels."""
    groups = constant(x.shape[1], "the number of channels")
    return conv(x, weight, bias, strides, padding, dilations, groups, name=name)


def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    strides: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilations: int | Sequence[int] = 1,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """The transposed convolution of ``x[n, ic, …]`` with ``weight[ic, oc / groups, …]``.

    Gather form: a stage spreads the input by the strides (zeros between), a reduction stage convolves it with
    the mirrored window. Extents are ``(h - 1)·s + d (k - 1) + 1 - before - after + output_padding``.

    Raises ProgramError for groups or channels that do not fit each other.
    """
    rank = x.rank - 2
    window = [constant(s, "the extent of a window") for s in weight.shape[2:]]
    stride = per_dimension(strides, rank, "the stride")
    dilation = per_dimension(dilations, rank, "the dilation")
    pads = pairs(padding, rank)
    extra = (output_padding,) * rank if isinstance(output_padding, int) else tuple(output_padding)
    ic = constant(x.shape[1], "the number of input channels")
    ocg = weight.shape[1]
    if groups < 1 or ic % groups or not same(weight.shape[0], x.shape[1]):
        raise problem(f"{groups} groups for {ic} input channels and weights of {weight.shape[0].index}")
    reach = [d * (w - 1) for d, w in zip(dilation, window, strict=True)]
    outer = [
        (s - 1) * st + r + 1 - lo - hi + e
        for s, st, r, (lo, hi), e in zip(x.shape[2:], stride, reach, pads, extra, strict=True)
    ]
    spread = _spread(x, [o + r for o, r in zip(outer, reach, strict=True)], stride, [
        r - lo for r, (lo, _) in zip(reach, pads, strict=True)
    ])  # fmt: skip
    axes, offsets = window_axes(window)
    icg = ic // groups
    channel = IndexExpr(ir.ZERO)
    if icg > 1:
        c = reduce_axis(icg, "ic")
        axes, channel = [c, *axes], c
    per_group = constant(ocg, "the number of output channels of a group")

    def element(n: IndexExpr, o: IndexExpr, *at: IndexExpr) -> Scalar:
        first = channel if groups == 1 else o // per_group * icg + channel
        where = [p + k * d for p, k, d in zip(at, offsets, dilation, strict=True)]
        mirrored = [w - 1 - k for w, k in zip(window, offsets, strict=True)]
        column = o if groups == 1 else o % per_group
        term = spread[(n, first, *where)] * weight[(first, column, *mirrored)]
        return lang_sum(term, axis=axes) if axes else term

    names = ("n", "oc", *(f"o{s}" for s in spatial_names(rank)))
    plain = name if bias is None else None
    shape = (x.shape[0], ocg * groups, *outer)
    y = compute(shape, element, plain, axes=names, hint="conv_transpose")
    return y if bias is None else bias_add(y, bias, 1, name)


def _spread(x: Tensor, extents: Sequence[IndexExpr], stride: Sequence[int], start: Sequence[int]) -> Tensor:
    """Zeros, but element ``i`` of ``x`` at ``start + i·stride`` of each spatial dimension."""
    view = boundary(x)

    def element(n: IndexExpr, c: IndexExpr, *at: IndexExpr) -> Scalar:
        shifted = [p - b for p, b in zip(at, start, strict=True)]
        value = view[(n, c, *(p // s for p, s in zip(shifted, stride, strict=True)))]
        hits = [p % s == 0 for p, s in zip(shifted, stride, strict=True) if s > 1]
        return select(logical_and(*hits), value, 0) if hits else value

    names = ("n", "c", *spatial_names(len(extents)))
    shape = (*x.shape[:2], *extents)
    return compute(shape, element, axes=names, hint=f"{x.name or x.hint}_spread")
