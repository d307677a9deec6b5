"""Products of two run-time matrices with few results and a long reduction: threads share the reduction.

::

    parallel for parts of the reduction, one a thread:
        c[i, j] = 0                                           # first or second cache level
        for chunks of 1024 steps:
            rows[i / R][k / 16][i % R][k % 16] = a[i, k]        # lines of all rows, far apart in memory
            for panels, for tiles of R rows:
                acc[R, vectors] = c[i, j]                     # registers
                for k in the chunk: acc += rows[i, k] * b[k, j]
                c[i, j] = acc
    the sum over the parts

In place, the rows of a tile fall into the same sets of all caches where their distance is a large power of
two: 64x64x262144 took 22.5 ms, 13.4 so, the multiply-adds alone 9.1. What is left is the copying, 10 GB/s a
thread, which nothing overlaps: asking ahead for 64 rows of one set does not help. What is in the last cache
level is read in place: 48x96x65536 3.0 ms, 3.5 so.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Final

from tilewright.ir import CONST, Program
from tilewright.schedule import Schedule
from tilewright.strategies.caches import buffer_bytes, last_cache
from tilewright.strategies.micro import expand_tile, loops_below
from tilewright.strategies.products import copy_rows, rows_collide
from tilewright.strategies.requests import stride
from tilewright.strategies.roles import Contraction
from tilewright.strategies.tiles import MAX_ROWS, choose_tile, is_tileable, row_axis, vector_width
from tilewright.target import Target

#: Steps of a chunk: the copied rows and the other operand's stay in the second cache level (64x64x262144 took
#: 16.4, 13.6, 13.1, 12.6 ms with 128 to 1024).
CHUNK: Final = 1024
#: Part of the second cache level that the results may take.
RESULTS_SHARE: Final = 0.25
#: Steps of the reduction for each row and column from which on this pays.
MIN_DEPTH: Final = 64
#: Rows and columns from which on it does: fewer are streams, or sums along the reduction.
MIN_EXTENT: Final = 8
#: Steps of the innermost loop that are unrolled.
STEPS: Final = 4


def is_deep(program: Program, c: Contraction, target: Target, constants: Collection[str]) -> bool:
    """Whether a contraction is a product of plain run-time matrices with few results for its reduction."""
    if c.b is None or c.dot or c.guard or c.run is not None or len(c.axes("k", "window")) != 1:
        return False
    row, (k,) = row_axis(c), c.axes("k", "window")
    wide = [name for name in c.axes("m", "n") if c.extent(name) > 1]
    if row is None or sorted(wide) != sorted({row, c.vector}) or c.vector not in c.axes("n"):
        return False
    for ld in (c.a, c.b):
        buffer = program.buffer(ld.buffer)
        if buffer.layout is not None or buffer.scope == CONST or buffer.name in constants:
            return False
    if c.a.indices[-1].coefficient(k) != 1 or c.b.indices[-1].as_var() != c.vector:
        return False
    if sum(any(k in i.vars for i in ld.indices) for ld in (c.a, c.b)) != 2 or k in c.b.indices[-1].vars:
        return False
    results = c.extent(row) * c.extent(c.vector) * c.write.value.dtype.bytes
    if results > RESULTS_SHARE * (target.level("l2").size or 0):
        return False
    lines = stride(program.buffer(c.a.buffer), c.a, row) * c.a.dtype.bytes
    if lines <= 0 or not rows_collide(MAX_ROWS, lines):
        return False
    if sum(buffer_bytes(program.buffer(ld.buffer)) for ld in (c.a, c.b)) <= last_cache(target):
        return False
    extents = (c.extent(row), c.extent(c.vector))
    return min(extents) >= MIN_EXTENT and _depth(c, k) >= MIN_DEPTH * max(extents)


def _depth(c: Contraction, k: str) -> int:
    """All steps of the reduction, those of other parts included."""
    return c.extent(k) * prod(c.extent(a) for a in c.axes("batch") if a != c.vector)


def split_deep(s: Schedule, target: Target, constants: Collection[str], threads: int) -> Schedule:
    """Give each thread a part of the reductions of such products."""
    program = s.program
    assert program is not None
    for stage in program.stages if threads > 1 else ():
        now = s.program
        assert now is not None
        c = is_tileable(now, stage, target)
        if c is None or not is_deep(now, c, target, constants):
            continue
        (k,) = c.axes("k")
        if c.extent(k) % threads == 0:
            s = s.rfactor(stage.name, k, c.extent(k) // threads, name=f"{stage.name}_part")
    return s


def schedule_deep(s: Schedule, c: Contraction, target: Target, threads: int) -> Schedule:
    """Schedule such a product, without a stage that reads its result."""
    stage, name, row = c.stage, c.stage.name, row_axis(c)
    assert row is not None and c.b is not None
    tile = choose_tile(c, target)
    columns = tile.vectors * vector_width(c, target)
    loops = dict(zip([it.name for it in stage.iters], s.loops(name), strict=True))
    (k,) = c.axes("k", "window")
    parts = [loops[a] for a in c.axes("batch", "m", "n") if a not in (row, c.vector)]
    i, j, depth = loops[row], loops[c.vector], loops[k]
    turn, step = f"{depth}_turn", f"{depth}_step"
    around, inner, panel, vector = f"{i}_tile", f"{i}_row", f"{j}_panel", f"{j}_vector"
    s = s.split(depth, CHUNK, names=[turn, step])
    s = s.split(i, tile.rows, names=[around, inner]).split(j, columns, names=[panel, vector])
    s = s.reorder(*parts, turn, panel, around, step, inner, vector).decompose_init(name, turn)
    out = f"{name}_acc"
    s = s.stage(stage.writes[0], at=around, scope="register", mode="accumulate", name=out)
    s = s.annotate(around, "outline").annotate(step, "unroll", str(STEPS)).unroll(inner).vectorize(vector)
    for block in (out, f"{out}_out"):
        s = expand_tile(s, block, loops_below(s, block, around), c)
    s = s.vectorize(s.loops(f"{name}_init")[-1])
    s = copy_rows(s, c, turn, tile.rows, CHUNK)
    # row by row, for the hardware to follow: lines of many rows would push each other out of the caches
    s = s.reorder(f"{name}_rows_row", f"{name}_rows_line")
    for loop, extent, size in ((turn, c.extent(k), CHUNK), (panel, c.extent(c.vector), columns)):
        if extent % size:
            s = s.partition(loop, -1)
    if c.extent(row) % tile.rows:
        tiles = dict.fromkeys(loop for b in s.blocks() for loop in s.loops(b) if loop.startswith(around))
        for loop in tiles:
            s = s.partition(loop, -1)
    return s.parallel(parts[0]) if threads > 1 and parts else s
