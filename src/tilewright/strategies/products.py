"""Products of two large matrices that are both given at run time: their operands are copied into tiles.

::

    parallel for groups of panels, one a thread:
        panels[j / P][k][j % P] = b[k, j]
        for blocks of rows:
            rows[i / R][k / 16][i % R][k % 16] = a[i, k]        # whole cache lines move
            for panels of the group:                          # each stays in the second cache level
                for tiles of R rows: the micro-kernel of a contraction
    the last panel, where it is partial, from the operands in place

In place, rows whose distance is a multiple of a large power of two fall into the same sets of the first cache
level, and a panel's lines lie in as many pages as it has rows. The copies are those of Goto and van de Geijn,
"Anatomy of High-Performance Matrix Multiplication", 2008, section 4, without blocks along the reduction: the
second cache level gives a panel fast enough. Each thread has copies of its own: lines of tiles that the other
one made would come from its cache whenever they are read (187 instead of 225 GFLOP/s).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from tilewright.ir import CONST, Load, Program, Stage, floordiv, mod, stmt_loads, var
from tilewright.schedule import Schedule
from tilewright.strategies.caches import last_cache
from tilewright.strategies.contraction import (
    choose_tile,
    expand_tile,
    loops_below,
    reduce_tile,
    row_axis,
    vector_width,
)
from tilewright.strategies.roles import Contraction
from tilewright.strategies.tiles import RegisterTile
from tilewright.target import Target

#: Part of the last cache level that the first operand must exceed: what is smaller is read in place as fast
#: (1024x700x512: 92% of the peak in place, 88% with copies; 3072x1500x1024: 83 and 94%).
MIN_SHARE: Final = 0.25
#: Rows and columns from which on copying the other operand pays: each element is used so often.
MIN_USES: Final = 128
#: Part of the last cache level that the blocks of rows of all threads may take.
CACHE_SHARE: Final = 0.06
#: Panels of a thread from which on it does not matter that one thread has one more.
MIN_PANELS: Final = 8


def is_large_product(
    program: Program, c: Contraction, target: Target, constants: Collection[str], threads: int
) -> bool:
    """Whether a contraction is a product of two plain matrices, not constants, that are worth copying."""
    if c.b is None or c.dot or c.guard or c.run is not None or c.axes("window") or len(c.axes("k")) != 1:
        return False
    row, (k,) = row_axis(c), c.axes("k")
    wide = [name for name in c.axes("batch", "m", "n") if c.extent(name) > 1]
    if len(wide) != 2 or row not in wide or c.vector not in wide or c.vector not in c.axes("n"):
        return False
    for ld in (c.a, c.b):
        buffer = program.buffer(ld.buffer)
        if buffer.layout is not None or buffer.scope == CONST or buffer.name in constants:
            return False
        if any(i.as_var() is None for i in ld.indices):
            return False
    if c.a.indices[-1].as_var() != k or c.b.indices[-1].as_var() != c.vector:
        return False
    panels = c.extent(c.vector) // (choose_tile(c, target).vectors * vector_width(c, target))
    if panels < threads * MIN_PANELS and panels % threads:
        return False
    nbytes = c.extent(row) * c.extent(k) * c.a.dtype.bytes
    return nbytes > MIN_SHARE * last_cache(target) and min(c.extent(name) for name in wide) >= MIN_USES


def schedule_product(
    s: Schedule, c: Contraction, epilogue: Stage | None, target: Target, threads: int
) -> Schedule:
    """Schedule a product and the stage that consumes it point by point, if there is one.

    Loops of both are those of the unscheduled program.
    """
    stage, last, row, (k,) = c.stage, epilogue or c.stage, row_axis(c), c.axes("k")
    assert row is not None
    tile = choose_tile(c, target)
    columns = tile.vectors * vector_width(c, target)
    axes = [it.name for it in stage.iters if it.kind == "par"]
    loops = dict(zip(axes, s.loops(last.name), strict=False))
    reductions = [] if epilogue is not None else [s.loops(stage.name)[-1]]
    ones = [loop for axis, loop in loops.items() if axis not in (row, c.vector)]
    i, j = loops[row], loops[c.vector]

    panel, vector, around, rows = f"{j}_panel", f"{j}_vector", f"{i}_tile", f"{i}_row"
    s = s.split(i, tile.rows, names=[around, rows]).split(j, columns, names=[panel, vector])
    s = s.reorder(*ones, panel, around, *reductions, rows, vector)
    run = _run(c.extent(k))
    a, b = var(row), var(k)
    place = (floordiv(a, tile.rows), floordiv(b, run), mod(a, tile.rows), mod(b, run))
    s = _micro_kernel(s, replace(c, a=replace(c.a, indices=place)), epilogue, (around, rows, vector), tile)
    whole, rest = divmod(c.extent(c.vector), columns)
    if rest:
        s = _partial_panel(s, c.extent(row) % tile.rows != 0, panel, around, threads)
    group, block = f"{j}_group", f"{i}_block"
    tiles = _tiles_of_block(c.extent(row), c.extent(k), tile.rows, target, threads)
    s = s.split(panel, -(-whole // threads), names=[group, f"{panel}s"])
    s = s.split(around, tiles, names=[block, f"{around}s"]).reorder(group, block, f"{panel}s", f"{around}s")
    s = s.annotate(f"{around}s", "outline")
    s = _copy_panels(s, c, group, columns)
    s = _copy_rows(s, c, block, tile.rows, run)
    s = _exact_rows(s, c.extent(row), block, f"{around}s", tiles, tile.rows)
    return s.parallel(group) if threads > 1 else s


def _tiles_of_block(rows: int, k: int, tile: int, target: Target, threads: int) -> int:
    """Row tiles of a block that leaves most of the last cache level to the rest; blocks about equal."""
    tiles = -(-rows // tile)
    most = max(1, int(last_cache(target) * CACHE_SHARE) // (4 * k * tile * threads))
    return -(-tiles // -(-tiles // most))


def _run(extent: int) -> int:
    """Elements along the reduction that are copied together: a cache line of f32 where that divides."""
    return next(run for run in (16, 8, 4, 2, 1) if extent % run == 0)


def _logical(c: Contraction, ld: Load) -> Load:
    """A load as the stage has it."""
    return next(x for x in stmt_loads(c.stage.body) if x.buffer == ld.buffer)


def _copy_rows(s: Schedule, c: Contraction, block: str, rows: int, run: int) -> Schedule:
    """Copy a block of the first operand into tiles of ``rows``, of each of them ``run`` elements together."""
    name = f"{c.stage.name}_rows"
    a = _logical(c, c.a)
    *ones, i, k = [x.as_var() or f"d{n}" for n, x in enumerate(a.indices)]
    layout = (*ones, f"{i}//{rows}", f"{k}//{run}", f"{i}%{rows}", f"{k}%{run}")
    s = s.stage(a.buffer, at=block, name=name, layout=layout)
    *_, i, k = loops_below(s, name, block)
    tile, row, line, vector = (f"{name}_{part}" for part in ("tile", "row", "line", "vector"))
    s = s.split(i, rows, names=[tile, row]).split(k, run, names=[line, vector])
    return s.reorder(tile, line, row, vector).vectorize(vector)


def _copy_panels(s: Schedule, c: Contraction, group: str, columns: int) -> Schedule:
    """Copy a group of panels of the second operand."""
    assert c.b is not None
    name = f"{c.stage.name}_panels"
    b = _logical(c, c.b)
    *ones, k, j = [x.as_var() or f"d{n}" for n, x in enumerate(b.indices)]
    s = s.stage(b.buffer, at=group, name=name, layout=(*ones, f"{j}//{columns}", k, f"{j}%{columns}"))
    *_, k, j = loops_below(s, name, group)
    panel, vector = f"{name}_panel", f"{name}_vector"
    return s.split(j, columns, names=[panel, vector]).reorder(panel, k, vector).vectorize(vector)


def _micro_kernel(
    s: Schedule,
    c: Contraction,
    epilogue: Stage | None,
    loops: tuple[str, str, str],
    tile: RegisterTile,
) -> Schedule:
    """The tile of the result inside of the first loop in registers; the others are its rows and columns."""
    around, rows, vector = loops
    block = c.stage.name
    fmas = tile.rows * tile.vectors
    if epilogue is not None:
        s = s.compute_at(block, around).set_scope(c.stage.writes[0], "register")
        s = reduce_tile(s, c, block, loops_below(s, block, around), fmas)
        return s.vectorize(vector).unroll(rows)
    out = f"{block}_acc"
    s = s.stage(c.stage.writes[0], at=around, scope="register", mode="write", name=out)
    s = reduce_tile(s, c, block, loops_below(s, block, around), fmas)
    return expand_tile(s, f"{out}_out", loops_below(s, f"{out}_out", around), c)


def _partial_panel(s: Schedule, ragged: bool, panel: str, around: str, threads: int) -> Schedule:
    """The last panel as a nest of its own, from the operands in place."""
    s = s.partition(panel, -1)
    tiles = f"{around}_1"
    s = s.annotate(tiles, "outline")
    if ragged:
        s = s.partition(tiles, -1)
    return s.parallel(tiles) if threads > 1 and s.loop(tiles).extent.as_int() > 1 else s


def _exact_rows(s: Schedule, extent: int, block: str, around: str, tiles: int, rows: int) -> Schedule:
    """Copies of their own for the last block and its partial tile, where there are such."""
    left = extent % (tiles * rows)
    if not left:
        return s
    if s.loop(block).extent.as_int() > 1:
        s = s.partition(block, -1)
        around = f"{around}_1"
    whole = left // rows
    return s.partition(around, [whole, whole + 1] if left % rows else [whole])
