"""Clamped indices away from borders: what they are where no clamp takes effect, and where that is."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import Index, Load, MinMax, index


def unclamped(atom: MinMax, name: str) -> tuple[Index, tuple[Index, ...]] | None:
    """The one argument of nested minima and maxima that moves with ``name``, and where it is the result.

    That is where none of the given indices is negative. ``None`` where several arguments move, or none.
    """
    moved = [a for a in atom.args if name in a.vars]
    if len(moved) != 1:
        return None
    (arg,) = moved
    x = arg
    conditions: tuple[Index, ...] = ()
    nested = [inner for inner, _ in arg.terms if isinstance(inner, MinMax)]
    if nested:
        below = unclamped(nested[0], name) if arg - arg.const == index(nested[0]) else None
        if below is None:
            return None
        x, conditions = below[0] + arg.const, below[1]
    others = (a for a in atom.args if a is not arg)
    return x, (*conditions, *(a - x if atom.op == "min" else x - a for a in others))


def away_from_borders(ld: Load, name: str) -> Load:
    """The load as it moves along ``name`` away from borders: without the clamps of what moves."""

    def of(x: Index) -> Index:
        out = Index(x.const)
        for atom, c in x.terms:
            inside = unclamped(atom, name) if isinstance(atom, MinMax) else None
            out = out + (index(atom) if inside is None else inside[0]) * c
        return out

    if not any(isinstance(atom, MinMax) for x in ld.indices for atom, _ in x.terms):
        return ld
    return replace(ld, indices=tuple(map(of, ld.indices)))
