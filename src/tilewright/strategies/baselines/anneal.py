"""Simulated annealing without a model: a walk that takes worse plans ever less often (as FlexTensor's)."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Final

from tilewright.plan import UnitPlan
from tilewright.strategies.baselines.plans import PlanSearch
from tilewright.strategies.search import History, Search, Task

#: The temperature at first, in logarithms of seconds: plans of twice the time are taken one time in 32.
HOT: Final = 0.2
#: What is left of it after each trial.
COOLING: Final = 0.97
#: How often a step is the last one.
LAST: Final = 0.6


@dataclass(frozen=True, slots=True)
class AnnealStrategy:
    """Neighbours of the current plan; a slower one becomes current with a probability that falls."""

    name: str = "anneal"

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan, then the best of the history."""
        return _AnnealSearch(self.name, task, history, rng)


class _AnnealSearch(PlanSearch):
    def __init__(self, name: str, task: Task, history: History, rng: Random) -> None:
        super().__init__(name, task, history, rng)
        self._current = self._default
        self._temperature = HOT

    def _next(self) -> UnitPlan:
        """Some moves away from the current plan."""
        plan = self._moves.drawn(self._current)
        while self._rng.random() > LAST:
            plan = self._moves.drawn(plan)
        return plan

    def _told(self, plan: UnitPlan) -> None:
        new, now = self._seconds[plan], self._seconds.get(self._current, float("inf"))
        self._temperature *= COOLING
        if new <= now or (
            new != float("inf") and self._rng.random() < exp(-(log(new) - log(now)) / self._temperature)
        ):
            self._current = plan
