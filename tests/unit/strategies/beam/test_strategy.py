"""The strategy's rounds: what is measured trains the network, which decides what is proposed next."""

import time
from itertools import count
from random import Random

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.pipeline.test_rule import harris

from tilewright.cost import Machine
from tilewright.strategies import History, Task, Trial
from tilewright.strategies.beam.search import Settings
from tilewright.strategies.beam.strategy import MEASURED, BeamStrategy
from tilewright.strategies.beam.weights import fresh, gain_errors

TASK = Task(harris(300, 400), Machine(STATED, 2))
STRATEGY = BeamStrategy(settings=Settings(beam=4, passes=2), samples=4, batches=3, trained=False)


def tuned(seconds, rounds=4):
    search = STRATEGY.start(TASK, History(), Random(0))
    trials = []
    for _ in range(rounds):
        found = [Trial(c, "ok", (seconds(c),)) for c in search.propose(8)]
        search.observe(found)
        trials += found
    return search, trials


def test_prices_follow_what_was_measured():
    # everything takes ten times as long as the model says
    first = STRATEGY.start(TASK, History(), Random(0)).propose(8)
    before = {c.plan: c.predicted for c in first}
    search, trials = tuned(lambda c: 1e-2)
    late = [t.candidate.predicted for t in trials[MEASURED + 1 :]]
    assert search.pricer.model.network is not None
    assert late and all(5e-3 < p < 2e-2 for p in late)
    assert max(before.values()) < 5e-3
    assert len({t.candidate.plan for t in trials}) == len(trials)


def test_nothing_is_learned_where_nothing_runs():
    search = STRATEGY.start(TASK, History(), Random(0))
    search.observe([Trial(c, "crashed") for c in search.propose(30)])
    search.propose(30)
    assert search.pricer.model.network is None


def test_the_default_plan_is_priced_like_others():
    default, *others = STRATEGY.start(TASK, History(), Random(0)).propose(3)
    assert default.plan == TASK.default().plan
    assert default.predicted is not None and all(c.predicted is not None for c in others)


def test_other_plans_must_promise_more_than_the_model_is_off():
    """A network that was not trained says what the machine's coefficients say, but has another error."""
    errors = gain_errors(STATED)
    price = {
        network: BeamStrategy(network=network, trained=False).start(TASK, History(), Random(0)).propose(1)[0]
        for network in (None, fresh())
    }
    by_machine, by_network = (each.predicted for each in price.values())
    assert by_machine * errors.untrained == pytest.approx(by_network * errors.trained)
    assert errors.untrained != errors.trained


@pytest.mark.parametrize("looks", [0, 5, 60])
def test_searches_end_soon_after_their_time(monkeypatch, looks):
    """The clock goes on whenever it is looked at: what is done between two looks is little."""
    search = BeamStrategy(trained=False).start(TASK, History(), Random(0))
    assert len(search.propose(1)) == 1
    ticks = count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    search.end_by(float(looks))
    assert len(search.propose(100)) < 100
    assert next(ticks) <= looks + 8


def test_a_search_of_little_time_finds_something(monkeypatch):
    ticks = count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    search = BeamStrategy(trained=False).start(TASK, History(), Random(0))
    search.end_by(400.0)
    assert len(search.propose(4)) > 1
