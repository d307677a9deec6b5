"""Blocks to plain statements: bindings substituted, predicates as ``If``, ranges used up."""

from __future__ import annotations

from tilewright.ir import (
    Alloc,
    Block,
    Env,
    For,
    If,
    Index,
    LoopFunction,
    Pred,
    Seq,
    Stmt,
    Team,
    Teams,
    is_outlined,
    map_accesses,
    map_pred,
    prove_ge0,
    simplify_deep,
    simplify_expr,
    simplify_seqs,
    stmt_children,
    substitute,
    with_stmt_children,
)
from tilewright.support import InternalError


def flatten_blocks(func: LoopFunction) -> LoopFunction:
    """Replace every block by its body over loop variables, under an ``If`` of its predicate.

    Raises ``InternalError`` for a block that still has an ``init``: ``decompose_init`` comes first.
    """

    def visit(s: Stmt, env: Env) -> Stmt:
        match s:
            case Block():
                if s.init is not None:
                    raise InternalError(f"block {s.name} reaches code generation with its init")
                body = visit(substitute(s.body, s.binding()), env)
                where = _simplify_pred(s.where, env)
                return If(where, body) if where else body
            case For():
                lo, hi = simplify_deep(s.lo, env), simplify_deep(s.hi, env)
                once = s.step == 1 and hi - lo == Index(1)
                if once and s.kind.name != "thread" and not is_outlined(s):
                    return visit(substitute(s.body, {s.var: lo}), env)
                inner = {**env, s.var: (lo, hi - 1)}
                return For(s.var, lo, hi, visit(s.body, inner), s.kind, s.step, s.hints)
            case If():
                cond = _simplify_pred(s.cond, env)
                if not cond:
                    return visit(s.then, env)
                orelse = None if s.orelse is None else visit(s.orelse, env)
                return If(cond, visit(s.then, env), orelse)
            case Alloc():
                return Alloc(s.buffer, visit(s.body, env))
            case Seq() | Teams() | Team():
                return with_stmt_children(s, tuple(visit(k, env) for k in stmt_children(s)))
            case _:
                return map_accesses(s, lambda i: simplify_deep(i, env), lambda e: simplify_expr(e, env))

    return func.with_body(simplify_seqs(visit(func.body, {})))


def _simplify_pred(pred: Pred, env: Env) -> Pred:
    pred = map_pred(pred, lambda i: simplify_deep(i, env), lambda e: simplify_expr(e, env))
    return tuple(
        c
        for c in pred
        if c.index is None or not (prove_ge0(c.index, env) and (c.op == "ge" or prove_ge0(-c.index, env)))
    )
