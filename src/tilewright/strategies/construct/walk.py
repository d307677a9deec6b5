"""Walks: each step draws an edge by its benefit, until the temperature is down (Gensor, Algorithms 1 and 2).

Repaired: one draw a step, of which each edge takes its part; edges to states that a level cannot hold do not
exist; what is kept are the complete states of all walks, sorted by the model, in place of the last one.
The best states of each walk go down from there as long as one change of a tile, or two at one level, improve
them, which the paper does not have: walks alone end up to 1.11 times above the best state of small spaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from tilewright.strategies.construct.benefit import REPAIRED, Forms, benefit
from tilewright.strategies.construct.model import price
from tilewright.strategies.construct.space import Price, State, Tile, TilingSpace

#: Walks from the same start.
WALKS: Final = 20
#: Descents after a walk, from its best states that differ in their tiles of registers.
DESCENTS: Final = 3
#: The temperature is halved at each step, from 1 to this: a hundred steps.
COLD: Final = 2.0**-100


def best_states(
    space: TilingSpace, rng: Random, walks: int = WALKS, forms: Forms = REPAIRED
) -> list[tuple[Price, State]]:
    """The complete states that walks and the descents from the best of each came past, the best first.

    In the paper's form those at which walks ended, whatever was not tiled by then as it was at the start.
    """
    found: dict[State, Price] = {}
    for _ in range(walks):
        path = walk(space, rng, forms)
        if not forms.best:
            last = replace(path[-1], level=len(space.levels))
            found[last] = price(space, last)
            continue
        complete = {s: price(space, s) for s in path if space.is_complete(s)}
        # for each tile of registers, which is not left on the way down where caches decide
        best: dict[Tile, State] = {}
        for state in sorted(complete, key=lambda state: (complete[state], state.tiles)):
            best.setdefault(state.tiles[-1], state)
        for state in list(best.values())[:DESCENTS]:
            complete |= {below: price(space, below) for below in descent(space, state)}
        found |= complete
    return sorted(((cost, state) for state, cost in found.items()), key=lambda each: (each[0], each[1].tiles))


def walk(space: TilingSpace, rng: Random, forms: Forms = REPAIRED) -> list[State]:
    """The states of one walk, in order."""
    state, temperature, path = space.initial(), 1.0, [space.initial()]
    while temperature > COLD:
        edges = list(space.edges(state))
        weights = [benefit(space, state, edge, len(path) - 1, forms) for edge in edges]
        if not any(weights):
            break
        state = rng.choices(edges, weights)[0].state
        path.append(state)
        temperature /= 2
    return path


def descent(space: TilingSpace, state: State) -> list[State]:
    """The states from a complete one down to one that no two changes of tiles at one level improve."""
    path = [state]
    while True:
        least = min(_around(space, path[-1]), key=lambda each: (price(space, each), each.tiles))
        if price(space, least) >= price(space, path[-1]):
            return path
        path.append(least)


def _around(space: TilingSpace, state: State) -> Iterator[State]:
    """A state, and those that one or two changes of tiles at one level lead to."""
    yield state
    for level in range(len(state.tiles)):
        for first in space.edges(replace(state, level=level)):
            if first.stays:
                yield replace(first.state, level=state.level)
                for second in space.edges(first.state):
                    if second.stays:
                        yield replace(second.state, level=state.level)
