"""Budgets end in time: sessions against a clock that only goes on when something is done."""

import time
from dataclasses import replace

import pytest
from tests.native_kernel import HOST
from tests.unit.tune.test_session import TASK, Plenty

from tilewright.cost import Machine
from tilewright.ir import structural_hash
from tilewright.strategies import STRATEGIES, Candidate, Trial
from tilewright.tune import Budget, Database, TaskUse, tune_tasks
from tilewright.tune.allowance import allowed, deciding_seconds, trials_within
from tilewright.tune.decide import LEADERS, ROUNDS, least_rounds
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
    """A measurer that takes so long to build a candidate, and runs as long as each takes; it keeps limits.

    As with the one of this machine, there is more to do than trials tell of (``setup``: arguments, checks),
    turns begin when all is built, and end with the last round that fits. Turns take ``slower`` times as long
    as trials, ``others`` is the load while they do.
    """

    def __init__(self, clock, build, run, setup=0.0, slower=1.0, others=None):
        self.clock, self.build, self.run, self.setup = clock, build, run, setup
        self.slower, self.others = slower, others
        self.numbers, self.measured, self.decided = {}, 0, []

    def measure(self, task, candidates, limits):
        if limits.rounds > 1:
            self.decided.append((len(candidates), limits.rounds))
            return self.turns(candidates, limits)
        made = [self.trial(c, 1) for c in candidates]
        return [t for t in made if self.goes_on(self.before(t) + turn_seconds(t.best), limits.until)]

    def turns(self, candidates, limits):
        made = [self.trial(c, limits.rounds) for c in candidates]
        if not self.goes_on(self.slower * sum(map(self.before, made)), limits.until):
            return []
        each = self.slower * sum(turn_seconds(t.best) for t in made)
        rounds = 0
        while rounds < limits.rounds and self.clock.now + each <= limits.until:
            self.clock.now += each
            rounds += 1
        return [replace(t, seconds=t.seconds[:rounds], load=self.others) for t in made] if rounds else []

    def trial(self, candidate, rounds):
        number = self.numbers.setdefault(candidate.plan, len(self.numbers))
        return Trial(candidate, "ok", (self.run / (1 + 0.1 * number),) * rounds, "", f"f{number}", self.build)

    def before(self, trial):
        return self.build + self.setup + 2 * trial.best

    def goes_on(self, took, until):
        """Whether something is over by then; the clock goes on till it is, or until then."""
        over = self.clock.now + took <= until
        self.clock.now = self.clock.now + took if over else max(self.clock.now, until)
        self.measured += over
        return over


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


@pytest.mark.parametrize("build", [0.1, 1.0])
@pytest.mark.parametrize("setup", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("others", [None, 0.5])
def test_what_trials_do_not_tell_of_is_set_aside(clock, build, setup, others):
    """The decision is a whole one, also where others were at work and it is made twice if time allows."""
    begin = clock.now
    measurer, records = Working(clock, build, 0.01, setup, others=others), Database(":memory:")
    budget = Budget(1 << 20, begin + 40.0)
    (done,) = tune_tasks([TaskUse(TASK, "c")], Slow(clock, 2.0), measurer, records, budget)
    assert clock.now <= begin + 1.1 * 40.0
    assert done.plan is not None and done.gain > 1.1 and done.sure


@pytest.mark.parametrize("slower", [1.1, 5.0, 20.0, 1000.0])
def test_a_gain_is_kept_where_the_time_ends_before_it_is_sure(clock, slower):
    begin = clock.now
    measurer, records = Working(clock, 0.5, 0.2, 0.5, slower), Database(":memory:")
    budget = Budget(1 << 20, begin + 40.0)
    (done,) = tune_tasks([TaskUse(TASK, "c")], Slow(clock, 2.0), measurer, records, budget)
    assert clock.now <= begin + 1.1 * 40.0
    assert done.plan is not None and done.gain > 1.1
    assert done.sure == (slower < 5.0)
    key = TaskUse(TASK, "c").task.key
    # it is tuned again, from what was found
    assert records.finished(key) <= done.sure


def test_an_earlier_winner_is_not_replaced_where_the_time_ends_before_it_is_sure(clock):
    class Honest(Working):
        def trial(self, candidate, rounds):
            func = structural_hash(candidate.schedule(TASK).func)
            return replace(super().trial(candidate, rounds), func=func)

    records = Database(":memory:")

    def tuned(slower):
        measurer = Honest(clock, 0.5, 0.2, 0.5, slower)
        budget = Budget(1 << 20, clock.now + 40.0)
        uses, random = [TaskUse(TASK, "c")], STRATEGIES["random"]
        (done,) = tune_tasks(uses, random, measurer, records, budget, again=True)
        return done

    first, second = tuned(1.0), tuned(1000.0)
    assert first.sure and first.gain > 1.1
    assert second.known and second.sure and (second.plan, second.best) == (first.plan, first.best)


def test_a_second_decision_that_is_cut_off_leaves_the_first(clock):
    class Twice(Working):
        def turns(self, candidates, limits):
            self.slower = 1.0 if len(self.decided) == 1 else 1e6
            return super().turns(candidates, limits)

    measurer = Twice(clock, 0.1, 0.01, others=0.9)
    budget = Budget(1 << 20, clock.now + 300.0)
    (done,) = tune_tasks([TaskUse(TASK, "c")], Slow(clock, 2.0), measurer, Database(":memory:"), budget)
    assert len(measurer.decided) == 2
    assert done.plan is not None and done.gain > 1.1 and done.sure


def test_a_default_that_takes_longer_than_the_budget_is_told(clock):
    measurer = Working(clock, 100.0, 0.5)
    budget = Budget(1 << 20, clock.now + 30.0)
    (done,) = tune_tasks([TaskUse(TASK, "c")], Slow(clock, 2.0), measurer, Database(":memory:"), budget)
    assert (done.plan, done.reason) == (None, "no time was left (a later tuning measures it)")


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
    assert deciding_seconds(trial(1.0, 5.0), leaders, ROUNDS, 2.0) == full + 5.0 + 2.0 * LEADERS
    assert allowed(trial(1.0), leaders, full, 2.0).rounds < ROUNDS


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
