"""Stores past the caches: a hint of the outermost loops that write some results."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.ir import For, Stmt, stmt_children, stmt_writes
from tilewright.schedule import Schedule


def store_past_caches(s: Schedule, names: Collection[str]) -> Schedule:
    """Annotate the outermost loops that write these results."""
    for loop, written in _writers(s.func.body, frozenset(names)) if names else ():
        s = s.annotate(loop, "nontemporal", ",".join(sorted(written)))
    return s


def _writers(s: Stmt, wanted: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """The outermost loops that write wanted buffers, with those."""
    if isinstance(s, For):
        names = wanted & {name for name, _ in stmt_writes(s)}
        return [(s.var, names)] if names else []
    return [found for k in stmt_children(s) for found in _writers(k, wanted)]
