"""Sessions of tuning, against a measurer that says what it is told to."""

import math
import subprocess
import sys
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from tests.native_kernel import HOST
from tests.unit.plan.test_unit import PROGRAMS

from tilewright import lang
from tilewright.cost import Machine
from tilewright.ir import canonical_program, structural_hash
from tilewright.plan import EXACT, build_unit
from tilewright.strategies import STRATEGIES, Candidate, History, Task, Trial
from tilewright.strategies.moves import adopted
from tilewright.tune import (
    AUTO,
    LIMITS,
    Budget,
    Database,
    Record,
    TaskUse,
    session,
    task,
    tune_task,
    tune_tasks,
)
from tilewright.tune.transfer import neighbours_of

TASK = Task(canonical_program(PROGRAMS["convolution"]), Machine(HOST, 1))
OTHER = Task(canonical_program(PROGRAMS["product"]), Machine(HOST, 1))
ROOT = Path(__file__).parents[3]
FAILURES = ["refused", "uncompilable", "crashed", "hung", "wrong", "memory", "slow"]


class Told:
    """Candidates take what ``seconds`` says of their number in the order in which they are first seen.

    It is also told of how many measurements there were before.
    """

    def __init__(self, seconds, status=lambda n: "ok"):
        self.seconds, self.status = seconds, status
        self.numbers, self.measured, self.tasks = {}, 0, []

    def measure(self, task, candidates, limits):
        out, key = [], task.key
        for candidate in candidates:
            self.numbers.setdefault((key, candidate.plan), len(self.numbers))
        numbers = [self.numbers[key, candidate.plan] for candidate in candidates]
        self.tasks += [key] * len(candidates)
        times = [[] for _ in candidates]
        for _ in range(limits.rounds):
            for n, number in enumerate(numbers):
                self.measured += 1
                times[n].append(self.seconds(number, self.measured))
        for candidate, number, found in zip(candidates, numbers, times, strict=True):
            status = self.status(number)
            ok = status == "ok"
            out.append(
                Trial(candidate, status, tuple(found) if ok else (), "" if ok else "told so", f"f{number}")
            )
        return out

    def number(self, plan, task=TASK):
        return self.numbers[task.key, plan]


class Plenty:
    """A search that proposes the default plan under other names for ever: no two texts are equal."""

    name = "plenty"

    def start(self, task, history, rng):
        search = Plenty()
        search.plan, search.made = task.default().plan, 0
        return search

    def propose(self, count):
        self.made += count
        names = range(self.made - count, self.made)
        return [Candidate("plenty", type(self.plan)(self.plan.rewrites, (), (f"x{n}",))) for n in names]

    def observe(self, trials):
        pass

    def expected_gain(self):
        return 1.0


def tuned(measurer, trials=20, database=None, strategy="random", **more):
    records = database or Database(":memory:")
    chosen = AUTO if strategy == "auto" else STRATEGIES.get(strategy, strategy)
    limit = Budget(trials, time.monotonic() + 600)
    (done,) = tune_tasks([TaskUse(TASK, "Conv")], chosen, measurer, records, limit, **more)
    return done


def test_the_default_is_measured_first_and_a_faster_plan_wins():
    measurer = Told(lambda n, _: 2.0 if n == 0 else 1.0 if n == 5 else 3.0)
    done = tuned(measurer)
    assert next(iter(measurer.numbers)) == (TASK.key, TASK.default().plan)
    assert measurer.number(done.plan) == 5
    assert (done.untuned, done.best, done.gain) == (2.0, 1.0, 2.0)


def test_plans_come_back_under_the_names_of_the_task():
    own = Task(PROGRAMS["convolution"], Machine(HOST, 1))
    measurer = Told(lambda n, _: 2.0 if n == 0 else 1.0 if n == 5 else 3.0)
    records = Database(":memory:")
    budget = Budget(20, time.monotonic() + 60)
    done = tune_task(own, "Conv", STRATEGIES["random"], measurer, records, budget)
    assert build_unit(own.program, done.plan, own.machine).func
    again = tune_task(own, "Conv", STRATEGIES["random"], Told(lambda *_: 1.0), records, budget)
    assert own.program != TASK.program
    assert not again.known  # f5 is no digest of what the plan makes


