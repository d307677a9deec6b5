"""The strategy of edits: from the default plan to the cheapest ones around it, one move after the other.

A measured plan lends its ratio of measured to priced seconds to what is made of it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final

from tilewright.plan import UnitPlan
from tilewright.strategies.moves import Moves, adopted
from tilewright.strategies.pricing import Prices
from tilewright.strategies.search import Candidate, History, Search, Task, Trial

#: Plans that are looked at where nothing is measured.
PRICED: Final = 32
#: The part of a price below which it does not tell plans apart: of 31 kernels (every other one of
#: ``benchmarks/model_error.py``) those that were cheaper by less took 0.75 to 1.09 of the default's time.
RESOLUTION: Final = 0.02
#: Plans that were tried without a better one, after which a search is exhausted.
PATIENCE: Final = 64


@dataclass(frozen=True, slots=True)
class EditsStrategy:
    """Best first by the price, over all moves from all plans that were found."""

    name: str = "edits"

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan, then the best trees of the history."""
        return _EditsSearch(self.name, task, history, rng)


class _EditsSearch:
    def __init__(self, name: str, task: Task, history: History, rng: Random) -> None:
        self._name, self._moves, self._prices = name, Moves(task, rng), Prices(task)
        default = task.default().plan
        #: Plans whose edits have not been looked at, by what they are expected to take.
        self._open: list[tuple[float, int, UnitPlan]] = []
        self._known: set[UnitPlan] = set()
        self._ratio: dict[UnitPlan, float] = {}
        self._proposed: set[UnitPlan] = set()
        self._best, self._idle, self._until = float("inf"), 0, float("inf")
        self._first = [default]
        for plan in (default, *adopted(task, history)):
            self._add(plan, 1.0)

    def end_by(self, until: float) -> None:
        """Give the next proposals by that moment of ``time.monotonic``; told before each."""
        self._until = until

    def propose(self, count: int) -> Sequence[Candidate]:
        """The default plan first; then the cheapest plans that were found, none twice."""
        found = [Candidate(self._name, plan) for plan in self._first[:count]]
        self._first = self._first[count:]
        self._proposed.update(c.plan for c in found if isinstance(c.plan, UnitPlan))
        while len(found) < count and self._open and time.monotonic() < self._until:
            _, _, plan = heapq.heappop(self._open)
            ratio = self._ratio.get(plan, 1.0)
            for other in self._moves.around(plan):
                self._add(other, ratio)
            if plan not in self._proposed:
                self._proposed.add(plan)
                found.append(Candidate(self._name, plan, self._prices.seconds(plan)))
        return found

    def unmeasured(self) -> Iterator[Candidate]:
        """The default plan, then those whose price is surely lower, the cheapest first."""
        default, *others = self.propose(PRICED)
        yield default
        price = self._prices.seconds(default.plan)
        limit = inf if price is None else (1 - RESOLUTION) * price
        priced = [(each.predicted, n) for n, each in enumerate(others) if each.predicted is not None]
        yield from (others[n] for seconds, n in sorted(priced) if seconds < limit)

    def observe(self, trials: Sequence[Trial]) -> None:
        """What was measured says how far prices are to be believed around it."""
        for trial in trials:
            plan = trial.candidate.plan
            if not isinstance(plan, UnitPlan) or trial.status != "ok":
                continue
            priced = self._prices.seconds(plan)
            if priced:
                self._ratio[plan] = trial.best / priced
                for other in self._moves.around(plan):
                    self._add(other, trial.best / priced)
            self._idle = 0 if trial.best < self._best else self._idle + 1
            self._best = min(self._best, trial.best)

    def expected_gain(self) -> float:
        """All of the time at first, nothing once many plans in a row were no better."""
        return max(0.0, 1.0 - self._idle / PATIENCE) if self._open or self._first else 0.0

    def _add(self, plan: UnitPlan, ratio: float) -> None:
        if plan in self._known:
            return
        self._known.add(plan)
        priced = self._prices.seconds(plan)
        expected = float("inf") if priced is None else priced * ratio
        self._ratio.setdefault(plan, ratio)
        heapq.heappush(self._open, (expected, len(self._known), plan))
