"""Stages that make matrices in panels for products, and by which threads: decision 0421."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.cost import BLOCK_SHARE, Machine, buffer_bytes, second_cache
from tilewright.ir import GLOBAL, LOCAL, Cast, IndexMap, Load, Program, Stage, Store, floordiv, mod, var
from tilewright.plan.elementwise.readers import made_by_readers, shares_evenly, threads_of_reader
from tilewright.tiling import Leaf, Level, Nest, Place, Step, chain

#: Groups of rows that are read for one panel after the other.
PANEL_GROUPS: Final = 8


def panels_nest(
    program: Program, stage: Stage, machine: Machine, others: Sequence[Nest]
) -> tuple[Nest, ...] | None:
    """The nest of a stage that makes matrices in panels of columns, by groups of rows; ``None`` of others.

    ``[column // n][...][row // g][...][column % n][row % g]``: a few rows are read as they lie, for one panel
    after the other; vectors run along whole groups. Threads that read all panels each make their own, where
    their second cache level keeps them: the nest is then the readers', one of ``others``. Those that share
    panels make the ones that they read.
    """
    buffer = next((b for b in program.temps if b.name in stage.writes), None)
    layout = None if buffer is None else buffer.layout
    if buffer is None or layout is None or stage.is_reduction or len(stage.iters) != len(layout.dims):
        return None
    found = _panels_of(layout)
    if found is None or any(not e.is_const for e in (*layout.shape, *buffer.shape)):
        return None
    width, group = (e.as_int() for e in layout.shape[-2:])
    columns, depth = (buffer.shape[d].as_int() for d in found[:2])
    if columns % width or depth % group:
        return None
    axes = [it.name for it in stage.iters]
    column, k, outside, inside = axes[found[0]], axes[found[1]], found[2], found[3]
    rows = max(n for n in range(1, PANEL_GROUPS + 1) if depth // group % n == 0)
    block, panel = Step(k, rows * group), Step(column, width)
    around = [Step(axes[d], 1) for d in outside]
    within = [Step(axes[d], 1, "unroll") for d in inside]
    lanes = Level(((column, 1), (k, 1)), Leaf(stage.name), "vector")
    core = chain([Step(k, group), *within], lanes)

    along = threads_of_reader(program, stage, others)
    follows = along == column and shares_evenly(program, buffer.name, found[0], others)
    if (
        along is None
        and is_copy(stage)
        and buffer_bytes(buffer) <= BLOCK_SHARE * second_cache(machine.target)
    ):
        # lines that another core has just written come slower than they are made again: decision 0421
        place = Place(stage.name, "make", LOCAL, chain([*around, block, panel], core))
        nest = made_by_readers(program, buffer.name, machine.threads, place, others)
        if nest is not None:
            return (nest,)
    shared = next(
        (s for s, d in zip(around, outside, strict=True) if buffer.shape[d].as_int() >= machine.threads),
        block,
    )
    shared = panel if follows else shared
    front = [panel, *around, block] if follows else [*around, block, panel]
    if machine.threads == 1 or (shared is block and depth == rows * group):
        return (Nest(stage.name, chain(front, core)),)
    front[front.index(shared)] = shared.bound("parallel")
    scopes = ((buffer.name, GLOBAL),) if buffer.scope == LOCAL else ()
    return (Nest(stage.name, chain(front, core), (), scopes),)


def is_copy(stage: Stage) -> bool:
    """Whether a stage but moves elements, perhaps to another type: done again it costs their moves alone."""
    if not isinstance(stage.body, Store) or len(stage.body.writes) != 1 or stage.is_reduction:
        return False
    value = stage.body.writes[0].value
    return isinstance(value.a if isinstance(value, Cast) else value, Load)


def _panels_of(layout: IndexMap) -> tuple[int, int, list[int], list[int]] | None:
    """Which dimensions are columns and rows, which are outside of a panel's rows and which inside."""
    if len(layout.exprs) != len(layout.dims) + 2:
        return None
    dims = [var(d) for d in layout.dims]
    width, group = layout.shape[-2:]
    if not (width.is_const and group.is_const):
        return None
    n, g = width.as_int(), group.as_int()
    for column, i in enumerate(dims):
        for k, j in enumerate(dims):
            if (
                k == column
                or layout.exprs[-2:] != (mod(i, n), mod(j, g))
                or layout.exprs[0] != floordiv(i, n)
            ):
                continue
            rest = list(layout.exprs[1:-2])
            if floordiv(j, g) not in rest or any(x not in dims for x in rest if x != floordiv(j, g)):
                continue
            at = rest.index(floordiv(j, g))
            return column, k, [dims.index(x) for x in rest[:at]], [dims.index(x) for x in rest[at + 1 :]]
    return None
