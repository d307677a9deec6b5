"""Convolutions whose taps are moved by data: DeformConv."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, clamped, compute
from tilewright.graph.ops.common import Scalar, number, stem
from tilewright.graph.ops.convolution import output_sizes, window_of
from tilewright.graph.registry import Context, Kind, operator


@operator("DeformConv", kind=Kind.OPAQUE)
def deform_conv(
    ctx: Context,
    x: Operand,
    w: Operand,
    offset: Operand,
    bias: Operand | None = None,
    mask: Operand | None = None,
) -> Operand:
    """A convolution of images whose taps are read at places moved by `offset`, weighted by `mask`.

    The taps are put side by side first, interpolated: what is left is a sum of products.
    """
    ctx.require(len(x.shape) == 4 and len(w.shape) == 4, "input and weights are those of images")
    group, shifted = ctx.integer("group", 1), ctx.integer("offset_group", 1)
    batch, channels, *sizes = x.shape
    outputs, depth, *kernel = w.shape
    sane = group > 0 and outputs % group == 0 and depth * group == channels
    ctx.require(sane, f"weights {list(w.shape)} in {group} groups do not fit {channels} channels")
    ctx.require(
        shifted > 0 and channels % shifted == 0, f"{shifted} groups of offsets for {channels} channels"
    )
    window = window_of(ctx, kernel, sizes)
    out = output_sizes(ctx, window, sizes)
    taps = kernel[0] * kernel[1]
    wanted = (batch, 2 * shifted * taps, *out)
    ctx.require(offset.shape == wanted, f"offsets {list(offset.shape)} must be {list(wanted)}")
    wanted = (batch, shifted * taps, *out)
    fits = mask is None or mask.shape == wanted
    ctx.require(fits, f"a mask {[] if mask is None else list(mask.shape)} must be {list(wanted)}")
    fits = bias is None or bias.shape == (outputs,)
    ctx.require(fits, f"a bias {[] if bias is None else list(bias.shape)} for {outputs} channels")
    dtype, per_offset = x.dtype, channels // shifted

    def place(n: Ix, s: Ix, t: Ix, o: Sequence[Ix], axis: int) -> Scalar:
        tap = t // kernel[1] if axis == 0 else t % kernel[1]
        first = o[axis] * window.strides[axis] + tap * window.dilations[axis] - window.before[axis]
        return lang.to_scalar(first, dtype) + offset[(n, (s * taps + t) * 2 + axis, *o)]

    def sampled(n: Ix, c: Ix, t: Ix, oh: Ix, ow: Ix) -> Scalar:
        s = c // per_offset
        places = [place(n, s, t, (oh, ow), axis) for axis in range(2)]
        low = [lang.floor(at) for at in places]
        total: Scalar | None = None
        for corner in itertools.product((0, 1), repeat=2):
            at = [floor + number(float(far), dtype) for floor, far in zip(low, corner, strict=True)]
            inside = [
                test
                for one, size in zip(at, sizes, strict=True)
                for test in (one >= 0.0, one <= float(size - 1))
            ]
            index = [
                clamped(
                    lang.cast(
                        lang.maximum(lang.minimum(one, number(float(size), dtype)), number(-1.0, dtype)),
                        "i64",
                    ),
                    size,
                )
                for one, size in zip(at, sizes, strict=True)
            ]
            value = lang.select(lang.logical_and(*inside), x[(n, c, *index)], number(0, dtype))
            for where, floor, far in zip(places, low, corner, strict=True):
                value = value * (where - floor if far else 1.0 - (where - floor))
            total = value if total is None else total + value
        assert total is not None
        return total if mask is None else total * mask[(n, s * taps + t, oh, ow)]

    side = compute((batch, channels, taps, *out), sampled, name=f"{stem(ctx)}_taps")
    deep, along = lang.reduce_axis(depth, "ic"), lang.reduce_axis(taps, "t")
    per_group = outputs // group

    def sums(n: Ix, oc: Ix, oh: Ix, ow: Ix) -> Scalar:
        channel = deep if group == 1 else (oc // per_group) * depth + deep
        weight = w[(oc, deep, along // kernel[1], along % kernel[1])]
        return lang.sum(side[(n, channel, along, oh, ow)] * weight, axis=[deep, along])

    total = compute((batch, outputs, *out), sums, name=stem(ctx))
    if bias is None:
        return total
    added = bias
    return compute(total.shape, lambda n, oc, *o: total[(n, oc, *o)] + added[(oc,)], name=f"{stem(ctx)}_bias")
