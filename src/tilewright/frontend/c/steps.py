"""Steps inside of expressions as statements of their own: ``*p++ = x[--k];`` -> ``--k; *p = x[k]; p++;``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

STEPS: Final = ("p++", "++", "p--", "--")


def steps_apart(c: Any, node: Any) -> None:
    """Rewrite all statements of a tree in which each variable that steps occurs once.

    Others stay, and so do steps of which a condition decides whether they are taken.
    """
    for _, child in node.children():
        steps_apart(c, child)
    if isinstance(node, c.Compound):
        node.block_items = [each for s in node.block_items or () for each in _apart(c, s)] or None
    for name in ("stmt", "iftrue", "iffalse"):
        s = getattr(node, name, None)
        if s is not None and len(parts := _apart(c, s)) > 1:
            setattr(node, name, c.Compound(parts, s.coord))


def _apart(c: Any, s: Any) -> list[Any]:
    """A statement with the steps before and after it."""
    if not isinstance(s, c.Assignment | c.Decl | c.UnaryOp):
        return [s]
    names = [e.name for e in _all(c, s, c.ID)]
    found = [e for e in _all(c, s, c.UnaryOp) if e is not s and e.op in STEPS and isinstance(e.expr, c.ID)]
    if any(names.count(e.expr.name) > 1 for e in found) or any(
        e in found for lazy in _lazy(c, s) for e in _all(c, lazy, c.UnaryOp)
    ):
        return [s]
    for e in found:
        _replace(s, e, e.expr)
    before, after = ([e for e in found if e.op.startswith("p") == late] for late in (False, True))
    return [*before, s, *after]


def _lazy(c: Any, node: Any) -> Iterator[Any]:
    """Parts of an expression that are evaluated where another part says so, or not at all."""
    if isinstance(node, c.TernaryOp):
        yield from (node.iftrue, node.iffalse)
    if isinstance(node, c.BinaryOp) and node.op in ("&&", "||"):
        yield node.right
    if isinstance(node, c.UnaryOp) and node.op == "sizeof":
        yield node.expr
    for _, child in node.children():
        yield from _lazy(c, child)


def _all(c: Any, node: Any, kind: Any) -> Iterator[Any]:
    if isinstance(node, kind):
        yield node
    for _, child in node.children():
        yield from _all(c, child, kind)


def _replace(node: Any, old: Any, new: Any) -> None:
    """Put another part in the place of one, wherever it is in a tree."""
    for name in (n for n in node.__slots__ if n not in ("coord", "__weakref__")):
        held = getattr(node, name)
        if held is old:
            setattr(node, name, new)
        if isinstance(held, list) and any(each is old for each in held):
            held[:] = [new if each is old else each for each in held]
    for _, child in node.children():
        _replace(child, old, new)
