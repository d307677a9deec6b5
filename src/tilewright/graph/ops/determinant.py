"""Determinants of small matrices, by elimination with the largest pivot."""

from __future__ import annotations

from typing import Final

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, clamped, compute
from tilewright.graph.ops.common import Scalar, number, stem
from tilewright.graph.registry import Context, Kind, operator

#: Each row is a stage of its own.
MOST_ROWS: Final = 64


@operator("Det", kind=Kind.OPAQUE)
def determinant(ctx: Context, x: Operand) -> Operand:
    """The determinant of each matrix in the last two axes.

    One row a step: the row with the largest first element goes first, its multiples are taken off the others.
    Raises UnsupportedOperatorError for large matrices.
    """
    square = len(x.shape) >= 2 and x.shape[-1] == x.shape[-2]
    ctx.require(square, f"matrices {list(x.shape)} are not square")
    *batch, rows, _ = x.shape
    if rows > MOST_ROWS:
        raise ctx.unsupported(f"determinants of {rows} rows; at most {MOST_ROWS} are computed")
    dtype, name = x.dtype, stem(ctx)
    if not rows:
        return compute(batch, lambda *_: number(1, dtype), name=name)
    left, factors = x, list[Operand]()
    while left.shape[-1] > 1:
        left, factor = _step(left, name)
        factors.append(factor)
    last = left

    def of(*b: Ix) -> Scalar:
        total = last[(*b, 0, 0)]
        for factor in factors:
            total = total * factor[b]
        return total

    return compute(batch, of, name=name)


def _step(m: Operand, name: str) -> tuple[Operand, Operand]:
    """The matrix without its first column and the pivot's row; the pivot with the sign of moving its row."""
    *batch, size, _ = m.shape
    dtype = m.dtype
    row = lang.reduce_axis(size, "r")
    found = compute(
        batch,
        lambda *b: lang.argmax(lang.absolute(m[(*b, row, 0)]), axis=row),
        name=f"{name}_at",
        dtype="i64",
    )

    def pivot_row(b: tuple[Ix, ...]) -> Ix:
        return clamped(found[b], size)

    pivot = compute(batch, lambda *b: m[(*b, pivot_row(b), 0)], name=f"{name}_pivot")

    def rest(*i: Ix) -> Scalar:
        *b, r, c = i
        at = tuple(b)
        own = lang.to_scalar(r + 1, "i64")
        # the row that stood first takes the place of the pivot's
        place = clamped(lang.select(own == found[at], number(0, "i64"), own), size)
        top = lang.select(pivot[at] == 0.0, number(1, dtype), pivot[at])
        factor = m[(*at, place, 0)] / top
        return m[(*at, place, c + 1)] - factor * m[(*at, pivot_row(at), c + 1)]

    def signed(*b: Ix) -> Scalar:
        return lang.select(found[b] == 0, pivot[b], -pivot[b])

    left = compute((*batch, size - 1, size - 1), rest, name=f"{name}_rest")
    return left, compute(batch, signed, name=f"{name}_signed")
