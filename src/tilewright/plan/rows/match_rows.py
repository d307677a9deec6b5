"""Which stages go together over rows: those that feed one stage only, and the loops shared with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from math import prod

from tilewright.ir import Index, Load, Program, Stage, stmt_loads, walk_index
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.plan.contraction.sharing import MIN_PARALLEL_PRODUCTS
from tilewright.plan.rule import Asked
from tilewright.target import Target


def rows_of(asked: Asked, stage: Stage) -> list[Stage] | None:
    """The stages that are computed with one over its rows; ``None`` where that gains nothing.

    Threads share parts of rows that a rewrite made: what reads those goes by itself.
    """
    split = [name for name, cluster in asked.decided.items() if cluster.rule == "lanes"]
    members = rows_before(asked.program, stage, {*asked.taken, *split}, asked.context.machine.target)
    apart = any(asked.decided[m.name].rule == "row_parts" for m in members if m.name in asked.decided)
    return None if apart or not shared_depth(members, stage) else members


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
    depth = min(depth, *(_moving_loops([*members, stage], made) for made in _made_of(reductions, members)))
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
    """How many leading dimensions of a buffer stages read at rows of their own, not at all rows of it."""
    depth = 1 << 30
    for stage, load in _reads(readers, buffer):
        rows = {it.name for it in stage.iters if it.kind == "par"}
        own = (i.vars <= rows and not any(True for _ in walk_index(i)) for i in load.indices)
        depth = min(depth, sum(1 for _ in takewhile(bool, own)))
    return depth


def _moving_loops(readers: Sequence[Stage], buffer: str) -> int:
    """Along how many leading loops stages read other elements: in others these would be computed again."""
    depth = 1 << 30
    for stage, load in _reads(readers, buffer):
        moving = {v for i in load.indices for v in i.vars}
        along = (it.extent == Index(1) or it.name in moving for it in stage.iters if it.kind == "par")
        depth = min(depth, sum(takewhile(bool, along)))
    return depth


def _reads(readers: Sequence[Stage], buffer: str) -> Iterator[tuple[Stage, Load]]:
    for stage in readers:
        if buffer not in stage.writes:
            yield from ((stage, load) for load in stmt_loads(stage.body) if load.buffer == buffer)


def _made_of(reductions: Sequence[Stage], members: Sequence[Stage]) -> frozenset[str]:
    """What members make of the results of reductions, and these."""
    made = {b for r in reductions for b in r.writes}
    for m in members:
        if any(load.buffer in made for load in stmt_loads(m.body)):
            made.update(m.writes)
    return frozenset(made)
