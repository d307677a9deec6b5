"""One task's tuning: candidates measured beside the default plan within a budget, the best kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Final, Protocol

from tilewright.plan import UnitPlan
from tilewright.strategies import Candidate, History, Strategy, Task, Trial
from tilewright.tune.database import Database, Record

#: Candidates that are proposed and measured together.
BATCH: Final = 8
#: Leaders that are measured again beside the default plan: the first minimum lies.
LEADERS: Final = 3
#: Rounds of that, taking turns.
ROUNDS: Final = 5
#: Part of the time that a winner must save in the rounds, beyond noise, to be kept.
LEAST_GAIN: Final = 0.02


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop: after so many trials of a task, or at a moment of ``time.monotonic``."""

    trials: int
    until: float

    def left(self, done: int) -> bool:
        """Whether another batch may begin."""
        return done < self.trials and time.monotonic() < self.until


class Measurer(Protocol):
    """Who builds, checks and times candidates; a candidate that fails in any way is a trial with a reason."""

    def measure(self, task: Task, candidates: Sequence[Candidate]) -> list[Trial]:
        """One trial a candidate, in order; results are compared with those of the first ever measured."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What tuning of a task came to: seconds of the default plan and of the best, side by side.

    ``reason`` says why the default plan could not be measured, where that is so.
    """

    task: Task
    label: str
    untuned: float
    best: float
    plan: UnitPlan | None
    trials: int
    known: bool = False
    reason: str = ""

    @property
    def gain(self) -> float:
        """How many times faster the best is; 1 where the default stays."""
        return self.untuned / self.best if self.plan is not None and self.best > 0 else 1.0


def tune_task(
    task: Task,
    label: str,
    strategy: Strategy,
    measurer: Measurer,
    database: Database,
    budget: Budget,
    seed: int = 0,
    stopped: Callable[[], bool] = lambda: False,
) -> TaskResult:
    """Tune one task. A task that has a winner is not tuned again.

    The default plan is measured first. Candidates faster than it are measured again beside it, taking turns;
    the best of them is kept where the median of its rounds saves more than noise. Any time that it is
    stopped, what was found so far is in the database.
    """
    known = database.best(task.key)
    if known is not None:
        return TaskResult(task, label, known.untuned, known.seconds, known.plan, 0, known=True)
    default = Candidate("default", task.default().plan)
    (first,) = measurer.measure(task, [default])
    database.add(task.key, label, [first])
    search = strategy.start(task, History(), Random(seed))
    search.observe([first])
    trials, seen = [first], {default.plan}
    while budget.left(len(trials)) and not stopped() and first.status == "ok":
        proposed = search.propose(min(BATCH, budget.trials - len(trials)))
        candidates = [c for c in proposed if c.plan not in seen]
        seen.update(c.plan for c in candidates)
        if not proposed:
            break
        found = measurer.measure(task, candidates) if candidates else []
        database.add(task.key, label, found)
        search.observe(found)
        trials += found
    return _decide(task, label, first, trials, measurer, database)


def _decide(
    task: Task, label: str, first: Trial, trials: list[Trial], measurer: Measurer, database: Database
) -> TaskResult:
    better = sorted((t for t in trials[1:] if t.status == "ok" and t.best < first.best), key=lambda t: t.best)
    leaders = [first.candidate, *(t.candidate for t in better[:LEADERS])]
    if first.status != "ok":
        reason = f"{first.status}: {first.reason}"
        return TaskResult(task, label, first.best, first.best, None, len(trials), reason=reason)
    rounds: list[list[float]] = [[] for _ in leaders]
    for _ in range(ROUNDS if len(leaders) > 1 else 1):
        for n, trial in enumerate(measurer.measure(task, leaders)):
            rounds[n].append(trial.best)
    medians = [median(times) for times in rounds]
    # of the default's rounds against one another: what is within it is noise
    noise = max(rounds[0]) / min(rounds[0]) - 1 if min(rounds[0]) > 0 else 0.0
    at = min(range(len(medians)), key=medians.__getitem__)
    wins = at > 0 and medians[at] < medians[0] * (1 - max(LEAST_GAIN, min(noise, 0.5) / 2))
    plan = leaders[at].plan if wins else first.candidate.plan
    best = medians[at] if wins else medians[0]
    assert isinstance(plan, UnitPlan)
    database.keep(Record(task.key, plan, best, medians[0]), label)
    return TaskResult(task, label, medians[0], best, plan if wins else None, len(trials))
