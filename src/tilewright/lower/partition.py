"""Loops over bordered indices in three parts: at the borders as they are, inside without clamps and the like.

``min(639, max(0, x - 3))`` lies element by element in memory but for a few ``x`` at each end, and lanes that
may be clamped, mirrored or wrapped have to be read one by one. Pipelines read their images so wherever a
window crosses a border.
Lanes that are masked out at the end of a row are set apart likewise, where masks make gathers of loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tilewright.analysis import Middle, decided, piece
from tilewright.ir import (
    BOOL,
    SERIAL,
    Atom,
    Binary,
    Compare,
    Condition,
    Const,
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
    Select,
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
    map_expr,
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
    """The iterations ``lo`` to ``hi`` (exclusive) of a loop, and what is bordered is there."""

    lo: Index
    hi: Index
    pieces: Mapping[Atom, Index]
    decided: Mapping[Expr, bool]


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
        part = replace(s, lo=begin, hi=end) if at_border else _without_borders(s, inside)
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


def _without_borders(s: For, inside: _Inside) -> For:
    def of_index(x: Index) -> Index:
        if not any(isinstance(atom, MinMax | FloorDiv | Mod | Opaque) for atom, _ in x.terms):
            return x
        out = Index(x.const)
        for atom, c in x.terms:
            out = out + inside.pieces.get(atom, index(atom)) * c
        # an element may be looked up by what is read through clamps itself
        return substitute_index(out, {}, of_expr)

    def of_expr(e: Expr) -> Expr:
        return map_indices(map_expr(e, of_condition) if inside.decided else e, of_index)

    def of_condition(e: Expr) -> Expr:
        match e:
            case Compare() if e in inside.decided:
                return Const(inside.decided[e], BOOL)
            case Binary("and" | "or", Const(value), other) | Binary("and" | "or", other, Const(value)) if (
                e.dtype == BOOL
            ):
                return other if value == (e.op == "and") else Const(value, BOOL)
            case Select(Const(value), a, b):
                return a if value else b
            case _:
                return e

    body = map_exprs(s.body, of_index, of_expr)
    return replace(s, lo=inside.lo, hi=inside.hi, body=body)


def _inside(s: For, env: Env) -> _Inside | None:
    """Where the indices of lanes below a loop are in one piece; ``None`` where that is not most of it."""
    extent = _extent(s, env)
    if extent is None:
        return None
    # loops around may cut rows in tiles, most of which have no border: what is at the lanes is taken apart
    # for these, whatever is left of it at the ends of rows
    least = int_lower if _is_at_lanes(s) else int_upper
    lows, highs = [s.lo], [s.hi]
    pieces: dict[Atom, Index] = {}
    conditions: dict[Expr, bool] = {}

    def most(lo: list[Index], hi: list[Index]) -> tuple[Index, Index] | None:
        first = simplify(imin(imax(*lo), s.hi), env)
        end = simplify(imax(imin(*hi), first), env)
        before, after = least(first - s.lo, env), least(s.hi - end, env)
        few = before is not None and after is not None and before + after <= MOST_AT_BORDERS * extent
        return (first, end) if few else None

    for found, lanes, below in _bordered(s, {}):
        if found in pieces or found in conditions:
            continue
        middle = Middle.of({**env, s.var: (s.lo, s.hi - 1), **below})
        if isinstance(found, Compare):
            made: tuple[Index | bool, tuple[Index, ...]] | None = decided(found, lanes, middle)
        else:
            made = piece(index(found), lanes, middle)
        bounds = [] if made is None else [_bound(c, s.var, below) for c in made[1]]
        known = [b for b in bounds if b is not None]
        if made is None or not known or len(known) < len(bounds):
            continue
        lo, hi = ([b[1] for b in known if b[0] == end] for end in ("lo", "hi"))
        # a clamp that is most of a loop leaves it whole; remainders that change often are no borders
        if not isinstance(found, MinMax) and most([s.lo, *lo], [s.hi, *hi]) is None:
            continue
        if isinstance(made[0], bool):
            assert isinstance(found, Compare)
            conditions[found] = made[0]
        else:
            assert not isinstance(found, Compare)
            pieces[found] = made[0]
        lows += lo
        highs += hi
    ends = most(lows, highs) if pieces or conditions else None
    return None if ends is None else _Inside(*ends, pieces, conditions)


def _extent(s: For, env: Env) -> int | None:
    """Iterations of a loop, ``None`` where they are too few to be taken apart, or not known."""
    extent = int_upper(s.hi - s.lo, env)
    least = MIN_VECTORS_LOOP if s.kind.name == "vector" else MIN_SERIAL_LOOP
    return None if extent is None or extent < least else extent


def _is_at_lanes(s: For) -> bool:
    """Whether no other loop runs between a loop and the lanes below it, but for expanded ones."""
    return all(each.node.kind.name in ("vector", "unroll") for each in locate(s.body, For))


def _bordered(
    s: For, below: dict[str, tuple[Index, Index]]
) -> Iterator[tuple[MinMax | Mod | FloorDiv | Compare, str, Env]]:
    """Indices and conditions that move with the lanes of ``s`` or of a short vector loop below.

    With each, what runs below ``s``.
    """

    def visit(
        node: Stmt, lanes: str, below: dict[str, tuple[Index, Index]]
    ) -> Iterator[tuple[MinMax | Mod | FloorDiv | Compare, str, Env]]:
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
                    if isinstance(atom, MinMax | Mod | FloorDiv) and lanes in index(atom).vars:
                        yield atom, lanes, below
            for each in _choices(node):
                if lanes in each.vars:
                    yield each, lanes, below
        for child in children:
            yield from visit(child, lanes, below)

    return visit(s.body, s.var if s.kind.name == "vector" else "", below)


def _choices(s: Stmt) -> Iterator[Compare]:
    """The comparisons of indices by which a statement chooses what it reads."""
    for e in stmt_exprs(s):
        for chosen in walk(e):
            if isinstance(chosen, Select):
                yield from (c for c in walk(chosen.cond) if isinstance(c, Compare))


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
