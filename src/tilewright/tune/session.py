"""A session of tuning: tasks share one budget, which goes where the next trials may save most of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.strategies import Strategy, Task
from tilewright.tune.database import Database
from tilewright.tune.decide import LOADED, ROUNDS
from tilewright.tune.measure import LIMITS, Measurer, TrialLimits
from tilewright.tune.task import (
    BATCH,
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
#: Seconds that it takes to decide one task, and the largest part of the budget that is set aside for that.
DECIDING: Final = 1.0
DECIDING_SHARE: Final = 0.3
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


@dataclass(frozen=True, slots=True)
class Event:
    """What happened in a session, for those who watch: a batch of a task, or its result.

    ``untuned`` and ``best`` are seconds of the task so far, ``saved`` what all tasks save of a run's seconds.
    """

    label: str
    weight: float
    untuned: float
    best: float
    trials: int
    saved: float
    elapsed: float
    result: TaskResult | None = None


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
) -> list[TaskResult]:
    """Tune tasks within one budget: a result each, in order. Those that the database has finished keep theirs.

    The default plans are measured first. Then the next batch of candidates is always of the task whose next
    trials may save most of a run, by its share of the time and by what its search, or the trials in vain so
    far, let expect; it ends where that is next to nothing. Leaders are measured again beside the default
    plan, taking turns, and the best is kept where it is faster beyond doubt. Ctrl-C ends the search: what
    was found is decided within seconds, and a later session goes on from there. Any time that the process
    is killed, trials that were made are in the database, and will not be made again. Equal seeds and
    measurements make equal choices. ``again`` tunes finished tasks once more, beyond what was tried.
    """
    begin = time.monotonic()
    session = _Session(strategy, measurer, database, budget, seed, watch, stopped, begin)
    session.number = database.begin(strategy.name, seed)
    opened = [open_task(use, database, again) for use in uses]
    states = [each for each in opened if isinstance(each, TaskState)]
    interrupted = False
    try:
        session.search(states)
    except KeyboardInterrupt:
        interrupted = True
    results: list[TaskResult] = []
    last = time.monotonic() + LAST_SECONDS
    for each in opened:
        if isinstance(each, TaskResult):
            results.append(each)
            session.tell_result(each)
            continue
        try:
            done = session.finish(each, last if interrupted else None)
        except KeyboardInterrupt:
            interrupted, last = True, 0.0
            done = session.finish(each, last)
        results.append(done)
        session.tell_result(done)
    return results


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
    number: int = 0
    states: Sequence[TaskState] = ()

    def search(self, states: Sequence[TaskState]) -> None:
        """Measure the default plans, then candidates, until the budget ends or nothing more is expected."""
        self.states = states
        for state in states:
            if self.stopped() or (state is not states[0] and time.monotonic() >= self.budget.until):
                return
            measure_default(state, self.measurer, self.database, self.number)
            self._tell(state)
        whole = self.budget.until - self.begin
        until = self.budget.until - min(DECIDING * len(states), DECIDING_SHARE * whole)
        while time.monotonic() < until and not self.stopped():
            left = [s for s in states if not s.over and s.trials < self.budget.trials]
            if not left:
                return
            state = max(left, key=lambda each: each.worth())
            if state.worth() <= LEAST_WORTH * sum(each.total for each in states):
                return
            next_batch(
                state,
                self.strategy,
                self.measurer,
                self.database,
                self.number,
                self.seed,
                self.budget.trials - state.trials,
            )
            self._tell(state)

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
        limits = replace(LIMITS, rounds=ROUNDS)
        enough = state.over or state.trials >= min(self.budget.trials, 1 + BATCH) or state.worth() == 0
        final = enough or state.worth() <= LEAST_WORTH * sum(each.total for each in self.states)
        done = finish(state, self.measurer, self.database, limits, final=final)
        if done.load is not None and done.load > LOADED:
            # others were at work: once more
            done = finish(state, self.measurer, self.database, limits, final=final)
        return done

    def _tell(self, state: TaskState, result: TaskResult | None = None) -> None:
        untuned = state.untuned.best if state.untuned is not None else float("inf")
        saved = sum(
            each.use.weight * (each.untuned.best - each.best)
            for each in self.states
            if each.untuned is not None and each.untuned.status == "ok"
        )
        elapsed = time.monotonic() - self.begin
        self.watch(
            Event(
                state.use.label, state.use.weight, untuned, state.best, state.trials, saved, elapsed, result
            )
        )

    def tell_result(self, done: TaskResult) -> None:
        """Tell those who watch what a task came to."""
        elapsed = time.monotonic() - self.begin
        saved = done.weight * (done.untuned - done.best) if done.plan is not None else 0.0
        self.watch(Event(done.label, done.weight, done.untuned, done.best, done.trials, saved, elapsed, done))
