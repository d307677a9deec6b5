"""The loop tree of a contraction by register tiles, from the plan alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.analysis import Contraction, row_axis
from tilewright.cost import Node, Place
from tilewright.plan.contraction.instructions import use_of
from tilewright.plan.contraction.microkernel import innermost_of, is_expanded
from tilewright.plan.contraction.nest import TilePlan, TileProblem
from tilewright.plan.contraction.register_tiling import vector_width
from tilewright.plan.trees import Bodies, Step, around, one, placed, started, stored, tiled
from tilewright.target import Target


def tiles_tree(p: TileProblem, bodies: Bodies, plan: TilePlan, target: Target) -> tuple[Node, ...] | None:
    """The nests of a plan in a program whose constant operand is laid out for it.

    ``None`` for forms that are known by scheduling only: instructions that sum groups, borders, windows that
    are expanded, neighbouring lines, results that are put in order.
    """
    c = p.c
    plain = (
        not (use_of(c) is not None or plan.instruction is not None or c.guard or is_expanded(c))
        and plan.lines is None
    )
    body, last = bodies.of(c.stage), bodies.of(p.last)
    if not plain or p.in_order is not None or p.panels is not None or p.rows is not None:
        return None
    if body is None or last is None:
        return None
    width = vector_width(c, target)
    if c.run is not None and c.run != width:
        return None
    steps, inner = tile_steps(c, plan, width)
    row = row_axis(c)
    rows = [row] if row is not None and row in inner else []
    sums = _reductions(c, plan)
    own = [it.name for it in c.stage.iters if it.kind == "par"]
    pars = [it.name for it in p.last.iters if it.kind == "par"]
    names = {i.as_var(): axis for i, axis in zip(c.write.indices, pars, strict=False)} if p.epilogue else {}

    def leaf(binding: Mapping[str, Place], left: Mapping[str, int], loops: dict[str, int]) -> Sequence[Node]:
        tile = [(f"{a}.", left[a], "unroll") for a in rows]
        if c.run is not None:
            # vectors of one run each
            tile.append((f"{c.vector}*", left[c.vector] // width, "unroll"))
        run = left[c.vector] if c.run is None else width
        vector = (f"{c.vector}.", run, "vector")
        known = {**loops, **{n: e for n, e, _ in (*tile, vector)}, **{n: e for n, e, _, _ in sums}}
        now = dict(binding)
        if run < left[c.vector]:
            now[c.vector] = (*now.get(c.vector, ()), *one(f"{c.vector}*", width))
        for a in (*rows, c.vector):
            if left[a] > 1:
                now[a] = (*now.get(a, ()), *one(f"{a}."))
        for name, extent, axis, step in sums:
            now[axis] = (*now.get(axis, ()), *(one(name, step) if extent > 1 else ()))
        held = {c.stage.writes[0]: frozenset(n for n, _, _ in (*tile, vector))}
        then = [*tile, vector]
        if p.epilogue is None and run < left[c.vector]:
            # copied in the order of the result's own dimensions
            whole = (f"{c.vector}=", left[c.vector], "vector")
            then = [*(n for n in tile if n[0] != f"{c.vector}*"), whole]
            moved = {**now, c.vector: (*binding.get(c.vector, ()), *one(whole[0]))}
            held |= {c.stage.writes[0]: held[c.stage.writes[0]] | {whole[0]}}
            result = stored(body, moved, {**known, whole[0]: whole[1]}, held)
        elif p.epilogue is None:
            result = stored(body, now, known, held)
        else:
            moved = {axis: now.get(name, ()) for name, axis in names.items() if name is not None}
            result = placed(last, moved, known, kept=held)
        reds = [(name, extent, "serial") for name, extent, _, _ in sums]
        return (
            *around([*tile, vector], [started(body, now, known, kept=held)]),
            *around([*reds, *tile, vector], [placed(body, now, known, kept=held)]),
            *around(then, [result]),
        )

    assert own
    extents = {it.name: it.extent.as_int() for it in c.stage.iters}
    return tiled(steps, extents, leaf, plan.threads, 1 if plan.shared is not None else None)


def _reductions(c: Contraction, plan: TilePlan) -> list[tuple[str, int, str, int]]:
    """Loops over the reduction, outermost first: name, iterations, axis and step."""
    reds = [it.name for it in c.stage.iters if it.kind == "red"]
    inner = innermost_of(c, plan.tile_rows * plan.vectors, reds)
    windows, ks = ([a for a in c.axes(role) if a in reds] for role in ("window", "k"))
    order = (*windows, *ks) if inner.windows_outside else (*ks, *windows)
    loops = [(f"{a}+", c.extent(a), a, 1) for a in order if a != inner.axis]
    if inner.run is None:
        return [*loops, (f"{inner.axis}+", c.extent(inner.axis), inner.axis, 1)]
    outer = (f"{inner.axis}+o", c.extent(inner.axis) // inner.run, inner.axis, inner.run)
    return [outer, *loops, (f"{inner.axis}+i", inner.run, inner.axis, 1)]


def tile_steps(c: Contraction, plan: TilePlan, width: int) -> tuple[list[Step], frozenset[str]]:
    """The loops over tiles, outermost first, and the axes of which a tile has several."""
    row, cut, block = row_axis(c), plan.shared, plan.block
    share: list[Step] = []
    in_blocks: list[Step] = []
    bands: Step | None = None
    inner = {c.vector}
    if row is not None:
        sizes = [plan.rows]
        if block is not None and block[0] == row:
            sizes.insert(0, block[1] // plan.rows)
        if row == cut:
            sizes.insert(0, c.extent(row) // (plan.threads * math.prod(sizes)))
        *front, bands = _split(c, row, sizes)[:-1]
        if block is not None and block[0] == row and c.extent(row) % block[1]:
            # the last block has a partial tile of its own
            bands = replace(bands, ragged=True)
        if row == cut:
            share.append(front.pop(0))
        in_blocks += front
        inner.add(row)
    columns: Step | None = None
    across = plan.vectors * width
    if c.extent(c.vector) > across:
        columns = Step(f"{c.vector}0", c.vector, across, c.extent(c.vector) % across > 0)
    batch = [Step(a, a, 1) for a in c.axes("batch") if a != c.vector]
    other_n = [Step(a, a, 1) for a in c.axes("n") if a != c.vector]
    other_m: list[Step] = []
    outside: list[Step] = []
    for a in c.axes("m"):
        if a in (row, c.vector) or c.extent(a) == 1:
            continue
        sizes = [block[1]] if block is not None and block[0] == a and block[1] < c.extent(a) else []
        if a == cut:
            sizes.insert(0, c.extent(a) // (plan.threads * math.prod(sizes)))
        parts = _split(c, a, sizes)
        if a == cut:
            share.append(parts.pop(0))
        if block is not None and block[0] == a:
            outside += [*other_m, *parts[:-1]]
            other_m = []
        other_m.append(parts[-1])
    if block is not None and block[0] == row:
        outside, other_m = [*other_m, *in_blocks], []
    n_outer = [] if columns is None else [columns]
    outer = [*share, *batch, *outside, *other_n, *n_outer, *other_m]
    if c.vector in c.axes("batch") and not outside:
        axes = [it.name for it in c.stage.iters]
        outer = [*share, *sorted((*batch, *n_outer, *other_m), key=lambda s: axes.index(s.axis))]
    if bands is None:
        return outer or [Step(f"{c.vector}0", c.vector, c.extent(c.vector))], frozenset(inner)
    if outer and outer[-1] == columns and plan.columns_inside:
        return [*outer[:-1], bands, columns], frozenset(inner)
    return [*outer, bands], frozenset(inner)


def _split(c: Contraction, axis: str, factors: Sequence[int]) -> list[Step]:
    """The loops of an axis split by some factors, the last one over single elements."""
    whole = math.prod(factors)
    ragged = c.extent(axis) % whole > 0
    return [
        Step(f"{axis}{n}", axis, math.prod(factors[n:]), ragged and n == 0) for n in range(len(factors) + 1)
    ]
