"""Copies into shared memory that may arrive later: the hint ``asynchronous`` of a loop.

A thread that copies from global to shared memory need not wait for it, where nobody, itself included, touches
what is written before the next barrier of the block. Which copies those are is an exact question of
dependences (:func:`tilewright.poly.settles_at_barriers`); back ends that have such copies (CUDA's
``cp.async``) let them arrive at barriers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tilewright import poly
from tilewright.ir import (
    ASYNCHRONOUS,
    CONST,
    GLOBAL,
    SHARED,
    Barrier,
    Block,
    Const,
    For,
    If,
    Load,
    LoopFunction,
    Select,
    Stmt,
    Store,
    Teams,
    buffers_of,
    loads,
    locate,
    map_stmt,
)
from tilewright.lower.warp_reads import with_reads_of_warps
from tilewright.support import ResourceError


def mark_asynchronous(func: LoopFunction) -> LoopFunction:
    """Give the hint to loops whose body is a copy to shared memory that may arrive at the next barrier.

    Comes after barriers are placed; blocks are still there.
    """
    if not func.body.has_threads or not any(True for _ in locate(func.body, Barrier)):
        return func
    if any(True for _ in locate(func.body, Teams)):
        # teams copy ahead as it is
        return func
    scopes = {b.name: b.scope for b in buffers_of(func).values()}
    copies = {p.node.name for p in locate(func.body, Block) if _copies(p.node, scopes)}
    if not copies:
        return func
    try:
        late = poly.bounded(lambda: _late(func, copies), f"the barriers of {func.name} are too many for isl")
    except ResourceError:
        # copies that arrive at once are as right
        return func

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For):
            inside = s.body
            while isinstance(inside, If) and inside.orelse is None:
                inside = inside.then
            if isinstance(inside, Block) and inside.name in late:
                return replace(s, hints=(*s.hints, (ASYNCHRONOUS, "")))
        return s

    return func.with_body(map_stmt(func.body, visit)) if late else func


def _late(func: LoopFunction, copies: Collection[str]) -> set[str]:
    """Those of the copies that nothing reads or overwrites before the next barrier."""
    model = poly.extract_model(with_reads_of_warps(func))
    return {
        s.block.name
        for s in model.statements
        if s.block.name in copies and poly.settles_at_barriers(model, s)
    }


def _copies(block: Block, scopes: dict[str, str]) -> bool:
    """Whether a block moves elements from global to shared memory as they are; or a constant instead."""
    if block.init is not None or not isinstance(block.body, Store) or len(block.body.writes) != 1:
        return False
    (w,) = block.body.writes
    value = w.value
    while isinstance(value, Select) and isinstance(value.b, Const) and not any(loads(value.cond)):
        value = value.a
    return isinstance(value, Load) and scopes[w.buffer] == SHARED and scopes[value.buffer] in (GLOBAL, CONST)
