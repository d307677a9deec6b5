"""Walks: one seed one result, and near the best state of the same space, enumerated."""

from itertools import product
from random import Random

import pytest
from tests.unit.plan.general.test_rule import min_plus, three_factors
from tests.unit.plan.test_unit import product as matrices
from tests.unit.strategies.construct.test_space import small

from tilewright.strategies.construct.model import compute_cycles, level_cycles, price
from tilewright.strategies.construct.space import State
from tilewright.strategies.construct.walk import best_states, descent, walk


def least_cycles(tilings):
    """The fewest cycles of all complete states, each tile of each level looked at."""
    inside = set(tilings.registers)
    # the fewest cycles of what is inside of a tile, from the registers outwards
    cycles = {tile: compute_cycles(tilings, tile) for tile in inside}
    for level in range(len(tilings.levels) - 1, -1, -1):
        around = {}
        for tile in product(*(tilings.sizes(level, axis) for axis in range(len(tilings.axes)))):
            if tilings.footprint(tile) > tilings.levels[level].capacity:
                continue
            within = [
                cost
                for inner, cost in cycles.items()
                if all(a <= b for a, b in zip(inner, tile, strict=True))
            ]
            if within:
                around[tile] = max(min(within), level_cycles(tilings, level, tile))
        cycles = around
    return min(cycles.values())


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "program",
    [matrices(32, 32, 32), matrices(45, 70, 33), three_factors(32, 32, 32), min_plus(41, 67, 53)],
    ids=["product", "awkward product", "three factors", "min-plus"],
)
@pytest.mark.parametrize("seed", range(2))
def test_twenty_walks_come_near_the_best_state(program, seed):
    tilings = small(program)
    (cycles, _, _), state = best_states(tilings, Random(seed))[0]
    assert tilings.is_legal(state)
    best = least_cycles(tilings)
    assert best <= cycles <= 1.1 * best


def test_the_enumeration_sees_all_that_walks_see():
    tilings = small(matrices(8, 32, 8))
    best = least_cycles(tilings)
    assert all(cost[0] >= best for cost, _ in best_states(tilings, Random(5), walks=3))


def test_a_descent_ends_no_higher_than_it_began_and_stays_legal():
    tilings = small()
    start = next(state for state in walk(tilings, Random(2)) if tilings.is_complete(state))
    path = descent(tilings, start)
    prices = [price(tilings, state) for state in path]
    assert path[0] == start and len(path) > 1
    assert prices == sorted(prices, reverse=True)
    assert all(tilings.is_legal(state) and tilings.is_complete(state) for state in path)


def test_one_seed_one_walk():
    tilings = small()
    assert walk(tilings, Random(3)) == walk(tilings, Random(3))
    assert walk(tilings, Random(3)) != walk(tilings, Random(4))
    assert best_states(tilings, Random(3), walks=2) == best_states(small(), Random(3), walks=2)


def test_a_walk_starts_with_nothing_tiled_and_takes_a_hundred_steps():
    path = walk(small(), Random(0))
    assert path[0] == State((path[0].tiles[0],) * 3)
    assert len(path) == 101
