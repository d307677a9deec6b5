"""What statements of C change, and ``continue`` by branches: questions of syntax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontend.c.source import Source
from tilewright.frontend.c.steps import STEPS


def changed(source: Source, node: Any, inside: frozenset[str] = frozenset()) -> set[str]:
    """The names of variables, arrays and pointers through which some part of a tree changes memory.

    ``inside`` are the functions that calls led into.
    """
    c = source.c
    out = {name for _, child in node.children() for name in changed(source, child, inside)}
    if isinstance(node, c.Assignment):
        out |= _named(c, node.lvalue)
    if isinstance(node, c.UnaryOp) and node.op in STEPS:
        out |= _named(c, node.expr)
    if isinstance(node, c.Decl):
        out.add(node.name)
    part = (
        source.function(node.name.name)
        if isinstance(node, c.FuncCall) and isinstance(node.name, c.ID)
        else None
    )
    if part is not None and part.name not in inside:
        within = changed(source, source.parsed(part)[0].body, inside | {str(part.name)})
        if within and node.args is not None:
            within |= {name for a in node.args.exprs for name in _named(c, a)}
        out |= within
    return out


def assigned(c: Any, node: Any) -> set[str]:
    """The names of variables and pointers that get other values in some part of a tree.

    A block's own variables are not those of these names around it.
    """
    out: set[str] = set()
    own: set[str] = set()
    for _, child in node.children():
        out |= assigned(c, child) - own
        if isinstance(node, c.Compound | c.For):
            declared = child.decls if isinstance(child, c.DeclList) else [child]
            own |= {d.name for d in declared if isinstance(d, c.Decl)}
    if isinstance(node, c.Decl):
        return out
    target = node.lvalue if isinstance(node, c.Assignment) else None
    if isinstance(node, c.UnaryOp) and node.op in STEPS:
        target = node.expr
    return out | {target.name} if isinstance(target, c.ID) else out


def _named(c: Any, e: Any) -> set[str]:
    """The name of which an expression is an element, or that it is; of pointer arithmetic all of them."""
    while isinstance(e, c.ArrayRef | c.UnaryOp | c.Cast):
        e = e.name if isinstance(e, c.ArrayRef) else e.expr
    if isinstance(e, c.BinaryOp):
        return _named(c, e.left) | _named(c, e.right)
    return {e.name} if isinstance(e, c.ID) else set()


def mentioned(c: Any, node: Any) -> set[str]:
    """All names in some part of a tree."""
    return {e.name for e in all_of(c.ID, node)}


def all_of(kind: Any, node: Any) -> list[Any]:
    """All parts of a tree that are of a kind, in order."""
    own = [node] if isinstance(node, kind) else []
    return [*own, *(e for _, child in node.children() for e in all_of(kind, child))]


def statements(c: Any, s: Any) -> list[Any]:
    """The statements that a body consists of."""
    if s is None or isinstance(s, c.EmptyStatement):
        return []
    return list(s.block_items or ()) if isinstance(s, c.Compound) else [s]


def without_continue(source: Source, body: Sequence[Any]) -> list[Any]:
    """The body of a loop in which ``continue`` is said by branches.

    ``if (c) continue; rest``  ->  ``if (c) {} else { rest }``; what follows a branch that may continue goes
    into both of its parts.
    """
    c = source.c
    out: list[Any] = []
    for n, s in enumerate(body):
        if isinstance(s, c.Continue):
            return out
        if isinstance(s, c.Compound) and continues(c, s):
            return [*out, *without_continue(source, [*statements(c, s), *body[n + 1 :]])]
        if isinstance(s, c.If) and continues(c, s):
            rest = body[n + 1 :]
            parts = [
                c.Compound(without_continue(source, [*statements(c, part), *rest]), s.coord)
                for part in (s.iftrue, s.iffalse)
            ]
            return [*out, c.If(s.cond, parts[0], parts[1] if parts[1].block_items else None, s.coord)]
        out.append(s)
    return out


def continues(c: Any, s: Any) -> bool:
    """Whether a statement may go on with the next turn of the loop around."""
    if isinstance(s, c.For | c.While | c.DoWhile):
        return False
    return isinstance(s, c.Continue) or any(continues(c, child) for _, child in s.children())


def same(c: Any, a: Any, b: Any) -> bool:
    """Whether two expressions are written the same."""
    if type(a) is not type(b):
        return False
    if any(getattr(a, n) != getattr(b, n) for n in a.attr_names):
        return False
    left, right = [child for _, child in a.children()], [child for _, child in b.children()]
    return len(left) == len(right) and all(same(c, x, y) for x, y in zip(left, right, strict=True))
