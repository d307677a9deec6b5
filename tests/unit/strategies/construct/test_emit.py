"""States as plans: all of the space, and what they keep of the state."""

from random import Random

import pytest
from tests.unit.plan.test_unit import PROGRAMS, product
from tests.unit.strategies.construct.test_space import NAMES, constructions

from tilewright.plan import TilePlan
from tilewright.strategies.construct.walk import best_states


@pytest.mark.few(4)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_every_state_has_a_plan_of_the_space_with_its_register_tile(name, threads):
    (made, *_) = constructions(PROGRAMS[name], threads)
    for _, state in best_states(made.tilings, Random(0), walks=2):
        plan = made.plan_of(state)
        made.plans.check(plan)
        lanes = made.tilings.core.lanes
        sizes = made.tilings.of(state.tiles[-1])
        assert -(-sizes[made.tilings.vector] // lanes) <= plan.vectors
        rows = plan.rows if not isinstance(plan, TilePlan) else ((made.row, plan.rows),)
        assert all(sizes[axis] == n for axis, n in rows if axis is not None)


def test_a_plan_of_another_form_is_none():
    (made,) = constructions(PROGRAMS["min-plus"])
    assert made.plans.has(made.plans.default)
    assert not made.plans.has(TilePlan(1, 1, 1))


def test_other_nests_have_no_construction():
    assert constructions(PROGRAMS["softmax"]) == []
    assert constructions(PROGRAMS["element-wise"]) == []


def test_tiles_of_the_second_level_become_blocks_of_rows():
    (made,) = constructions(product(1024, 64, 2048))
    plans = {made.plan_of(state) for _, state in best_states(made.tilings, Random(0), walks=4)}
    assert any(plan.block is not None for plan in plans)
