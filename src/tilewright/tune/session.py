"""A session of tuning: tasks share one budget, which goes where the next trials may save most of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tilewright.strategies import AnyTask, Strategy
from tilewright.tune.database import Database
from tilewright.tune.decide import LEADERS, ROUNDS, least_rounds
from tilewright.tune.events import Event, Happening
from tilewright.tune.measure import LIMITS, Measurer, TrialLimits, measured_together, width_of
from tilewright.tune.task import (
    BATCH,
    Batch,
    TaskResult,
    TaskState,
    TaskUse,
    finish,
    known_result,
    measure_default,
    next_batch,
    open_task,
)

#: The part of a run's time that the next trials must be hoped to save, else the session ends.
LEAST_WORTH: Final = 0.001
#: The part of the budget that is set aside for deciding at most, and where it takes more to decide at all;
#: what may be taken beyond the budget's end.
DECIDING_SHARE: Final = 0.3
LEAST_SHARE: Final = 0.5
BEYOND: Final = 0.05
#: Seconds for decisions after an interruption, and rounds of each.
LAST_SECONDS: Final = 5.0
LAST_ROUNDS: Final = 9


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop: after so many trials of each task, or at a moment of ``time.monotonic``."""

    trials: int
    until: float

    def left(self, done: int) -> bool:
        """Whether another batch may begin."""
        return done < self.trials and time.monotonic() < self.until


def _nobody(event: Event) -> None:
    del event


def tune_tasks(
    uses: Sequence[TaskUse],
    strategy: Strategy,
    measurer: Measurer,
    database: Database,
    budget: Budget,
    seed: int = 0,
    *,
    watch: Callable[[Event], None] = _nobody,
    stopped: Callable[[], bool] = lambda: False,
    again: bool = False,
    start: Database | None = None,
) -> list[TaskResult]:
    """Tune tasks within one budget: a result each, in order. Finished ones are known.

    The default plans are measured first. Then the next batch of candidates is always of the task whose next
    trials may save most of a run, by its share of the time and by what its search, or the trials in vain so
    far, let expect; it ends where that is next to nothing. Leaders are measured again beside the default
    plan, taking turns, and the best is kept where it is faster beyond doubt. Ctrl-C ends the search: what
    was found is decided within seconds, and a later session goes on from there. Any time that the process
    is killed, trials that were made are in the database, and will not be made again. Equal seeds and
    measurements make equal choices. ``again`` tunes finished tasks once more, beyond what was tried.
    ``start`` holds records that searches may begin with, besides those of the database.
    """
    begin = time.monotonic()
    session = _Session(strategy, measurer, database, budget, seed, watch, stopped, begin, start)
    session.number = database.begin(strategy.name, seed)
    opened = [open_task(use, database, again) for use in uses]
    last: float | None = None
    try:
        session.states = [each for each in opened if isinstance(each, TaskState)]
        for state in session.states:
            session.tell("task", state)
        session.search()
    except KeyboardInterrupt:
        last = time.monotonic() + LAST_SECONDS
    results: list[TaskResult] = []
    for each in opened:
        done = each if isinstance(each, TaskResult) else None
        try:
            if isinstance(each, TaskState):
                done = session.finish(each, last)
            if done is not None:
                session.tell_result(done)
        except KeyboardInterrupt:
            last = 0.0
            if done is None and isinstance(each, TaskState):
                done = session.finish(each, last)
        if done is not None:
            results.append(done)
    return results


def tune_task(
    task: AnyTask,
    label: str,
    strategy: Strategy,
    measurer: Measurer,
    database: Database,
    budget: Budget,
    seed: int = 0,
    stopped: Callable[[], bool] = lambda: False,
) -> TaskResult:
    """Tune one task: see :func:`tune_tasks`."""
    (done,) = tune_tasks([TaskUse(task, label)], strategy, measurer, database, budget, seed, stopped=stopped)
    return done


