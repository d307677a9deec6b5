"""Structural hashes of states, coarse to fine: what sampling puts into one bucket, what passes remember."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil, log2
from random import Random
from typing import Final

from tilewright.strategies.beam.state import Place, State, Tiling

#: Depth from which on two states with one hash are the same.
FINEST: Final = 5


def structure(state: State, depth: int) -> tuple[Hashable, ...]:
    """What a state looks like to a depth, one value a stage.

    0: which stages have nests of their own; 1: which nest every stage is in, at tiles or inlined; 2: rows,
    too; 3: which axes are cut, in lanes, parallel; 4: the order of magnitude of tiles; 5: everything.
    """
    return tuple(token(*each, depth) for each in zip(state.places, state.homes, state.tilings, strict=True))


def token(place: Place, home: int, tiling: Tiling | None, depth: int) -> Hashable:
    """What one stage of a state looks like to a depth."""
    if depth >= FINEST:
        return place, home, tiling
    shown: Hashable = place
    if place not in ("", "own"):
        if depth == 0:
            shown = "inside"
        else:
            shown = place if depth >= 2 or place == "inline" else "tile", home
    return (shown, _tiling(tiling, depth)) if depth >= 3 and tiling is not None else shown


def _tiling(t: Tiling, depth: int) -> Hashable:
    cut = tuple(size > 0 for size in t.tile)
    if depth == 3:
        return cut, t.vector, t.parallel
    return cut, t.vector, t.parallel, t.order, sum(size.bit_length() for size in t.tile) // 2


def sample(size: int, rng: Random) -> Sequence[int]:
    """Of a bucket of so many states, max(1, ceil(log2 B)) at random, by their numbers."""
    count = max(1, ceil(log2(size)))
    return rng.sample(range(size), count) if count < size else range(size)
