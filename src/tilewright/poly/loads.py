"""The loads that a store executes: select is lazy, so a load may run for some instances only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tilewright.ir import (
    Expr,
    FloorDiv,
    Index,
    Load,
    MinMax,
    Mod,
    OfIndex,
    Opaque,
    Select,
    Store,
    children,
)

Region = TypeVar("Region")


def executed_loads(
    s: Store, everywhere: Region, split: Callable[[Expr, Region], tuple[Region, Region] | None]
) -> list[tuple[Load, Region, bool]]:
    """Loads in a fixed order, each with the region of instances that execute it.

    ``split(condition, region)`` gives the parts of a region where a condition holds and where not, or
    ``None`` where data decides; the loads behind it are then marked unsure (``False``). A load that occurs
    several times under the same conditions is listed once; shared subexpressions are visited once.
    """
    found: list[tuple[Load, Region, bool]] = []
    listed: set[tuple[Load, int, bool]] = set()
    seen: set[tuple[int, int, bool]] = set()
    regions: list[Region] = []  # kept alive: they are told apart by identity

    def of_index(x: Index, region: Region, sure: bool) -> None:
        for atom, _ in x.terms:
            match atom:
                case Opaque(expr):
                    of_expr(expr, region, sure)
                case FloorDiv() | Mod():
                    of_index(atom.arg, region, sure)
                case MinMax():
                    for a in atom.args:
                        of_index(a, region, sure)
                case _:
                    pass

    def of_expr(e: Expr, region: Region, sure: bool) -> None:
        key = (id(e), id(region), sure)
        if key in seen:
            return
        seen.add(key)
        match e:
            case Load():
                for x in e.indices:
                    of_index(x, region, sure)
                if (e, id(region), sure) not in listed:
                    listed.add((e, id(region), sure))
                    found.append((e, region, sure))
            case OfIndex():
                of_index(e.index, region, sure)
            case Select():
                of_expr(e.cond, region, sure)
                parts = split(e.cond, region)
                if parts is None:
                    of_expr(e.a, region, False)
                    of_expr(e.b, region, False)
                else:
                    regions.extend(parts)
                    of_expr(e.a, parts[0], sure)
                    of_expr(e.b, parts[1], sure)
            case _:
                for k in children(e):
                    of_expr(k, region, sure)

    for w in s.writes:
        for x in w.indices:
            of_index(x, everywhere, True)
        of_expr(w.value, everywhere, True)
    return found
