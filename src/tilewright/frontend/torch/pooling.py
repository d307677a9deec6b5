"""Operators of ATen on windows and places of images: pools, resizing, samples at places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from tilewright.frontend.torch.layers import each_axis
from tilewright.frontend.torch.writer import Made, Rule, Rules, Value, Writer, wide
from tilewright.graph import Array
from tilewright.ir import dtype_of


def _pool(w: Writer, x: Value, rank: int) -> tuple[Value, bool]:
    """The input with a batch, and whether it had one."""
    batched = x.rank == rank + 2
    return (x if batched else w.reshape(x, (1, *x.shape))), batched


def max_pool(rank: int) -> Rule:
    """The largest of each window, and where it is in its plane."""

    def rule(
        w: Writer,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> Made:
        x, _ = _pool(w, self, rank)
        kernel = each_axis(kernel_size, rank)
        inner = wide(x.dtype)
        made = w.several(
            "MaxPool",
            (w.to(x, inner),),
            2,
            wanted=w.wanted,
            attributes={
                "kernel_shape": kernel,
                "strides": each_axis(stride or kernel, rank),
                "pads": each_axis(padding, rank) * 2,
                "dilations": each_axis(dilation, rank),
                "ceil_mode": int(ceil_mode),
            },
        )
        best, places = made
        shape = w.out.sizes
        results: list[Value | None] = [w.reshape(w.to(best, self.dtype), shape) if best.name else None, None]
        if places.name:
            plane = w.number(math.prod(list(x.shape[2:])), "i64")
            results[1] = w.reshape(w.add("Mod", places, plane), shape)
        return results

    return rule


def max_pool_backward(w: Writer, grad_output: Value, self: Value, *rest: object) -> Made:
    """The gradients of windows added where their largest elements are."""
    indices = rest[-1]
    assert isinstance(indices, Value)
    planes, size = self.shape[:-2], math.prod(self.shape[-2:])
    inner = w.inner
    empty = w.full([*planes, size], 0, inner)
    flat = [*planes, math.prod(grad_output.shape[-2:])]
    grads = w.reshape(w.to(grad_output, inner), flat)
    made = w.add("ScatterElements", empty, w.reshape(indices, flat), grads, axis=len(planes), reduction="add")
    return w.to(w.reshape(made, self.shape), w.out.dtype)


def _means(size: int, count: int, kernel: int, step: int, pad: int, counted: bool) -> Array:
    """What each element gives to each window's mean [count, size]; ``counted``: padding has its share."""
    made = np.zeros((count, size))
    for out in range(count):
        start = out * step - pad
        end = min(start + kernel, size + pad)
        inside = slice(max(start, 0), min(end, size))
        made[out, inside] = 1 / (end - start if counted else inside.stop - inside.start)
    return made


