"""Quantised tensors: conversion from and to integers with scales and zero points, products of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, Place, compute
from tilewright.graph.ops.common import Scalar, cast, is_float, number, size_of, stem
from tilewright.graph.ops.elementwise import convert
from tilewright.graph.registry import Context, Kind, operator
from tilewright.ir import dtype_of


def _has_reciprocal(scale: float) -> bool:
    """Whether the reciprocal of a scale gives quotients of f32 by it.

    Nothing overflows, and the mantissa is not the largest, which Markstein's theorem leaves out.
    """
    return 2.0**-100 <= scale <= 2.0**100 and scale != 1.0 and math.frexp(scale)[0] < 1 - 2.0**-24


def _known(ctx: Context, at: int) -> float | None:
    """The one number that an input holds, where that is known when compiling."""
    value = ctx.values[at]
    return None if value is None or value.size != 1 else float(value.reshape(()))


def shifted(ctx: Context, x: Operand, zero: Operand | None, axis: int, name: str) -> Operand:
    """`x` - zero point in i32, the zero point a scalar or one a place of `axis`; `x` itself without one."""
    if zero is None:
        return x
    rank = len(x.shape)

    def of(*i: Ix) -> Scalar:
        value = cast(x[i], x.dtype, "i32")
        return value - cast(_parameter(zero, i, axis % rank if rank else 0), zero.dtype, "i32")

    return compute(x.shape, of, name=f"{stem(ctx)}_{name}")


def _parameter(p: Operand, i: Place, axis: int) -> Scalar:
    """The scale or zero point of the element `i`: one for all, one a place of `axis`, or one each."""
    if all(size == 1 for size in p.shape):
        return p[tuple(0 for _ in p.shape)]
    if len(p.shape) == 1:
        return p[(i[axis],)]
    return p[tuple(0 if size == 1 else at for size, at in zip(p.shape, i, strict=True))]


def _blocked(ctx: Context, x: Operand, scale: Operand, axis: int) -> int:
    """The block size along `axis` where scales are given by block, else 0."""
    block = ctx.integer("block_size", 0)
    if len(scale.shape) != len(x.shape) or (block == 0 and (len(x.shape) < 2 or size_of(scale.shape) == 1)):
        return 0
    ctx.require(block > 0, "scales of the input's rank need the attribute block_size")
    wanted = tuple(-(-size // block) if at == axis else size for at, size in enumerate(x.shape))
    fits = scale.shape == wanted or size_of(scale.shape) == 1
    ctx.require(fits, f"scales of blocks of {block} along axis {axis} have the shape {list(wanted)}")
    return 0 if size_of(scale.shape) == 1 else block


def _at(p: Operand, i: Place, axis: int, block: int) -> Scalar:
    if block:
        return p[tuple(at // block if a == axis else at for a, at in enumerate(i))]
    return _parameter(p, i, axis)


def _limits(target: str) -> tuple[int, int]:
    return int(dtype_of(target).min_value), int(dtype_of(target).max_value)


def _limited(value: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """A number within limits; what is no number becomes the lower one, as vector instructions have it."""
    above = lang.select(value > low, value, low)
    return lang.select(above < high, above, high)


def quantise(value: Scalar, zero: Scalar | None, target: str, source: str) -> Scalar:
    """round(value) + zero, limited to the range of `target`; ties go to even, no numbers to its least."""
    low, high = (number(limit, source) for limit in _limits(target))
    if zero is None:
        return lang.cast(lang.round(_limited(value, low, high)), target)
    shift = lang.cast(zero, source)
    if dtype_of(target).bits > 16:
        return lang.cast(_limited(lang.round(value) + shift, low, high), target)
    # limits are whole numbers: rounding comes last, as a part of the conversion, and the rest is exact
    limited = _limited(value, low - shift, high - shift)
    return lang.cast(lang.cast(lang.round(limited), "i32") + lang.cast(zero, "i32"), target)


def _multiplied(x: Scalar, scale: float, shift: int, target: str) -> Scalar:
    """round(x / scale) + shift, limited as by :func:`quantise`; a division would take ten times as long.

    The quotient by the rounded reciprocal is put right by its remainder, which an fma gives exactly: at the
    middle between two integers it is that of the division (Markstein, "Computation of elementary functions
    on the IBM RISC System/6000 processor", IBM J. Res. Dev. 34 (1), 1990). Limiting what is divided keeps
    infinite numbers out.
    """
    low, high = _limits(target)
    bounds = [lang.const(limit * scale, "f32") for limit in (low - shift - 0.25, high - shift + 0.25)]
    x = _limited(x, *bounds)
    reciprocal, divisor = lang.const(1.0 / scale, "f32"), lang.const(scale, "f32")
    rough = x * reciprocal
    quotient = lang.fma(lang.fma(-rough, divisor, x), reciprocal, rough)
    return lang.cast(lang.cast(lang.round(quotient), "i32") + lang.const(shift, "i32"), target)


def _channels(ctx: Context, x: Operand, scale: Operand) -> int:
    """The axis of the scales; where there is one scale for all, `axis` means nothing."""
    rank, axis = len(x.shape), ctx.integer("axis", 1)
    return axis % max(rank, 1) if size_of(scale.shape) == 1 else ctx.normal_axis(axis, rank)


@operator("QuantizeLinear", kind=Kind.ELEMENTWISE)
def quantize_linear(ctx: Context, x: Operand, scale: Operand, zero: Operand | None = None) -> Operand:
    """round(x / scale) + zero point, saturated."""
    target = zero.dtype if zero is not None else ctx.text("output_dtype", "u8")
    if is_float(target) and not dtype_of(target).small:
        raise ctx.unsupported(f"quantisation to {target}")
    axis = _channels(ctx, x, scale)
    block = _blocked(ctx, x, scale, axis)
    inner = "f64" if target in ("i32", "u32") else "f32"

    divisor, given = _known(ctx, 1), 0.0 if zero is None else _known(ctx, 2)
    short = x.dtype == scale.dtype == "f32" and dtype_of(target).bits <= 16 and not is_float(target)

    def of(*i: Ix) -> Scalar:
        value = cast(x[i], x.dtype, inner)
        if short and divisor is not None and given is not None and _has_reciprocal(divisor):
            return _multiplied(value, divisor, int(given), target)
        if divisor != 1.0:
            value = value / cast(_at(scale, i, axis, block), scale.dtype, inner)
        shift = None if zero is None else _at(zero, i, axis, block)
        if is_float(target):
            value = value if shift is None else value + lang.cast(shift, inner)
            return convert(ctx, value, inner, target)
        return quantise(value, shift, target, inner)

    return compute(x.shape, of, name=stem(ctx))


@operator("DequantizeLinear", kind=Kind.ELEMENTWISE)
def dequantize_linear(ctx: Context, x: Operand, scale: Operand, zero: Operand | None = None) -> Operand:
    """(x - zero point) * scale."""
    axis = _channels(ctx, x, scale)
    block = _blocked(ctx, x, scale, axis)
    target = ctx.text("output_dtype", scale.dtype)
    # MatMulNBits has zero points between numbers
    inner = "f32" if is_float(x.dtype) or (zero is not None and is_float(zero.dtype)) else "i32"

    def of(*i: Ix) -> Scalar:
        value = cast(x[i], x.dtype, inner)
        if zero is not None:
            value = value - cast(_at(zero, i, axis, block), zero.dtype, inner)
        return cast(
            lang.cast(value, "f32") * cast(_at(scale, i, axis, block), scale.dtype, "f32"), "f32", target
        )

    return compute(x.shape, of, name=stem(ctx))


def requantised(
    ctx: Context, total: Operand, scales: tuple[Operand, Operand, Operand], zero: Operand, channel: int
) -> Operand:
    """An i32 accumulator scaled by (scale of a) (scale of b) / (scale of y), rounded and shifted."""
    a_scale, b_scale, y_scale = scales
    inner = "f32"

    def of(*i: Ix) -> Scalar:
        factor = (
            cast(_parameter(a_scale, i, len(total.shape) - 2), a_scale.dtype, inner)
            * cast(_parameter(b_scale, i, channel), b_scale.dtype, inner)
            / cast(_parameter(y_scale, i, channel), y_scale.dtype, inner)
        )
        value = lang.cast(total[i], inner) * factor
        return quantise(value, _parameter(zero, i, channel), zero.dtype, inner)

    return compute(total.shape, of, name=f"{stem(ctx)}_out")


#: The largest of the bytes that numbers are quantised to by their range.
MOST: Final = 255


@dataclass(frozen=True, slots=True)
class ByteWeights:
    """A matrix of signed bytes, `[1, depth, columns]`, for products with rows that are quantised in each run.

    `factor` is the scale of each column; `sums` are the sums of columns, less their zero points; `zeros` are
    the zero points, where there are any.
    """

    bytes: Operand
    factor: Operand
    sums: Operand
    zeros: Operand | None = None


def dynamic_product(x: Operand, weights: ByteWeights, name: str) -> Operand:
    """`x` [rows, depth], quantised by its range as DynamicQuantizeLinear does, times bytes: numbers."""
    rows, depth = x.shape
    columns = weights.bytes.shape[2]

    def end(of: Callable[..., Scalar], bound: Callable[..., Scalar], what: str) -> Operand:
        n, k = lang.reduce_axis(rows, "n"), lang.reduce_axis(depth, "k")
        found = compute((1,), lambda _: of(x[(n, k)], axis=(n, k)), name=f"{name}_{what}")
        return compute((1,), lambda i: bound(found[(i,)], number(0, "f32")), name=f"{name}_{what}_0")

    low, high = end(lang.min, lang.minimum, "low"), end(lang.max, lang.maximum, "high")

    def step(i: Ix) -> Scalar:
        reach = (high[(i,)] - low[(i,)]) / number(MOST, "f32")
        return lang.select(reach == number(0, "f32"), number(1, "f32"), reach)

    scale = compute((1,), step, name=f"{name}_scale")
    zero = compute((1,), lambda i: lang.round(-low[(i,)] / scale[(i,)]), name=f"{name}_zero")
    held = compute(
        x.shape,
        lambda n, k: quantise(x[(n, k)] / scale[(0,)], lang.cast(zero[(0,)], "u8"), "u8", "f32"),
        name=f"{name}_bytes",
    )
    k = lang.reduce_axis(depth, "k")
    total = compute(
        (rows, columns),
        lambda n, j: lang.sum(
            lang.cast(held[(n, k)], "i32") * lang.cast(weights.bytes[(0, k, j)], "i32"), axis=k
        ),
        name=f"{name}_total",
    )
    spread = weights.zeros
    if spread is not None:
        summed = lang.reduce_axis(depth, "k")
        row = compute(
            (rows,), lambda n: lang.sum(lang.cast(held[(n, summed)], "i32"), axis=summed), name=f"{name}_rows"
        )

    def of(n: Ix, j: Ix) -> Scalar:
        value = total[(n, j)] - lang.cast(zero[(0,)], "i32") * weights.sums[(j,)]
        if spread is not None:
            value = value - row[(n,)] * spread[(j,)]
        return lang.cast(value, "f32") * (scale[(0,)] * weights.factor[(j,)])

    return compute((rows, columns), of, name=name)
