"""Searches from plan to plan: each proposed once, and what became of it remembered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import Final

from tilewright.plan import UnitPlan
from tilewright.strategies.moves import Moves, adopted
from tilewright.strategies.search import Candidate, History, Task, Trial

#: Plans in a row that are known already, after which a search is taken for exhausted.
MOST_REPEATS: Final = 64
#: What a search saved over so many of its last trials, it is expected to save over the next.
WINDOW: Final = 24


class PlanSearch(ABC):
    """What such searches share: a subclass says which plan is next.

    The default plan comes first, then the best of ``history`` as far as they fit.
    """

    def __init__(self, name: str, task: Task, history: History, rng: Random) -> None:
        self._name, self._rng = name, rng
        self._moves, self._default = Moves(task, rng), task.default().plan
        #: Seconds of the plans that were measured; infinite where they failed.
        self._seconds: dict[UnitPlan, float] = {}
        self._proposed: set[UnitPlan] = set()
        self._curve: list[float] = []
        self._exhausted = False
        self._first = [*reversed(adopted(task, history)), self._default]

    @abstractmethod
    def _next(self) -> UnitPlan | None:
        """Another plan, which may be known: then the one after it is taken. ``None`` where none is left."""

    def _told(self, plan: UnitPlan) -> None:  # noqa: B027  (not all need it at once)
        """What became of a plan is known now."""

    @property
    def _ran(self) -> list[UnitPlan]:
        """The plans that ran, the fastest first."""
        ran = [plan for plan, taken in self._seconds.items() if taken != float("inf")]
        return sorted(ran, key=self._seconds.__getitem__)

    def propose(self, count: int) -> Sequence[Candidate]:
        """The default plan first; then what the search says, none twice."""
        found: list[Candidate] = []
        repeats = 0
        while len(found) < count and repeats < MOST_REPEATS:
            plan = self._first.pop() if self._first else self._next()
            if plan is None or plan in self._proposed:
                repeats += 1
                continue
            repeats = 0
            self._proposed.add(plan)
            found.append(Candidate(self._name, plan))
        self._exhausted = repeats >= MOST_REPEATS
        return found

    def observe(self, trials: Sequence[Trial]) -> None:
        """Remember the seconds of each plan, others' as well."""
        for trial in trials:
            plan = trial.candidate.plan
            if not isinstance(plan, UnitPlan):
                continue
            self._proposed.add(plan)
            self._seconds[plan] = trial.best if trial.status == "ok" else float("inf")
            self._curve.append(min(self._seconds[plan], self._curve[-1] if self._curve else float("inf")))
            self._told(plan)

    def expected_gain(self) -> float:
        """What the last trials saved of the best time; all of it before there were so many."""
        if self._exhausted:
            return 0.0
        if len(self._curve) <= WINDOW:
            return 1.0
        before = self._curve[-1 - WINDOW]
        return 1.0 if before == float("inf") else 1.0 - self._curve[-1] / before
