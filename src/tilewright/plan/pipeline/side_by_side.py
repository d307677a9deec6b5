"""Rows of a stage by itself side by side: what those next to each other share is read and computed once.

::

    blur[y, x] = (rows[y, x] + rows[y + 1, x] + rows[y + 2, x]) // 3    # rows, inlined, reads three elements
    eight rows at a time: ten of `rows` for eight results, 30 elements read and not 72
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from tilewright.cost import Machine
from tilewright.ir import Index, Program, Stage, Store, var
from tilewright.plan.elementwise.plan import default_elementwise
from tilewright.plan.pipeline.group import find_group
from tilewright.plan.pipeline.group_plan import GroupPlan
from tilewright.plan.pipeline.nest import refusal, whole_nest
from tilewright.plan.pipeline.price import TASKS_PER_THREAD
from tilewright.plan.pipeline.values import values_of

#: Rows at a time (u16 blur of 1536x2558, us: one 251, two 257, four 158, eight 131), and of a strip.
ROWS: Final = (8, 4)
STRIPS: Final = (64, 32, 16)
#: Values of the rows that stand side by side, at most: all are one piece of code.
MOST_VALUES: Final = 512
#: Part of the instructions of a row by itself that rows side by side may take, at most.
MOST_LEFT: Final = 0.75


def rows_side_by_side(program: Program, stage: Stage, machine: Machine) -> GroupPlan | None:
    """The plan of a stage of which rows share enough, in strips; ``None`` for others.

    Rows are its last axis but one, of any number; columns, the last, are in lanes. Stages that clamp either
    at borders are not taken: the element-wise rule cuts them there. (Unroll and jam: Allen and Kennedy,
    "Optimizing Compilers for Modern Architectures", 2001, chapter 8.)
    """
    if stage.is_reduction or not isinstance(stage.body, Store) or len(stage.iters) < 2:
        return None
    if not all(it.kind == "par" and it.extent.is_const for it in stage.iters):
        return None
    names, row = [it.name for it in stage.iters], len(stage.iters) - 2
    if not _is_stencil(stage, names[row]) or not _moves_plainly(stage, names[row:]):
        return None
    chosen, g = default_elementwise(program, stage), find_group(program, stage.name, ())
    if (chosen.vector, chosen.run) != (row + 1, None) or g is None:
        return None
    values = values_of([w.value for w in stage.body.writes])
    count = stage.iters[row].extent.as_int()
    costs: dict[int, float] = {}
    for rows in (1, *ROWS):
        if rows * len(values.nodes) <= MOST_VALUES:
            found = values.side_by_side(names, [rows if n == row else 1 for n in range(len(names))])
            costs[rows] = found.work + sum(found.loads.values())
    best = min(costs, key=lambda rows: costs[rows], default=1)
    if best == 1 or costs[best] > MOST_LEFT * costs[1]:
        return None
    tasks = TASKS_PER_THREAD * machine.threads
    strip = next((t for t in STRIPS if t > best and ceil(count / t) >= tasks), None)
    if strip is None:
        return None
    base = whole_nest(g.root, row, 0, machine)
    ones = (1,) * len(names)
    plan = replace(
        base,
        tile=tuple(strip if n == row else 0 for n in range(len(names))),
        expand=(*ones[:row], best, *ones[row + 1 :]),
        parallel=1 if machine.threads > 1 else 0,
    )
    return None if refusal(g, program, machine, plan) else plan


def _moves_plainly(stage: Stage, axes: Sequence[str]) -> bool:
    """Whether all that a stage reads moves along axes as the stage does, where it moves along them."""
    indices = [i for ld in stage.operands for i in ld.indices]
    return all(axis not in (i - var(axis)).vars for axis in axes for i in indices if axis in i.vars)


def _is_stencil(stage: Stage, row: str) -> bool:
    """Whether several rows of one buffer are read: what is the same for all rows costs next to nothing."""
    read: dict[str, set[tuple[Index, ...]]] = {}
    for ld in stage.operands:
        rows = tuple(i for i in ld.indices if row in i.vars)
        if rows:
            read.setdefault(ld.buffer, set()).add(rows)
    return any(len(places) > 1 for places in read.values())
