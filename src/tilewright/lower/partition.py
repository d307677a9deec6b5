"""Loops over clamped indices in three parts: at the borders as they are, inside without the clamps.

``min(639, max(0, x - 3))`` lies element by element in memory but for a few ``x`` at each end, and lanes that
may be clamped have to be read one by one. Pipelines read their images so wherever a window crosses a border.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tilewright.analysis import unclamped
from tilewright.ir import (
    SERIAL,
    Atom,
    Env,
    FloorDiv,
    For,
    Index,
    LoopFunction,
    MinMax,
    Mod,
    Stmt,
    buffers_of,
    imax,
    imin,
    index,
    indices_of,
    int_upper,
    lower,
    map_exprs,
    map_indices,
    prove_ge0,
    rename_loops,
    seq,
    simplify,
    stmt_children,
    stmt_exprs,
    stmt_loads,
    stmt_writes,
    walk,
    with_stmt_children,
)
from tilewright.lower.guards import loop_bound

#: Iterations from which on a vector loop is taken apart; for shorter ones it is the serial loop around them.
MIN_VECTORS_LOOP: Final = 64
MIN_SERIAL_LOOP: Final = 4
#: Iterations at a border up to which they are done one by one, and the part of all that borders may be.
FEW: Final = 8
MOST_AT_BORDERS: Final = 0.5
#: Nodes of expressions up to which a loop's body is written three times.
MOST_NODES: Final = 2000


@dataclass(frozen=True, slots=True)
class _Inside:
    """The iterations ``lo`` to ``hi`` (exclusive) of a loop in which clamps have one and the same side."""

    lo: Index
    hi: Index
    clamps: Mapping[Atom, Index]


def partition_loops(func: LoopFunction) -> LoopFunction:
    """Take loops apart where clamps of what runs in lanes are decided but at their ends.

    Vector loops themselves, or the serial loop around short ones. The order of iterations stays. Loops whose
    statements keep registers or allocate, and long bodies, are left as they are.
    """
    if not any(isinstance(atom, MinMax) for i in _indices(func.body) for atom, _ in i.terms):
        return func
    registers = frozenset(b.name for b in buffers_of(func).values() if b.scope == "register")
    taken = {*func.body.names, *(p.name for p in func.params)}

    def visit(s: Stmt, env: dict[str, tuple[Index, Index]]) -> Stmt:
        if not isinstance(s, For):
            return with_stmt_children(s, tuple(visit(k, env) for k in stmt_children(s)))
        inner = {**env, s.var: (s.lo, s.hi - 1)}
        if s.step == 1 and s.kind.name in ("vector", "serial"):
            found = _inside(s, env)
            if found is not None and _is_small(s) and not _touches(s, registers):
                return _parts(s, found, env, taken)
        body = visit(s.body, inner)
        return s if body is s.body else replace(s, body=body)

    return func.with_body(visit(func.body, {}))


def _parts(s: For, inside: _Inside, env: Env, taken: set[str]) -> Stmt:
    lo, hi = inside.lo, inside.hi
    parts: list[Stmt] = []
    for begin, end in ((s.lo, lo), (lo, hi), (hi, s.hi)):
        if prove_ge0(begin - end, env):
            continue
        at_border = begin is not lo or end is not hi
        part = replace(s, lo=begin, hi=end) if at_border else _unclamped(s, inside)
        few = int_upper(end - begin, env)
        if at_border and s.kind.name == "vector" and few is not None and few < FEW:
            part = replace(part, kind=SERIAL, hints=())
        parts.append(rename_loops(part, taken) if parts else part)
    return seq(*parts)


def _unclamped(s: For, inside: _Inside) -> For:
    def of_index(x: Index) -> Index:
        if not any(isinstance(atom, MinMax | FloorDiv | Mod) for atom, _ in x.terms):
            return x
        out = Index(x.const)
        for atom, c in x.terms:
            out = out + inside.clamps.get(atom, index(atom)) * c
        return out

    body = map_exprs(s.body, of_index, lambda e: map_indices(e, of_index))
    return replace(s, lo=inside.lo, hi=inside.hi, body=body)


def _inside(s: For, env: Env) -> _Inside | None:
    """Where the clamps of lanes below a loop are decided; ``None`` where that is not most of it."""
    extent = int_upper(s.hi - s.lo, env)
    if extent is None or extent < (MIN_VECTORS_LOOP if s.kind.name == "vector" else MIN_SERIAL_LOOP):
        return None
    lows: list[Index] = []
    highs: list[Index] = []
    clamps: dict[Atom, Index] = {}
    for atom, lanes, below in _clamps(s, {}):
        if atom in clamps:
            continue
        decided = unclamped(atom, lanes)
        bounds = [] if decided is None else [_bound(c, s.var, below) for c in decided[1]]
        if decided is None or not bounds or any(b is None for b in bounds):
            continue
        clamps[atom] = decided[0]
        for b in bounds:
            assert b is not None
            (highs if b[0] == "hi" else lows).append(b[1])
    if not clamps:
        return None
    lo = simplify(imin(imax(s.lo, *lows), s.hi), env)
    hi = simplify(imax(imin(s.hi, *highs), lo), env)
    before, after = int_upper(lo - s.lo, env), int_upper(s.hi - hi, env)
    if before is None or after is None or before + after > MOST_AT_BORDERS * extent:
        return None
    return _Inside(lo, hi, clamps)


def _clamps(s: For, below: dict[str, tuple[Index, Index]]) -> Iterator[tuple[MinMax, str, Env]]:
    """Clamps that move with the lanes of ``s`` or of a short vector loop below, by what runs below ``s``."""

    def visit(
        node: Stmt, lanes: str, below: dict[str, tuple[Index, Index]]
    ) -> Iterator[tuple[MinMax, str, Env]]:
        if isinstance(node, For):
            vector = node.kind.name == "vector"
            if node.kind.name in ("parallel", "thread") or (vector and (lanes or _is_long(node))):
                return
            lanes = node.var if vector else lanes
            yield from visit(node.body, lanes, {**below, node.var: (node.lo, node.hi - 1)})
            return
        children = stmt_children(node)
        if lanes and not children:
            for x in _indices(node):
                for atom, _ in x.terms:
                    if isinstance(atom, MinMax) and any(lanes in a.vars for a in atom.args):
                        yield atom, lanes, below
        for child in children:
            yield from visit(child, lanes, below)

    return visit(s.body, s.var if s.kind.name == "vector" else "", below)


def _is_long(s: For) -> bool:
    """Whether a vector loop is taken apart itself, not the serial one around it."""
    extent = s.hi - s.lo
    return not extent.is_const or extent.as_int() >= MIN_VECTORS_LOOP


def _bound(condition: Index, name: str, below: Env) -> tuple[str, Index] | None:
    """What ``condition >= 0`` says of a loop's variable, whatever the loops below it are at."""
    least = lower(condition, below)
    return None if least is None else loop_bound(least, name)


def _is_small(s: For) -> bool:
    return sum(1 for e in stmt_exprs(s.body) for _ in walk(e)) <= MOST_NODES and not s.body.allocated


def _indices(s: Stmt) -> Iterator[Index]:
    """The indices of all that a statement reads and writes."""
    for _, indices in stmt_writes(s):
        yield from indices
    for e in stmt_exprs(s):
        for node in walk(e):
            yield from indices_of(node)


def _touches(s: For, buffers: frozenset[str]) -> bool:
    if not buffers:
        return False
    used = {b for b, _ in stmt_writes(s.body)} | {ld.buffer for ld in stmt_loads(s.body)}
    return not used.isdisjoint(buffers)
