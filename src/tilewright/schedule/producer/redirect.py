"""Redirecting accesses from one buffer to another, and naming the dimensions of a buffer."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    Access,
    Block,
    Exec,
    Expr,
    For,
    If,
    Load,
    Stmt,
    Store,
    map_loads,
    stmt_children,
    with_stmt_children,
)
from tilewright.schedule.footprint import Mode, control_loads, touches


def redirect(s: Stmt, old: str, new: str, mode: Mode) -> Stmt:
    """``s`` with the reads, the writes or all accesses of ``old`` going to ``new`` at the same indices."""

    def of_load(ld: Load) -> Expr:
        return Load(new, ld.indices, ld.dtype) if ld.buffer == old else ld

    def rename(node: Stmt) -> Stmt:
        """Stores and windows of a block's body."""
        match node:
            case Store() if "w" in mode and any(w.buffer == old for w in node.writes):
                return Store(
                    tuple(
                        Access(new if w.buffer == old else w.buffer, w.indices, w.value) for w in node.writes
                    )
                )
            case Exec() if any(w.buffer == old for w in node.windows):
                return replace(
                    node,
                    windows=tuple(
                        replace(w, buffer=new) if w.buffer == old and set(w.mode) <= set(mode) else w
                        for w in node.windows
                    ),
                )
            case Block():
                init = None if node.init is None else rename(node.init)
                body = rename(node.body)
                same = init is node.init and body is node.body
                return node if same else replace(node, init=init, body=body)
            case _:
                return with_stmt_children(node, tuple(rename(k) for k in stmt_children(node)))

    def visit(node: Stmt) -> Stmt:
        if isinstance(node, Block):
            if not (
                any(t.buffer == old for t in touches(node))
                or any(ld.buffer == old for ld in control_loads(node))
            ):
                return node
            return rename(map_loads(node, of_load) if "r" in mode else node)
        if "r" in mode and isinstance(node, For | If):
            if any(ld.buffer == old for ld in control_loads(node)):
                return rename(map_loads(node, of_load))
        return with_stmt_children(node, tuple(visit(k) for k in stmt_children(node)))

    return visit(s)


def redirect_body(body: Stmt, old: str, new: str) -> Stmt:
    """A block's body with all accesses of ``old`` going to ``new``."""
    block = redirect(Block("", "", (), (), body), old, new, "rw")
    assert isinstance(block, Block)
    return block.body


def dimension_names(s: Stmt, buffer: str, rank: int) -> tuple[str, ...]:
    """Names for a buffer's dimensions: iterators that index them in one access, else ``d0``, ``d1`` …"""
    names = [f"d{n}" for n in range(rank)]
    access = _first_access(s, buffer)
    if access is not None:
        for d, name in enumerate(access):
            if name is not None and name not in names:
                names[d] = name
    return tuple(names)


def _first_access(s: Stmt, buffer: str) -> tuple[str | None, ...] | None:
    if isinstance(s, Block):
        for t in touches(s):
            if t.buffer == buffer:
                return tuple(x.as_var() for x in t.indices)
        return None
    for k in stmt_children(s):
        found = _first_access(k, buffer)
        if found is not None:
            return found
    return None
