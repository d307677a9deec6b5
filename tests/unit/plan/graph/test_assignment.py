"""Assignment: equal to trying everything, on random sums; impossible combinations are not chosen."""

from itertools import product
from math import inf, isfinite
from random import Random

import pytest

from tilewright.plan.graph import assignment
from tilewright.plan.graph.assignment import Cost, assign, total_cost


def problem(rng, variables=6, costs=9):
    options = {f"v{n}": rng.randint(1, 3) for n in range(variables)}
    found = []
    for _ in range(costs):
        scope = tuple(rng.sample(sorted(options), rng.randint(1, 3)))
        table = {
            at: rng.random() for at in product(*(range(options[v]) for v in scope)) if rng.random() < 0.9
        }
        found.append(Cost(scope, table))
    return options, found


@pytest.mark.parametrize("seed", range(20))
def test_elimination_equals_enumeration(seed):
    options, costs = problem(Random(seed))
    every = [dict(zip(options, at, strict=True)) for at in product(*(range(n) for n in options.values()))]
    least = min(total_cost(costs, chosen) for chosen in every)
    chosen = assign(options, costs)
    assert set(chosen) == set(options)
    assert total_cost(costs, chosen) == pytest.approx(least) or (least == inf)


def test_what_tables_lack_is_not_chosen():
    costs = [Cost(("a", "b"), {(0, 0): 5.0, (1, 1): 4.0}), Cost(("b",), {(0,): 0.0, (1,): 2.0})]
    assert assign({"a": 2, "b": 2}, costs) == {"a": 0, "b": 0}
    assert isfinite(total_cost(costs, {"a": 0, "b": 0})) and total_cost(costs, {"a": 0, "b": 1}) == inf


def test_variables_without_costs_take_the_first_option():
    assert assign({"a": 3}, []) == {"a": 0}


def test_large_problems_descend_from_the_default(monkeypatch):
    monkeypatch.setattr(assignment, "MOST_ENTRIES", 2)
    costs = [Cost(("a", "b"), {(0, 0): 3.0, (1, 0): 2.0, (0, 1): 4.0, (1, 1): 1.0})]
    assert assign({"a": 2, "b": 2}, costs) == {"a": 1, "b": 1}
