"""Convolutions of few channels by taps: neighbours along the last axis are what instructions sum in groups.

    before                      after
    y = Conv(x, w)              t = Pad(x)                  a copy with its padding
                                y = Conv(t, w with zeros)   taps along the last axis rounded up to groups

Where there are three channels, groups of channels would be filled with zeros as well, and elements would have
to be interleaved first. That pays where an instruction sums a whole row of taps and channels at once:

    y = Conv(x, w)              t = Pad(Reshape(Transpose(x)))    one channel, pixels' channels side by side
                                y = Conv(t, w reordered)          taps times channels along the last axis
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tilewright.graph.model import Array, Node, TensorType
from tilewright.graph.ops.convolution import window_of
from tilewright.graph.program import context_of
from tilewright.graph.rewrite import Rewriter
from tilewright.graph.size_values import array_of_sizes

#: Taps along the last axis may be this many times as many with those that fill up groups.
MOST_PADDED_TAPS: Final = 2
_PAD_VERSION: Final = 13


def grouped_taps(node: Node, shape: tuple[int, ...], group: int) -> int | None:
    """The taps of a convolution along its last axis, rounded up to whole groups.

    ``shape`` is that of its weights. ``None`` where they are no neighbours, or too few to be worth it.
    """
    dilations = node.attributes.get("dilations", (1,))
    if node.attributes.get("group", 1) != 1 or not isinstance(dilations, tuple) or dilations[-1] != 1:
        return None
    taps = -(-shape[-1] // group) * group
    return taps if taps <= MOST_PADDED_TAPS * shape[-1] else None


def by_taps(
    rewriter: Rewriter, node: Node, source: tuple[str, TensorType], weights: Array, fill: Array, group: int
) -> Node:
    """The convolution ``node`` of the value ``source`` with ``fill`` around it, without padding of its own.

    Emits what copies the input. The node's first two inputs and attributes are those of the new convolution;
    the rest is as it was.
    """
    graph = rewriter.graph
    (output,) = node.outputs
    value, type_ = source
    window = window_of(context_of(node, graph.types, graph.constants), weights.shape[2:], type_.sizes[2:])
    taps = grouped_taps(node, weights.shape, group)
    assert taps is not None
    before, after = list(window.before), list(window.after)
    reach = (graph.types[output].sizes[-1] - 1) * window.strides[-1] + taps
    after[-1] = max(0, reach - before[-1] - type_.sizes[-1])
    extra = [(0, 0)] * (weights.ndim - 1) + [(0, taps - weights.shape[-1])]
    names = (value, rewriter.constant(np.pad(weights, extra), f"{output}.weights"))
    if any(before) or any(after):
        amounts = rewriter.constant(np.array([0, 0, *before, 0, 0, *after]), f"{output}.pads")
        around = rewriter.constant(fill, f"{output}.fill")
        padded = rewriter.fresh(f"{output}.padded")
        sizes = [sum(s) for s in zip(type_.sizes[2:], before, after, strict=True)]
        inputs = (value, amounts, around)
        pad = replace(node, op="Pad", inputs=inputs, outputs=(padded,), attributes={}, version=_PAD_VERSION)
        rewriter.emit(pad, [replace(type_, shape=(*type_.sizes[:2], *sizes))])
        names = (padded, names[1])
    attributes = {"strides": window.strides, "dilations": window.dilations}
    return replace(node, inputs=names, attributes=attributes)


def by_rows(
    rewriter: Rewriter, node: Node, source: tuple[str, TensorType], weights: Array, fill: Array, group: int
) -> Node:
    """The convolution ``node`` of ``source`` with the channels of pixels side by side.

    It has one channel, and along its last axis all taps and channels of a row, rounded up to whole groups.
    As :func:`by_taps` otherwise.
    """
    graph = rewriter.graph
    (output,) = node.outputs
    value, type_ = source
    batch, channels, *outer, width = type_.sizes
    rank = weights.ndim
    last = (0, *range(2, rank), 1)
    beside, one = rewriter.fresh(f"{output}.beside"), rewriter.fresh(f"{output}.pixels")
    turned = replace(node, op="Transpose", inputs=(value,), outputs=(beside,), attributes={"perm": last})
    rewriter.emit(
        replace(turned, version=_PAD_VERSION), [replace(type_, shape=(batch, *outer, width, channels))]
    )
    flat = (batch, 1, *outer, width * channels)
    shape = rewriter.constant(array_of_sizes(flat), f"{output}.shape")
    joined = replace(node, op="Reshape", inputs=(beside, shape), outputs=(one,), attributes={})
    rewriter.emit(replace(joined, version=_PAD_VERSION), [replace(type_, shape=flat)])
    window = window_of(context_of(node, graph.types, graph.constants), weights.shape[2:], type_.sizes[2:])
    rows = weights.transpose(last).reshape(weights.shape[0], 1, *weights.shape[2:-1], -1)
    *before, left = window.before
    *after, right = window.after
    attributes = {
        "strides": (*window.strides[:-1], window.strides[-1] * channels),
        "dilations": (*window.dilations[:-1], 1),
        "pads": (*before, left * channels, *after, right * channels),
    }
    single = replace(node, inputs=(one, *node.inputs[1:]), attributes=attributes)
    return by_taps(rewriter, single, (one, replace(type_, shape=flat)), rows, fill, group)
