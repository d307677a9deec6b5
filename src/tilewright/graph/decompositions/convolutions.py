"""Convolutions with what follows them, of images whose channels come last, and of single elements.

Source: `ContribOperators.md` of onnxruntime (FusedConv, NhwcConv, NhwcFusedConv): activation(conv(x, w) + b
+ z).
"""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.graph.decompositions.activations import activated
from tilewright.graph.decompositions.products import SIGN, flipped, moved_zero, zero_point
from tilewright.graph.model import Array, Attribute
from tilewright.graph.ops.convolution import Window, output_sizes, sums_inside, transposed_window, window_of
from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import MICROSOFT

_OWN_ATTRIBUTES = ("activation", "activation_params")


def _window(p: Parts) -> dict[str, Attribute]:
    return {name: value for name, value in p.ctx.node.attributes.items() if name not in _OWN_ATTRIBUTES}


def _fused(p: Parts, x: str, w: str, bias: str, added: str) -> str:
    total = p.add("Conv", (x, w, bias), attributes=_window(p))
    if added:
        total = p.add("Add", (total, added))
    return activated(p, total, p.ctx.text("activation", ""), p.ctx.reals("activation_params", ()))


@decomposition("FusedConv", domain=MICROSOFT)
def fused_conv(p: Parts, x: str, w: str, bias: str = "", added: str = "") -> None:
    """A convolution, a sum with a tensor of its result's shape, an activation."""
    p.give(_fused(p, x, w, bias, added))


def channels_first(p: Parts, value: str, rank: int) -> str:
    """The axis of channels, which is the last, behind the first."""
    return p.transpose(value, 0, rank - 1, *range(1, rank - 1))


def channels_last(p: Parts, value: str, rank: int) -> str:
    """The axis of channels, which is behind the first, at the end."""
    return p.transpose(value, 0, *range(2, rank), 1)


