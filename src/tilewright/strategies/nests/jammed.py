"""Recurrences of neighbouring iterations side by side: while one waits for its last step, others go on.

    for i in range(n):                          for i in range(n // 8):
        x[i, 0] = 0                                 for k in unroll(8):
        for j in range(1, m):           ->              x[8*i + k, 0] = 0
            x[i, j] = x[i, j - 1] / d               for j in range(1, m):
                                                        for k in unroll(8):
                                                            x[8*i + k, j] = x[8*i + k, j - 1] / d

Columns that neighbouring iterations read lie on the same lines, too, which then come once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.ir import (
    UNROLL,
    Block,
    For,
    LoopFunction,
    Seq,
    Stmt,
    fresh_name,
    locate,
    map_stmt,
    seq,
    stmt_children,
    substitute,
    var,
)
from tilewright.poly import LoopFacts, is_black_box
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError

#: Iterations side by side: more than begin while one division is under way, and a line of f64.
SIDE_BY_SIDE: Final = 8


def jam_recurrences(func: LoopFunction, loop: str, facts: LoopFacts) -> LoopFunction | None:
    """The function with iterations of a free loop side by side: ``loop`` is split, its outer part ``loop_o``.

    Its other innermost loops stay whole, one iteration after another. ``None`` where no innermost loop is a
    recurrence, neither free nor a sum, or where the iterations differ in what they run.
    """
    node = next(p.node for p in locate(func.body, For) if p.node.var == loop)
    waits = any(_is_recurrence(place.node, facts) for place in locate(node.body, For))
    if not waits or not _is_even(node.body, loop):
        return None
    try:
        made = Schedule(func).split(loop, SIDE_BY_SIDE, tail="peel", names=()).func
    except ScheduleError:
        return None
    taken = set(made.body.inner_names) - {f"{loop}_i"}

    def visit(s: Stmt) -> Stmt:
        return _inside(s, s.body, facts, taken) if isinstance(s, For) and s.var == f"{loop}_i" else s

    return made.with_body(map_stmt(made.body, visit))


def _inside(loop: For, s: Stmt, facts: LoopFacts, taken: set[str]) -> Stmt:
    """A statement for all iterations of a free loop, those of recurrences in their innermost loops."""
    if isinstance(s, Seq):
        return seq(*(_inside(loop, each, facts, taken) for each in s.stmts))
    below = [p.node for p in locate(s, For)]
    if isinstance(s, For) and any(_is_recurrence(each, facts) for each in below):
        return replace(s, body=_inside(loop, s.body, facts, taken))
    name = fresh_name(loop.var, taken)
    taken.add(name)
    body = substitute(s, {loop.var: var(name)})
    return replace(loop, var=name, body=body, kind=loop.kind if below else UNROLL)


def _is_recurrence(loop: For, facts: LoopFacts) -> bool:
    return not any(True for _ in locate(loop.body, For)) and loop.var not in facts.free | facts.sums


def _is_even(s: Stmt, loop: str) -> bool:
    """Whether all iterations of a loop run the same statements, in storage that is not theirs alone."""
    if isinstance(s, Block):
        return not is_black_box(s)
    if isinstance(s, For) and loop in s.lo.vars | s.hi.vars:
        return False
    return isinstance(s, Seq | For) and all(_is_even(each, loop) for each in stmt_children(s))
