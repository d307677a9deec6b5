"""Where borders fold the indices of element-wise stages: there their loops are cut."""

from __future__ import annotations

from typing import Final

from tilewright.ir import Index, MinMax, Stage, stmt_loads

#: Pieces that a loop is cut into where its loads fold: each is code of its own.
MOST_FOLDS: Final = 4


def folds(stage: Stage, axis: str) -> list[int]:
    """Where the smallest or largest of indices along an axis is another one: borders that mirror or repeat.

    Between two of these places loads move by single elements, there or back. None where there are many.
    """
    extent = next(it.extent for it in stage.iters if it.name == axis)
    if not extent.is_const:
        return []
    found: set[int] = set()
    for ld in stmt_loads(stage.body):
        for i in ld.indices:
            found |= _crossings(i, axis)
    inside = sorted(at for at in found if 0 < at < extent.as_int())
    return inside if len(inside) <= MOST_FOLDS else []


def _crossings(i: Index, axis: str) -> set[int]:
    """The values of an iterator from which on another argument of a minimum or maximum may be the one."""
    found: set[int] = set()
    for atom, _ in i.terms:
        if not isinstance(atom, MinMax) or {v for arg in atom.args for v in arg.vars} != {axis}:
            continue
        lines = [line for arg in atom.args for line in _lines(arg)]
        for n, one in enumerate(lines):
            for other in lines[:n]:
                step = one.coefficient(axis) - other.coefficient(axis)
                if step:
                    found.add(-((one.const - other.const) // step))
        for arg in atom.args:
            found |= _crossings(arg, axis)
    return found


def _lines(i: Index) -> list[Index]:
    """The affine indices that an index may be."""
    minmax = [(atom, c) for atom, c in i.terms if isinstance(atom, MinMax)]
    if not minmax:
        return [i]
    if len(i.terms) > 1 or minmax[0][1] not in (1, -1):
        return []
    (atom, sign) = minmax[0]
    return [line * sign + i.const for arg in atom.args for line in _lines(arg)]
