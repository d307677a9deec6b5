"""Footprints: how much of a buffer an access touches while its iterators take so many values each."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilewright.ir import FloorDiv, Index, Load, Mod, Var


def footprint(load: Load, extents: Mapping[str, int]) -> int:
    """Bytes that a load takes in a cache while its iterators, from 0, take ``extents`` values each.

    Strides along the last two dimensions count as what they span: of a cache with few ways, every other line
    takes as much room as all of them.
    """
    last = len(load.indices) - 2
    return prod(_values(i, extents, n >= last) for n, i in enumerate(load.indices)) * load.dtype.bytes


def _values(i: Index, extents: Mapping[str, int], spanned: bool) -> int:
    """Different values of an index, at most, or all those that it spans."""
    spans = [(abs(c), span(atom, extents)) for atom, c in i.terms]
    whole = 1 + sum(c * span for c, span in spans)
    return whole if spanned else min(whole, prod(span + 1 for _, span in spans))


def span(atom: object, extents: Mapping[str, int]) -> int:
    """The largest value of an atom less its smallest."""
    if isinstance(atom, Var):
        return extents.get(atom.name, 1) - 1
    if isinstance(atom, FloorDiv | Mod):
        inner = sum(abs(c) * span(a, extents) for a, c in atom.arg.terms)
        return inner // atom.divisor if isinstance(atom, FloorDiv) else min(inner, atom.divisor - 1)
    return 0
