"""The strategy of edits: trees around the default's, the cheaper first, led by what is measured."""

from random import Random

from tests.native_kernel import STATED
from tests.unit.plan.test_unit import PROGRAMS
from tests.unit.strategies.test_default import check_schedule

from tilewright.cost import Machine
from tilewright.strategies import STRATEGIES, History, Task, Trial, best_by_model
from tilewright.strategies.edits import RESOLUTION
from tilewright.strategies.pricing import Prices


def task_of(name):
    return Task(PROGRAMS[name], Machine(STATED, 2))


def test_the_default_comes_first_then_trees_that_are_right():
    task = task_of("min-plus")
    search = STRATEGIES["edits"].start(task, History(), Random(0))
    found = search.propose(4)
    assert found[0].plan == task.default().plan and len({c.plan for c in found}) == 4
    assert any(nest.rule == "tree" for c in found[1:] for nest in c.plan.nests)
    for candidate in found[1:]:
        check_schedule(task.program, candidate.schedule(task))
    assert search.expected_gain() == 1.0


def test_the_cheapest_by_the_price_is_taken_where_nothing_is_measured():
    task = task_of("general")
    prices = Prices(task)
    best = best_by_model(STRATEGIES["edits"], task, count=8)
    assert prices.seconds(best.plan) < prices.seconds(task.default().plan)


def test_what_was_measured_leads():
    task = task_of("element-wise")
    search = STRATEGIES["edits"].start(task, History(), Random(0))
    first = search.propose(3)
    slow, fast = first[1], first[2]
    search.observe([Trial(first[0], "ok", (1.0,)), Trial(slow, "ok", (9.0,)), Trial(fast, "ok", (0.1,))])
    then = search.propose(6)
    assert not {c.plan for c in then} & {c.plan for c in first}
    # a history begins where another search ended
    again = STRATEGIES["edits"].start(task, History((Trial(fast, "ok", (0.1,)),)), Random(0))
    assert fast.plan in {c.plan for c in again.propose(4)}
    search.end_by(0.0)
    assert search.propose(2) == []


def test_without_measurements_only_what_is_surely_cheaper_follows_the_default():
    task = task_of("strided convolution")
    search = STRATEGIES["edits"].start(task, History(), Random(0))
    default, *others = search.unmeasured()
    assert default.plan == task.default().plan
    prices = [Prices(task).seconds(c.plan) for c in (default, *others)]
    assert others and prices[1:] == sorted(prices[1:])
    assert prices[-1] < (1 - RESOLUTION) * prices[0]
