"""Reads that are zero beyond what they read: which those are, and whether their conditions say just that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import numpy as np

from tilewright.ir import Compare, Const, Expr, Index, Load, OfIndex, Select, evaluate_index

#: Values of the variables of a condition that are looked at; conditions with more are taken for others.
MOST_POINTS: Final = 1 << 22


def padded_read(value: Expr) -> tuple[Load, tuple[Index, ...]] | None:
    """The load of a value that is zero unless certain indices are 0 or more, and these; ``None`` for others.

    >>> from tilewright.ir import F32, I64, var
    >>> load = Load("A", (var("i"),), F32)
    >>> inside = Compare("ge", OfIndex(7 - var("i"), I64), Const(0, I64))
    >>> read, conditions = padded_read(Select(inside, load, Const(0.0, F32)))
    >>> print(read, *conditions)
    A[i] -i + 7
    """
    conditions: list[Index] = []
    while isinstance(value, Select):
        cond, other = value.cond, value.b
        if not isinstance(other, Const) or other.value != 0 or not isinstance(cond, Compare):
            return None
        if cond.op != "ge" or not isinstance(cond.a, OfIndex) or cond.b != Const(0, cond.b.dtype):
            return None
        conditions.append(cond.a.index)
        value = value.a
    return (value, tuple(conditions)) if isinstance(value, Load) else None


def only_inside(
    indices: Sequence[Index],
    shape: Sequence[int],
    conditions: Sequence[Index],
    ranges: Mapping[str, tuple[int, int]],
) -> bool:
    """Whether conditions hold just where indices are within a shape; ``ranges`` are [lo, hi) of variables.

    Indices that no condition is about are within it.
    """
    held: dict[int, Index] = {}
    for x in conditions:
        found = [d for d, i in enumerate(indices) if x.vars and x.vars <= i.vars and d not in held]
        if not found:
            return False
        held[found[0]] = x
    for d, x in held.items():
        names = sorted(indices[d].vars)
        if not set(names) <= set(ranges):
            return False
        if prod(ranges[name][1] - ranges[name][0] for name in names) > MOST_POINTS:
            return False
        at = dict(zip(names, np.ogrid[tuple(slice(*ranges[name]) for name in names)], strict=True))
        where, said = (np.asarray(evaluate_index(i, at)) for i in (indices[d], x))  # type: ignore[arg-type]
        if (((where >= 0) & (where < shape[d])) != (said >= 0)).any():
            return False
    return True
