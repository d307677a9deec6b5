"""Conditions of nests: those on loops cut what runs, into unions where need be; those on data are evaluated.

if (i == 0 || j == m - 1) A; else B;    ->    A where or(i == 0, j == m - 1), B where and(i != 0, j != m - 1)
if (i < n && x[i] > 0.0) A;             ->    A where i < n, if x[i] > 0.0
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright.ir import (
    BOOL,
    I64,
    Binary,
    Compare,
    Condition,
    Const,
    Expr,
    Index,
    OfIndex,
    Pred,
    Select,
    Unary,
    eq0,
    ge0,
    holds,
    index,
    is_opaque,
    loads,
    walk,
)

TRUE: Final = Const(True, BOOL)
FALSE: Final = Const(False, BOOL)
_OPPOSITE: Final = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "ne": "eq", "eq": "ne"}
_CONSTANT: Final = {
    "lt": lambda d: d < 0,
    "le": lambda d: d <= 0,
    "gt": lambda d: d > 0,
    "ge": lambda d: d >= 0,
    "eq": lambda d: d == 0,
    "ne": lambda d: d != 0,
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a front end is in a nest: loops around, conditions, and what names of loops mean.

    Inside of a black box (``box``) ``loops`` are those around it, ``where`` and ``conds`` what holds in it.
    """

    loops: tuple[tuple[str, Index, Index], ...] = ()
    names: tuple[tuple[str, Index], ...] = ()
    where: Pred = ()
    conds: tuple[Expr, ...] = ()
    box: bool = False

    def value(self, name: str) -> Index | None:
        """The value of a loop's variable; ``None`` for other names."""
        return next((v for n, v in reversed(self.names) if n == name), None)


def compared(op: str, a: Index, b: Index) -> Expr:
    """A comparison (``lt``, ``le``, ``gt``, ``ge``, ``eq``, ``ne``) that loops and sizes decide."""
    if (a - b).is_const:
        return TRUE if _CONSTANT[op]((a - b).const) else FALSE
    return Compare(op, OfIndex(a, I64), OfIndex(b, I64))


def both(a: Expr, b: Expr) -> Expr:
    """``a and b``; what ``b`` needs may be missing where ``a`` does not hold."""
    if a == FALSE or b == TRUE:
        return a
    if a == TRUE:
        return b
    return Select(a, b, FALSE) if _may_fail(b) else Binary("and", a, b)


def either(a: Expr, b: Expr) -> Expr:
    """``a or b``; what ``b`` needs may be missing where ``a`` holds."""
    if a == TRUE or b == FALSE:
        return a
    if a == FALSE:
        return b
    return Select(a, TRUE, b) if _may_fail(b) else Binary("or", a, b)


def _may_fail(e: Expr) -> bool:
    """Whether a value may be missing: it is loaded, or divided by what may be zero."""
    return any(True for _ in loads(e)) or any(
        isinstance(part, Binary) and part.op in ("truncdiv", "rem", "floordiv", "mod", "shl", "shr")
        for part in walk(e)
    )


def opposite(e: Expr) -> Expr:
    """The condition that holds where ``e`` does not."""
    match e:
        case Const():
            return FALSE if e.value else TRUE
        case Compare() if not e.a.dtype.is_float:  # NaN is neither less nor not less
            return Compare(_OPPOSITE[e.op], e.a, e.b)
        case Binary(op="and"):
            return either(opposite(e.a), opposite(e.b))
        case Binary(op="or"):
            return both(opposite(e.a), opposite(e.b))
        case Select(a, b, c) if e.dtype == BOOL and FALSE in (b, c):
            return either(opposite(a), opposite(b)) if c == FALSE else Select(a, TRUE, opposite(c))
        case Select(a, b, c) if b == TRUE:
            return both(opposite(a), opposite(c))
        case Unary(op="not"):
            return e.a
    return Unary("not", e)


def decided_by_loops(e: Expr) -> bool:
    """Whether loops and sizes alone decide a condition, by affine comparisons."""
    match e:
        case Const():
            return True
        case Compare(a=OfIndex(a), b=OfIndex(b)):
            return e.a.dtype.holds_indices and not is_opaque(a) and not is_opaque(b)
        case Binary(op="and" | "or"):
            return decided_by_loops(e.a) and decided_by_loops(e.b)
        case Unary(op="not"):
            return decided_by_loops(e.a)
    return False


def conjuncts(e: Expr) -> list[Expr]:
    """The conditions that all hold where ``e`` does, in the order in which they are asked."""
    match e:
        case Binary(op="and"):
            return [*conjuncts(e.a), *conjuncts(e.b)]
        case Select(a, b, c) if c == FALSE:
            return [*conjuncts(a), *conjuncts(b)]
    return [e]


def under(at: Place, e: Expr) -> Place:
    """Where a condition holds: what loops decide of it cuts them, the rest is evaluated."""
    where: list[Condition] = []
    conds: list[Expr] = []
    for part in conjuncts(e):
        if decided_by_loops(part):
            where.append(_cut(part))
        else:
            conds.append(part)
    return replace(at, where=(*at.where, *where), conds=(*at.conds, *conds))


def _cut(e: Expr) -> Condition:
    match e:
        case Const():
            return ge0(index(0 if e.value else -1))
        case Compare(op=op, a=OfIndex(a), b=OfIndex(b)) if op != "ne":
            return {
                "lt": ge0(b - a - 1),
                "le": ge0(b - a),
                "gt": ge0(a - b - 1),
                "ge": ge0(a - b),
                "eq": eq0(a - b),
            }[op]
    return holds(e)
