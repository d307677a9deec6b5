"""Scans: stages in which each element is the one before it combined with one more value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.ir import (
    ZERO,
    Binary,
    Compare,
    Condition,
    Const,
    Expr,
    Index,
    Iter,
    Load,
    OfIndex,
    Pred,
    Select,
    Stage,
    Store,
    condition_of,
    loads,
    substitute_index,
    var,
)

#: Operations whose scans may be done in parts: their operands may be grouped in any way.
SCANS: Final = ("add", "mul", "max", "min")


@dataclass(frozen=True, slots=True)
class Scan:
    """``T[i, t] = first`` where ``t`` is 0, and ``op(T[i, t - 1], term)`` after that.

    ``axis`` is the iterator ``t``, ``buffer`` is ``T`` and ``indices`` where an iteration writes, if
    ``guard`` holds; where it does not, it does not for later elements either.
    """

    axis: Iter
    buffer: str
    indices: tuple[Index, ...]
    op: str
    first: Expr
    term: Expr
    guard: Pred


def scan_of(stage: Stage) -> Scan | None:
    """The scan that a stage is; ``None`` of any other stage, and of recurrences that cannot be in parts."""
    ordered = [it for it in stage.iters if it.kind == "ord"]
    guard, body = condition_of(stage.body)
    if len(ordered) != 1 or stage.init is not None or not all(_ends(c, ordered[0].name) for c in guard):
        return None
    if not isinstance(body, Store) or len(body.writes) != 1 or any(it.kind == "red" for it in stage.iters):
        return None
    (axis,), (access,) = ordered, body.writes
    found = _cases(access.value, axis.name)
    if axis.lo != ZERO or found is None:
        return None
    first, step = found
    if not isinstance(step, Binary) or step.op not in SCANS:
        return None
    before = {axis.name: var(axis.name) - 1}
    places = tuple(substitute_index(i, before, lambda e: e.substitute(before)) for i in access.indices)
    old = Load(access.buffer, places, step.dtype)
    if old.indices == access.indices or old not in (step.a, step.b):
        return None
    term = step.b if step.a == old else step.a
    if any(ld.buffer == access.buffer for e in (first, term) for ld in loads(e)):
        return None
    return Scan(axis, access.buffer, access.indices, step.op, first, term, guard)


def _ends(c: Condition, axis: str) -> bool:
    """Whether a condition holds for all values of an iterator up to some one, if for any."""
    if c.op != "ge" or c.index is None:
        return axis not in c.vars
    n = c.index.coefficient(axis)
    return n <= 0 and axis not in (c.index - n * var(axis)).vars


def _cases(value: Expr, axis: str) -> tuple[Expr, Expr] | None:
    """What a value is where the iterator is 0, and elsewhere; ``None`` where it makes no such difference."""
    match value:
        case Select(cond, a, b):
            at_zero = _is_at_zero(cond, axis)
            return None if at_zero is None else (a, b) if at_zero else (b, a)
        case Binary(op, a, b):
            # the difference may be made in an operand alone
            for inner, outer in ((_cases(a, axis), b), (_cases(b, axis), a)):
                if inner is not None and isinstance(a if outer is b else b, Select):
                    return Binary(op, inner[0], outer), Binary(op, inner[1], outer)
    return None


def _is_at_zero(cond: Expr, axis: str) -> bool | None:
    """Whether a condition says that an iterator from 0 is 0, or that it is not; ``None`` of others."""
    a, b = (_place(e) for e in (cond.a, cond.b)) if isinstance(cond, Compare) else (None, None)
    if not isinstance(cond, Compare) or a is None or b is None:
        return None
    gap, t = b - a, var(axis)
    at_zero = {"eq": (t, -t), "lt": (1 - t,), "le": (-t,), "gt": (t - 1,), "ge": (t,)}
    past = {"ne": (t, -t), "lt": (t,), "le": (t - 1,), "gt": (-t,), "ge": (1 - t,)}
    return True if gap in at_zero.get(cond.op, ()) else False if gap in past.get(cond.op, ()) else None


def _place(e: Expr) -> Index | None:
    """The index that an expression is the value of; ``None`` of other values."""
    match e:
        case OfIndex():
            return e.index
        case Const(value) if isinstance(value, int):
            return Index(value)
    return None
