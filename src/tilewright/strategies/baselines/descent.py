"""Coordinate descent from the default plan: one field after another, to the best option that was measured."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from tilewright.strategies.baselines.points import PointSearch, near
from tilewright.strategies.joint.loops import LoopPoint
from tilewright.strategies.pricing import by_price
from tilewright.strategies.search import History, Search, Task

#: Options of a field that are tried before those of the next field: on both sides, two each.
FIRST: Final = 4


@dataclass(frozen=True, slots=True)
class DescentStrategy:
    """Each field of the best plan in turn; from a local minimum on around the next best, then at random."""

    name: str = "descent"

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan, then the best of the history."""
        return _DescentSearch(self.name, task, history, rng)


class _DescentSearch(PointSearch):
    def __init__(self, name: str, task: Task, history: History, rng: Random) -> None:
        super().__init__(name, task, history, rng)
        self._order = list(range(len(self._space.parameters)))
        rng.shuffle(self._order)
        self._centre = self._space.default
        self._left: dict[LoopPoint, list[LoopPoint]] = {}

    def _next(self) -> LoopPoint:
        centre = self._centre
        if centre not in self._left:
            self._left[centre] = self._around(centre)
        if not self._left[centre]:
            ran = [point for point, taken in self._seconds.items() if taken != float("inf")]
            ran = [point for point in ran if self._left.get(point, [point])]
            if not ran:
                return self._space.sample(self._rng)
            self._centre = min(ran, key=self._seconds.__getitem__)
            return self._next() if self._centre not in self._left else self._left[self._centre].pop()
        return self._left[centre].pop()

    def _told(self, point: LoopPoint) -> None:
        now = self._seconds.get(self._centre, float("inf"))
        if self._seconds[point] < now:
            changed = [n for n in self._order if point[n] != self._centre[n]]
            # what has just paid goes on paying: its field stays first
            self._order = changed + [n for n in self._order if n not in changed]
            self._centre = point

    def _around(self, centre: LoopPoint) -> list[LoopPoint]:
        """The points around one, the last first: of each field its nearest options, then the others.

        The cheaper ones by the model before the others.
        """
        ways = [list(near(self._space, centre, n)) for n in self._order]
        nearest = [point for way in ways for point in way[:FIRST]]
        others = [point for way in ways for point in way[FIRST:]]
        return [*by_price(self._price, nearest), *others][::-1]

    def _price(self, point: LoopPoint) -> float | None:
        return self._prices.seconds(self._space.plan(point))
