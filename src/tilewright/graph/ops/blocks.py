"""Products with weights of few bits, which are packed in words and have a scale for each block of terms."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright import lang
from tilewright.graph.model import Array
from tilewright.graph.operand import Ix, Operand, compute
from tilewright.graph.ops.common import Scalar, cast, stem
from tilewright.graph.ops.reduction import as_dtype
from tilewright.graph.registry import OWN, Context, Kind, operator

WORD: Final = 32
"""Bits of a word of packed weights."""
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


@operator("BlockProduct", kind=Kind.CONTRACTION, domain=OWN)
def block_product(
    ctx: Context, x: Operand, words: Operand, scale: Operand, zero: Operand | None = None
) -> Operand:
    """y[i, n] = sum_b scale[n, b] (sum of x[i, k] q[n, k] over block b - zero[n, b] sum of x[i, k] over it).

    `words` [panel, words, column] hold signed numbers of `bits` bits, the first in the lowest; scales and
    zero points are [panel, block, column], `block` numbers a block. Sums are in f32.
    """
    bits, block = ctx.integer("bits"), ctx.integer("block")
    per_word = WORD // bits
    rows, depth = x.shape
    panels, count, columns = words.shape
    blocks = depth // block
    fits = blocks * block == depth == count * per_word and scale.shape == (panels, blocks, columns)
    ctx.require(fits and block % per_word == 0, "its weights, scales and blocks do not fit its input")
    g, h = lang.reduce_axis(block // per_word, "g"), lang.reduce_axis(per_word, "h")

    def number(p: Ix, b: Ix, c: Ix) -> Scalar:
        word = words[(p, b * (block // per_word) + g, c)]
        up = lang.to_scalar(WORD - bits - bits * h, "i32")
        return lang.cast((word << up) >> (WORD - bits), "f32")

    def within(i: Ix, p: Ix, b: Ix, c: Ix) -> Scalar:
        return lang.sum(number(p, b, c) * cast(x[(i, b * block + g * per_word + h)], x.dtype, "f32"), (g, h))

    name, b = stem(ctx), lang.reduce_axis(blocks, "b")
    part = compute((rows, panels, blocks, columns), within, f"{name}_block", axes=("i", "p", "b", "c"))
    sums = None
    if zero is not None:
        k = lang.reduce_axis(block, "k")
        sums = compute(
            (rows, blocks),
            lambda i, b: lang.sum(cast(x[(i, b * block + k)], x.dtype, "f32"), k),
            f"{name}_sums",
        )

    def of(i: Ix, n: Ix) -> Scalar:
        p, c = n // columns, n % columns
        value = part[(i, p, b, c)]
        if zero is not None and sums is not None:
            value = value - cast(zero[(p, b, c)], zero.dtype, "f32") * sums[(i, b)]
        return lang.sum(value * cast(scale[(p, b, c)], scale.dtype, "f32"), b)

    return as_dtype(ctx, compute((rows, panels * columns), of, name, axes=("i", "n")), x.dtype)
