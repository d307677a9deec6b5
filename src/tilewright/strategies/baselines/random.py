"""Random search: plans some moves away from the default plan, none twice."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from tilewright.plan import UnitPlan
from tilewright.strategies.baselines.plans import PlanSearch
from tilewright.strategies.search import History, Search, Task

#: Moves that a plan is away from the default plan, at most.
FAR: Final = 6


@dataclass(frozen=True, slots=True)
class RandomStrategy:
    """Walks of drawn moves."""

    name: str = "random"

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan, then the best of the history."""
        return _RandomSearch(self.name, task, history, rng)


class _RandomSearch(PlanSearch):
    def _next(self) -> UnitPlan:
        plan = self._default
        for _ in range(self._rng.randint(1, FAR)):
            plan = self._moves.drawn(plan)
        return plan