@decomposition("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(p: Parts, x: str, w: str, bias: str = "", added: str = "") -> None:
    """The same where channels come last in the input and in the result; weights stay as they are."""
    rank = len(p.shape(0))
    moved = channels_first(p, added, rank) if added else ""
    p.give(channels_last(p, _fused(p, channels_first(p, x, rank), w, bias, moved), rank))


@decomposition("ConvInteger")
def conv_integer(p: Parts, x: str, w: str, x_zero: str = "", w_zero: str = "") -> bool:
    """A convolution less zero points by one of unsigned with signed bytes, for weights that are known.

    sum (x - zx) (v + d) = sum x v + d sum x - zx sum (v + d), where v are signed bytes and d is what weights
    less their zero points are too large by. The last sum leaves out taps on padding: it is known when
    compiling, and machines have instructions for the first (Jacob et al., arXiv:1712.05877, equation 7).
    """
    known = p.ctx.values[1]
    if known is None or known.ndim < 3 or p.type(0).rank != known.ndim:
        return False
    left = _less_zero(p, known)
    zeros = p.type(2) if x_zero else None
    if left is None or (zeros is not None and zeros.elements != 1):
        return False
    zx = zero_point(p, 2, zeros)
    signed = p.type(0).dtype == "i8"
    if not signed and not zx and not w_zero and known.dtype == np.int8:
        return False
    if signed:
        x, zx = flipped(p, x, "u8"), moved_zero(p, zx, SIGN)
    taps = tuple(range(1, left.ndim))
    above = left.max(taps, keepdims=True, initial=SIGN - 1) - (SIGN - 1)
    spare: Array = above + np.minimum(left.min(taps, keepdims=True, initial=-SIGN) + SIGN, 0)
    weights: Array = np.ascontiguousarray((left - spare).astype(np.int8))
    total = p.add("ConvInteger", (x, p.constant(weights)), attributes=p.ctx.node.attributes)
    if spare.any():
        total = p.add("Add", (total, _in_windows(p, x, spare, left.shape[2:])))
    if zx:
        sizes = p.shape(0)[2:]
        window = window_of(p.ctx, left.shape[2:], sizes)
        sums = sums_inside(left, window, sizes, output_sizes(p.ctx, window, sizes)).astype(np.int32)
        total = p.add("Sub", (total, p.add("Mul", (p.constant(sums[None]), zx))))
    p.give(total)
    return True


def _less_zero(p: Parts, weights: Array) -> Array | None:
    """Weights less their zero points as i32; None where these are not known."""
    zero: Array | None = np.zeros((), np.int32)
    if len(p.ctx.node.inputs) > 3 and p.ctx.node.inputs[3]:
        zero = p.ctx.values[3]
    if zero is None or zero.size not in (1, len(weights)):
        return None
    around = (-1, *(1,) * (weights.ndim - 1))
    return np.asarray(weights.astype(np.int32) - zero.astype(np.int32).reshape(around))


def _in_windows(p: Parts, x: str, factors: Array, kernel: tuple[int, ...]) -> str:
    """The sum of what each result of a convolution of bytes reads, times its channel's factor."""
    group = p.ctx.integer("group", 1)
    batch, channels, *sizes = p.shape(0)
    wide = p.reshape(p.add("Cast", (x,), to="i32"), (batch, group, channels // group, *sizes))
    sums = p.add("ReduceSum", (wide, p.ints((2,))), keepdims=0)
    ones: Array = np.ones((group, 1, *kernel), np.int32)
    sums = p.add("Conv", (sums, p.constant(ones)), attributes=p.ctx.node.attributes)
    if group > 1:
        results = output_sizes(p.ctx, window_of(p.ctx, kernel, sizes), sizes)
        places, alike = (1,) * len(results), len(factors) // group
        sums = p.reshape(sums, (batch, group, 1, *results))
        sums = p.add("Expand", (sums, p.ints((1, 1, alike, *places))))
        sums = p.reshape(sums, (batch, len(factors), *results))
    return p.add("Mul", (sums, p.constant(np.ascontiguousarray(factors.swapaxes(0, 1)))))


@decomposition("ConvTranspose")
def taps_of_one_element(p: Parts, x: str, w: str, bias: str = "") -> bool | None:
    """Taps along axes of one element as channels; False where there is no such axis.

    One element reaches each result through a tap of its own: y[oc, o] = sum_ic x[ic] w[ic, oc, o + pad].
    The rest is a transposed convolution over the other axes, or a product of matrices.
    """
    ctx, rank = p.ctx, p.type(0).rank - 2
    if rank < 1 or p.type(1).rank != rank + 2:
        return False
    (batch, channels, *sizes), (depth, per_group, *kernel) = p.shape(0), p.shape(1)
    group = ctx.integer("group", 1)
    if depth != channels or group < 1 or channels % group or (bias and p.shape(2) != (per_group * group,)):
        return False
    results, window = transposed_window(ctx, kernel, sizes)
    single = [at for at in range(rank) if sizes[at] == 1 and window.dilations[at] == 1]
    reached = [at for at in single if max(kernel[at], results[at]) > 1]
    if not reached or min(*window.before, *window.after) < 0 or not all((batch, channels, *results)):
        return False
    kept = [at for at in range(rank) if at not in reached]
    for at in reached:
        first, end = window.before[at], window.before[at] + results[at]
        axis = p.ints([at + 2])
        w = p.add("Slice", (w, p.ints([first]), p.ints([min(end, kernel[at])]), axis))
        if end > kernel[at]:
            # the results behind the last tap
            w = p.add("Pad", (w, p.ints([0, end - max(first, kernel[at])]), "", axis))
    taps, outputs = prod(results[at] for at in reached), per_group * group
    w = p.transpose(w, 0, 1, *(at + 2 for at in reached), *(at + 2 for at in kept))
    if bias:
        bias = p.reshape(p.add("Expand", (p.reshape(bias, (-1, 1)), p.ints((1, taps)))), (-1,))
    if kept or group > 1:
        inner = kept or [reached[0]]
        w = p.reshape(w, (channels, per_group * taps, *(kernel[at] if kept else 1 for at in inner)))
        x = p.reshape(x, (batch, channels, *(sizes[at] for at in inner)))
        attributes: dict[str, Attribute] = {
            "group": group,
            "strides": tuple(window.strides[at] if kept else 1 for at in inner),
            "dilations": tuple(window.dilations[at] for at in inner),
            "pads": tuple(side[at] if kept else 0 for side in (window.before, window.after) for at in inner),
            "output_padding": tuple(results[at] - _reach(window, sizes, at) if kept else 0 for at in inner),
        }
        total = p.add("ConvTranspose", (x, w, bias), attributes=attributes)
    else:
        x, w = p.reshape(x, (batch, channels)), p.reshape(w, (channels, -1))
        total = p.add("Gemm", (x, w, bias))
    apart = p.reshape(total, (batch, outputs, *(results[at] for at in (*reached, *kept))))
    order = [*reached, *kept]
    p.give(p.transpose(apart, 0, 1, *(order.index(at) + 2 for at in range(rank))))
    return None


def _reach(window: Window, sizes: list[int], at: int) -> int:
    """The results along an axis without output padding."""
    full = (sizes[at] - 1) * window.strides[at] + window.span(at)
    return full - window.before[at] - window.after[at]
