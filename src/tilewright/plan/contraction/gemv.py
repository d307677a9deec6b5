"""Reductions across rows that come from memory: rows are read one after the other, results stay in cache.

For sums over the rows of a matrix, and products of few rows with a run-time matrix (GEMV)::

    parallel for groups of columns:
        c[m, j] = 0                                   # first cache level
        for k in steps of 8:
            for columns, 64 at a time:                # the next 8 rows come to the second level meanwhile
                acc[m, 64] = c[m, j]                  # registers
                for 8 rows: acc += a[m, k] * b[k, j]
                c[m, j] = acc

A tile of the result that goes down all rows instead would read a few lines of each of them at a time: 5.1 ms
for the column sums of 4096x4096, reading takes 0.6.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import Contraction, run_length
from tilewright.cost import KEPT_SHARE, NEXT_SHARE, Machine, exceeds_caches, first_cache, second_cache
from tilewright.ir import CONST, Buffer, Load, Program
from tilewright.plan.contraction.instructions import use_of
from tilewright.plan.contraction.register_tiling import vector_width
from tilewright.plan.contraction.split_reduction import share_reductions
from tilewright.plan.far_prefetch import further, stride
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.tiling import Body, Cut, Leaf, Nest, Place, Step, chain, expanded, sequence, shared_chain

#: Rows of the result that share what is read, at most: with more, register tiles do better.
MAX_ROWS: Final = 4
#: The same where the operand is larger than the last cache level (8x4096x4096 3.4 -> 1.6 ms, 6 rows 3.6 ->
#: 1.3, 10 rows 4.1 -> 4.5; 8x1500x2560, from the last level, 0.32 -> 1.0).
MAX_ROWS_FROM_MEMORY: Final = 8
#: Rows that are added up before the result's are stored again.
STEPS: Final = 8
#: Vectors of the result in registers.
VECTORS: Final = 4
#: The same with more than `MAX_ROWS` rows: sums and rows of the operand must fit.
VECTORS_OF_MANY: Final = 2
#: Rows from which on this pays.
MIN_STEPS: Final = 32
#: Elements read from which on this pays: what is in the second cache level is there in any order.
MIN_ELEMENTS: Final = 1 << 17


def is_stream(program: Program, c: Contraction, machine: Machine, constants: Collection[str]) -> bool:
    """Whether a contraction reads each row of a large operand once, for few rows of the result."""
    # a part of a reduction that rfactor cut is no window
    if use_of(c) is not None or c.guard or c.run is not None or len(c.axes("k", "window")) != 1:
        return False
    (k,) = c.axes("k", "window")
    read = c.a if c.b is None else c.b
    buffer = program.buffer(read.buffer)
    if buffer.layout is not None or buffer.scope == CONST or buffer.name in constants:
        return False
    if run_length(read, c.vector) is not None or any(k in i.vars for i in read.indices[-1:]):
        return False
    if not any(k in i.vars for i in read.indices):
        return False
    far = exceeds_caches(buffer, machine.target)
    if c.b is not None and prod(c.extent(a) for a in c.axes("m")) > (
        MAX_ROWS_FROM_MEMORY if far else MAX_ROWS
    ):
        return False
    if c.b is not None and c.axes("n") != (c.vector,):
        return False
    elements = prod(c.extent(it.name) for it in c.stage.iters if any(it.name in i.vars for i in read.indices))
    columns = _vectors(c) * vector_width(c, machine.target)
    outer = prod(c.extent(a) for a in _outer(c))
    enough = outer % machine.threads == 0 or c.extent(c.vector) // columns >= 2 * machine.threads
    return elements >= MIN_ELEMENTS and c.extent(k) >= MIN_STEPS and enough and c.extent(c.vector) >= columns


def _vectors(c: Contraction) -> int:
    """Vectors of the results of each row in registers."""
    rows = 1 if c.b is None else prod(c.extent(a) for a in c.axes("m"))
    return VECTORS if rows <= MAX_ROWS else VECTORS_OF_MANY


def split_streams(s: Schedule, machine: Machine, constants: Collection[str]) -> Schedule:
    """Give each thread whole rows, where it can hold all results, and add up the threads' sums afterwards."""

    def steps(program: Program, c: Contraction) -> int | None:
        if not is_stream(program, c, machine, constants):
            return None
        (k,) = c.axes("k", "window")
        results = prod(c.extent(it.name) for it in c.stage.iters if it.kind == "par")
        even = prod(c.extent(a) for a in _outer(c)) % machine.threads == 0
        small = results * c.write.value.dtype.bytes <= first_cache(machine.target)
        long = c.extent(k) % machine.threads == 0 and c.extent(k) >= MIN_STEPS * machine.threads
        return c.extent(k) // machine.threads if not even and small and long else None

    return share_reductions(s, machine, steps)


