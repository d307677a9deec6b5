"""Copies of subtrees under new names, and the simplification that index-set splitting makes possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tilewright.ir import (
    NOTHING,
    Alloc,
    Block,
    Env,
    For,
    If,
    Index,
    LoopFunction,
    Pred,
    Stmt,
    Store,
    buffers_of,
    fresh_name,
    int_upper,
    map_stmt,
    prove_ge0,
    rename_buffers,
    rename_loops,
    simplify,
    simplify_pred,
    simplify_seqs,
    stmt_children,
    substitute_index,
    substitute_pred,
    var,
    with_stmt_children,
)
from tilewright.schedule.common import taken_names
from tilewright.schedule.nests import allocated_below


class Copies:
    """Copies of a function's subtrees under names that are free in it: ``names`` of loops and blocks.

    ``names`` and the names of buffers grow with every copy.
    """

    __slots__ = ("_buffers", "_func", "names")

    def __init__(self, func: LoopFunction) -> None:
        self.names = taken_names(func)
        self._func = func
        self._buffers: set[str] | None = None

    def buffer_name(self, wanted: str) -> str:
        """A free name for an allocation."""
        if self._buffers is None:
            hidden = self._func.body.inner_names - self._func.body.names
            self._buffers = {*buffers_of(self._func), *hidden, *(p.name for p in self._func.params)}
        name = fresh_name(wanted, self._buffers)
        self._buffers.add(name)
        return name

    def name(self, wanted: str) -> str:
        """A free name for a loop or block."""
        name = fresh_name(wanted, self.names)
        self.names.add(name)
        return name


def renamed_copy(s: Stmt, suffix: str, copies: Copies, mapping: Mapping[str, Index] | None = None) -> Stmt:
    """A copy of ``s`` whose loops, blocks and allocations have ``suffix`` appended (made unique).

    ``mapping`` replaces variables of loops outside of ``s``.
    """
    buffers: dict[str, str] = {}

    def name(old: str) -> str:
        return copies.name(old + suffix)

    def visit(node: Stmt, env: dict[str, Index]) -> Stmt:
        match node:
            case For():
                new = name(node.var)
                inner = {**env, node.var: var(new)}
                lo, hi = substitute_index(node.lo, env), substitute_index(node.hi, env)
                return replace(node, var=new, lo=lo, hi=hi, body=visit(node.body, inner))
            case Alloc():
                old = node.buffer
                buffers[old.name] = copies.buffer_name(old.name + suffix)
                made = old.substitute(env).with_(name=buffers[old.name])
                body = visit(node.body, env)
                del buffers[old.name]
                return Alloc(made, body)
            case If():
                other = None if node.orelse is None else visit(node.orelse, env)
                return If(substitute_pred(node.cond, env), visit(node.then, env), other)
            case Block():
                return replace(
                    node,
                    name=name(node.name),
                    bind=tuple(substitute_index(b, env) for b in node.bind),
                    where=substitute_pred(node.where, env),
                    init=None if node.init is None else rename_buffers(node.init, buffers),
                    body=fresh_inside(rename_buffers(node.body, buffers), copies.names, copies.buffer_name),
                )
            case _:
                return with_stmt_children(node, tuple(visit(k, env) for k in stmt_children(node)))

    return visit(s, dict(mapping or {}))


def fresh_inside(body: Stmt, taken: set[str], buffer_name: Callable[[str], str] | None = None) -> Stmt:
    """An opaque block body with names of its own for its loops and allocations; ``taken`` grows by them.

    ``buffer_name`` gives a free name for a buffer (default: one not in ``taken``).
    """
    if isinstance(body, Store):
        return body

    def not_taken(wanted: str) -> str:
        name = fresh_name(wanted, taken)
        taken.add(name)
        return name

    names = {b: (buffer_name or not_taken)(b) for b in sorted(allocated_below(body))}

    def renamed(s: Stmt) -> Stmt:
        return Alloc(s.buffer.with_(name=names[s.buffer.name]), s.body) if isinstance(s, Alloc) else s

    return rename_loops(map_stmt(rename_buffers(body, names), renamed), taken)


def tidy(s: Stmt, env: Env) -> Stmt:
    """Simplify a subtree in the ranges ``env`` of the loops around it.

    Removes conditions that always hold, blocks whose condition never holds, empty loops, and initialisations
    of blocks that never see their reductions' first values.
    """
    return simplify_seqs(_tidy(s, dict(env)))


def _tidy(s: Stmt, env: dict[str, tuple[Index, Index]]) -> Stmt:
    match s:
        case For():
            lo, hi = simplify(s.lo, env), simplify(s.hi, env)
            if prove_ge0(lo - hi, env):
                return NOTHING
            body = _tidy(s.body, {**env, s.var: (lo, hi - 1)})
            if lo is s.lo and hi is s.hi and body is s.body:
                return s
            return replace(s, lo=lo, hi=hi, body=body)
        case If():
            return _tidy_if(s, env)
        case Block():
            return tidy_block(s, env)
        case _:
            return with_stmt_children(s, tuple(_tidy(k, env) for k in stmt_children(s)))


def _tidy_if(s: If, env: dict[str, tuple[Index, Index]]) -> Stmt:
    other = None if s.orelse is None else _tidy(s.orelse, env)
    if never(s.cond, env):
        return NOTHING if other is None else other
    cond, then = simplify_pred(s.cond, env), _tidy(s.then, env)
    if not cond:
        return then
    return s if cond is s.cond and then is s.then and other is s.orelse else If(cond, then, other)


def tidy_block(block: Block, env: Env) -> Stmt:
    """The block with simplified bindings and condition, without an initialisation that never runs."""
    if never(block.where, env):
        return NOTHING
    where = simplify_pred(block.where, env)
    bind = same_tuple(block.bind, lambda b: simplify(b, env))
    init = block.init
    if init is not None and any(
        it.kind == "red" and prove_ge0(b - it.lo - 1, env) for it, b in zip(block.iters, bind, strict=True)
    ):
        init = None
    if where is block.where and bind is block.bind and init is block.init:
        return block
    return replace(block, where=where, bind=bind, init=init)


def never(pred: Pred, env: Env) -> bool:
    """Whether some condition is shown never to hold."""
    for c in pred:
        if c.index is None:
            continue
        high = int_upper(c.index, env)
        if high is not None and high < 0:
            return True
        if c.op == "eq" and prove_ge0(c.index - 1, env):
            return True
    return False


def same_tuple(items: tuple[Index, ...], fn: Callable[[Index], Index]) -> tuple[Index, ...]:
    """Apply ``fn`` to all, returning the same tuple where nothing changed."""
    new = tuple(fn(i) for i in items)
    return items if all(a is b for a, b in zip(new, items, strict=True)) else new
