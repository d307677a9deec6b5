"""One task's tuning, against a measurer that says what it is told to."""

import math
import time

import pytest
from tests.native_kernel import HOST
from tests.unit.plan.test_unit import PROGRAMS

from tilewright.cost import Machine
from tilewright.strategies import STRATEGIES, Task, Trial
from tilewright.tune import Budget, Database, tune_task

TASK = Task(PROGRAMS["convolution"], Machine(HOST, 1))


class Told:
    """Candidates take what ``seconds`` says of their number in the order in which they are first seen."""

    def __init__(self, seconds, status=lambda n: "ok"):
        self.seconds, self.status = seconds, status
        self.numbers, self.measured = {}, 0

    def measure(self, task, candidates):
        out = []
        for candidate in candidates:
            n = self.numbers.setdefault(candidate.plan, len(self.numbers))
            self.measured += 1
            status = self.status(n)
            times = (self.seconds(n, self.measured),) if status == "ok" else ()
            out.append(Trial(candidate, status, times, "" if status == "ok" else "told so"))
        return out


def tuned(measurer, trials=20, database=None, **more):
    records = database or Database(":memory:")
    return tune_task(
        TASK, "Conv", STRATEGIES["random"], measurer, records, Budget(trials, time.monotonic() + 60), **more
    )


def test_the_default_is_measured_first_and_a_faster_plan_wins():
    measurer = Told(lambda n, _: 2.0 if n == 0 else 1.0 if n == 5 else 3.0)
    done = tuned(measurer)
    assert next(iter(measurer.numbers)) == TASK.default().plan
    assert measurer.numbers[done.plan] == 5
    assert (done.untuned, done.best, done.gain) == (2.0, 1.0, 2.0)


def test_the_default_stays_where_nothing_is_faster():
    done = tuned(Told(lambda n, _: 1.0 + n))
    assert done.plan is None
    assert done.gain == 1.0


def test_a_first_minimum_that_does_not_last_is_no_winner():
    """Its first measurement was luck: beside the default it is slower."""
    done = tuned(Told(lambda n, at: 1.0 if n == 0 else 0.5 if at <= 20 else 1.1))
    assert done.plan is None


def test_what_is_within_noise_is_no_winner():
    noise = iter([1.0, 1.2, 0.9, 1.1, 1.0, 1.2] * 20)
    done = tuned(Told(lambda n, _: next(noise) if n == 0 else 0.97))
    assert done.plan is None


@pytest.mark.parametrize("status", ["refused", "uncompilable", "crashed", "hung", "wrong", "memory", "slow"])
def test_candidates_that_fail_are_trials_with_a_reason(status):
    records = Database(":memory:")
    done = tuned(Told(lambda n, _: 1.0, lambda n: "ok" if n == 0 else status), database=records)
    assert done.plan is None
    assert records.counts(TASK.key)[status] == 19
    assert records.best(TASK.key).untuned == 1.0


def test_a_default_that_cannot_be_measured_says_why():
    done = tuned(Told(lambda n, _: 1.0, lambda n: "crashed"))
    assert done.reason == "crashed: told so"
    assert math.isinf(done.best)
    assert done.gain == 1.0


def test_a_second_run_tunes_nothing():
    records = Database(":memory:")
    first = tuned(Told(lambda n, _: 2.0 if n == 0 else 1.0), database=records)
    measurer = Told(lambda n, _: 1.0)
    again = tuned(measurer, database=records)
    assert measurer.measured == 0
    assert again.known
    assert (again.plan, again.best) == (first.plan, first.best)


def test_budgets_end_it():
    measurer = Told(lambda n, _: 1.0 + n)
    tuned(measurer, trials=9)
    assert len(measurer.numbers) == 9
    measurer = Told(lambda n, _: 1.0)
    tuned(measurer, stopped=lambda: True)
    assert len(measurer.numbers) == 1


def test_equal_seeds_and_measurements_make_equal_choices():
    one, two = (Told(lambda n, _: 1.0 / (1 + n % 7)) for _ in range(2))
    assert tuned(one, seed=4).plan == tuned(two, seed=4).plan
    assert list(one.numbers) == list(two.numbers)
