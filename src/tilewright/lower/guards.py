"""Guards out of loops: invariant conditions move outwards, others trim the bounds of their loop."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    Alloc,
    Condition,
    For,
    If,
    Index,
    LoopFunction,
    Seq,
    Stmt,
    ge0,
    imax,
    imin,
    loop_bound,
    map_stmt,
    upper,
)


def trim_guards(func: LoopFunction) -> LoopFunction:
    """Tighten the bounds of ``for i: if c(i): S``, and turn ``for i: if c: S`` into ``if c: for i: S``.

    Serial and parallel loops are trimmed by conditions linear in their variable. Vector and unrolled loops
    keep conditions on their variable (a mask, or a decision per copy) but let invariant ones out. A serial
    loop around them is trimmed too, to the iterations in which some lane or copy may be active.
    """
    return func.with_body(map_stmt(func.body, _visit))


def _visit(s: Stmt) -> Stmt:
    if isinstance(s, If) and s.orelse is None and isinstance(s.then, If) and s.then.orelse is None:
        return _visit(If((*s.cond, *s.then.cond), s.then.then))
    if isinstance(s, Seq) and len(s.stmts) > 1:
        return _merge_ifs(s)
    if isinstance(s, For) and s.kind.name == "serial" and s.step == 1 and isinstance(s.body, For | Alloc):
        s = _trim_idle(s)
    if not isinstance(s, For) or not isinstance(s.body, If) or s.body.orelse is not None:
        return s
    outer: list[Condition] = []
    inner: list[Condition] = []
    lo, hi = s.lo, s.hi
    for c in s.body.cond:
        if s.var not in c.vars and c.index is not None:
            outer.append(c)
            continue
        bound = _bound(c, s.var) if s.kind.name in ("serial", "parallel") and s.step == 1 else None
        if bound is None:
            inner.append(c)
        elif bound[0] == "hi":
            hi = imin(hi, bound[1])
        else:
            lo = imax(lo, bound[1])
    if not outer and lo is s.lo and hi is s.hi:
        return s
    body = If(tuple(inner), s.body.then) if inner else s.body.then
    loop: Stmt = replace(s, lo=lo, hi=hi, body=body)
    return If(tuple(outer), loop) if outer else loop


def _trim_idle(s: For) -> For:
    """Without the iterations whose vector and unrolled loops below are masked out altogether."""
    lo, hi = s.lo, s.hi
    for c in _necessary(s.body):
        bound = _bound(c, s.var)
        if bound is not None and bound[0] == "hi":
            hi = imin(hi, bound[1])
        elif bound is not None:
            lo = imax(lo, bound[1])
    return s if lo is s.lo and hi is s.hi else replace(s, lo=lo, hi=hi)


def _necessary(s: Stmt) -> tuple[Condition, ...]:
    """Conditions over the variables outside of ``s`` without which ``s`` does nothing."""
    match s:
        case If(cond, then, None):
            return (*(c for c in cond if c.op == "ge"), *_necessary(then))
        case Alloc():
            return _necessary(s.body)
        case For() if s.kind.name in ("vector", "unroll") and s.step == 1:
            env = {s.var: (s.lo, s.hi - 1)}
            found = []
            for c in _necessary(s.body):
                assert c.index is not None
                best = upper(c.index, env)
                if best is not None:
                    found.append(ge0(best))
            return tuple(found)
        case _:
            return ()


def _bound(c: Condition, name: str) -> tuple[str, Index] | None:
    return None if c.op != "ge" or c.index is None else loop_bound(c.index, name)


def _merge_ifs(s: Seq) -> Stmt:
    """Join neighbours under one and the same condition."""
    out: list[Stmt] = []
    for k in s.stmts:
        last = out[-1] if out else None
        if (
            isinstance(k, If)
            and isinstance(last, If)
            and k.orelse is None
            and last.orelse is None
            and k.cond == last.cond
            and all(c.index is not None for c in k.cond)
        ):
            out[-1] = If(k.cond, Seq((last.then, k.then)))
        else:
            out.append(k)
    return s if len(out) == len(s.stmts) else (out[0] if len(out) == 1 else Seq(tuple(out)))
