"""Which parameter sets of a test run each time, and which with those that are slow."""

from itertools import product

import pytest

from few import chosen


def test_every_pair_of_values_occurs():
    cases = list(product("abc", "xy", "pq"))
    kept = [cases[n] for n in chosen(cases, 6)]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert len({(case[first], case[second]) for case in kept}) == len(
            {(case[first], case[second]) for case in cases}
        )
    assert chosen(cases, 100) == set(range(len(cases)))


def test_seeds_are_evenly_spread():
    assert chosen([(seed,) for seed in range(30)], 3) == {0, 10, 20}


@pytest.mark.few(2)
@pytest.mark.parametrize(("a", "b"), [(1, 2), (3, 4), (5, 6), (7, 8)])
def test_parameters_given_together_are_one(a, b, request):
    """The others are left to `-m slow`, in which this one has no part; one that is asked for by name has."""
    collected = [item for item in request.session.items if item.function is request.function]
    assert len(collected) == 1 or (request.node.get_closest_marker("slow") is None) == (a in (1, 5))
