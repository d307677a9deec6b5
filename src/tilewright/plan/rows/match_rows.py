"""Which stages go together over rows: those that feed one stage only, and the loops shared with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile
from math import prod

from tilewright.ir import Index, Program, Stage, stmt_loads, walk_index
from tilewright.plan.contraction.nest import MIN_PARALLEL_PRODUCTS
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.target import Target


def rows_before(program: Program, stage: Stage, done: Collection[str], target: Target) -> list[Stage]:
    """Stages that feed only this one, directly or not, producers first; none of ``done``."""
    # what runs in a given order cannot be computed again for each row, nor have rows in vectors
    ordered = {s.name for s in program.stages if any(it.kind == "ord" for it in s.iters)}
    if stage.name in ordered:
        return []
    members: list[Stage] = []
    inside = {stage.name}
    # what has a layout of its own is stored for that, like the results of the program
    loose = {t.name for t in program.temps if t.layout is None}
    for s in reversed(program.stages[: program.stages.index(stage)]):
        if s.name in done or s.name in ordered or any(b not in loose for b in s.writes):
            continue
        users = {c.name for b in s.writes for c in program.consumers(b)}
        if users and users <= inside and not is_tileable(program, s, target, packed=False):
            members.append(s)
            inside.add(s.name)
    return members[::-1]


def shared_depth(members: Sequence[Stage], stage: Stage) -> int:
    """The loops that a stage shares with those before it; 0 where nothing is gained.

    Among them must be a reduction over the last axes of its operands.
    """
    reductions = [m for m in members if m.is_reduction]
    if not reductions:
        return 0
    pars = [it for it in stage.iters if it.kind == "par"]
    depth = len(pars)
    several = False
    for r in reductions:
        own = [it for it in r.iters if it.kind == "par" and it.extent != Index(1)]
        shared = 0
        used = 0
        for it in pars:
            if used < len(own) and own[used].extent == it.extent:
                used += 1
                shared += 1
            elif it.extent == Index(1):
                shared += 1
            else:
                break
        depth = min(depth, shared, _own_rows([*members, stage], r.writes[0]))
        known = all(it.extent.is_const for it in r.iters)
        products = prod(it.extent.as_int() for it in r.iters) if known else 0
        several |= bool(own) and products >= MIN_PARALLEL_PRODUCTS
    if several and all(it.extent == Index(1) for it in pars[:depth]):
        # one row in which many sums are made: nothing stays near, and threads would have nothing to share
        return 0
    return depth


def _own_rows(readers: Sequence[Stage], buffer: str) -> int:
    """How many leading dimensions of a buffer stages read at rows of their own, not at all rows of it.

    And along how many leading loops: what does not move with one would be computed again in each iteration.
    """
    depth = 1 << 30
    for stage in readers:
        pars = [it for it in stage.iters if it.kind == "par"]
        rows = {it.name for it in pars}
        for load in stmt_loads(stage.body):
            if load.buffer == buffer and buffer not in stage.writes:
                own = (i.vars <= rows and not any(True for _ in walk_index(i)) for i in load.indices)
                moving = {v for i in load.indices for v in i.vars}
                along = (it.extent == Index(1) or it.name in moving for it in pars)
                depth = min(depth, *(sum(takewhile(bool, each)) for each in (own, along)))
    return depth
