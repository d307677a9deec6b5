"""Convolutions of any number of spatial axes: plain, grouped, depthwise, transposed, quantised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Final, TypeVar

import numpy as np

from tilewright import lang
from tilewright.graph.model import Array
from tilewright.graph.operand import At, Ix, Operand, bounded, compute
from tilewright.graph.ops.common import Scalar, cast, stem, wide
from tilewright.graph.ops.quantisation import requantised, shifted
from tilewright.graph.ops.reduction import as_dtype
from tilewright.graph.registry import OWN, Context, Kind, operator
from tilewright.ir import most

T = TypeVar("T")

#: From so many output channels on a transposed convolution computes them side by side.
MANY_CHANNELS: Final = 8
#: The same in groups, which a vector must not cross: where a group's channels are a multiple of this; and of
#: this where rows of a phase have two results at most, which leave most of a vector along them empty.
GROUP_CHANNELS: Final = 16
SHORT_ROW_CHANNELS: Final = 4
SHORT_ROW: Final = 2
AUTO_PAD: Final = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window, one entry a spatial axis: `before` and `after` are the paddings."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def span(self, axis: int) -> int:
        """The input elements that the window reaches over, dilation included."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    @property
    def padded(self) -> bool:
        """Whether any window begins before the input or ends after it."""
        return any(self.before) or any(self.after)


