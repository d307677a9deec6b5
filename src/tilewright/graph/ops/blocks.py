"""Products with weights of few bits, which are packed in words and have a scale for each block of terms."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright import lang
from tilewright.graph.model import Array
from tilewright.graph.operand import Ix, Operand, compute
from tilewright.graph.ops.common import Scalar, cast, number, size_of, stem
from tilewright.graph.ops.quantisation import quantise
from tilewright.graph.ops.reduction import as_dtype
from tilewright.graph.registry import OWN, Context, Kind, operator

WORD: Final = 32
"""Bits of a word of packed weights."""
DOT: Final = 4
"""Bytes that are multiplied and summed together: those of a word."""
PANEL: Final = 32
"""Columns that lie together: four vectors of 256 bits, whose sums hide the latency of multiply-adds."""


def packed(numbers: Array, bits: int) -> Array:
    """Signed numbers [columns, depth] as words [panel, words of the depth, column], the first number lowest.

    Columns are filled up to whole panels.
    """
    columns, depth = numbers.shape
    filled = np.zeros((-(-columns // PANEL) * PANEL, depth), np.uint8)
    filled[:columns] = numbers.astype(np.int8).view(np.uint8) & np.uint8((1 << bits) - 1)
    made = np.zeros((len(filled), depth * bits // 8), np.uint8)
    for at in range(8 // bits):
        made |= filled[:, at :: 8 // bits] << np.uint8(at * bits)
    words = made.view("<i4").reshape(-1, PANEL, depth * bits // WORD)
    return np.ascontiguousarray(words.transpose(0, 2, 1))


def in_panels(values: Array) -> Array:
    """One number a column and block, [columns, blocks], as [panel, block, column], filled up with zeros."""
    filled = np.zeros((-(-len(values) // PANEL) * PANEL, values.shape[1]), values.dtype)
    filled[: len(values)] = values
    return np.ascontiguousarray(filled.reshape(-1, PANEL, values.shape[1]).transpose(0, 2, 1))


def as_bytes(words: Array, bits: int) -> Array:
    """Words of signed numbers as bytes [panel, words, four a column] of unsigned ones, half a range more.

    Dots take four neighbours together: the byte ``j`` of a word has the numbers ``j``, ``4 + j`` and so on.
    """
    held = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, WORD // 8)
    made, mask, half = np.zeros_like(held), np.uint8((1 << bits) - 1), np.uint8(1 << (bits - 1))
    for n in range(WORD // bits):
        at, up = divmod(n * bits, 8)
        number = ((held[..., at] >> np.uint8(up)) & mask) ^ half
        made[..., n % DOT] |= number << np.uint8(n // DOT * bits)
    return made.reshape(*words.shape[:2], -1)


@operator("BlockQuantize", kind=Kind.REDUCTION, domain=OWN)
def block_quantize(ctx: Context, x: Operand) -> tuple[Operand, Operand, Operand]:
    """Rows in blocks of bytes: q = round(x / scale), scale = max |x| / 127 of each block, and the sums of q.

    `x` is [rows, depth], q [rows, blocks, block]. Blocks so small that 1 / scale is infinite are zeros.
    """
    block = ctx.integer("block")
    rows, depth = x.shape
    blocks, name = depth // block, stem(ctx)
    ctx.require(blocks * block == depth, "blocks do not fill its rows")
    k, j = lang.reduce_axis(block, "k"), lang.reduce_axis(block, "j")
    most = compute(
        (rows, blocks),
        lambda i, b: lang.max(abs(cast(x[(i, b * block + k)], x.dtype, "f32")), k),
        f"{name}_most",
        axes=("i", "b"),
    )
    steps = number(np.iinfo(np.int8).max, "f32")
    least = number(float(np.finfo(np.float32).tiny) * np.iinfo(np.int8).max, "f32")

    def byte(i: Ix, b: Ix, k: Ix) -> Scalar:
        up = lang.select(most[(i, b)] > least, steps / most[(i, b)], number(0, "f32"))
        return quantise(cast(x[(i, b * block + k)], x.dtype, "f32") * up, None, "i8", "f32")

    held = compute((rows, blocks, block), byte, name, axes=("i", "b", "k"))
    scale = compute((rows, blocks), lambda i, b: most[(i, b)] / steps, f"{name}_scale", axes=("i", "b"))
    sums = compute(
        (rows, blocks),
        lambda i, b: lang.sum(lang.cast(held[(i, b, j)], "i32"), j),
        f"{name}_sums",
        axes=("i", "b"),
    )
    return held, scale, sums


@operator("BlockProduct", kind=Kind.CONTRACTION, domain=OWN)
def block_product(
    ctx: Context,
    x: Operand,
    words: Operand,
    scale: Operand,
    zero: Operand | None = None,
    x_scale: Operand | None = None,
    x_sums: Operand | None = None,
) -> Operand:
    """y[i, n] = sum_b scale[n, b] (sum of x[i, k] q[n, k] over block b - zero[n, b] sum of x[i, k] over it).

    `words` [panel, words, column] hold signed numbers of `bits` bits, the first in the lowest; scales and
    zero points are [panel, block, column], `block` numbers a block. Sums are in f32, the result is of the
    dtype of `x`. Or `x`, `x_scale` and `x_sums` are what BlockQuantize makes, and `words` unsigned numbers as
    `as_bytes` has them, of which zero points are taken: sums within blocks are those of integers, the result
    is of the dtype `to`.
    """
    bits, block = ctx.integer("bits"), ctx.integer("block")
    per_word, depth = WORD // bits, size_of(x.shape[1:])
    (panels, count, _), columns, blocks = words.shape, scale.shape[2], depth // block
    fits = blocks * block == depth == count * per_word and scale.shape == (panels, blocks, columns)
    fits = fits and words.shape[2] == columns * (1 if x_sums is None else DOT)
    ctx.require(fits and block % per_word == 0, "its weights, scales and blocks do not fit its input")
    name, b = stem(ctx), lang.reduce_axis(blocks, "b")
    if x_sums is None:
        part, sums = _sums(x, words, bits, block, name, zero is not None)
    else:
        part, sums = _dots(x, words, bits, block, name), x_sums

    def of(i: Ix, n: Ix) -> Scalar:
        p, c = n // columns, n % columns
        value, factor = part[(i, p, b, c)], cast(scale[(p, b, c)], scale.dtype, "f32")
        if zero is None and sums is not None:
            # of numbers that had no zero point before they were made unsigned
            value = value - sums[(i, b)] * lang.const(1 << (bits - 1), "i32")
        value = cast(value, part.dtype, "f32")
        if zero is not None and sums is not None:
            value = value - cast(zero[(p, b, c)], zero.dtype, "f32") * cast(sums[(i, b)], sums.dtype, "f32")
        return lang.sum(value * (factor if x_scale is None else factor * x_scale[(i, b)]), b)

    made = compute((x.shape[0], panels * columns), of, name, axes=("i", "n"))
    return as_dtype(ctx, made, x.dtype if x_sums is None else ctx.text("to"))


def _sums(
    x: Operand, words: Operand, bits: int, block: int, name: str, zeros: bool
) -> tuple[Operand, Operand | None]:
    """Sums within blocks, [row, panel, block, column], and where there are zero points those of `x` alone."""
    (rows, depth), (panels, _, columns), per_word = x.shape, words.shape, WORD // bits
    blocks, groups = depth // block, block // per_word
    g, h = lang.reduce_axis(groups, "g"), lang.reduce_axis(per_word, "h")

    def value(i: Ix, k: Ix) -> Scalar:
        return cast(x[(i, k)], x.dtype, "f32")

    def within(i: Ix, p: Ix, b: Ix, c: Ix) -> Scalar:
        up = lang.to_scalar(WORD - bits - bits * h, "i32")
        number = lang.cast((words[(p, b * groups + g, c)] << up) >> (WORD - bits), "f32")
        return lang.sum(number * value(i, b * block + g * per_word + h), (g, h))

    part = compute((rows, panels, blocks, columns), within, f"{name}_block", axes=("i", "p", "b", "c"))
    if not zeros:
        return part, None
    k = lang.reduce_axis(block, "k")
    return part, compute((rows, blocks), lambda i, b: lang.sum(value(i, b * block + k), k), f"{name}_sums")


def _dots(x: Operand, words: Operand, bits: int, block: int, name: str) -> Operand:
    """Sums within blocks of integers, unpacked to bytes of which four neighbours lie together."""
    (rows, blocks, _), (panels, _, width), per_byte = x.shape, words.shape, 8 // bits
    groups = block // per_byte // DOT
    g, h, j = (lang.reduce_axis(n, axis) for n, axis in ((groups, "g"), (per_byte, "h"), (DOT, "j")))

    def unpacked(p: Ix, b: Ix, g: Ix, h: Ix, e: Ix) -> Scalar:
        byte = words[(p, b * groups + g, e)] >> lang.to_scalar(bits * h, "u8")
        return byte & lang.const((1 << bits) - 1, "u8")

    shape, axes = (panels, blocks, groups, per_byte, width), ("p", "b", "g", "h", "e")
    apart = compute(shape, unpacked, f"{name}_bytes", axes=axes)

    def within(i: Ix, p: Ix, b: Ix, c: Ix) -> Scalar:
        byte = apart[(p, b, g, h, DOT * c + j)]
        value = x[(i, b, (g * per_byte + h) * DOT + j)]
        return lang.sum(lang.cast(byte, "i32") * lang.cast(value, "i32"), (g, h, j))

    return compute((rows, panels, blocks, width // DOT), within, f"{name}_block", axes=("i", "p", "b", "c"))
