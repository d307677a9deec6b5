"""Products of few rows with a large run-time matrix: as few tiles as there can be read each of its lines.

::

    parallel for groups of columns, one a thread:
        rows[i / R][k / 16][i % R][k % 16] = a[i, k]          # only where rows of a tile lie in one cache set
        c[i, j] = 0                                           # second cache level
        for chunks of 512 steps:
            for panels of columns:
                for tiles of R rows:
                    acc[R, vectors] = c[i, j]                 # registers
                    for k in the chunk: acc += a[i, k] * b[k, j]
                    c[i, j] = acc

The lines of a panel lie a row apart, often in one set of the caches: each tile fetches them from the last
level again. 32x4096x4096 has 4 tiles of 8x2 in the general rule, 7.6 ms; by hand 3 of 11x2 took 5.9, 2 of
16x1 5.1, multiply-adds alone take 4.6. Packing the panels, also ahead of their use, took 6.9 to 8.1.

Each line also lies in a page of its own. Where finding that takes longer than a tile's step, chunks are of as
few steps as the pages whose addresses are at hand, tiles two lines wide: what several tiles read, and the
panels beside them, stays in the second level anyway then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tilewright.analysis import Contraction, row_axis
from tilewright.cost import (
    FAR_SHARE,
    PAGE,
    WAYS,
    Machine,
    buffer_bytes,
    comes_from_memory,
    rows_collide,
    second_cache,
    whole_cache,
)
from tilewright.ir import Program
from tilewright.plan.contraction.gemm import plain_product, rows_copy
from tilewright.plan.contraction.kernel import accumulated_tile, with_rest
from tilewright.plan.contraction.register_tiling import vector_width
from tilewright.target import Target
from tilewright.tiling import Leaf, Nest, Place, Step, chain, sequence, shared_chain

#: Rows of the result: fewer are streams, more are large products (128x4096x4096 23.5 -> 20.4 ms).
MIN_ROWS, MAX_ROWS = 9, 128
#: Rows of a tile, at most.
TILE_ROWS: Final = 24
#: Accumulators of a tile, at most, and vectors beside each other.
ACCUMULATORS, MAX_VECTORS = 28, 3
#: Steps of a chunk, at most (32x4096x4096 by hand: 5.9, 5.4, 5.1, 5.5, 6.4 ms with 128, 256, 512, 1024, all).
CHUNK: Final = 512
#: Steps of the innermost loop that are unrolled.
STEPS: Final = 4
#: The same limits where finding pages takes longest. Emerald Rapids, ms: 12x4096x4096 13.3 -> 2.8,
#: 16x4096x4096 21.8 -> 3.7, 20x6144x2048 19.2 -> 2.4, 32x4096x4096 30.1 -> 7.7 (tiles of 16 rows by one
#: vector 9.5, chunks of 64 steps 16.5); with copied panels (`products.py`) 14.3, 14.8, 11.1, 8.0; 64 rows
#: 12.9 so,
#: and 15.0 by chunks.
MAX_ROWS_OF_PAGES, TILE_ROWS_OF_PAGES, CHUNK_OF_PAGES = 32, 12, 32


def is_wide(program: Program, c: Contraction, machine: Machine, constants: Collection[str]) -> bool:
    """Whether a contraction is a product of few rows with a large run-time matrix."""
    target = machine.target
    axes = plain_product(program, c, constants)
    if axes is None or c.b is None:
        return False
    row, _ = axes
    if not MIN_ROWS <= c.extent(row) <= _limits(c, target).rows:
        return False
    width = vector_width(c, target)
    if c.extent(c.vector) % width or c.extent(c.vector) < 2 * machine.threads * MAX_VECTORS * width:
        return False
    matrix = program.buffer(c.b.buffer)
    apart, span = c.extent(c.vector) * c.b.dtype.bytes, second_cache(target) // WAYS
    large = buffer_bytes(matrix) > FAR_SHARE * whole_cache(target)
    return comes_from_memory(matrix, target) or (large and rows_collide(CHUNK, apart, span))


@dataclass(frozen=True, slots=True)
class _Limits:
    """Rows of the result, rows of a tile and steps of a chunk, at most."""

    rows: int
    tile_rows: int
    chunk: int


def _limits(c: Contraction, target: Target) -> _Limits:
    """The limits for a matrix, by whether the address of each of its lines is waited for."""
    assert c.b is not None
    row = row_axis(c)
    assert row is not None
    rows, vectors = tile_of(c.extent(row), TILE_ROWS)
    step = rows * vectors / target.fma_per_cycle
    if c.extent(c.vector) * c.b.dtype.bytes >= PAGE and target.page_walk > step:
        return _Limits(MAX_ROWS_OF_PAGES, TILE_ROWS_OF_PAGES, CHUNK_OF_PAGES)
    return _Limits(MAX_ROWS, TILE_ROWS, CHUNK)


def tile_of(rows: int, most: int) -> tuple[int, int]:
    """The rows, at most so many, and vectors of tiles: as few tiles as there can be, about equal."""
    tiles = -(-rows // most)
    each = -(-rows // tiles)
    return each, max(1, min(MAX_VECTORS, ACCUMULATORS // each))


@dataclass(frozen=True, slots=True)
class SkinnyPlan:
    """Register tiles of ``rows`` and ``vectors``, in chunks of ``steps`` of the reduction.

    ``copied`` says whether the rows of the first operand are copied.
    """

    rows: int
    vectors: int
    steps: int
    copied: bool


def plan_skinny(c: Contraction, target: Target) -> SkinnyPlan:
    """How a product of few rows is done, see the head of this file."""
    row, (k,) = row_axis(c), c.axes("k")
    assert row is not None
    limits = _limits(c, target)
    rows, vectors = tile_of(c.extent(row), limits.tile_rows)
    turns = -(-c.extent(k) // limits.chunk)
    steps = -(-c.extent(k) // (turns * STEPS)) * STEPS
    return SkinnyPlan(rows, vectors, steps, rows_collide(rows, c.extent(k) * c.a.dtype.bytes))


def skinny_nest(c: Contraction, plan: SkinnyPlan, machine: Machine) -> Nest:
    """The nest of such a product, without a stage that reads its result."""
    stage, row, (k,), j = c.stage, row_axis(c), c.axes("k"), c.vector
    assert row is not None
    columns = plan.vectors * vector_width(c, machine.target)
    panels = -(-c.extent(j) // columns)
    own = -(-panels // machine.threads) * columns
    # what every thread has of the columns; steps and rows
    least = c.extent(j) - (machine.threads - 1) * own
    ends = {j: own, row: c.extent(row), k: c.extent(k)}
    tiles = Step(row, plan.rows, hints={"outline": ""})
    core = accumulated_tile(c, k, row, STEPS)
    body = with_rest(tiles, c.extent(row), ends[row], core)
    body = with_rest(Step(j, columns), least, own, body)
    body = with_rest(Step(k, plan.steps), c.extent(k), ends[k], body)
    start = chain([Step(row, 1), Step(j, 1, "vector")], Leaf(stage.name))
    start = with_rest(Step(row, plan.rows), c.extent(row), ends[row], start)
    start = with_rest(Step(j, columns), least, own, start)
    body = sequence(Place(stage.writes[0], "init", "local", start), body)
    if plan.copied:
        body = sequence(rows_copy(c, plan.rows, c.extent(k)), body)
    body = shared_chain([Step(j, own)], int(machine.threads > 1), body)
    ones = [it.name for it in stage.iters if it.kind == "par" and it.name not in (row, j)]
    return Nest(stage.name, chain([Step(a, 1) for a in ones if c.extent(a) > 1], body))
