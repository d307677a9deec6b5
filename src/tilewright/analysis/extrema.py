"""Extrema with their positions: two running values, one of which says where the other was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tilewright.ir import Access, Binary, Call, Compare, Expr, Load, Select, Unary

#: Which of two values is kept: the greater or the lesser.
Order: TypeAlias = Literal["gt", "lt"]

ORDERS: Final[tuple[Order, ...]] = ("gt", "lt")


@dataclass(frozen=True, slots=True)
class BestPair:
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


def best_pair_of(writes: Sequence[Access]) -> BestPair | None:
    """The extremum that two assignments keep; ``None`` of others."""
    if len(writes) != 2 or writes[0].indices != writes[1].indices:
        return None
    values = tuple(w.value for w in writes)
    best, at = (Load(w.buffer, w.indices, w.value.dtype) for w in writes)
    match values:
        case (Select(_, value, _), Select(_, position, _)):
            for order in ORDERS:
                if values == better(order, best, at, value, position):
                    return BestPair(order, (writes[0].buffer, writes[1].buffer), value, position)
    return None
