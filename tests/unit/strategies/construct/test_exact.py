"""Exact construction against enumeration; regret of walks against it; the paper's forms fall short."""

import os
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest
from tests.unit.plan.general.test_rule import min_plus, three_factors
from tests.unit.plan.test_unit import PROGRAMS, product as matrices
from tests.unit.strategies.construct.test_space import SMALL, constructions, small
from tests.unit.strategies.construct.test_walk import least_cycles

from tilewright.strategies.construct.benefit import PAPER
from tilewright.strategies.construct.exact import exact_states, tile_count
from tilewright.strategies.construct.model import price
from tilewright.strategies.construct.strategy import ConstructStrategy
from tilewright.strategies.construct.tree import tree_states
from tilewright.strategies.construct.walk import best_states
from tilewright.target import X86_AVX512

AWKWARD = [matrices(45, 70, 33), matrices(97, 33, 51), three_factors(32, 32, 32), min_plus(41, 67, 53)]
IDS = ["45x70x33", "97x33x51", "three factors", "min-plus"]


@pytest.mark.parametrize("program", AWKWARD, ids=IDS)
def test_the_first_state_has_the_fewest_cycles_of_all(program):
    tilings = small(program)
    (cycles, _, _), state = exact_states(tilings)[0]
    assert tilings.is_legal(state) and tilings.is_complete(state)
    assert cycles == least_cycles(tilings)


@pytest.mark.parametrize("program", AWKWARD, ids=IDS)
def test_walks_and_the_tree_price_no_state_lower(program):
    tilings = small(program)
    best = exact_states(tilings)[0][0]
    for states in (best_states(tilings, Random(1), walks=4), tree_states(tilings)):
        assert states[0][0] >= best


def test_each_register_tile_comes_with_its_best_caches():
    tilings = small(matrices(45, 70, 33))
    found = {state.tiles[-1]: cost for cost, state in exact_states(tilings, ranked=1000)}
    assert found.keys() <= tilings.registers
    for seed in range(3):
        for cost, state in best_states(tilings, Random(seed), walks=2):
            assert cost >= found[state.tiles[-1]]


def test_convolutions_too():
    (made, *_) = constructions(PROGRAMS["convolution"], target=X86_AVX512)
    tilings = replace(made.tilings, levels=SMALL)
    exact = exact_states(tilings)[0]
    assert price(tilings, exact[1]) == exact[0]
    for seed in range(2):
        walked = best_states(tilings, Random(seed), walks=20)[0]
        assert exact[0] <= walked[0]
        assert walked[0][0] <= 1.1 * exact[0][0]


def test_the_printed_forms_leave_levels_too_early():
    tilings = small(matrices(45, 70, 33))
    best = exact_states(tilings)[0][0][0]
    paper = best_states(tilings, Random(0), forms=PAPER)
    assert all(tilings.is_legal(state) for _, state in paper)
    # the last states alone, one a walk, and no descent from them
    assert len(paper) <= 20
    assert paper[0][0][0] > best


def test_the_tree_is_one_path():
    tilings = small(matrices(45, 70, 33))
    states = tree_states(tilings)
    assert states == tree_states(tilings)
    caches = {state.tiles[:-1] for _, state in states}
    assert len(caches) == 1
    assert all(tilings.is_legal(state) for _, state in states)


def test_variants_are_known():
    with pytest.raises(ValueError, match="no variant"):
        ConstructStrategy(variant="printed")


def test_few_tiles_are_searched_exactly_and_many_by_walks(monkeypatch):
    (made,) = constructions(matrices(64, 64, 64))
    assert tile_count(made.tilings) < 10_000
    exact = ConstructStrategy(method="exact").plans(made, Random(0))
    assert ConstructStrategy().plans(made, Random(0)) == exact
    monkeypatch.setattr("tilewright.strategies.construct.strategy.MOST_TILES", 10)
    walks = ConstructStrategy(walks=2)
    assert walks.plans(made, Random(0)) == replace(walks, method="walk").plans(made, Random(0))


def test_large_products_take_little_memory():
    # in processes of their own: the peak of this one is whatever ran before
    code = (
        "import resource, sys\n"
        "from random import Random\n"
        "from tests.unit.strategies.construct.test_space import constructions\n"
        "from tests.unit.plan.general.test_rule import min_plus\n"
        "from tilewright.strategies.construct.strategy import ConstructStrategy\n"
        "(made,) = constructions(min_plus(16384, 16384, 16384))\n"
        "plans = ConstructStrategy(method=sys.argv[1]).plans(made, Random(0))\n"
        "print(len(plans), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    peak = {}
    for method in ("tree", "exact"):
        run = subprocess.run(
            [sys.executable, "-c", code, method], capture_output=True, text=True, check=True, env=_env()
        )
        count, peak[method] = map(int, run.stdout.split())
        assert count
    assert peak["exact"] <= peak["tree"] + 200 * 1024


def _env():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
