"""Updates by several threads at once: the hint ``atomic`` of loops, while blocks still say which."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import ATOMIC_UPDATES, For, LoopFunction, Stmt, map_stmt, spread_updates


def mark_atomic(func: LoopFunction) -> LoopFunction:
    """Name at loops over threads and blocks the buffers that their iterations update in no order."""
    if not func.body.is_spread:
        return func

    def visit(s: Stmt) -> Stmt:
        names = spread_updates(s) if isinstance(s, For) and s.kind.name == "thread" else ()
        if not isinstance(s, For) or not names:
            return s
        return replace(s, hints=(*s.hints, (ATOMIC_UPDATES, ",".join(sorted(names)))))

    return func.with_body(map_stmt(func.body, visit))