def test_the_default_stays_where_nothing_is_faster():
    done = tuned(Told(lambda n, _: 1.0 + n))
    assert done.plan is None
    assert done.gain == 1.0


def test_a_first_minimum_that_does_not_last_is_no_winner():
    """Its first measurement was luck: beside the default it is slower."""
    done = tuned(Told(lambda n, at: 1.0 if n == 0 else 0.5 if at <= 20 else 1.1))
    assert done.plan is None


def test_a_lie_of_a_nanosecond_does_not_last():
    done = tuned(Told(lambda n, at: 1.0 if n == 0 else 1e-9 if n == 3 and at <= 20 else 1.2))
    assert done.plan is None


@pytest.mark.parametrize("status", FAILURES)
def test_candidates_that_fail_are_trials_with_a_reason(status):
    records = Database(":memory:")
    done = tuned(Told(lambda n, _: 1.0, lambda n: "ok" if n == 0 else status), database=records)
    assert done.plan is None
    assert records.counts(TASK.key)[status] == 19
    assert records.best(TASK.key).untuned == 1.0


def test_a_thousand_failures_of_every_kind_abort_nothing(monkeypatch):
    monkeypatch.setattr(task, "MOST_STALE", 1 << 30)
    rng = Random(1)
    kinds = {}
    measurer = Told(
        lambda n, _: 1.0 if n == 0 else 2.0,
        lambda n: "ok" if n == 0 else kinds.setdefault(n, rng.choice(FAILURES)),
    )
    records = Database(":memory:")
    done = tuned(measurer, trials=1001, database=records, strategy=Plenty())
    assert done.plan is None and done.reason == ""
    counts = records.counts(TASK.key)
    assert set(counts) == {*FAILURES, "ok"}
    assert sum(counts[kind] for kind in FAILURES) == 1000
    assert records.best(TASK.key).plan == TASK.default().plan


@pytest.mark.parametrize("trials", [1, 2, 3, 9, 17])
def test_the_default_stands_among_the_finalists_at_every_budget(trials):
    records = Database(":memory:")
    measurer = Told(lambda n, _: 2.0 - min(n, 9) * 0.1)
    tuned(measurer, trials=trials, database=records)
    default = records.ranked(TASK.key)[-1]
    assert default.plan == TASK.default().plan
    assert default.seconds == default.untuned


def test_a_default_that_cannot_be_measured_says_why():
    done = tuned(Told(lambda n, _: 1.0, lambda n: "crashed"))
    assert done.reason == "crashed: told so"
    assert math.isinf(done.best)
    assert done.gain == 1.0


class Honest(Told):
    """Says the digests of the functions that candidates really make."""

    def measure(self, task, candidates, limits):
        found = super().measure(task, candidates, limits)
        out = []
        for trial in found:
            func = structural_hash(trial.candidate.schedule(task).func)
            out.append(Trial(trial.candidate, trial.status, trial.seconds, trial.reason, func))
        return out


def test_a_second_run_tunes_nothing():
    records = Database(":memory:")
    first = tuned(Honest(lambda n, _: 2.0 if n == 0 else 1.0), database=records, trials=6)
    measurer = Honest(lambda n, _: 1.0)
    again = tuned(measurer, database=records, trials=6)
    assert measurer.measured == 0
    assert again.known
    assert (again.plan, again.best) == (first.plan, first.best)


@pytest.mark.parametrize("edit", ["UPDATE records SET func = 'f'", "UPDATE records SET seconds = 1e-9"])
def test_records_that_are_not_true_are_tuned_again(edit):
    """What was tried is not tried again, but the leaders are."""
    records = Database(":memory:")
    tuned(Honest(lambda n, _: 2.0 if n == 0 else 1.0), database=records, trials=6)
    records._connection.execute(edit)
    measurer = Honest(lambda n, _: 2.0 if n == 0 else 1.0)
    again = tuned(measurer, database=records, trials=6)
    assert not again.known
    assert measurer.measured > 0
    assert again.best == 1.0


