"""Convolutions of few channels by taps: neighbours along the last axis are what instructions sum in groups.

    before                      after
    y = Conv(x, w)              t = Pad(x)                  a copy with its padding
                                y = Conv(t, w with zeros)   taps along the last axis rounded up to groups

Where there are three channels, groups of channels would be filled with zeros as well, and elements would have
to be interleaved first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tilewright.graph.model import Array, Node, TensorType
from tilewright.graph.ops.convolution import window_of
from tilewright.graph.program import context_of
from tilewright.graph.rewrite import Rewriter

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
