"""The tree alone: tiles of one level after the other grow, and never shrink (Roller, which Gensor extends).

At each level the axis grows that saves the most bytes passing into the level for each byte that the tile
takes more of it, as long as something is saved and the level holds the tile; then the next level begins.
Sizes are those of the states, which are aligned to the register tiles.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.strategies.construct.model import price
from tilewright.strategies.construct.space import Price, State, TilingSpace


def tree_states(space: TilingSpace) -> list[tuple[Price, State]]:
    """The states of the last level on the only path there is, the best first."""
    state, found = space.initial(), dict[State, Price]()
    for level in range(len(space.levels) + 1):
        state = replace(state, level=level)
        while True:
            if space.is_complete(state):
                found[state] = price(space, state)
            grown = max(_growths(space, state), key=lambda each: each[0], default=None)
            if grown is None:
                break
            state = grown[1]
    return sorted(((cost, state) for state, cost in found.items()), key=lambda each: (each[0], each[1].tiles))


def _growths(space: TilingSpace, state: State) -> list[tuple[float, State]]:
    """Larger tiles that save traffic, each with the bytes saved for each byte taken."""
    tile = state.tiles[state.level]
    found = []
    for edge in space.edges(state):
        if edge.action != "tile":
            continue
        grown = edge.state.tiles[state.level]
        saved = space.traffic(tile) - space.traffic(grown)
        taken = space.footprint(grown) - space.footprint(tile)
        if saved > 0:
            found.append((saved / taken if taken > 0 else float("inf"), edge.state))
    return found
