"""Probabilities of several classes from those of pairs: one sweep of an iteration over the classes."""

from __future__ import annotations

from typing import Final

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, compute
from tilewright.graph.ops.common import Scalar, number, stem
from tilewright.graph.registry import OWN, Context, Kind, operator

#: An iteration has converged where no derivative is further from their mean than this, by classes (libsvm's).
TOLERANCE: Final = 0.005


@operator("CoupledStep", kind=Kind.OPAQUE, domain=OWN)
def coupled_step(ctx: Context, matrix: Operand, before: Operand) -> Operand:
    """Better probabilities [classes, rows] after one sweep; the same where they are good enough.

    They minimise p^T Q p over those of sum 1, `matrix` is Q [classes, classes, rows]: class after class gets
    what its derivative asks for, and all are divided by their sum (Wu, Lin and Weng 2004, algorithm 2).
    """
    classes, rows = before.shape
    dtype, name = before.dtype, stem(ctx)
    p, (slopes, mean) = before, _derivatives(matrix, before, name)
    first_slopes, first_mean = slopes, mean
    for at in range(classes):
        p, slopes, mean = _moved(matrix, p, slopes, mean, at, name)
    j = lang.reduce_axis(classes, "j")
    furthest = compute(
        (rows,),
        lambda r: lang.max(lang.absolute(first_slopes[(j, r)] - first_mean[(r,)]), axis=j),
        name=f"{name}_error",
    )
    enough = number(TOLERANCE / classes, dtype)
    swept = p
    return compute(
        (classes, rows),
        lambda i, r: lang.select(furthest[(r,)] < enough, before[(i, r)], swept[(i, r)]),
        name=name,
    )


def _derivatives(matrix: Operand, p: Operand, name: str) -> tuple[Operand, Operand]:
    """Q p, and p^T Q p."""
    classes, rows = p.shape
    j, i = lang.reduce_axis(classes, "j"), lang.reduce_axis(classes, "i")
    slopes = compute(
        (classes, rows), lambda c, r: lang.sum(matrix[(c, j, r)] * p[(j, r)], axis=j), name=f"{name}_slopes"
    )
    return slopes, compute(
        (rows,), lambda r: lang.sum(slopes[(i, r)] * p[(i, r)], axis=i), name=f"{name}_mean"
    )


def _moved(
    matrix: Operand, p: Operand, slopes: Operand, mean: Operand, at: int, name: str
) -> tuple[Operand, Operand, Operand]:
    """The three after the probability of one class has moved."""
    classes, rows = p.shape
    one = number(1, p.dtype)
    move = compute(
        (rows,), lambda r: (mean[(r,)] - slopes[(at, r)]) / matrix[(at, at, r)], name=f"{name}_move"
    )

    def moved(c: Ix, r: Ix) -> Scalar:
        own = p[(c, r)] + lang.select(lang.to_scalar(c, "i64") == at, move[(r,)], number(0, p.dtype))
        return own / (one + move[(r,)])

    def slope(c: Ix, r: Ix) -> Scalar:
        return (slopes[(c, r)] + move[(r,)] * matrix[(at, c, r)]) / (one + move[(r,)])

    def average(r: Ix) -> Scalar:
        d = move[(r,)]
        more = mean[(r,)] + d * (d * matrix[(at, at, r)] + number(2, p.dtype) * slopes[(at, r)])
        return more / (one + d) / (one + d)

    return (
        compute((classes, rows), moved, name=f"{name}_p"),
        compute((classes, rows), slope, name=f"{name}_slopes"),
        compute((rows,), average, name=f"{name}_mean"),
    )
