"""Intermediate tensors kept where the result goes that is made of them: the hint ``in_place`` of a loop.

A row of exponentials that is scaled into the result needs no memory of its own: the exponentials are stored
where the result goes, and scaled in place. What is written once more is in the caches; a buffer less competes
for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.ir import (
    ZERO,
    Access,
    Alloc,
    Buffer,
    Env,
    Exec,
    Expr,
    FloorDiv,
    For,
    If,
    Index,
    Load,
    LoopFunction,
    MinMax,
    Mod,
    Opaque,
    Seq,
    Stmt,
    Store,
    in_place_hints,
    lower,
    map_loads,
    map_stmt,
    prove_ge0,
    stmt_children,
    stmt_loads,
    stmt_writes,
    substitute_index,
    upper,
    var,
)


def keep_in_place(func: LoopFunction) -> LoopFunction:
    """Replace allocated buffers by the result that a loop with the hint ``in_place`` makes of them.

    Done where the loop's only statement reads the buffer at the element that it writes, nothing else touches
    the result, all other accesses to the buffer come before, and what they write is what the loop overwrites.
    Elsewhere the buffer stays. The hints are gone afterwards.
    """
    if not any(in_place_hints(loop) for loop, _ in _loops(func.body, {})):
        return func
    # one at a time: a result has room for one buffer
    while (found := _first(func, func.body, {})) is not None:
        func = func.with_body(_joined(func.body, *found))
    return func.with_body(map_stmt(func.body, _without_hint))


def _first(func: LoopFunction, s: Stmt, env: Env) -> tuple[str, str] | None:
    """The first allocated buffer that may be kept in a result, and this result."""
    if isinstance(s, Alloc):
        result = _result(func, s, env)
        if result is not None:
            return s.buffer.name, result
    if isinstance(s, For):
        env = {**env, s.var: (s.lo, s.hi - 1)}
    return next((found for k in stmt_children(s) if (found := _first(func, k, env)) is not None), None)


def _without_hint(s: Stmt) -> Stmt:
    if not isinstance(s, For) or not in_place_hints(s):
        return s
    return replace(s, hints=tuple(hint for hint in s.hints if hint[0] != "in_place"))


def _loops(s: Stmt, env: Env) -> Iterator[tuple[For, Env]]:
    """The loops of a tree, outermost first, each with the ranges of those around it."""
    if isinstance(s, For):
        yield s, env
        env = {**env, s.var: (s.lo, s.hi - 1)}
    for k in stmt_children(s):
        yield from _loops(k, env)


def _joined(s: Stmt, name: str, result: str) -> Stmt:
    """Statements with the result in place of an allocated buffer."""

    def load(ld: Load) -> Expr:
        return Load(result, ld.indices, ld.dtype) if ld.buffer == name else ld

    def stmt(n: Stmt) -> Stmt:
        if isinstance(n, Alloc) and n.buffer.name == name:
            return n.body
        if not isinstance(n, Store) or all(w.buffer != name for w in n.writes):
            return n
        return Store(tuple(Access(result, w.indices, w.value) if w.buffer == name else w for w in n.writes))

    return map_stmt(map_loads(s, load), stmt)


@dataclass(frozen=True, slots=True)
class _Written:
    """A store with the ranges of the loops around it, inside of an allocation."""

    access: Access
    env: Env


def _result(func: LoopFunction, alloc: Alloc, outer: Env) -> str | None:
    """The result in whose memory an allocated buffer may be kept; ``None`` where there is none."""
    name = alloc.buffer.name
    steps = _sequence(alloc.body)
    if not steps or any(isinstance(s, Exec) for s in _statements(func.body)):
        return None
    last = [loop for loop, _ in _loops(steps[-1], {}) if name in in_place_hints(loop)]
    stores = list(_stores(steps[-1], {}))
    if len(last) != 1 or len(stores) != 1 or not _unconditional(steps[-1]):
        return None
    final = stores[0]
    w = final.access
    if any(ld.indices != w.indices for ld in stmt_loads(steps[-1]) if ld.buffer == name):
        return None
    if w.buffer not in func.outputs or not _alike(func.buffer(w.buffer), alloc.buffer):
        return None
    touched = [written for written, _ in stmt_writes(func.body)] + [ld.buffer for ld in stmt_loads(func.body)]
    if touched.count(w.buffer) != 1:
        return None
    covered = _box(final)
    if covered is None:
        return None
    for step in steps[:-1]:
        for written in _stores(step, {}):
            if written.access.buffer == name and not _within(written, covered, outer):
                return None
    return w.buffer


def _sequence(s: Stmt) -> Sequence[Stmt]:
    """The statements that an allocation's body runs one after another."""
    while isinstance(s, Alloc):
        s = s.body
    return s.stmts if isinstance(s, Seq) else ()


def _statements(s: Stmt) -> Iterator[Stmt]:
    yield s
    for k in stmt_children(s):
        yield from _statements(k)


def _stores(s: Stmt, env: Env) -> Iterator[_Written]:
    """What is stored, on conditions or not, with the ranges of the loops around."""
    if isinstance(s, For):
        env = {**env, s.var: (s.lo, s.hi - 1)}
    if isinstance(s, Store):
        for w in s.writes:
            yield _Written(w, env)
    for k in stmt_children(s):
        yield from _stores(k, env)


def _alike(result: Buffer, kept: Buffer) -> bool:
    return (result.shape, result.dtype, result.halo) == (kept.shape, kept.dtype, None)


def _unconditional(s: Stmt) -> bool:
    """Whether loops run all iterations of a box, and nothing depends on conditions."""
    for loop, env in _loops(s, {}):
        if loop.step != 1 or any(name in env for name in (*loop.lo.vars, *loop.hi.vars)):
            return False
    return not any(isinstance(k, If) for k in _statements(s))


_Box: TypeAlias = tuple[tuple[Index, Index], ...]


def _box(written: _Written) -> _Box | None:
    """The elements that a store writes, all of them, as a range a dimension; ``None`` for other sets.

    Those include tiles that are shifted back to fit: two of them would make the same elements.
    """
    if any(_shifted(i) for i in written.access.indices):
        return None
    free = set(written.env)
    box: list[tuple[Index, Index]] = []
    for i in written.access.indices:
        own = [name for name in written.env if name in i.vars]
        if own:
            (name, *others) = own
            if others or name not in free or i - var(name) != substitute_index(i, {name: ZERO}):
                return None
            free.remove(name)
        low, high = lower(i, written.env), upper(i, written.env)
        if low is None or high is None:
            return None
        box.append((low, high))
    return tuple(box)


def _shifted(i: Index) -> bool:
    return any(
        isinstance(atom, MinMax | Opaque) or (isinstance(atom, FloorDiv | Mod) and _shifted(atom.arg))
        for atom, _ in i.terms
    )


def _within(written: _Written, box: _Box, outer: Env) -> bool:
    """Whether a store stays inside of a box."""
    for i, (low, high) in zip(written.access.indices, box, strict=True):
        least, most = lower(i, written.env), upper(i, written.env)
        if least is None or most is None:
            return False
        if not prove_ge0(least - low, outer) or not prove_ge0(high - most, outer):
            return False
    return True
