"""Boolean and integer expressions as isl sets and indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import islpy as isl

from tilewright.ir import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Index,
    OfIndex,
    Unary,
    index,
    is_opaque,
    substitute_index,
)

if TYPE_CHECKING:
    # spaces ask here what conditions mean
    from tilewright.poly.spaces import Domain


def truth(e: Expr, space: Domain, scope: Mapping[str, Index]) -> isl.Set | None:
    """Points where a boolean expression over indices holds; ``None`` where data decides."""
    match e:
        case Const():
            return space.universe() if e.value else space.empty()
        case Compare():
            a, b = integer(e.a, scope), integer(e.b, scope)
            if a is None or b is None:
                return None
            match e.op:
                case "lt":
                    return space.at_least(b - a - 1)
                case "le":
                    return space.at_least(b - a)
                case "gt":
                    return space.at_least(a - b - 1)
                case "ge":
                    return space.at_least(a - b)
                case "eq":
                    return space.equal(a - b)
                case _:
                    return space.equal(a - b).complement()
        case Unary(op="not"):
            inner = truth(e.a, space, scope)
            return None if inner is None else inner.complement()
        case Binary(op="and" | "or"):
            p, q = truth(e.a, space, scope), truth(e.b, space, scope)
            if p is None or q is None:
                return None
            return p.intersect(q) if e.op == "and" else p.union(q)
        case _:
            return None


def integer(e: Expr, scope: Mapping[str, Index]) -> Index | None:
    """An integer expression as an index over the loops, ``None`` where it may wrap or is not quasi-affine."""
    match e:
        case Const() if isinstance(e.value, int):
            return index(int(e.value))
        case OfIndex():
            return (
                substitute_index(e.index, scope) if e.dtype.holds_indices and not is_opaque(e.index) else None
            )
        case Cast() if e.dtype.holds_indices and e.mode == "wrap":
            return integer(e.a, scope)
        case Binary(op="add" | "sub" | "mul") if e.dtype.holds_indices:
            a, b = integer(e.a, scope), integer(e.b, scope)
            if a is None or b is None or (e.op == "mul" and a.terms and b.terms):
                return None
            return a + b if e.op == "add" else a - b if e.op == "sub" else a * b
        case _:
            return None
