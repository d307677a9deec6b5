"""Nodes that passes make: reshapes, slices and pads to known sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tilewright.graph.model import Node
from tilewright.graph.rewrite import Rewriter
from tilewright.graph.size_values import array_of_sizes

#: The version of the standard's operators that nodes made here mean.
_VERSION: Final = 21


def reshape_node(rewriter: Rewriter, value: str, shape: tuple[int, ...], output: str, name: str = "") -> Node:
    """A Reshape of `value`; the shape becomes a constant. The caller emits it."""
    target = rewriter.constant(array_of_sizes(shape), f"{output}.shape")
    return Node("Reshape", (value, target), (output,), {"allowzero": 1}, name=name, version=_VERSION)


def emit_slice(
    rewriter: Rewriter, value: str, axis: int, start: int, count: int, output: str, of: Node
) -> None:
    """Add a Slice that takes ``count`` elements of ``value`` along ``axis`` from ``start`` on as ``output``.

    The sizes of ``value`` are known. The node is named as ``of``, in whose place or behind which it stands.
    """
    numbers = (start, start + count, axis)
    bounds = [rewriter.constant(np.array([n]), f"{output}.bounds") for n in numbers]
    type_ = rewriter.types[value]
    shape = (*type_.sizes[:axis], count, *type_.sizes[axis + 1 :])
    cut = replace(of, op="Slice", inputs=(value, *bounds), outputs=(output,), attributes={}, version=_VERSION)
    rewriter.emit(cut, [replace(type_, shape=shape)])


def emit_zeros_after(rewriter: Rewriter, value: str, axis: int, count: int, output: str, of: Node) -> None:
    """Add a Pad that puts ``count`` zeros behind ``value`` along ``axis`` as ``output``; as `emit_slice`."""
    type_ = rewriter.types[value]
    after = [count if n == axis else 0 for n in range(type_.rank)]
    amounts = rewriter.constant(np.array([0] * type_.rank + after), f"{output}.pads")
    shape = (*type_.sizes[:axis], type_.sizes[axis] + count, *type_.sizes[axis + 1 :])
    pad = replace(of, op="Pad", inputs=(value, amounts), outputs=(output,), attributes={}, version=_VERSION)
    rewriter.emit(pad, [replace(type_, shape=shape)])
