"""Benefits of actions: Gensor's formulas 1 to 3, in forms that lead where its prose says.

As printed, formula 1 is the same number for every axis and counts a larger footprint as a gain, and formula 2
(ratios of latencies) is so much above formula 1 that a walk leaves a level before it has any tiles: there it
is weighted by how full the level is, of what the nest could fill.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, pow
from typing import Final

from tilewright.strategies.construct.space import Edge, Level, State, TilingSpace

#: The power of the footprints' ratio in formula 1: -1 as printed, +1 as the prose has it, 0 without them.
#: Cycles of the best state of 20 walks alone over the least, 5 nests on small caches, 8 seeds: up to 1.11
#: with -1, 1.26 with 0, 1.76 with +1.
BETA: Final = -1.0
#: The weight of going back to the level before.
UNCACHE: Final = 0.3
#: Where the weight of caching is half of its largest, in steps, and how fast it rises there (Sec. IV-C).
MIDDLE: Final = 10.0
RISE: Final = log(5) / 10
LARGEST: Final = 3.0


@dataclass(frozen=True, slots=True)
class Forms:
    """Which forms of the formulas lead a walk.

    ``beta`` is the power of formula 1, ``fill`` says that formula 2 counts times the part of its level that
    is filled, ``uncache`` is the weight of the way back (0: there is none), ``best`` that all complete
    states are kept, the best first; else the last state of a walk alone, as Algorithm 1 has it.
    """

    beta: float = BETA
    fill: bool = True
    uncache: float = UNCACHE
    best: bool = True


#: What leads as the prose says, and what is printed.
REPAIRED: Final = Forms()
PAPER: Final = Forms(beta=-1.0, fill=False, uncache=0.0, best=False)


def benefit(space: TilingSpace, state: State, edge: Edge, step: int, forms: Forms = REPAIRED) -> float:
    """The weight of an edge in the draw of a walk's ``step``."""
    if edge.action == "cache":
        return cache_benefit(space, state, fill=forms.fill) * cache_weight(step)
    if edge.action == "uncache":
        return forms.uncache
    return tile_benefit(space, state, edge.state, forms.beta)


def tile_benefit(space: TilingSpace, before: State, after: State, beta: float = BETA) -> float:
    """Formula 1: how much less passes into the level, times how footprints grow to the power of ``beta``.

    At the registers formula 3 counts, too: what runs side by side there.
    """
    old, new = before.tiles[before.level], after.tiles[after.level]
    gain = space.traffic(old) / space.traffic(new)
    gain *= pow(space.footprint(old) / space.footprint(new), beta)
    if space.is_complete(before):
        gain *= space.model.overlap(space, before, after)
    return gain


def cache_benefit(space: TilingSpace, state: State, *, fill: bool = True) -> float:
    """Formula 2, going on from the level of a state; with ``fill`` times the part of it that is filled."""
    low = space.levels[state.level]
    high = _behind(space, state.level + 1)
    nbytes = space.footprint(state.tiles[state.level])
    most = min(low.capacity, space.footprint(space.extents))
    gain = (low.latency + nbytes / low.bandwidth) / (high.latency + nbytes / high.bandwidth)
    return gain * nbytes / most if fill else gain


def _behind(space: TilingSpace, level: int) -> Level:
    """A cache, or the registers as one: vectors of two operands and a sum for each instruction."""
    if level < len(space.levels):
        return space.levels[level]
    core = space.core
    return Level("registers", 0.0, 3 * core.lanes * space.width * core.per_cycle, 1.0)


def cache_weight(step: int) -> float:
    """What caching counts at a step: half at the start, the largest after about thirty."""
    return LARGEST / (1 + exp(-RISE * (step - MIDDLE)))
