"""Loops over clamped indices in three parts: at the borders as they are, inside without the clamps.

``min(639, max(0, x - 3))`` lies element by element in memory but for a few ``x`` at each end, and lanes that
may be clamped have to be read one by one. Pipelines read their images so wherever a window crosses a border.
Lanes that are masked out at the end of a row are set apart likewise, where masks make gathers of loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tilewright.analysis import unclamped
from tilewright.ir import (
    SERIAL,
    Atom,
    Condition,
    Env,
    Expr,
    FloorDiv,
    For,
    If,
    Index,
    LoopFunction,
    MinMax,
    Mod,
    Opaque,
    Stmt,
    buffers_of,
    imax,
    imin,
    index,
    indices_of,
    int_lower,
    int_upper,
    locate,
    loop_bound,
    lower,
    map_exprs,
    map_indices,
    map_stmt,
    prove_ge0,
    rename_loops,
    seq,
    simplify,
    stmt_children,
    stmt_exprs,
    stmt_loads,
    stmt_writes,
    substitute_index,
    walk,
    with_stmt_children,
)

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
    """Take loops apart where clamps and masks of what runs in lanes are decided but at their ends.

    Vector loops themselves, or the serial loop around short ones. The order of iterations stays. Loops whose
    statements keep registers or allocate, and long bodies, are left as they are.
    """
    registers = frozenset(b.name for b in buffers_of(func).values() if b.scope == "register")
    taken = {*func.body.names, *(p.name for p in func.params)}

    def visit(s: Stmt, env: dict[str, tuple[Index, Index]]) -> Stmt:
        if not isinstance(s, For):
            return with_stmt_children(s, tuple(visit(k, env) for k in stmt_children(s)))
        body = visit(s.body, {**env, s.var: (s.lo, s.hi - 1)})
        if body is not s.body:
            # what is nearest to the lanes is taken apart: of outer loops more is at borders
            return replace(s, body=body)
        if s.step == 1 and s.kind.name in ("vector", "serial"):
            whole, rest = _whole_lanes(s, env)
            found = _inside(whole, env)
            masked = whole is not s and _reads_apart(s)
            if (found is not None or masked) and _is_small(s) and not _touches(s, registers):
                parts = whole if found is None else _parts(whole, found, env, taken)
                return parts if rest is None else seq(parts, rename_loops(rest, taken))
        return s

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


def _whole_lanes(s: For, env: Env) -> tuple[For, For | None]:
    """A loop while no lane is masked out, without that condition, and the iterations in which some are.

    A masked lane that is clamped is read by itself, if it is read at all: most vectors have no such lane.
    """
    masks = [(c, _bound(index, s.var, below)) for c, index, below in _masks(s)]
    ends = [bound[1] for _, bound in masks if bound is not None and bound[0] == "hi"]
    if not ends or len(ends) < len(masks) or _extent(s, env) is None:
        return s, None
    end = simplify(imax(imin(s.hi, *ends), s.lo), env)
    gone = {c for c, _ in masks}

    def without(each: Stmt) -> Stmt:
        if not isinstance(each, If) or gone.isdisjoint(each.cond):
            return each
        left = tuple(c for c in each.cond if c not in gone)
        return replace(each, cond=left) if left else each.then

    whole = replace(s, hi=end, body=map_stmt(s.body, without))
    # past its end nothing is left of a vector loop all of which is under the masks
    over = s.kind.name == "vector" and isinstance(s.body, If) and gone <= set(s.body.cond)
    return whole, None if over else replace(s, lo=end)


def _masks(s: For) -> Iterator[tuple[Condition, Index, Env]]:
    """Conditions on the lanes of ``s`` or of a short vector loop below, by what runs below ``s``."""

    def visit(
        node: Stmt, lanes: str, below: dict[str, tuple[Index, Index]]
    ) -> Iterator[tuple[Condition, Index, Env]]:
        if isinstance(node, For):
            vector = node.kind.name == "vector"
            if node.kind.name in ("parallel", "thread") or (vector and lanes):
                return
            lanes = node.var if vector else lanes
            below = {**below, node.var: (node.lo, node.hi - 1)}
        elif isinstance(node, If) and lanes and node.orelse is None:
            for c in node.cond:
                if c.op == "ge" and c.index is not None and lanes in c.index.vars:
                    yield c, c.index, below
        for child in stmt_children(node):
            yield from visit(child, lanes, below)

    return visit(s.body, s.var if s.kind.name == "vector" else "", {})


def _reads_apart(s: For) -> bool:
    """Whether lanes of ``s``, or of the short vector loop below, read elements that do not lie together."""
    lanes = s.var if s.kind.name == "vector" else ""
    for each in locate(s.body, For):
        lanes = each.node.var if each.node.kind.name == "vector" else lanes
    return any(
        lanes in i.vars and (n < len(ld.indices) - 1 or not _is_next(i, lanes))
        for ld in stmt_loads(s.body)
        for n, i in enumerate(ld.indices)
    )


def _is_next(i: Index, lanes: str) -> bool:
    """Whether an index grows by one from lane to lane."""
    return i.coefficient(lanes) == 1 and sum(lanes in index(atom).vars for atom, _ in i.terms) == 1


def _unclamped(s: For, inside: _Inside) -> For:
    def of_index(x: Index) -> Index:
        if not any(isinstance(atom, MinMax | FloorDiv | Mod | Opaque) for atom, _ in x.terms):
            return x
        out = Index(x.const)
        for atom, c in x.terms:
            out = out + inside.clamps.get(atom, index(atom)) * c
        # an element may be looked up by what is read through clamps itself
        return substitute_index(out, {}, of_expr)

    def of_expr(e: Expr) -> Expr:
        return map_indices(e, of_index)

    body = map_exprs(s.body, of_index, of_expr)
    return replace(s, lo=inside.lo, hi=inside.hi, body=body)


def _inside(s: For, env: Env) -> _Inside | None:
    """Where the clamps of lanes below a loop are decided; ``None`` where that is not most of it."""
    extent = _extent(s, env)
    if extent is None:
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
    # loops around may cut rows in tiles, most of which have no border: what is at the lanes is taken apart
    # for these, whatever is left of it at the ends of rows
    least = int_lower if _is_at_lanes(s) else int_upper
    before, after = least(lo - s.lo, env), least(s.hi - hi, env)
    if before is None or after is None or before + after > MOST_AT_BORDERS * extent:
        return None
    return _Inside(lo, hi, clamps)


def _extent(s: For, env: Env) -> int | None:
    """Iterations of a loop, ``None`` where they are too few to be taken apart, or not known."""
    extent = int_upper(s.hi - s.lo, env)
    least = MIN_VECTORS_LOOP if s.kind.name == "vector" else MIN_SERIAL_LOOP
    return None if extent is None or extent < least else extent


def _is_at_lanes(s: For) -> bool:
    """Whether no other loop runs between a loop and the lanes below it, but for expanded ones."""
    return all(each.node.kind.name in ("vector", "unroll") for each in locate(s.body, For))


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
