"""Searches over points around the default plan: each proposed once, and what became of it remembered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from tilewright.plan import UnitPlan
from tilewright.strategies.joint.loops import LoopPoint, LoopSpace, adopted, loop_space
from tilewright.strategies.pricing import Prices
from tilewright.strategies.search import Candidate, History, Task, Trial

#: Points in a row that are no plans, or known ones, after which a search is taken for exhausted.
MOST_REPEATS: Final = 256
#: What a search saved over so many of its last trials, it is expected to save over the next.
WINDOW: Final = 24


class PointSearch(ABC):
    """What such searches share: a subclass says which point is next.

    The default plan comes first, then the best of ``history`` as far as they fit.
    """

    def __init__(self, name: str, task: Task, history: History, rng: Random) -> None:
        self._name, self._rng = name, rng
        self._space = loop_space(task)
        #: Seconds of the points that were measured; infinite where they failed.
        self._seconds: dict[LoopPoint, float] = {}
        self._points: dict[UnitPlan, LoopPoint] = {self._space.base: self._space.default}
        self._proposed: set[UnitPlan] = set()
        self._curve: list[float] = []
        self._exhausted = False
        self._prices = Prices(task)
        self._first = [self._space.default, *adopted(self._space, history)]
        self._first.reverse()

    @abstractmethod
    def _next(self) -> LoopPoint:
        """Another point, which may be known, or none of a plan: then the one after it is taken."""

    def _told(self, point: LoopPoint) -> None:  # noqa: B027  (not all need it at once)
        """What became of a point is known now."""

    def propose(self, count: int) -> Sequence[Candidate]:
        """The default plan first; then what the search says, none twice."""
        found: list[Candidate] = []
        repeats = 0
        while len(found) < count and repeats < MOST_REPEATS:
            point = self._first.pop() if self._first else self._next()
            plan = self._space.plan(point)
            if plan is None or plan in self._proposed:
                repeats += 1
                continue
            repeats = 0
            self._points.setdefault(plan, point)
            self._proposed.add(plan)
            found.append(Candidate(self._name, plan))
        self._exhausted = repeats >= MOST_REPEATS
        return found

    def observe(self, trials: Sequence[Trial]) -> None:
        """Remember the seconds of each point; plans that are none of this search's are passed over."""
        for trial in trials:
            plan = trial.candidate.plan
            point = self._points.get(plan) if isinstance(plan, UnitPlan) else None
            if point is None:
                continue
            assert isinstance(plan, UnitPlan)
            self._proposed.add(plan)
            self._seconds[point] = trial.best if trial.status == "ok" else float("inf")
            self._curve.append(min(self._seconds[point], self._curve[-1] if self._curve else float("inf")))
            self._told(point)

    def expected_gain(self) -> float:
        """What the last trials saved of the best time; all of it before there were so many."""
        if self._exhausted:
            return 0.0
        if len(self._curve) <= WINDOW:
            return 1.0
        before = self._curve[-1 - WINDOW]
        return 1.0 if before == float("inf") else 1.0 - self._curve[-1] / before


def near(space: LoopSpace, point: LoopPoint, parameter: int) -> Iterable[LoopPoint]:
    """The points that differ in one parameter, the nearest options first."""
    count, at = len(space.parameters[parameter].options), point[parameter]
    for value in sorted((n for n in range(count) if n != at), key=lambda n: (abs(n - at), n)):
        yield (*point[:parameter], value, *point[parameter + 1 :])