def window_of(ctx: Context, kernel: Sequence[int], sizes: Sequence[int]) -> Window:
    """The window that the attributes describe, `auto_pad` resolved for an input of these sizes."""
    rank = len(kernel)
    ctx.require(rank == len(sizes), f"a kernel of {rank} axes slides over {len(sizes)}")
    strides = ctx.integers("strides", (1,) * rank)
    dilations = ctx.integers("dilations", (1,) * rank)
    pads = ctx.integers("pads", (0,) * (2 * rank))
    sane = len(strides) == len(dilations) == rank and len(pads) == 2 * rank
    ctx.require(sane, "strides, dilations and pads must have an entry for each spatial axis")
    ctx.require(
        all(v > 0 for v in (*kernel, *strides, *dilations)), "kernel, strides, dilations must be positive"
    )
    mode = ctx.choice("auto_pad", AUTO_PAD, "NOTSET")
    before, after = pads[:rank], pads[rank:]
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [
            most((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
            for size, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)
        ]
        small = tuple(total // 2 for total in wanted)
        large = tuple(total - total // 2 for total in wanted)
        before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    elif mode == "VALID":
        before = after = (0,) * rank
    return Window(tuple(kernel), strides, dilations, tuple(before), tuple(after))


def output_sizes(ctx: Context, window: Window, sizes: Sequence[int]) -> tuple[int, ...]:
    """How many places a window has along each axis. Raises ModelError where it does not fit once."""
    out = []
    for axis, size in enumerate(sizes):
        room = size + window.before[axis] + window.after[axis] - window.span(axis)
        ctx.require(room >= 0, f"a window of {window.span(axis)} does not fit into {size} elements")
        out.append(room // window.strides[axis] + 1)
    return tuple(out)


def sums_inside(weights: Array, window: Window, sizes: Sequence[int], results: Sequence[int]) -> Array:
    """For each result, the sum of the weights whose taps do not meet padding: ``[oc, *results]``, or ones.

    `sizes` are the input's along the axes of the window.
    """
    sums: Array = weights.sum(axis=1, dtype=np.int64)
    for axis, (size, count) in enumerate(zip(sizes, results, strict=True)):
        taps = np.arange(window.kernel[axis])[:, None] * window.dilations[axis]
        place = np.arange(count)[None, :] * window.strides[axis] + taps - window.before[axis]
        # the first axis of taps left gives way to one of results, which goes to the end
        sums = np.tensordot(sums, ((place >= 0) & (place < size)).astype(np.int64), axes=(1, 0))
    first = sums[(slice(None), *(slice(0, 1),) * len(results))]
    return np.ascontiguousarray(first) if (sums == first).all() else sums


def convolve(ctx: Context, x: Operand, w: Operand, inner: str) -> Operand:
    """The convolution's sums, without bias, accumulated in `inner`.

    `x` is [batch, channels, *sizes], `w` is [output channels, channels / group, *kernel].
    """
    ctx.require(len(x.shape) >= 3 and len(x.shape) == len(w.shape), "input and weights differ in rank")
    group = ctx.integer("group", 1)
    batch, channels, *sizes = x.shape
    outputs, depth, *kernel = w.shape
    sane = group > 0 and outputs % group == 0 and depth * group == channels
    ctx.require(sane, f"weights {list(w.shape)} in {group} groups do not fit {channels} channels")
    declared = ctx.integers("kernel_shape", kernel)
    ctx.require(
        declared == tuple(kernel), f"kernel_shape {list(declared)} is not that of the weights {kernel}"
    )
    window = window_of(ctx, kernel, sizes)
    out_sizes = output_sizes(ctx, window, sizes)
    source = bounded(x, 0) if window.padded else x
    letters = spatial_letters(len(kernel))
    reduced = [lang.reduce_axis(size, f"k{letter}") for size, letter in zip(kernel, letters, strict=True)]
    # A depth of one (depthwise convolution) has no loop over input channels at all.
    deep = lang.reduce_axis(depth, "ic") if depth > 1 else None
    per_group = outputs // group

    def of(n: Ix, oc: Ix, *o: Ix) -> Scalar:
        ic: At = deep if deep is not None else 0
        channel = ic if group == 1 else (oc // per_group) * depth + ic
        place = [
            at * window.strides[axis] + reduced[axis] * window.dilations[axis] - window.before[axis]
            for axis, at in enumerate(o)
        ]
        value = cast(source[(n, channel, *place)], x.dtype, inner)
        weight = cast(w[(oc, ic, *reduced)], w.dtype, inner)
        axes = reduced if deep is None else [deep, *reduced]
        return lang.sum(value * weight, axis=axes)

    axes = ("n", "oc", *(f"o{letter}" for letter in spatial_letters(len(kernel))))
    return compute((batch, outputs, *out_sizes), of, name=stem(ctx), axes=axes)


def spatial_letters(rank: int) -> Sequence[str]:
    """The letters of spatial axes: d, h, w, the last ones for fewer than three."""
    return "dhw"[3 - rank :] if rank <= 3 else [str(axis) for axis in range(rank)]


def _with_bias(ctx: Context, total: Operand, bias: Operand | None, dtype: str) -> Operand:
    if bias is None:
        return as_dtype(ctx, total, dtype)
    ctx.require(bias.shape == (total.shape[1],), f"a bias {list(bias.shape)} for {total.shape[1]} channels")

    def of(n: Ix, c: Ix, *o: Ix) -> Scalar:
        return cast(total[(n, c, *o)] + cast(bias[(c,)], bias.dtype, total.dtype), total.dtype, dtype)

    return compute(total.shape, of, name=f"{stem(ctx)}_bias")


@operator("Conv", kind=Kind.CONTRACTION)
def conv(ctx: Context, x: Operand, w: Operand, bias: Operand | None = None) -> Operand:
    """A convolution with optional bias by output channel."""
    return _with_bias(ctx, convolve(ctx, x, w, wide(x.dtype)), bias, x.dtype)


@operator("ConvWide", kind=Kind.CONTRACTION, domain=OWN)
def conv_wide(ctx: Context, x: Operand, w: Operand, bias: Operand | None = None) -> Operand:
    """A convolution of narrow floats by f32 weights, its result in f32: passes make it."""
    return _with_bias(ctx, convolve(ctx, x, w, "f32"), bias, "f32")


@operator("ConvInteger", kind=Kind.CONTRACTION)
def conv_integer(
    ctx: Context, x: Operand, w: Operand, x_zero: Operand | None = None, w_zero: Operand | None = None
) -> Operand:
    """A convolution of integers less their zero points, in i32."""
    return convolve(ctx, shifted(ctx, x, x_zero, 0, "x"), shifted(ctx, w, w_zero, 0, "w"), "i32")


@operator("QLinearConv", kind=Kind.CONTRACTION)
def quantised_conv(
    ctx: Context,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand,
    w: Operand,
    w_scale: Operand,
    w_zero: Operand,
    y_scale: Operand,
    y_zero: Operand,
    bias: Operand | None = None,
) -> Operand:
    """A convolution of quantised tensors, its result quantised."""
    total = convolve(ctx, shifted(ctx, x, x_zero, 0, "x"), shifted(ctx, w, w_zero, 0, "w"), "i32")
    total = _with_bias(ctx, total, bias, "i32")
    return requantised(ctx, total, (x_scale, w_scale, y_scale), y_zero, 1)


@operator("ConvTranspose", kind=Kind.CONTRACTION)
def conv_transpose(ctx: Context, x: Operand, w: Operand, bias: Operand | None = None) -> Operand:
    """The transposed convolution, written as a sum over the inputs that reach an output.

    `w` is [channels, output channels / group, *kernel]. Output o receives input i through kernel place k
    where i * stride + k * dilation - pad == o. What stride and dilation share divides o + pad of each output
    that receives any: these are a transposed convolution without that factor, spread among zeros.
    """
    ctx.require(len(x.shape) >= 3 and len(x.shape) == len(w.shape), "input and weights differ in rank")
    group = ctx.integer("group", 1)
    batch, channels, *sizes = x.shape
    _, per_group, *kernel = w.shape
    ctx.require(
        group > 0 and channels % group == 0 and w.shape[0] == channels, "weights do not fit the channels"
    )
    out_sizes, window = transposed_window(ctx, kernel, sizes)
    shared = [gcd(s, d) for s, d in zip(window.strides, window.dilations, strict=True)]
    if max(shared) == 1 or not all(size > 0 for size in out_sizes):
        return _with_bias(ctx, _transposed(ctx, x, w, window, out_sizes, group), bias, x.dtype)
    first = tuple(-(-pad // f) for pad, f in zip(window.before, shared, strict=True))
    dense = Window(
        window.kernel,
        tuple(s // f for s, f in zip(window.strides, shared, strict=True)),
        tuple(d // f for d, f in zip(window.dilations, shared, strict=True)),
        first,
        window.after,
    )
    reached = tuple(
        # one where none receives any: it is not read
        most(1, (size - 1 + pad) // f - lo + 1)
        for size, pad, f, lo in zip(out_sizes, window.before, shared, first, strict=True)
    )
    source = bounded(_transposed(ctx, x, w, dense, reached, group), 0)

    def spread(n: Ix, oc: Ix, *o: Ix) -> Scalar:
        reach = [at + pad for at, pad in zip(o, window.before, strict=True)]
        place = [at // f - lo for at, f, lo in zip(reach, shared, first, strict=True)]
        value = source[(n, oc, *place)]
        for at, f in zip(reach, shared, strict=True):
            if f > 1:
                value = lang.select(at % f == 0, value, 0)
        return value

    result = compute((batch, per_group * group, *out_sizes), spread, name=f"{stem(ctx)}_spread")
    return _with_bias(ctx, result, bias, x.dtype)


def _transposed(
    ctx: Context, x: Operand, w: Operand, window: Window, out_sizes: tuple[int, ...], group: int
) -> Operand:
    """A transposed convolution's sums: by phases where an axis has more than one, else as it is written."""
    if all(size > 0 for size in out_sizes) and max(window.strides) > 1:
        return _by_phases(ctx, x, w, window, out_sizes, group)
    batch, channels, *_ = x.shape
    _, per_group, *kernel = w.shape
    depth, inner = channels // group, wide(x.dtype)
    reduced = [lang.reduce_axis(size, f"k{axis}") for axis, size in enumerate(kernel)]
    deep = lang.reduce_axis(depth, "ic")
    source = bounded(x, 0)

    def of(n: Ix, oc: Ix, *o: Ix) -> Scalar:
        channel = deep if group == 1 else (oc // per_group) * depth + deep
        place = [
            at + window.before[axis] - reduced[axis] * window.dilations[axis] for axis, at in enumerate(o)
        ]
        column = oc if group == 1 else oc % per_group
        value = cast(source[(n, channel, *place)], x.dtype, inner)
        weight = cast(w[(channel, column, *reduced)], w.dtype, inner)
        return lang.sum(value * weight, axis=[deep, *reduced])

    return compute((batch, per_group * group, *out_sizes), of, name=stem(ctx))


def _by_phases(
    ctx: Context, x: Operand, w: Operand, window: Window, out_sizes: tuple[int, ...], group: int
) -> Operand:
    """A transposed convolution whose strides and dilations share no factor: by phase, then in place.

    Result ``q * stride + r`` receives input ``q - u`` through the tap whose distance from the first, in
    elements, is ``r + pad + u * stride``, for every ``u`` that makes it one: along an axis of one phase every
    dilation-th. Each phase is a convolution of its own, all are one stage. Where there are enough channels
    for vectors (in each group, if there are any) they come last, and phases lie beside each other as in the
    result, which is then a transposition of them. Else channels and phases are one axis, all of which read
    the same rows of inputs: vectors lie along these.
    """
    batch, channels, *_ = x.shape
    _, per_group, *kernel = w.shape
    depth, inner, rank = channels // group, wide(x.dtype), len(kernel)
    strides, before = window.strides, window.before
    counts = [-(-out // s) for out, s in zip(out_sizes, strides, strict=True)]
    nearest = [-((s - 1 + pad) // s) for pad, s in zip(before, strides, strict=True)]
    farthest = [(window.span(axis) - 1 - before[axis]) // strides[axis] for axis in range(rank)]
    steps = [d if s == 1 else 1 for d, s in zip(window.dilations, strides, strict=True)]
    taps = [
        lang.reduce_axis(max(0, (hi - lo) // step + 1), f"t{axis}")
        for axis, (lo, hi, step) in enumerate(zip(nearest, farthest, steps, strict=True))
    ]
    deep = lang.reduce_axis(depth, "ic")
    source = bounded(x, 0)

    outputs = per_group * group
    whole = SHORT_ROW_CHANNELS if counts[-1] <= SHORT_ROW else GROUP_CHANNELS
    channels_last = outputs >= MANY_CHANNELS if group == 1 else per_group % whole == 0
    # how far apart the phases along each axis are where they are one axis with the channels
    turns = [prod(strides[axis:]) for axis in range(rank + 1)]

    def summed(n: Ix, *at: Ix) -> Scalar:
        if channels_last:
            oc, place, phase = at[-1], at[:-1:2], list(at[1:-1:2])
        else:
            oc, place = at[0] // turns[0], at[1:]
            phase = [at[0] // step % s for step, s in zip(turns[1:], strides, strict=True)]
        channel = deep if group == 1 else (oc // per_group) * depth + deep
        column = oc if group == 1 else oc % per_group
        apart = [t * step + lo for t, step, lo in zip(taps, steps, nearest, strict=True)]
        reach = [q - u for q, u in zip(place, apart, strict=True)]
        along = [r + pad + u * s for r, pad, u, s in zip(phase, before, apart, strides, strict=True)]
        tap = []
        inside = None
        for axis, (i, stride, pad) in enumerate(zip(along, strides, before, strict=True)):
            dilation, span = window.dilations[axis], window.span(axis)
            bounds = [i >= 0] if pad + nearest[axis] * stride < 0 else []
            bounds += [i < span] if pad + farthest[axis] * stride + stride > span else []
            bounds += [i % dilation == 0] if steps[axis] < dilation else []
            tap.append(i // dilation if dilation > 1 else i)
            for bound in bounds:
                inside = bound if inside is None else inside & bound
        value = cast(source[(n, channel, *reach)], x.dtype, inner)
        weight = cast(w[(channel, column, *tap)], w.dtype, inner)
        return lang.sum(value * weight, axis=[deep, *taps], where=inside)

    letters = spatial_letters(rank)
    places = [f"q{a}" for a in letters]
    if channels_last:
        names = [*_interleaved(places, [f"r{a}" for a in letters]), "oc"]
        extents = [*_interleaved(counts, strides), outputs]
    else:
        names, extents = ["ocr", *places], [outputs * turns[0], *counts]
    phases = compute((batch, *extents), summed, name=f"{stem(ctx)}_phases", axes=("n", *names))

    def placed(n: Ix, oc: Ix, *o: Ix) -> Scalar:
        phase = [at % s for at, s in zip(o, strides, strict=True)]
        place = [at // s for at, s in zip(o, strides, strict=True)]
        if channels_last:
            return phases[(n, *_interleaved(place, phase), oc)]
        row = oc * turns[0]
        for r, step in zip(phase, turns[1:], strict=True):
            row = row + r * step
        return phases[(n, row, *place)]

    return compute((batch, outputs, *out_sizes), placed, name=stem(ctx))


def _interleaved(first: Sequence[T], second: Sequence[T]) -> list[T]:
    """The first of both, the second of both, and so on."""
    return [x for pair in zip(first, second, strict=True) for x in pair]


def transposed_window(
    ctx: Context, kernel: Sequence[int], sizes: Sequence[int]
) -> tuple[tuple[int, ...], Window]:
    """The sizes of a transposed convolution's result, and its window with the padding that these mean."""
    rank = len(kernel)
    mode = ctx.choice("auto_pad", AUTO_PAD, "NOTSET")
    window = window_of(ctx, kernel, sizes) if mode in ("NOTSET", "VALID") else None
    strides, dilations = ctx.integers("strides", (1,) * rank), ctx.integers("dilations", (1,) * rank)
    extra = ctx.integers("output_padding", (0,) * rank)
    full = [
        (size - 1) * strides[axis] + extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        for axis, size in enumerate(sizes)
    ]
    if not ctx.has("output_shape") and window is not None:
        out = tuple(full[axis] - window.before[axis] - window.after[axis] for axis in range(rank))
        ctx.require(all(size > 0 for size in out), "the padding leaves nothing of the output")
        return out, window
    if ctx.has("output_shape"):
        out = ctx.integers("output_shape")[-rank:]
    else:
        out = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    total = [most(full[axis] - out[axis], 0) for axis in range(rank)]
    small = tuple(pad // 2 for pad in total)
    large = tuple(pad - pad // 2 for pad in total)
    before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    return out, Window(tuple(kernel), strides, dilations, before, after)
