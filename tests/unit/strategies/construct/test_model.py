"""The model: each roofline can be the longest, ties are decided by traffic and accumulators."""

from dataclasses import replace

from tests.unit.strategies.construct.test_space import small

from tilewright.strategies.construct.model import accumulators, compute_cycles, level_cycles, price
from tilewright.strategies.construct.space import State


def test_the_longest_roofline_counts():
    tilings = small()
    state = tilings.initial()
    bounds = [level_cycles(tilings, n, state.tiles[n]) for n in range(2)]
    assert price(tilings, state)[0] == max(compute_cycles(tilings, state.tiles[-1]), *bounds)
    slow = replace(tilings, memory=replace(tilings.memory, bandwidth=1e-3))
    assert price(slow, state)[0] == level_cycles(slow, 0, state.tiles[0]) > price(tilings, state)[0]


def test_threads_share_whole_tiles():
    tilings = small()
    tile = max(tilings.registers, key=lambda tile: tilings.footprint(tile))
    count = tilings.tiles(tile, summed=False)
    many = replace(tilings, core=replace(tilings.core, threads=count))
    more = replace(tilings, core=replace(tilings.core, threads=2 * count))
    assert compute_cycles(many, tile) * count == compute_cycles(tilings, tile)
    assert compute_cycles(more, tile) == compute_cycles(many, tile)


def test_equal_times_are_told_apart_by_traffic():
    tilings = small()
    quick = replace(tilings, core=replace(tilings.core, per_cycle=1e-3))
    least = quick.initial()
    grown = State(((8, *least.tiles[0][1:]), *least.tiles[1:]))
    assert price(quick, least)[0] == price(quick, grown)[0]
    assert price(quick, grown) < price(quick, least)
    assert price(quick, least)[2] == -accumulators(quick, least.tiles[-1])