def _parts(size: int, count: int) -> Array:
    """What each element gives to the means of so many parts of an axis [count, size]."""
    made = np.zeros((count, size))
    for out in range(count):
        inside = slice(out * size // count, -(-(out + 1) * size // count))
        made[out, inside] = 1 / (inside.stop - inside.start)
    return made


def _mixed(w: Writer, x: Value, matrices: Sequence[Array]) -> Value:
    """The last axes, each multiplied by a matrix [new, old]: what acts on each axis by itself."""
    made = w.to(x, w.inner)
    for at, matrix in enumerate(matrices):
        axis = made.rank - len(matrices) + at
        order = [*(a for a in range(made.rank) if a != axis), axis]
        table = w.constant(np.ascontiguousarray(matrix.T).astype(dtype_of(w.inner).numpy))
        made = w.add("MatMul", w.transpose(made, order), table)
        made = w.transpose(made, [order.index(a) for a in range(made.rank)])
    return w.to(made, w.out.dtype)


def average_pool(rank: int) -> Rule:
    """The mean of each window."""

    def rule(
        w: Writer,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Made:
        x, _ = _pool(w, self, rank)
        kernel, pads = each_axis(kernel_size, rank), each_axis(padding, rank)
        steps = each_axis(stride or kernel, rank)
        w.require(x.is_float, "means of integers")
        counted = count_include_pad or divisor_override is not None
        axes = [*zip(x.shape[2:], w.out.sizes[-rank:], kernel, steps, pads, strict=True)]
        if any((count - 1) * step + k > size + 2 * pad for size, count, k, step, pad in axes):
            # the last windows reach beyond the padding, where there is nothing to count
            w.require(divisor_override is None, "its last windows reach beyond the padding")
            return w.reshape(_mixed(w, x, [_means(*axis, counted) for axis in axes]), w.out.sizes)
        made = w.add(
            "AveragePool",
            w.to(x, w.inner),
            kernel_shape=kernel,
            strides=steps,
            pads=(*pads, *pads),
            count_include_pad=int(counted),
        )
        if divisor_override is not None:
            made = w.add("Mul", made, w.number(math.prod(kernel) / divisor_override, w.inner))
        return w.to(w.reshape(made, w.out.sizes), w.out.dtype)

    return rule


def adaptive_average_pool(rank: int) -> Rule:
    """Means of as many equal parts as are wanted."""
    pool = average_pool(rank)

    def rule(w: Writer, self: Value, output_size: Sequence[int]) -> Made:
        sizes = self.shape[-rank:]
        if 0 in (*self.shape, *output_size):
            return w.full(w.out.sizes, 0, w.out.dtype)
        if any(size % out for size, out in zip(sizes, output_size, strict=True)):
            return _mixed(w, self, [_parts(*axis) for axis in zip(sizes, output_size, strict=True)])
        return pool(w, self, [size // out for size, out in zip(sizes, output_size, strict=True)])

    return rule


def average_pool_backward(
    w: Writer,
    grad_output: Value,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Made:
    """The gradient of a mean given to all elements of its window: a transposed convolution by ones."""
    grad, x = _pool(w, grad_output, 2)[0], _pool(w, self, 2)[0]
    kernel, pads = each_axis(kernel_size, 2), each_axis(padding, 2)
    steps = each_axis(stride or kernel, 2)
    share, counted = math.prod(kernel), count_include_pad or divisor_override is not None
    axes = zip(x.shape[2:], grad.shape[2:], kernel, steps, pads, strict=True)
    made = _mixed(w, grad, [_means(*axis, counted).T for axis in axes])
    if divisor_override is not None:
        w.require(not ceil_mode, "its last windows may reach beyond the padding")
        made = w.add("Mul", made, w.number(share / divisor_override, made.dtype))
    return w.reshape(made, self.shape)


def adaptive_average_pool_backward(rank: int) -> Rule:
    """The gradient of means of parts given to all elements of each."""

    def rule(w: Writer, grad_output: Value, self: Value) -> Made:
        pairs = zip(self.shape[-rank:], grad_output.shape[-rank:], strict=True)
        return _mixed(w, grad_output, [_parts(*axis).T for axis in pairs])

    return rule


def sampled(w: Writer, input: Value, grid: Value, interpolation: int, padding: int, align: bool) -> Made:
    """An image or volume at places between -1 and 1."""
    w.require(0 not in (*input.shape, *grid.shape), "there is nothing to sample")
    made = w.add(
        "GridSample",
        w.to(input, w.inner),
        w.to(grid, w.inner),
        mode=("linear", "nearest", "cubic")[interpolation],
        padding_mode=("zeros", "border", "reflection")[padding],
        align_corners=int(align),
    )
    return w.to(made, w.out.dtype)


def _hats(size: int, count: int, scale: float) -> Array:
    """Linear weights around each new element's place [count, size]; of a smaller axis wider by ``scale``."""
    made, width = np.zeros((count, size)), max(scale, 1.0)
    for out in range(count):
        centre = scale * (out + 0.5)
        first, last = max(int(centre - width + 0.5), 0), min(int(centre + width + 0.5), size)
        hat = np.maximum(1 - np.abs((np.arange(first, last) - centre + 0.5) / width), 0)
        made[out, first:last] = hat / hat.sum()
    return made


def resized_smoothly(
    w: Writer, self: Value, output_size: Sequence[int], align_corners: bool, *scales: float | None
) -> Made:
    """An image resized linearly, each element of a smaller one the mean of a wider window."""
    matrices = []
    for size, count, scale in zip(self.shape[2:], output_size, scales or (None, None), strict=True):
        ratio = (size - 1) / max(count - 1, 1) if align_corners else 1 / scale if scale else size / count
        matrices.append(_hats(size, count, ratio))
    return _mixed(w, self, matrices)


RULES: Final[Rules] = MappingProxyType(
    {
        "max_pool2d_with_indices.default": max_pool(2),
        "max_pool3d_with_indices.default": max_pool(3),
        "max_pool2d_with_indices_backward.default": max_pool_backward,
        "avg_pool1d.default": average_pool(1),
        "avg_pool2d.default": average_pool(2),
        "avg_pool3d.default": average_pool(3),
        "avg_pool2d_backward.default": average_pool_backward,
        "_adaptive_avg_pool2d_backward.default": adaptive_average_pool_backward(2),
        "_adaptive_avg_pool3d_backward.default": adaptive_average_pool_backward(3),
        "grid_sampler_2d.default": sampled,
        "grid_sampler_3d.default": sampled,
        "_upsample_bilinear2d_aa.default": resized_smoothly,
        "_adaptive_avg_pool2d.default": adaptive_average_pool(2),
        "_adaptive_avg_pool3d.default": adaptive_average_pool(3),
    }
)
