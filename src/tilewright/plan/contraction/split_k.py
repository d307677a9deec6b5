"""Products of two run-time matrices with few results and a long reduction: threads share the reduction.

::

    parallel for parts of the reduction, one a thread:
        c[i, j] = 0                                           # first or second cache level
        for chunks of 1024 steps:                             # b's, and the next, stay in the second level
            for tiles of up to 7 rows, for panels of columns:
                acc[rows, vectors] = c[i, j]                  # registers
                for k in the chunk: acc += a[i, k] * b[k, j]
                c[i, j] = acc
    the sum over the parts

Tiles are low and wide, so that each element of ``a`` is read once, or by a few panels, and not copied. Rows
often lie a large power of two apart: then the lines of a tile fall into one set of every cache, which has
room for seven and a line of ``b``. Of 14 rows and two vectors half the lines were lost before they were used:
64x64x262144 took 22.5 ms, 13.4 with the rows copied chunk by chunk, 10.1 so; multiply-adds alone take 9.1.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import Contraction, row_axis
from tilewright.cost import (
    FAR_SHARE,
    KEPT_SHARE,
    RESULTS_SHARE,
    Machine,
    buffer_bytes,
    second_cache,
    whole_cache,
)
from tilewright.ir import Condition, Index, Program, int_lower
from tilewright.plan.contraction.gemm import is_plain_input
from tilewright.plan.contraction.instructions import use_of
from tilewright.plan.contraction.kernel import accumulated_tile, with_rest
from tilewright.plan.contraction.register_tiling import register_tile, vector_width
from tilewright.plan.contraction.split_reduction import share_reductions
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.tiling import Leaf, Nest, Place, Step, chain, sequence

#: Steps of a chunk, at most (64x64x262144 took 10.7, 10.0, 9.7, 9.5 ms with 128 to 1024, by hand).
CHUNK: Final = 1024
#: Rows of a tile, at most: where they fall into one set of the first cache level, it keeps that many lines
#: beside one of the other operand.
MAX_STREAMS: Final = 7
#: Steps of the reduction for each row and column from which on this pays.
MIN_DEPTH: Final = 64
#: Rows and columns from which on it does: fewer are streams, or sums along the reduction.
MIN_EXTENT: Final = 8
#: Steps of the innermost loop that are unrolled.
STEPS: Final = 4
#: Tiles of rows from which on what the next chunk reads of the other operand is asked for meanwhile: else the
#: first tile waits for it. 64x64x262144 5.70 -> 4.92 ms (Zen 5; multiply-adds alone 4.2), 32 rows, 8 tiles,
#: 3.06 -> 2.63, 16 rows 1.68 -> 1.88. Rows that are not whole lines gain nothing (100 columns 3.56 -> 3.63).
MIN_TILES: Final = 8


def is_deep(program: Program, c: Contraction, machine: Machine, constants: Collection[str]) -> bool:
    """Whether a contraction is a product of plain run-time matrices with few results for its reduction.

    Each of the ``threads`` must have a part of the reduction.
    """
    if c.b is None or use_of(c) is not None or c.run is not None or len(c.axes("k", "window")) != 1:
        return False
    row, (k,) = row_axis(c), c.axes("k", "window")
    if not all(_ends(cond, c, k) for cond in c.guard) or _least(c, k) < 1:
        return False
    wide = [name for name in c.axes("m", "n") if c.extent(name) > 1]
    if row is None or sorted(wide) != sorted({row, c.vector}) or c.vector not in c.axes("n"):
        return False
    if not all(is_plain_input(program, ld, constants) for ld in (c.a, c.b)):
        return False
    if not c.a.indices or not c.b.indices:
        return False
    if c.a.indices[-1].coefficient(k) != 1 or c.b.indices[-1].as_var() != c.vector:
        return False
    if sum(any(k in i.vars for i in ld.indices) for ld in (c.a, c.b)) != 2 or k in c.b.indices[-1].vars:
        return False
    results = c.extent(row) * c.extent(c.vector) * c.write.value.dtype.bytes
    if results > RESULTS_SHARE * second_cache(machine.target):
        return False
    read = sum(buffer_bytes(program.buffer(ld.buffer)) for ld in (c.a, c.b))
    if read <= FAR_SHARE * whole_cache(machine.target):
        return False
    extents = (c.extent(row), c.extent(c.vector))
    alone = _depth(c, k) == c.extent(k)
    if alone and machine.threads > 1 and c.extent(k) <= (machine.threads - 1) * prod(_part(c, k, machine)):
        return False
    return min(extents) >= MIN_EXTENT and _depth(c, k) >= MIN_DEPTH * max(extents)


def _depth(c: Contraction, k: str) -> int:
    """All steps of the reduction, those of other parts included: axes that continue it in its operands."""
    parts = {name for i in c.a.indices if k in i.vars for name in i.vars} - {k}
    return c.extent(k) * prod(c.extent(a) for a in c.axes("batch") if a in parts)


def split_deep(s: Schedule, machine: Machine, constants: Collection[str]) -> Schedule:
    """Give each thread a part of the reductions of such products."""

    def steps(program: Program, c: Contraction) -> int | None:
        if not is_deep(program, c, machine, constants):
            return None
        (k,) = c.axes("k", "window")
        return prod(_part(c, k, machine))

    return share_reductions(s, machine, steps)


def _part(c: Contraction, k: str, machine: Machine) -> tuple[int, int]:
    """The chunks of a thread's part of the reduction, and the steps of a chunk.

    The chunk's part of the other operand stays in the second cache level; the last thread may have less.
    """
    row = c.extent(c.vector) * c.write.value.dtype.bytes
    most = min(CHUNK, int(KEPT_SHARE * second_cache(machine.target)) // row)
    turns = -(-c.extent(k) // (machine.threads * max(STEPS, most)))
    steps = -(-c.extent(k) // (machine.threads * turns * STEPS)) * STEPS
    return turns, steps


def _ends(cond: Condition, c: Contraction, k: str) -> bool:
    """Whether a condition says only where parts of the reduction end."""
    index = cond.index
    return (
        index is not None
        and cond.op == "ge"
        and index.coefficient(k) == -1
        and not {*c.axes("m", "n")} & cond.vars
    )


def _least(c: Contraction, k: str) -> int:
    """Steps of the reduction that the smallest part has."""
    ends = {it.name: (Index(0), it.extent - 1) for it in c.stage.iters} | {k: (Index(0), Index(0))}
    found = [int_lower(cond.index, ends) for cond in c.guard if cond.index is not None]
    return min([c.extent(k), *(end + 1 for end in found if end is not None)])


@dataclass(frozen=True, slots=True)
class SplitKPlan:
    """Register tiles of ``rows`` and ``vectors``, in chunks of ``steps`` of each part of the reduction.

    ``ahead`` says whether the next chunk of the second operand is asked for.
    """

    rows: int
    vectors: int
    steps: int
    ahead: bool


def plan_split_k(c: Contraction, target: Target) -> SplitKPlan:
    """How a product with few results is done, see the head of this file."""
    row, (k,) = row_axis(c), c.axes("k", "window")
    assert row is not None
    whole = -(-c.extent(c.vector) // vector_width(c, target))
    counts = tuple(v for v in (1, 2, 3, 4) if v <= whole)
    tile = register_tile(target, c.extent(row), whole, counts, max_rows=MAX_STREAMS)
    _, steps = _part(c, k, Machine(target, 1))
    whole_lines = c.extent(c.vector) * c.write.value.dtype.bytes % target.memory[0].line == 0
    ahead = c.extent(row) >= MIN_TILES * tile.rows and whole_lines
    return SplitKPlan(tile.rows, tile.vectors, steps, ahead)


def split_k_nest(c: Contraction, plan: SplitKPlan, machine: Machine) -> Nest:
    """The nest of such a product, without a stage that reads its result."""
    stage, row, (k,), j = c.stage, row_axis(c), c.axes("k", "window"), c.vector
    assert row is not None and c.b is not None
    columns = plan.vectors * vector_width(c, machine.target)
    turn = Step(k, plan.steps)
    if plan.ahead:
        turn.hint("prefetch", f"{c.b.buffer}@spread")
    # the last chunk of a part has whole chunks' steps, each with a condition, and its start whole tiles' rows
    core = accumulated_tile(c, k, row, STEPS, "guard")
    panels = Step(j, columns, hints={"outline": ""})
    body = with_rest(panels, c.extent(j), c.extent(j), core)
    body = with_rest(Step(row, plan.rows), c.extent(row), c.extent(row), body)
    body = with_rest(turn, _least(c, k), c.extent(k), body)
    start = chain([Step(row, 1, tail="guard"), Step(j, 1, "vector")], Leaf(stage.name))
    start = with_rest(Step(j, columns), c.extent(j), c.extent(j), start)
    start = with_rest(Step(row, plan.rows), c.extent(row), c.extent(row), start)
    body = sequence(Place(stage.writes[0], "init", "local", start), body)
    parts = [Step(a, 1) for a in c.axes("batch", "m", "n") if a not in (row, j)]
    if machine.threads > 1 and parts:
        parts[0].bind = "parallel"
    return Nest(stage.name, chain(parts, body))
