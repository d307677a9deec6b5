"""Benefits: larger tiles count more, caching the more the fuller a level is, and ever more with the steps."""

from dataclasses import replace

import pytest
from tests.unit.strategies.construct.test_space import small

from tilewright.strategies.construct.benefit import (
    cache_benefit,
    cache_weight,
    tile_benefit,
)
from tilewright.strategies.construct.model import interleaving


def test_growth_and_shrinking_are_inverse():
    tilings = small()
    start = tilings.initial()
    for edge in tilings.edges(start):
        if edge.action == "tile":
            gain = tile_benefit(tilings, start, edge.state)
            assert gain > 1
            assert gain * tile_benefit(tilings, edge.state, start) == pytest.approx(1)


def test_axes_are_told_apart():
    tilings = small()
    start = tilings.initial()
    gains = {tile_benefit(tilings, start, e.state) for e in tilings.edges(start) if e.action == "tile"}
    assert len(gains) > 1


def test_caching_waits_for_a_full_level():
    tilings = small()
    start = tilings.initial()
    grown = start
    while any(e.action == "tile" for e in tilings.edges(grown)):
        grown = next(e.state for e in tilings.edges(grown) if e.action == "tile")
    assert cache_benefit(tilings, grown) > 2 * cache_benefit(tilings, start)


def test_the_weight_of_caching_rises_with_the_steps():
    assert [round(cache_weight(step), 6) for step in (0, 10, 20)] == [0.5, 1.5, 2.5]
    assert 2.99 < cache_weight(60) < 3


def test_sums_that_hide_the_latency_gain_no_more():
    tilings = small()
    tilings = replace(tilings, core=replace(tilings.core, latency=4, per_cycle=2))
    assert interleaving(tilings, 1, 2) == 2
    assert interleaving(tilings, 8, 16) == 1
    assert interleaving(tilings, 2, 1) == 0.5