@dataclass(slots=True, eq=False)
class _Session:
    strategy: Strategy
    measurer: Measurer
    database: Database
    budget: Budget
    seed: int
    watch: Callable[[Event], None]
    stopped: Callable[[], bool]
    begin: float
    start: Database | None = None
    number: int = 0
    states: Sequence[TaskState] = ()
    _results: list[TaskResult] = field(default_factory=list)
    finished: int = 0

    def search(self) -> None:
        """Measure the default plans, then candidates, until the budget ends or nothing more is expected."""
        for state in self.states:
            if self.stopped() or (state is not self.states[0] and time.monotonic() >= self.budget.until):
                return
            self.tell("trying", state, {"default": 1})
            first = measure_default(state, self.measurer, self.database, self.number, self._end)
            self.tell("measured", state, {} if first is None else {first.status: 1})
        while time.monotonic() < self._search_until and not self.stopped():
            batches = self._next()
            if not batches:
                return
            for batch in batches:
                if batch.new:
                    self.tell("trying", batch.state, Counter(each.origin for each in batch.new))
            jobs = [(each.state.task, each.new) for each in batches]
            begin = time.monotonic()
            made = measured_together(self.measurer, jobs, replace(LIMITS, until=self._search_until))
            taken = (time.monotonic() - begin) / len(batches)
            for batch, trials in zip(batches, made, strict=True):
                batch.settle(trials, self.database, self.number, taken)
                self.tell("measured", batch.state, Counter(trial.status for trial in trials))

    def _next(self) -> list[Batch]:
        """The next batches: of the task that promises most, of several where many wait for work."""
        left = [s for s in self.states if not s.over and s.trials < self.budget.trials]
        least = LEAST_WORTH * sum(each.total for each in self.states)
        ranked = sorted(left, key=lambda each: -each.worth())
        width = width_of(self.measurer)
        chosen = [s for s in ranked[: max(1, width // BATCH)] if s.worth() > least]
        size = max(BATCH, width // max(1, len(chosen)))
        batches: list[Batch] = []
        for state in chosen:
            most = min(size, self.budget.trials - state.trials)
            batches.append(
                next_batch(
                    state, self.strategy, self.database, self.seed, most, self._search_until, self.start
                )
            )
        return batches

    @property
    def _search_until(self) -> float:
        """When searching ends: what is left is for deciding, by what trials took so far."""
        whole = self.budget.until - self.begin
        full = sum(each.deciding(LEADERS, ROUNDS) for each in self.states)
        least = sum(each.deciding(1, least_rounds(1)) for each in self.states)
        return self.budget.until - max(min(full, DECIDING_SHARE * whole), min(least, LEAST_SHARE * whole))

    @property
    def _end(self) -> float:
        """When all ends."""
        return self.budget.until + BEYOND * (self.budget.until - self.begin)

    def finish(self, state: TaskState, last: float | None) -> TaskResult:
        """Decide one task; after an interruption quickly, and after the moment ``last`` as it was before."""
        if last is not None:
            if time.monotonic() >= last or state.untuned is None:
                kept = known_result(state.use, state.task, self.database)
                if kept is not None:
                    return kept
                state.leaders.clear()
            limits = TrialLimits(rounds=LAST_ROUNDS)
            return finish(state, self.measurer, self.database, limits, final=False)
        self.tell("deciding", state)
        now = time.monotonic()
        share = max(0.0, self._end - now) / max(1, len(self.states) - self.finished)
        limits = replace(LIMITS, rounds=ROUNDS, until=now + share)
        self.finished += 1
        enough = state.over or state.trials >= min(self.budget.trials, 1 + BATCH) or state.worth() == 0
        final = enough or state.worth() <= LEAST_WORTH * sum(each.total for each in self.states)
        return finish(state, self.measurer, self.database, limits, final=final, repeat=True)

    def tell(self, what: Happening, state: TaskState, counts: Mapping[str, int] | None = None) -> None:
        """Tell those who watch what happens with a task."""
        use, untuned = state.use, state.default_seconds
        self._tell(Event(what, state.key, use.label, use.weight, untuned, state.best, state.trials), counts)

    def tell_result(self, done: TaskResult) -> None:
        """Tell those who watch what a task came to."""
        event = Event("result", done.task.key, done.label, done.weight, done.untuned, done.best, done.trials)
        self._results.append(done)
        self._tell(replace(event, result=done))

    def _tell(self, event: Event, counts: Mapping[str, int] | None = None) -> None:
        now = time.monotonic()
        decided = {done.task.key for done in self._results}
        saved = sum(done.saved for done in self._results)
        saved += sum(state.saved for state in self.states if state.key not in decided)
        left = max(0.0, self.budget.until - now)
        self.watch(
            replace(event, saved=saved, elapsed=now - self.begin, left=left, counts=dict(counts or {}))
        )
