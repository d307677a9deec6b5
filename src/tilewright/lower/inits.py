"""Initialisation of reductions as statements of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.ir import (
    ZERO,
    Alloc,
    Block,
    Condition,
    Env,
    For,
    Index,
    Iter,
    LoopFunction,
    Stmt,
    blocks,
    eq0,
    find,
    fresh_name,
    prove_ge0,
    rename_loops,
    replace_at,
    seq,
    simplify,
    substitute_index,
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
    # a loop around the allocation of what is written gives each iteration storage of its own: no reduction
    # begins further out
    written = {name for name, _ in block.writes}
    owned = [n for n, a in enumerate(loc.ancestors) if isinstance(a, Alloc) and a.buffer.name in written]
    inside = [(n, f) for n, f in loops if f.var in red_vars and n > max(owned, default=-1)]
    bare = replace(block, init=None)
    kept = [(it, b) for it, b in zip(block.iters, block.bind, strict=True) if it.kind != "red"]
    used = frozenset().union(*(b.vars for _, b in kept)) if kept else frozenset()
    start = inside[0][0] if inside else len(loc.path)
    below = [f for n, f in loops if n >= start]
    dropped = {f.var: f.lo for f in below if f.var not in used}
    for v in dropped:  # outer loops first: bounds of inner ones may mention them
        dropped[v] = substitute_index(dropped[v], {k: lo for k, lo in dropped.items() if k != v})
    # instances count where the reduction begins: at the first iterations of its own loops, and where a loop
    # that feeds both kinds, or a copy for a part of the reduction, has the first values
    env = {f.var: (f.lo, f.hi - 1) for _, f in loops}
    starts = [(substitute_index(it.lo, block.binding()), b) for it, b in reds]
    first = _first(starts, dropped, env)
    if first is None:
        return replace_at(root, loc.path, bare)
    where = tuple(c for c in block.where if not (c.vars & set(dropped))) + first
    if not inside:
        return replace_at(root, loc.path, seq(_init_block(block, kept, (), where, taken), bare))
    guards = tuple(
        c for c in loc.conditions if not (c.vars & set(dropped)) and c.vars & {f.var for f in below}
    )
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


def _first(
    starts: Sequence[tuple[Index, Index]], dropped: Mapping[str, Index], env: Env
) -> tuple[Condition, ...] | None:
    """Under which conditions reduction iterators have their first values where the ``dropped`` loops start.

    ``starts`` are their first values and their bindings. ``None`` where they never have them.
    """
    out: list[Condition] = []
    for lo, b in starts:
        distance = simplify(substitute_index(b - lo, dropped), env)
        if prove_ge0(distance - 1, env) or prove_ge0(-distance - 1, env):
            return None
        if not (prove_ge0(distance, env) and prove_ge0(-distance, env)):
            out.append(eq0(distance))
    return tuple(out)


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
