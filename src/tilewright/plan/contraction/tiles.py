"""The tree of a contraction by register tiles: its loops over tiles, its micro-kernel, what goes with it.

For a result with rows ``m`` (one tiled axis and others around it), vectors ``n`` and a reduction ``k``::

    parallel for (batch, n tiles, rows around):
        for m tiles:                      # body outlined: the micro-kernel
            acc[rows, vectors] = 0        # registers
            for k:                        # a few steps unrolled
                acc[...] += a[m, k] * b[k, n]
            out[...] = epilogue(acc[...])

What does not divide is a part of its own with exact extents; there are no masks in full tiles. Reductions
without a second operand (pooling) and depthwise convolutions take the same form: their rows share loaded
vectors instead of broadcasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.analysis import Contraction, row_axis
from tilewright.cost import Machine
from tilewright.ir import Index, Program, Stage
from tilewright.plan.contraction.instructions import tile_of
from tilewright.plan.contraction.kernel import Kernel, kernel_body, matrix_kernel, micro_kernel, result_loops
from tilewright.plan.contraction.nest import TilePlan, TileProblem, inner_tiles
from tilewright.plan.contraction.output_order import part_layout, part_loop, transposed_part
from tilewright.plan.contraction.prefetch import request_panels, request_rows
from tilewright.plan.contraction.register_tiling import RegisterTile, vector_width
from tilewright.plan.contraction.tile_loops import Holder, TileLoops, assemble, share_tiles, tile_loops
from tilewright.plan.elementwise.nest import copied_at
from tilewright.support import ScheduleError
from tilewright.target import Target
from tilewright.tiling import Body, Leaf, Nest, Place, Step, chain


def tiles_nests(
    p: TileProblem,
    plan: TilePlan,
    program: Program,
    target: Target,
    layout: tuple[str, tuple[str, ...]] | None = None,
) -> tuple[Nest, ...]:
    """The nests of a plan, in a program whose constant operand is laid out as ``layout`` says.

    Operands that are made ahead of it are nests of their own. Raises ScheduleError where no loop makes parts
    of a good size.
    """
    c = p.c
    names = _names(c, p.last)
    own = {it.name: it.extent.as_int() for it in p.last.iters}
    extents = {it.name: own.get(names[it.name], it.extent.as_int()) for it in c.stage.iters}
    t = tile_loops(p, plan, extents, target)
    k = _kernel(c, p.epilogue is None, t, plan, program, target)
    machine = Machine(target, plan.threads)
    part = None
    if p.in_order is not None:
        part = part_loop(program, p.in_order, t.parts, t.share, machine)
        if part is None:
            raise ScheduleError(f"{p.last.name} is not made in parts that threads could share")
    streamed = _request(p, plan, t, k, program, target) if plan.prefetch else None
    t.around.hint("outline")
    inside: dict[Step, tuple[Place, ...] | Holder] = {}
    nests: list[Nest] = []
    if p.rows is not None and t.rows is not None:
        inside[t.rows] = (copied_at(program, p.rows),)
    if p.panels is not None:
        made = program.stage(p.panels)
        *rest, last = [it.name for it in made.iters]
        body = chain([*(Step(a, 1) for a in rest), Step(last, 1, "vector")], Leaf(made.name))
        if t.panels is None:
            nests.append(Nest(made.name, body))
        else:
            inside[t.panels] = (Place(made.name, "make", "local", body),)
    if part is not None and p.in_order is not None:
        drain = transposed_part(p.in_order, c.write.indices, _made_by(c, t, part))
        kept = Place(p.in_order.source, "keep", "local", None, drain, part_layout(p.in_order))
        inside[part] = Holder(kept)
    body = assemble(t, extents, kernel_body(c, p.epilogue, t, k, names), names, inside)
    if plan.threads > 1:
        left = {names[it.name]: extents[it.name] for it in c.stage.iters if it.kind == "par"}
        tiles = [(names[s.axis], s.size) for s in t.outer]
        innermost = None if streamed is None else (names[streamed.axis], streamed.size)
        body = share_tiles(body, left, tiles, plan.threads, first=t.share, innermost=innermost)
    return (*nests, Nest(p.last.name, body, () if layout is None else (layout,)))


def inner_tile(
    c: Contraction,
    epilogue: Stage | None,
    extents: Mapping[str, int],
    program: Program,
    target: Target,
) -> Body:
    """Register tiles of a contraction in a box of ``extents``, by one thread. One element is no loop."""
    iters = tuple(
        replace(it, lo=Index(0), hi=Index(extents.get(it.name, it.extent.as_int()))) for it in c.stage.iters
    )
    here = replace(c, stage=replace(c.stage, iters=iters))
    plan = inner_tiles(here, epilogue, program, target)
    there = {
        it.name
        for it in iters
        if it.kind == "red" or it.extent.as_int() > 1 or it.name in (row_axis(here), c.vector)
    }
    box = {it.name: it.extent.as_int() for it in iters}
    t = tile_loops(TileProblem(here, epilogue, ()), plan, box, target, there)
    k = _kernel(here, epilogue is None, t, plan, program, target)
    names = _names(here, epilogue or here.stage)
    t.around.hint("outline")
    return assemble(t, box, kernel_body(here, epilogue, t, k, names), names)


def _kernel(
    c: Contraction, keep: bool, t: TileLoops, plan: TilePlan, program: Program, target: Target
) -> Kernel:
    if tile_of(c) is not None:
        return matrix_kernel(c, plan.rows, plan.vectors * vector_width(c, target), program, target)
    reds = [it.name for it in c.stage.iters if it.kind == "red"]
    result = result_loops(c, t, keep, plan.vectors, target)
    return micro_kernel(c, RegisterTile(plan.tile_rows, plan.vectors, 0.0), result, target, plan.turn, reds)


def _names(c: Contraction, last: Stage) -> dict[str, str]:
    """What the axes of a contraction are called in the stage that ends its nest."""
    own = {it.name: it.name for it in c.stage.iters}
    if last.name == c.stage.name:
        return own
    pars = [it.name for it in last.iters if it.kind == "par"]
    return own | {i.as_var() or "": axis for i, axis in zip(c.write.indices, pars, strict=True)}


def _request(
    p: TileProblem, plan: TilePlan, t: TileLoops, k: Kernel, program: Program, target: Target
) -> Step | None:
    """Ask for what comes next where that pays; returns the loop over panels that does."""
    c, streamed = p.c, None
    if p.panels is None:
        columns = t.panels if t.panels in t.columns else None
        tile = RegisterTile(plan.tile_rows, plan.vectors, 0.0)
        streamed = request_panels(c, columns, t.outer, tile, program, target)
    written = None if p.in_order is not None else p.last.writes[0]
    request_rows(c, t.outer, k.rows, written, program, target)
    return streamed


def _made_by(c: Contraction, t: TileLoops, part: Step) -> dict[str, int]:
    """The elements of each axis that one iteration of a loop makes."""
    left = {it.name: it.extent.as_int() for it in c.stage.iters}
    for s in t.outer[: t.outer.index(part) + 1]:
        left[s.axis] = min(left[s.axis], s.size)
    return left
