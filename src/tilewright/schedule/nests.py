"""Questions about a loop's subtree: the blocks below, the iterators a loop feeds, perfect chains."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import (
    Alloc,
    Block,
    Condition,
    Env,
    Exec,
    FloorDiv,
    For,
    Index,
    Iter,
    LoopFunction,
    MinMax,
    Mod,
    Param,
    Stmt,
    Store,
    simplify,
    simplify_pred,
    stmt_children,
    with_stmt_children,
)
from tilewright.schedule.common import refusal


def blocks_below(s: Stmt) -> Iterator[Block]:
    """All blocks of a subtree, in program order."""
    if isinstance(s, Block):
        yield s
    for k in stmt_children(s):
        yield from blocks_below(k)


def allocated_below(s: Stmt) -> frozenset[str]:
    """Names of the buffers allocated in a subtree."""
    own = frozenset((s.buffer.name,)) if isinstance(s, Alloc) else frozenset()
    return own.union(*(allocated_below(k) for k in stmt_children(s)))


def fed(s: Stmt, loop: str) -> list[tuple[Block, Iter, Index]]:
    """Blocks below ``s`` with the iterators whose bindings mention ``loop``."""
    return [
        (block, it, b)
        for block in blocks_below(s)
        for it, b in zip(block.iters, block.bind, strict=True)
        if loop in b.vars
    ]


def require_blocks(func: LoopFunction, node: For, primitive: str) -> None:
    """Refuse subtrees of lowered code, in which stores stand outside of blocks."""
    if any(True for _ in _bare(node)):
        raise refusal(
            func,
            f"{primitive}: {node.var!r} holds statements outside of blocks",
            hint="schedule before the function is lowered",
            at=[node.var],
        )


def _bare(s: Stmt) -> Iterator[Stmt]:
    if isinstance(s, Store | Exec):
        yield s
    for k in stmt_children(s):
        yield from _bare(k)


def chain(node: For) -> list[For]:
    """The perfect nest from a loop down: each loop's body is exactly the next."""
    out = [node]
    while isinstance(out[-1].body, For):
        out.append(out[-1].body)
    return out


def is_multiple(n: Index, size: int) -> bool:
    """Whether ``n`` is shown to be a multiple of ``size``, by what its parameters are multiples of."""
    if n.const % size:
        return False
    return all((c * (a.multiple_of if isinstance(a, Param) else 1)) % size == 0 for a, c in n.terms)


def settle(s: Stmt, env: Env, conditions: tuple[Condition, ...] = ()) -> Stmt:
    """After a substitution: simplify quasi-affine bindings in the ranges ``env``; add conditions."""
    match s:
        case For():
            inner = {**env, s.var: (s.lo, s.hi - 1)}
            return with_stmt_children(s, (settle(s.body, inner, conditions),))
        case Block():
            where = s.where
            if any(c.index is not None and _divides(c.index) for c in where):
                where = simplify_pred(where, env)
            added = tuple(c for c in conditions if c not in where)
            bind = s.bind
            if any(map(_divides, bind)):
                bind = tuple(simplify(b, env) for b in bind)
            if not added and where is s.where and all(a is b for a, b in zip(bind, s.bind, strict=True)):
                return s
            return Block(s.name, s.stage, s.iters, bind, s.body, s.init, (*where, *added))
        case _:
            return with_stmt_children(s, tuple(settle(k, env, conditions) for k in stmt_children(s)))


def _divides(x: Index) -> bool:
    return any(isinstance(a, FloorDiv | Mod | MinMax) for a, _ in x.terms)
