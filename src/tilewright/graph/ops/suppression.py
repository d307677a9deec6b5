"""Boxes without those that overlap a better one."""

from __future__ import annotations

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, clamped, compute, updated
from tilewright.graph.ops.common import Scalar, number, stem
from tilewright.graph.registry import OWN, Context, Kind, operator


@operator("Unsuppressed", kind=Kind.OPAQUE, domain=OWN)
def unsuppressed(
    ctx: Context,
    boxes: Operand,
    scores: Operand,
    order: Operand,
    overlap: Operand,
    least: Operand | None = None,
) -> Operand:
    """Ones where a box is kept, of each class the best first: `order` are the boxes by falling `scores`.

    Corners are two opposite ones, or with the attribute `center` the middle and the size.
    """
    batch, classes, count = scores.shape
    center = ctx.flag("center", False)

    def at(x: Operand) -> Scalar:
        return x[tuple(0 for _ in x.shape)]

    def begins(*i: Ix) -> Scalar:
        if least is None:
            return number(1, "i64")
        return lang.select(scores[i] > at(least), number(1, "i64"), number(0, "i64"))

    def ends(b: Ix, c: Ix, i: Ix, axis: int) -> tuple[Scalar, Scalar]:
        box = clamped(order[(b, c, i)], boxes.shape[1])
        first, second = boxes[(b, box, axis)], boxes[(b, box, axis + 2)]
        if center:
            half = second * number(0.5, boxes.dtype)
            return first - half, first + half
        return lang.minimum(first, second), lang.maximum(first, second)

    def step(target: Operand, b: Ix, c: Ix, i: Ix, j: Ix) -> lang.Write:
        zero = number(0, boxes.dtype)
        shared = areas = None
        for axis in range(2):
            (low, high), (lower, higher) = ends(b, c, i, axis), ends(b, c, j, axis)
            meet = lang.maximum(lang.minimum(high, higher) - lang.maximum(low, lower), zero)
            sides = (high - low, higher - lower)
            shared = meet if shared is None else shared * meet
            areas = sides if areas is None else (areas[0] * sides[0], areas[1] * sides[1])
        assert shared is not None
        assert areas is not None
        both = areas[0] + areas[1] - shared
        solid = (areas[0] > zero) & (areas[1] > zero) & (both > zero)
        beyond = solid & (shared > at(overlap) * both)
        better = (target[(b, c, i)] != number(0, "i64")) & (lang.to_scalar(j - i, "i64") > number(0, "i64"))
        return lang.write((b, c, j), number(0, "i64"), better & beyond)

    base = compute((batch, classes, count), begins, name=f"{stem(ctx)}_begins", dtype="i64")
    return updated(base, (batch, classes, count, count), step, stem(ctx), free=(0, 1))
