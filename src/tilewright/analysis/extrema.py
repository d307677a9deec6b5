"""Extrema with their positions: two running values, one of which says where the other was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tilewright.ir import Binary, Call, Compare, Expr, Load, Select, Store, Unary

#: Which of two values is kept: the greater or the lesser.
Order: TypeAlias = Literal["gt", "lt"]

ORDERS: Final[tuple[Order, ...]] = ("gt", "lt")


@dataclass(frozen=True, slots=True)
class Extremum:
    """``(best, at) = the better one of (best, at) and (value, position)``, each kept in a buffer of its own.

    ``buffers`` are those of the value and of the position.
    """

    order: Order
    buffers: tuple[str, str]
    value: Expr
    position: Expr


def better(order: Order, best: Expr, at: Expr, value: Expr, position: Expr) -> tuple[Expr, Expr]:
    """The better pair of two: of equal values the one at the smaller position, of NaNs the first.

    Pairs may be combined in any order and in any groups: what is kept is the same.
    """
    earlier = Compare("lt", position, at)
    beats: Expr = Compare(order, value, best)
    take: Expr = Binary("or", beats, Binary("and", Compare("eq", value, best), earlier))
    if value.dtype.is_float:
        # a NaN beats every number, the first NaN beats later ones (as in numpy)
        new, old = Call("isnan", (value,)), Call("isnan", (best,))
        number = Unary("not", old)
        take = Select(new, Binary("or", number, earlier), Binary("and", number, take))
    return Select(take, value, best), Select(take, position, at)


def extremum_of(step: Store) -> Extremum | None:
    """The extremum that an assignment of two running values keeps; ``None`` of any other assignment."""
    if len(step.writes) != 2:
        return None
    first, second = step.writes
    if first.indices != second.indices:
        return None
    a, b = first.value, second.value
    if not (isinstance(a, Select) and isinstance(b, Select)):
        return None
    best, at = (Load(w.buffer, w.indices, w.value.dtype) for w in step.writes)
    for order in ORDERS:
        if (a, b) == better(order, best, at, a.a, b.a):
            return Extremum(order, (first.buffer, second.buffer), a.a, b.a)
    return None