def test_a_run_that_was_killed_goes_on_where_it_was():
    """After any number of measurements: the same trials in all, none twice, the same choice."""
    whole = Told(lambda n, _: 2.0 - (n % 5) * 0.2)
    expected = tuned(whole, trials=20, seed=3)
    for after in (1, 9, 14):
        records = Database(":memory:")
        first = Told(lambda n, _: 2.0 - (n % 5) * 0.2)
        with pytest.raises(SystemExit):
            tuned(Killed(first, after), trials=20, seed=3, database=records)
        kept = sum(records.counts(TASK.key).values())
        rest = Told(lambda n, _: 2.0 - (n % 5) * 0.2)
        rest.numbers = dict(first.numbers)
        again = tuned(rest, trials=20, seed=3, database=records)
        assert again.plan == expected.plan
        trials = records.history(TASK.key)
        plans = [t.candidate.plan for t in trials if t.candidate.origin != "default"]
        assert len(plans) == len(set(plans)) == 19
        assert kept <= after + 8


CHILD = """
import sys
sys.path[:0] = ["tests", "."]
from tests.unit.tune.test_session import Told, tuned
from tilewright.tune import Database

class Saying(Told):
    def measure(self, task, candidates, limits):
        print(len(candidates), flush=True)
        sys.stdin.readline()
        return super().measure(task, candidates, limits)

with Database(sys.argv[1]) as records:
    tuned(Saying(lambda n, _: 2.0 - (n % 5) * 0.2), trials=20, seed=3, database=records)
"""


