"""Initialisation of reductions as statements of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import (
    ZERO,
    Block,
    Condition,
    For,
    Index,
    Iter,
    LoopFunction,
    Stmt,
    blocks,
    eq0,
    find,
    fresh_name,
    rename_loops,
    replace_at,
    seq,
    substitute_pred,
)


def decompose_inits(func: LoopFunction) -> LoopFunction:
    """Place the ``init`` of every block that still has one before its reduction loops.

    No run-time test for the first iteration remains. The schedule primitive ``decompose_init`` chooses
    another place where that is faster.
    """
    taken = set(func.body.names)
    for loc in blocks(func.body):
        block = loc.node
        assert isinstance(block, Block)
        if block.init is not None:
            func = func.with_body(_decompose(func.body, block.name, taken))
    return func


def _decompose(root: Stmt, name: str, taken: set[str]) -> Stmt:
    loc = find(root, name)
    assert loc is not None and isinstance(loc.node, Block) and loc.node.init is not None
    block = loc.node
    reds = [(it, b) for it, b in zip(block.iters, block.bind, strict=True) if it.kind == "red"]
    red_vars = frozenset().union(*(b.vars for _, b in reds)) if reds else frozenset()
    loops = [(n, a) for n, a in enumerate(loc.ancestors) if isinstance(a, For)]
    inside = [(n, f) for n, f in loops if f.var in red_vars]
    bare = replace(block, init=None)
    kept = [(it, b) for it, b in zip(block.iters, block.bind, strict=True) if it.kind != "red"]
    if not inside:
        init = _init_block(block, kept, (), block.where, taken)
        return replace_at(root, loc.path, seq(init, bare))
    start = inside[0][0]
    below = [f for n, f in loops if n >= start]
    used = frozenset().union(*(b.vars for _, b in kept)) if kept else frozenset()
    dropped = {f.var for f in below if f.var not in used}
    # a loop that feeds both kinds stays, and its instances count where the reduction begins
    first: list[Condition] = [
        eq0(b - it.lo) for it, b in reds if b.vars & {f.var for f in below if f.var in used}
    ]
    where = tuple(c for c in block.where if not (c.vars & dropped)) + tuple(first)
    guards = tuple(c for c in loc.conditions if not (c.vars & dropped) and c.vars & {f.var for f in below})
    nest: Stmt = _init_block(block, kept, tuple(dropped), where + guards, taken)
    for f in reversed(below):
        if f.var not in dropped:
            nest = replace(f, body=nest, hints=tuple(h for h in f.hints if h[0] == "unroll"))
    nest = rename_loops(nest, taken)
    head = loc.path[:start]
    target = loc.ancestors[start]
    root = replace_at(root, loc.path, bare)
    moved = find(root, target.var) if isinstance(target, For) else None
    assert moved is not None
    return replace_at(root, head, seq(nest, moved.node))


def _init_block(
    block: Block,
    kept: Sequence[tuple[Iter, Index]],
    dropped: tuple[str, ...],
    where: tuple[Condition, ...],
    taken: set[str],
) -> Block:
    iters = tuple(it for it in block.iters if it.kind != "red")
    bind = tuple(b for _, b in kept)
    name = fresh_name(f"{block.name}_init", taken)
    taken.add(name)
    assert block.init is not None
    return Block(
        name, block.stage, iters, bind, block.init, None, substitute_pred(where, dict.fromkeys(dropped, ZERO))
    )
