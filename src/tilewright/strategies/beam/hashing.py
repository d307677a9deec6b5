"""Structural hashes of states, coarse to fine: what sampling puts into one bucket, what passes remember."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import ceil, log2
from random import Random
from typing import Final

from tilewright.strategies.beam.graph import Graph
from tilewright.strategies.beam.state import State, Tiling

#: Depth from which on two states with one hash are the same.
FINEST: Final = 5


def structure(g: Graph, state: State, depth: int) -> Hashable:
    """What a state looks like to a depth.

    0: which stages have nests of their own; 1: which nest every stage is in, at tiles or inlined; 2: rows,
    too; 3: which axes are cut, in lanes, parallel; 4: the order of magnitude of tiles; 5: everything.
    """
    if depth >= FINEST:
        return state
    out: list[Hashable] = []
    for n, place in enumerate(state.places):
        if place in ("", "own") or depth == 0:
            out.append(place if place in ("", "own") else "inside")
        else:
            shown = place if depth >= 2 or place == "inline" else "tile"
            out.append((shown, state.homes[n]))
        tiling = state.tilings[n]
        if depth >= 3 and tiling is not None:
            out.append(_tiling(tiling, depth))
    return tuple(out)


def _tiling(t: Tiling, depth: int) -> Hashable:
    cut = tuple(size > 0 for size in t.tile)
    if depth == 3:
        return cut, t.vector, t.parallel
    return cut, t.vector, t.parallel, t.order, sum(size.bit_length() for size in t.tile) // 2


def sample(buckets: Mapping[Hashable, Sequence[State]], rng: Random) -> list[State]:
    """Of each bucket of size B, max(1, ceil(log2 B)) members at random, in the order of the buckets."""
    out: list[State] = []
    for members in buckets.values():
        count = max(1, ceil(log2(len(members))))
        out += rng.sample(list(members), count) if count < len(members) else members
    return out
