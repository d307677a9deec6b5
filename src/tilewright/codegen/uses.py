"""What a lowered statement reads. Expressions are graphs that share nodes: each node is seen once."""

from __future__ import annotations

from tilewright.ir import Expr, Load, Stmt, children, indices_of, stmt_exprs, walk_index


def loads_of(e: Expr, seen: set[int] | None = None) -> list[Load]:
    """The loads of an expression, those inside of indices included; nodes whose id is in ``seen`` are not."""
    seen = set() if seen is None else seen
    out: list[Load] = []
    stack = [e]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Load):
            out.append(node)
        for i in indices_of(node):
            if i.terms:
                stack.extend(walk_index(i))
        stack.extend(children(node))
    return out


def statement_loads(s: Stmt) -> list[Load]:
    """The loads of a statement tree."""
    seen: set[int] = set()
    return [ld for e in stmt_exprs(s) for ld in loads_of(e, seen)]


def operations_of(e: Expr) -> int:
    """How many operations an expression takes, loads and numbers not counted."""
    seen: set[int] = set()
    stack, count = [e], 0
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        below = children(node)
        count += bool(below) and not isinstance(node, Load)
        stack.extend(below)
    return count
