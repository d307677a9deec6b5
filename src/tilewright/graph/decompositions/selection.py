"""Parts that are kept: slices by a known condition, boxes sorted by score without those that overlap."""

from __future__ import annotations

import numpy as np

from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import OWN


@decomposition("Compress")
def compress(p: Parts, x: str, condition: str) -> bool | None:
    """The slices for which a condition holds: read at its places, where only the condition is known."""
    known = p.ctx.values[1]
    if p.ctx.values[0] is not None or known is None or p.type(1).dtype != "bool":
        return False
    p.ctx.require(known.ndim == 1, f"its condition {p.type(1)} must have one axis")
    axis = p.ctx.axis("axis", p.type(0).rank) if p.ctx.has("axis") else None
    whole = x if axis is not None else p.reshape(x, (-1,))
    p.give(p.add("Gather", (whole, p.constant(np.flatnonzero(known))), axis=axis or 0))
    return None


@decomposition("NonMaxSuppression")
def non_max_suppression(
    p: Parts,
    boxes: str,
    scores: str,
    most: str = "",
    overlap: str = "",
    least: str = "",
) -> None:
    """Batch, class and number of each box that is kept, the best ones of a class first."""
    count = p.shape(1)[-1]
    p.ctx.require(
        p.type(0).rank == 3 and len(p.shape(1)) == 3 and p.ctx.agree(p.shape(0)[1], count),
        f"boxes {p.type(0)} and scores {p.type(1)} do not fit",
    )
    center = p.ctx.flag("center_point_box", False)
    best, order = p.several("TopK", (scores, p.ints((count,))), 2, axis=2)
    limit = overlap or p.number(0.0, "f32")
    kept = p.add("Unsuppressed", (boxes, best, order, limit, least), domain=OWN, center=int(center))
    number = p.add("Cast", (p.reshape(most, (1, 1, 1)) if most else p.filled((1, 1, 1), 0, "i64"),), to="i64")
    seen = p.add("CumSum", (kept, p.number(2, "i64")))
    within = p.add("Cast", (p.add("LessOrEqual", (seen, number)),), to="i64")
    places = p.transpose(p.add("NonZero", (p.add("Mul", (kept, within)),)), 1, 0)
    whole = p.add("GatherND", (order, places))
    both = p.add("Slice", (places, p.ints((0,)), p.ints((2,)), p.ints((1,))))
    p.give(p.add("Concat", (both, p.add("Unsqueeze", (whole, p.ints((1,))))), axis=1))
