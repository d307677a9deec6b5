"""Descent from the default plan: around the fastest plan that was measured, the cheapest ones first."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tilewright.plan import UnitPlan
from tilewright.strategies.baselines.plans import PlanSearch
from tilewright.strategies.pricing import Prices, by_price
from tilewright.strategies.search import History, Search, Task


@dataclass(frozen=True, slots=True)
class DescentStrategy:
    """All moves from the best plan in turn; from a local minimum on around the next best."""

    name: str = "descent"

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan, then the best of the history."""
        return _DescentSearch(self.name, task, history, rng)


class _DescentSearch(PlanSearch):
    def __init__(self, name: str, task: Task, history: History, rng: Random) -> None:
        super().__init__(name, task, history, rng)
        self._prices = Prices(task)
        self._centre = self._default
        self._left: dict[UnitPlan, list[UnitPlan]] = {}

    def _next(self) -> UnitPlan | None:
        while not self._around(self._centre):
            others = (plan for plan in self._ran if self._left.get(plan, [plan]))
            centre = next(others, None)
            if centre is None:
                return None
            self._centre = centre
        return self._left[self._centre].pop()

    def _told(self, plan: UnitPlan) -> None:
        if self._seconds[plan] < self._seconds.get(self._centre, float("inf")):
            self._centre = plan

    def _around(self, centre: UnitPlan) -> list[UnitPlan]:
        """What is left of the plans around one, the last first."""
        if centre not in self._left:
            self._left[centre] = by_price(self._prices.seconds, list(self._moves.around(centre)))[::-1]
        return self._left[centre]