def _outer(c: Contraction) -> list[str]:
    """The axes around the rows: those that the large operand moves with."""
    read = c.a if c.b is None else c.b
    return [
        it.name
        for it in c.stage.iters
        if it.kind == "par" and it.name != c.vector and any(it.name in i.vars for i in read.indices)
    ]


def _panels_of_group(c: Contraction, columns: int, parts: int, target: Target) -> int:
    """Panels whose results stay in the first cache level, about as many for each of ``parts`` threads."""
    panels = -(-c.extent(c.vector) // columns)
    results = prod(c.extent(a) for a in c.axes("m", "batch") if a != c.vector and a not in _outer(c))
    room = int(KEPT_SHARE * first_cache(target))
    most = max(1, room // (c.write.value.dtype.bytes * columns * results))
    groups = -(-panels // (most * parts)) * parts
    return -(-panels // groups)


def _next_rows(buffer: Buffer, read: Load, k: str, columns: int, target: Target) -> str:
    """The hint that asks for the rows of the next turn, where they come from memory and fit."""
    run = columns * buffer.dtype.bytes
    if STEPS * run > NEXT_SHARE * second_cache(target):
        return ""
    return further(buffer, STEPS * stride(buffer, read, k), target)


@dataclass(frozen=True, slots=True)
class GemvPlan:
    """Groups of ``panels`` panels of ``vectors`` vectors stay in cache while ``steps`` rows a turn are added.

    ``ahead`` is the hint that asks for the next rows (empty: nothing is asked for).
    """

    vectors: int
    panels: int
    steps: int = STEPS
    ahead: str = ""


def plan_gemv(program: Program, c: Contraction, machine: Machine) -> GemvPlan:
    """How rows that come from memory are added up, see the head of this file."""
    target = machine.target
    read = c.a if c.b is None else c.b
    columns = _vectors(c) * vector_width(c, target)
    shared = prod(c.extent(a) for a in _outer(c)) % machine.threads == 0
    panels = _panels_of_group(c, columns, 1 if shared else machine.threads, target)
    # what the program itself has just made is not far
    buffer = next((b for b in (*program.inputs, *program.outputs) if b.name == read.buffer), None)
    (k,) = c.axes("k", "window")
    hint = "" if buffer is None else _next_rows(buffer, read, k, columns * panels, target)
    return GemvPlan(_vectors(c), panels, STEPS, hint)


def gemv_nest(c: Contraction, plan: GemvPlan, machine: Machine) -> Nest:
    """The nest of such a contraction, without a stage that reads its result."""
    stage, j, (k,) = c.stage, c.vector, c.axes("k", "window")
    columns, around = plan.vectors * vector_width(c, machine.target), _outer(c)
    rows = [a for a in c.axes("m", "batch") if a not in (*around, j)]
    tile = expanded([*rows, j], Leaf(stage.name))
    kept = Place(stage.writes[0], "accumulate", "register", chain([Step(k, 1, "unroll")], tile), tile)
    panel = Step(j, columns)
    if plan.ahead:
        panel.hint("prefetch", plan.ahead)
    panels: Body = chain([panel], sequence(kept))
    group = plan.panels * columns
    whole = ((c.extent(j) - 1) % group + 1) // columns
    if 0 < whole < plan.panels:
        # those that the last group does not have whole are apart: the others need no masks
        panels = Cut(j, (whole * columns,), (panels, panels))
    body = chain([Step(k, plan.steps)], panels)
    end = c.extent(k) // plan.steps * plan.steps
    if c.extent(k) % plan.steps and end:
        # the rest of the reduction has masks, and no parts of its own
        body = Cut(k, (end,), (body, chain([Step(k, plan.steps), panel], sequence(kept))))
    body = sequence(Place(stage.writes[0], "init", "local", chain([Step(j, columns)], tile)), body)
    outer = [Step(a, 1) for a in around if c.extent(a) > 1]
    shared = len(outer) if prod(c.extent(a) for a in around) % machine.threads == 0 else len(outer) + 1
    steps = [*outer, Step(j, group)]
    return Nest(stage.name, shared_chain(steps, shared if machine.threads > 1 else 0, body))
