"""The loop tree of general register tiles, from the plan alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.cost import Node, Place
from tilewright.plan.general.nest import GeneralPlan, Reduction, dtype_of
from tilewright.plan.trees import Bodies, Step, around, one, placed, started, stored, tiled
from tilewright.target import Target


def general_tree(r: Reduction, bodies: Bodies, plan: GeneralPlan, target: Target) -> tuple[Node, ...] | None:
    """The nests of a plan; ``None`` where panels make them known by scheduling only."""
    stage = r.stage
    body, last = bodies.of(stage), bodies.of(r.last)
    if r.panels or body is None or last is None:
        return None
    own = [it.name for it in stage.iters if it.kind == "par"]
    extents = {it.name: it.extent.as_int() for it in stage.iters}
    sizes = {axis: size for axis, size in plan.rows if size > 1}
    width = min(plan.vectors * target.lanes(dtype_of(r)), extents[r.vector])
    rows = [axis for axis, size in plan.rows if size > 1]
    others = [Step(a, a, 1) for a in own if a not in sizes and a != r.vector]
    tiles = [Step(a, a, sizes[a], ragged=True) for a in rows]
    columns = Step(r.vector, r.vector, width, ragged=True)
    steps = [*others, *([*tiles, columns] if plan.columns_inside else [columns, *tiles])]
    sums = [(f"{a}+", extents[a], "serial") for a in r.sums]

    def leaf(binding: Mapping[str, Place], left: Mapping[str, int], loops: dict[str, int]) -> Sequence[Node]:
        inner = [(f"{a}_own", left[a], "unroll") for a in rows]
        vector = (f"{r.vector}_own", left[r.vector], "vector")
        known = {**loops, **{n: e for n, e, _ in (*inner, vector, *sums)}}
        now = dict(binding)
        for a in (*rows, r.vector):
            if left[a] > 1:
                now[a] = (*now.get(a, ()), *one(f"{a}_own"))
        for a in r.sums:
            now[a] = one(f"{a}+") if extents[a] > 1 else ()
        held = {stage.writes[0]: frozenset(n for n, _, _ in (*inner, vector))}
        in_order = [n for a in own if a != r.vector for n in inner if n[0] == f"{a}_own"]
        if r.epilogue is None:
            first, result = inner, stored(body, now, known, held)
            then = in_order
        else:
            names = zip((it.name for it in r.last.iters), own, strict=True)
            first, then = in_order, inner
            result = placed(last, {name: now.get(a, ()) for name, a in names}, known, kept=held)
        return (
            *around([*first, vector], [started(body, now, known, kept=held)]),
            *around([*sums, *first, vector], [placed(body, now, known, kept=held)]),
            *around([*then, vector], [result]),
        )

    return tiled(steps, extents, leaf, plan.threads)