@pytest.mark.few(2)
@pytest.mark.parametrize("batches", [1, 3, 2])
def test_a_process_that_was_killed_leaves_what_it_had_measured(tmp_path, batches):
    """Killed for good while a batch is measured: a later run makes the rest, and nothing twice."""
    path = tmp_path / "r.db"
    command = [sys.executable, "-c", CHILD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as tuner:
        asked = 0
        for _ in range(batches):
            asked += int(tuner.stdout.readline())
            tuner.stdin.write(b"\n")
            tuner.stdin.flush()
        tuner.stdout.readline()
        tuner.kill()
    with Database(path) as records:
        assert sum(records.counts(TASK.key).values()) == asked
        tuned(Told(lambda n, _: 2.0 - (n % 5) * 0.2), trials=20, seed=3, database=records)
        plans = [t.candidate.plan for t in records.history(TASK.key) if t.candidate.origin != "default"]
        assert len(plans) == len(set(plans)) == 19


def test_once_more_goes_beyond_what_was_tried():
    """None of the trials is made again, and the winner so far must be beaten in turns, not by its absence."""
    records = Database(":memory:")
    one = Honest(lambda n, _: 2.0 if n == 0 else 1.0 if n == 3 else 3.0)
    first = tuned(one, database=records, trials=6)
    assert records.finished(TASK.key) and first.gain == 2.0
    two = Honest(lambda n, _: 2.0 if n == 0 else 1.0 if n == 3 else 3.0)
    two.numbers = dict(one.numbers)
    again = tuned(two, database=records, trials=6, again=True)
    assert not again.known and again.trials == 6
    assert len(two.numbers) == len(one.numbers) + 5
    assert again.plan == first.plan and records.finished(TASK.key)
    plans = [t.candidate.plan for t in records.history(TASK.key) if t.candidate.origin != "default"]
    assert len(plans) == len(set(plans)) == 10
    three = Honest(lambda n, _: 2.0 if n == 0 else 1.0 if n == 3 else 0.5)
    three.numbers = dict(two.numbers)
    assert tuned(three, database=records, trials=6, again=True, seed=1).gain == 4.0


@pytest.mark.parametrize("after", [0, 1])
def test_once_more_that_is_interrupted_at_once_keeps_what_there_was(after, monkeypatch):
    records = Database(":memory:")
    one = Honest(lambda n, _: 2.0 if n == 0 else 1.0 if n == 3 else 3.0)
    first = tuned(one, database=records, trials=6)
    monkeypatch.setattr(session, "LAST_SECONDS", 0.0)
    two = Honest(lambda n, _: 2.0)
    two.numbers = dict(one.numbers)
    again = tuned(Interrupted(two, after), database=records, trials=6, again=True)
    assert again.known and again.plan == first.plan
    assert records.best(TASK.key).seconds == 1.0


class Killed:
    """A measurer that ends the process after so many candidates."""

    def __init__(self, told, after):
        self.told, self.left = told, after

    def measure(self, task, candidates, limits):
        if self.left <= 0:
            raise SystemExit
        self.left -= len(candidates)
        return self.told.measure(task, candidates, limits)


class Interrupted(Killed):
    def measure(self, task, candidates, limits):
        if self.left <= 0 and limits.rounds == 1:
            raise KeyboardInterrupt
        self.left -= len(candidates)
        return self.told.measure(task, candidates, limits)


def test_an_interruption_keeps_and_decides_what_was_found():
    records = Database(":memory:")
    told = Told(lambda n, _: 2.0 if n == 0 else 1.0)
    done = tuned(Interrupted(told, 9), database=records, trials=64)
    assert done.gain == 2.0
    kept = sum(records.counts(TASK.key).values())
    assert 9 <= kept < 9 + 8
    assert not records.finished(TASK.key)
    more = Told(lambda n, _: 2.0 if n == 0 else 1.0)
    more.numbers = dict(told.numbers)
    tuned(more, database=records, trials=64)
    assert sum(records.counts(TASK.key).values()) > kept


@pytest.mark.parametrize("moment", range(0, 14, 2))
def test_an_interruption_at_any_event_leaves_all_results_and_trials(moment):
    """Whoever watches is asked at every step: Ctrl-C comes there."""
    uses = [TaskUse(TASK, "a"), TaskUse(OTHER, "b", 2.0)]
    records, left = Database(":memory:"), [moment]

    def watch(event):
        left[0] -= 1
        if left[0] == -1:
            raise KeyboardInterrupt

    measurer = Told(lambda n, _: 1.0 + n)
    limit = Budget(9, time.monotonic() + 60)
    done = tune_tasks(uses, STRATEGIES["random"], measurer, records, limit, watch=watch)
    assert [each.label for each in done] == ["a", "b"]
    made = sum(sum(records.counts(key).values()) for key, _ in records.tasks())
    assert made == len(measurer.numbers)


def test_watchers_see_each_step():
    seen = []
    tuned(Told(lambda n, _: 2.0 if n == 0 else 1.0), trials=9, strategy=Plenty(), watch=seen.append)
    assert [each.what for each in seen] == [
        "task", "trying", "measured", "trying", "measured", "deciding", "result"
    ]  # fmt: skip
    assert seen[1].counts == {"default": 1} and seen[3].counts == {"plenty": 8}
    assert seen[4].counts == {"ok": 8} and seen[4].gain == 2.0 and seen[4].saved == 1.0
    assert seen[-1].result.gain == seen[-1].gain == 2.0 and seen[-1].key == TASK.key
    assert all(a.elapsed <= b.elapsed and a.left >= b.left for a, b in pairwise(seen))


class Many(Told):
    """Many machines: batches of several tasks at once."""

    width = 32

    def measure_all(self, jobs, limits=None):
        self.jobs = [*getattr(self, "jobs", ()), [len(candidates) for _, candidates in jobs]]
        return [self.measure(task, candidates, LIMITS) if candidates else [] for task, candidates in jobs]


def test_many_machines_get_batches_of_several_tasks_or_wide_ones():
    uses = [TaskUse(TASK, "a"), TaskUse(OTHER, "b")]
    measurer = Many(lambda n, _: 1.0)
    limit = Budget(33, time.monotonic() + 60)
    tune_tasks(uses, Plenty(), measurer, Database(":memory:"), limit)
    assert measurer.jobs[0] == [16, 16]
    tuned(measurer := Many(lambda n, _: 1.0), trials=50, strategy=Plenty())
    assert measurer.jobs[0] == [32]


def test_budgets_end_it():
    measurer = Told(lambda n, _: 1.0 + n)
    tuned(measurer, trials=9)
    assert len(measurer.numbers) == 9
    measurer = Told(lambda n, _: 1.0)
    tuned(measurer, stopped=lambda: True)
    assert len(measurer.numbers) == 0


def test_trials_go_where_they_may_save_most_of_a_run():
    """Of two tasks the one that takes a hundred times as long gets more; its search ends when in vain."""
    uses = [TaskUse(TASK, "a", 1.0), TaskUse(OTHER, "b", 100.0)]
    measurer = Told(lambda n, _: 1.0)
    records = Database(":memory:")
    tune_tasks(uses, STRATEGIES["random"], measurer, records, Budget(400, time.monotonic() + 60))
    counts = [sum(records.counts(task.key).values()) for task in (TASK, OTHER)]
    assert counts[1] > counts[0] >= 1
    assert counts[1] < 400  # given up
    first = [key for key in measurer.tasks if key in (TASK.key, OTHER.key)][2:10]
    assert set(first) == {OTHER.key}


@pytest.mark.parametrize("strategy", ["random", "descent", "evolutionary", "auto"])
def test_equal_seeds_and_measurements_make_equal_choices(strategy):
    one, two = (Told(lambda n, _: 1.0 / (1 + n % 7)) for _ in range(2))
    a, b = (tuned(each, seed=4, strategy=strategy, trials=40) for each in (one, two))
    assert a.plan == b.plan
    assert list(one.numbers) == list(two.numbers)


def test_auto_asks_all_its_searches_and_stays_with_those_that_find():
    records = Database(":memory:")
    tuned(Told(lambda n, _: 1.0), strategy="auto", trials=64, database=records)
    origins = {t.candidate.origin for t in records.history(TASK.key)}
    assert origins == {"default", "descent", "evolutionary", "joint"}


def test_memory_stays_flat_over_thousands_of_trials(monkeypatch):
    """What a session holds of a trial that is no leader is the digest of its plan."""
    monkeypatch.setattr(task, "MOST_STALE", 1 << 30)
    monkeypatch.setattr(session, "LEAST_WORTH", -1.0)
    held = {}

    class Quiet(Told):
        def measure(self, task, candidates, limits):
            self.measured += len(candidates)
            if self.measured // 1000 != (self.measured - len(candidates)) // 1000:
                held[self.measured // 1000] = tracemalloc.get_traced_memory()[0]
            return [Trial(c, "ok", (1.0,), func="f") for c in candidates]

    tracemalloc.start()
    try:
        tuned(Quiet(lambda *_: 1.0), trials=5_100, strategy=Plenty(), database=_Forgets())
    finally:
        tracemalloc.stop()
    assert (held[5] - held[1]) / 4000 < 400  # bytes a trial


class _Forgets(Database):
    """A database that lies in memory would grow."""

    def __init__(self):
        super().__init__(":memory:")

    def add(self, task, trials, session=0):
        pass


def product(n):
    x, y = lang.placeholder((n, n), name="X"), lang.placeholder((n, n), name="Y")
    k = lang.reduce_axis(n, name="k")
    z = lang.compute((n, n), lambda i, j: lang.sum(x[i, k] * y[k, j], k), name="Z")
    return Task(canonical_program(lang.program([x, y], [z])), Machine(HOST, 1), accuracy=EXACT)


def test_plans_of_tasks_that_are_alike_come_first():
    """A record of the same operator at another size is tried at once."""
    near, new = product(64), product(96)
    plans = STRATEGIES["random"].start(near, History(), Random(0)).propose(6)

    def begun(candidate):
        return adopted(new, History((Trial(candidate, "ok", (1.0,)),)))

    plan, (carried,) = next((c.plan, begun(c)) for c in plans[1:] if begun(c))
    records = Database(":memory:")
    records.declare(near, "near", near.key)
    records.keep(near.key, [Record(near.key, plan, "f", 1.0, 2.0)])
    measurer = Told(lambda n, _: 1.0)
    tune_task(new, "new", STRATEGIES["descent"], measurer, records, Budget(4, time.monotonic() + 60))
    tried = [found for _, found in measurer.numbers]
    assert tried[1] == carried


def test_other_operators_and_losers_are_no_neighbours():
    near, new = product(64), product(96)
    records = Database(":memory:")
    for given, seconds in ((near, 2.0), (TASK, 1.0)):
        plan = given.default().plan
        records.declare(given, "x", given.key)
        records.keep(given.key, [Record(given.key, plan, "f", seconds, 2.0)])
    assert neighbours_of(new, new.key, records) == ()
