"""Budgets end in time: sessions against a clock that only goes on when something is done."""

import time
from dataclasses import replace

import pytest
from tests.native_kernel import HOST
from tests.unit.tune.test_session import TASK, Plenty

from tilewright.cost import Machine
from tilewright.strategies import Candidate, Trial
from tilewright.tune import Budget, Database, TaskUse, tune_tasks
from tilewright.tune.allowance import allowed, deciding_seconds, least_rounds, trials_within
from tilewright.tune.decide import LEADERS, ROUNDS
from tilewright.tune.measure import LONG_RUN, turn_seconds


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


class Working:
    """A measurer that takes so long to build a candidate, and runs as long as each takes; it keeps limits."""

    def __init__(self, clock, build, run):
        self.clock, self.build, self.run = clock, build, run
        self.numbers, self.measured, self.decided = {}, 0, []

    def measure(self, task, candidates, limits):
        if limits.rounds > 1:
            self.decided.append((len(candidates), limits.rounds))
        out = []
        for candidate in candidates:
            number = self.numbers.setdefault(candidate.plan, len(self.numbers))
            run = self.run / (1 + 0.1 * number)
            took = self.build + 2 * run + limits.rounds * turn_seconds(run)
            if self.clock.now + took > limits.until:
                self.clock.now = max(self.clock.now, limits.until)
                continue
            self.clock.now += took
            self.measured += 1
            seconds = (run,) * limits.rounds
            out.append(Trial(candidate, "ok", seconds, "", f"f{number}", self.build))
        return out


class Slow(Plenty):
    """Proposals take so long, unless they are to be there earlier."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds, self.until = clock, seconds, float("inf")

    def end_by(self, until):
        self.until = until

    def propose(self, count):
        ends = min(self.clock.now + self.seconds, max(self.clock.now, self.until))
        self.clock.now = ends
        return [] if ends >= self.until else super().propose(count)


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("seconds", [20.0, 40.0, 300.0])
@pytest.mark.parametrize(("build", "run", "search"), [(0.2, 1e-4, 0.1), (4.0, 0.03, 15.0), (2.0, 0.7, 12.0)])
def test_budgets_end_within_a_tenth(clock, tasks, seconds, build, run, search):
    begin = clock.now
    measurer, records = Working(clock, build, run), Database(":memory:")
    uses = [TaskUse(replace(TASK, machine=Machine(HOST, n + 1)), f"c{n}") for n in range(tasks)]
    budget = Budget(1 << 20, begin + seconds)
    done = tune_tasks(uses, Slow(clock, search), measurer, records, budget)
    assert clock.now <= begin + 1.1 * seconds
    assert clock.now >= begin + 0.5 * seconds
    assert len(done) == tasks
    if seconds >= 40 and tasks == 1:
        assert measurer.measured > 2
        assert measurer.decided


def test_what_was_found_early_is_decided_also_where_little_time_is_left(clock):
    measurer = Working(clock, 1.0, 0.5)
    budget = Budget(1 << 20, clock.now + 30.0)
    (done,) = tune_tasks([TaskUse(TASK, "c")], Slow(clock, 2.0), measurer, Database(":memory:"), budget)
    ((count, rounds),) = measurer.decided
    assert 2 <= count <= 1 + LEADERS and least_rounds(count - 1) <= rounds <= ROUNDS
    assert done.plan is not None and done.gain > 1


def test_a_default_that_takes_longer_than_the_budget_is_told(clock):
    measurer = Working(clock, 100.0, 0.5)
    budget = Budget(1 << 20, clock.now + 30.0)
    (done,) = tune_tasks([TaskUse(TASK, "c")], Slow(clock, 2.0), measurer, Database(":memory:"), budget)
    assert (done.plan, done.reason) == (None, "it was not measured")


def trial(seconds, build=0.0):
    return Trial(Candidate("x", TASK.default().plan), "ok", (seconds,), build_seconds=build)


def test_leaders_and_rounds_are_as_many_as_there_is_time_for():
    leaders = [trial(0.5)] * LEADERS
    full = deciding_seconds(trial(1.0), leaders, ROUNDS)
    assert allowed(trial(1.0), leaders, full) == allowed(trial(1.0), leaders, 1e9)
    assert allowed(trial(1.0), leaders, 1e9).rounds == ROUNDS
    fewer = allowed(trial(1.0), leaders, full - 0.1)
    assert (fewer.leaders, fewer.rounds) == (LEADERS, ROUNDS - 1)
    assert allowed(trial(1.0), leaders, 13.0).leaders < LEADERS
    assert allowed(trial(1.0), leaders, 0.0).leaders == 0
    assert deciding_seconds(trial(1.0, 5.0), leaders, ROUNDS) == full + 5.0


def test_rounds_suffice_to_be_sure():
    assert [least_rounds(n) for n in (1, 2, 3)] == [6, 7, 8]


def test_batches_are_as_large_as_trials_so_far_say():
    assert trials_within(0, 0.0, 5.0, 8) == 8
    assert trials_within(4, 8.0, 10.0, 8) == 5
    assert trials_within(4, 8.0, 1.0, 8) == 1
    assert trials_within(4, 8.0, float("inf"), 8) == 8


def test_long_runs_are_not_repeated_in_a_turn():
    assert turn_seconds(LONG_RUN) == LONG_RUN
    assert turn_seconds(0.001) > 0.02
