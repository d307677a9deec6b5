"""What instructions of warps read: each thread what all of its warp name.

A matrix unit's instruction says of a thread what it gets; which elements of the factors that thread brings to
the unit, its text decides. Where it matters when they are read, each thread is taken to read all of them.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    ZERO,
    Block,
    Exec,
    For,
    LoopFunction,
    Stmt,
    Window,
    int_range,
    simplify,
    stmt_children,
    substitute_index,
    with_stmt_children,
)
from tilewright.target import BUILT_IN


def with_reads_of_warps(func: LoopFunction) -> LoopFunction:
    """The function, whose executions of matrix units read what their warps do."""
    return func.with_body(_visited(func.body, {}))


def _visited(s: Stmt, lanes: dict[str, int]) -> Stmt:
    """A statement; ``lanes`` are the variables that count the threads along x, and the last of each."""
    if isinstance(s, Exec):
        row = BUILT_IN.get(s.instr)
        if row is None or not row.gathers or not lanes:
            return s
        return replace(s, windows=tuple(_whole(w, lanes) if w.mode == "r" else w for w in s.windows))
    if isinstance(s, For) and s.kind.axis == "thread.x" and s.extent.is_const and s.lo == ZERO:
        lanes = {s.var: s.extent.const - 1}
    if isinstance(s, Block):
        named = zip(s.iters, s.bind, strict=True)
        inner = {it.name: lanes[v] for it, i in named if (v := i.as_var()) is not None and v in lanes}
        return replace(s, body=_visited(s.body, inner)) if inner else s
    return with_stmt_children(s, tuple(_visited(k, lanes) for k in stmt_children(s)))


def _whole(w: Window, lanes: dict[str, int]) -> Window:
    """The box that holds what all threads name."""
    first = dict.fromkeys(lanes, ZERO)
    env = {name: (ZERO, ZERO + last) for name, last in lanes.items()}
    offsets, extents = list(w.offsets), list(w.extents)
    for d, offset in enumerate(w.offsets):
        start = substitute_index(offset, first)
        moved = simplify(offset - start, env)
        low, high = int_range(moved, env)
        if low is None or high is None:
            return w
        offsets[d], extents[d] = start + low, w.extents[d] + high - low
    return replace(w, offsets=tuple(offsets), extents=tuple(extents), axes=())
