"""Sums of products as products of matrices: rows, columns, terms and the two factors."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis.updates import reduction_of, starts_at_zero
from tilewright.ir import (
    BF16,
    F16,
    I8,
    U8,
    ZERO,
    Cast,
    Condition,
    Expr,
    Iter,
    Stage,
    tf32_argument,
    tf32_rounded,
)


@dataclass(frozen=True, slots=True)
class Roles:
    """The iterators of a sum of products by what they are to the matrices, and its two factors.

    ``rows`` move the first factor alone, ``columns`` the second, along which results lie together.
    """

    batch: tuple[Iter, ...]
    rows: tuple[Iter, ...]
    columns: tuple[Iter, ...]
    sums: tuple[Iter, ...]
    a: Expr
    b: Expr
    guard: tuple[Condition, ...]

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """How many products, rows, columns and terms there are."""
        batch, rows, columns, sums = (
            prod(it.extent.as_int() for it in of) for of in (self.batch, self.rows, self.columns, self.sums)
        )
        return batch, rows, columns, sums


def roles_of(stage: Stage) -> Roles | str:
    """The roles of a stage's iterators in a product of matrices, or why it is none."""
    if len(stage.writes) > 1:
        return "it has several results"
    if not all(it.lo == ZERO and it.extent.is_const and it.kind != "ord" for it in stage.iters):
        return "its axes do not go from 0 to constants"
    update = reduction_of(stage)
    if update is None or update.op != "add":
        return "it is no sum"
    if not starts_at_zero(stage):
        return "its sums do not begin with zero"
    if update.factors is None:
        return "it does not sum products"
    if any(c.expr is not None for c in update.guard):
        return "a condition of it depends on data"
    a, b = update.factors
    left, right = set(a.vars), set(b.vars)
    pars = [it for it in stage.iters if it.kind == "par"]
    if pars and pars[-1].name in left and pars[-1].name not in right:
        a, b, left, right = b, a, right, left
    rows = tuple(it for it in pars if it.name in left and it.name not in right)
    columns = tuple(it for it in pars if it.name in right and it.name not in left)
    if not rows or not columns:
        return f"no axis moves {'the first' if not rows else 'the second'} factor alone"
    found = Roles(
        tuple(it for it in pars if it not in rows and it not in columns),
        rows,
        columns,
        tuple(it for it in stage.iters if it.kind == "red"),
        a,
        b,
        tuple(update.guard),
    )
    guards = guards_of(found)
    return guards if isinstance(guards, str) else found


def guards_of(roles: Roles) -> tuple[list[Condition], list[Condition]] | str:
    """The conditions of the sum, by the factor that they make zero; or why neither can hide one.

    Those on terms and batch alone make both zero: where one fails, neither factor may be there to read.
    """
    common = {it.name for it in (*roles.batch, *roles.sums)}
    left: list[Condition] = []
    right: list[Condition] = []
    for c in roles.guard:
        names: Set[str] = set(c.vars)
        if names <= common:
            left.append(c)
            right.append(c)
        elif names <= common | {it.name for it in roles.columns}:
            right.append(c)
        elif names <= common | {it.name for it in roles.rows}:
            left.append(c)
        else:
            return f"{c} depends on rows and columns"
    return left, right


#: Types that converting to wider ones leaves as they are.
NARROW: Final = (F16, BF16, I8, U8)


def narrowed(factor: Expr) -> tuple[Expr, Callable[[Expr], Expr]]:
    """What a factor is a conversion or a rounding of, and what makes it the factor again."""
    rounded = tf32_argument(factor)
    if rounded is not None:
        return rounded, tf32_rounded
    if isinstance(factor, Cast) and factor.mode == "wrap" and factor.a.dtype in NARROW:
        wide = factor.dtype
        return factor.a, lambda e: Cast(e, wide)
    return factor, unchanged


def unchanged(e: Expr) -> Expr:
    """A factor that is none: it stays as it is."""
    return e
