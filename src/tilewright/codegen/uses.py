"""What a lowered statement reads. Expressions are graphs that share nodes: each node is seen once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tilewright.ir import (
    Access,
    Binary,
    Exec,
    Expr,
    For,
    Index,
    Load,
    LoopFunction,
    Select,
    Seq,
    Stmt,
    Store,
    children,
    indices_of,
    stmt_children,
    stmt_exprs,
    stmt_writes,
    var,
    walk_index,
)


def loads_of(
    e: Expr, seen: set[int] | None = None, below: Callable[[Expr], Sequence[Expr]] = children
) -> list[Load]:
    """The loads of an expression, those inside of indices included; nodes whose id is in ``seen`` are not.

    ``below`` are the operands of an expression that are looked at.
    """
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
        stack.extend(below(node))
    return out


def unchanging(func: LoopFunction) -> frozenset[str]:
    """The arguments of one float each that a function reads alone: factors of what its loops compute.

    They are loaded before all loops, and what is computed of them alone is computed there: LLVM would do
    it in each turn, as it cannot tell whether a store changes them. No integers: dividing by one in a loop
    that never runs must not trap.
    """
    written = {name for name, _ in stmt_writes(func.body)} | {*func.outputs, *func.inouts}
    shared = {b.alias for b in func.buffers}
    return frozenset(
        b.name
        for b in func.buffers
        if not b.shape and b.dtype.is_float and b.alias is None and b.name not in written | shared
    )


def neighbours_of(
    values: Sequence[Expr], flat: Callable[[Access | Load], Index | None]
) -> dict[int, tuple[Load, int]]:
    """Loads whose places data tell, in pairs of elements side by side.

    By the identity of its indices, for each load of a pair the other one, and whether that is the element
    after it (1) or before it (-1). All of them are evaluated whenever the values are: none is on one side of
    a choice.
    """
    found: dict[tuple[str, Index], dict[int, Load]] = {}
    seen: set[int] = set()
    for ld in [ld for e in values for ld in loads_of(e, seen, _always_evaluated)]:
        place = flat(ld) if data_in(ld.indices) else None
        if place is not None:
            found.setdefault((ld.buffer, Index(0, place.terms)), {}).setdefault(place.const, ld)
    pairs: dict[int, tuple[Load, int]] = {}
    for at in found.values():
        for n in sorted(at):
            if n + 1 in at and id(at[n].indices) not in pairs:
                pairs[id(at[n].indices)], pairs[id(at[n + 1].indices)] = (at[n + 1], 1), (at[n], -1)
    return pairs


def _always_evaluated(e: Expr) -> Sequence[Expr]:
    """The operands of an expression, but those of which a condition decides."""
    if isinstance(e, Select):
        return (e.cond,)
    return () if isinstance(e, Binary) and e.dtype.kind == "bool" else children(e)


def statement_loads(s: Stmt) -> list[Load]:
    """The loads of a statement tree."""
    seen: set[int] = set()
    return [ld for e in stmt_exprs(s) for ld in loads_of(e, seen)]


#: Operations from which on a value is long: it waits for one after the other, and vectors of it side by side
#: take more registers than there are.
LONG_VALUE: Final = 11


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


def stores_long_values(loop: For, flat: Callable[[Access | Load], Index | None]) -> bool:
    """Whether a loop does nothing but store long values, which lie side by side like all they are made of.

    ``flat`` gives the place of an access in memory, ``None`` where it is in registers or not known.
    """
    stores = loop.body.stmts if isinstance(loop.body, Seq) else (loop.body,)
    return bool(stores) and all(
        isinstance(s, Store)
        and len(s.writes) == 1
        and operations_of(s.writes[0].value) >= LONG_VALUE
        and side_by_side(loop.var, [s.writes[0], *statement_loads(s)], flat)
        for s in stores
    )


def folds_long_values(
    v: str, before: Sequence[Stmt], term: Expr, flat: Callable[[Access | Load], Index | None]
) -> bool:
    """Whether a loop over ``v`` folds long values, which lie side by side like all they are made of.

    ``before`` is done before ``term`` is folded: what is stored there, and then folded, counts as well.
    """
    if not all(isinstance(s, Store) and len(s.writes) == 1 for s in before):
        return False
    writes = [w for s in before if isinstance(s, Store) for w in s.writes]
    long = max(operations_of(e) for e in (term, *(w.value for w in writes))) >= LONG_VALUE
    loads = [ld for s in before for ld in statement_loads(s)] + loads_of(term)
    return long and side_by_side(v, [*writes, *loads], flat)


def side_by_side(
    v: str, accesses: Iterable[Access | Load], flat: Callable[[Access | Load], Index | None]
) -> bool:
    """Whether accesses in memory have neighbouring elements for neighbouring ``v``, or all the same one."""
    for access in accesses:
        place = flat(access)
        along = 0 if place is None else place.coefficient(v)
        if place is None or along not in (0, 1) or v in (place - var(v) * along).vars:
            return False
    return True


def data_in(indices: Iterable[Index]) -> bool:
    """Whether some index depends on data, not only on loops and sizes."""
    return any(next(walk_index(i), None) is not None for i in indices)


def executions(s: Stmt) -> Iterator[Exec]:
    """The instructions in a statement."""
    if isinstance(s, Exec):
        yield s
    for k in stmt_children(s):
        yield from executions(k)


def element_wise(s: Stmt) -> set[str]:
    """Buffers that a statement reads or writes by elements, not by instructions."""
    return {ld.buffer for ld in statement_loads(s)} | set(_stored(s))


def _stored(s: Stmt) -> Iterator[str]:
    """The buffers that stores write."""
    if isinstance(s, Store):
        yield from (w.buffer for w in s.writes)
    for k in stmt_children(s):
        yield from _stored(k)
