"""Evolutionary search: plans with fields of two good ones, and some fields drawn anew."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from tilewright.strategies.baselines.points import PointSearch
from tilewright.strategies.joint.loops import LoopPoint
from tilewright.strategies.search import History, Search, Task

#: Plans that are drawn at random before there are parents.
FOUNDERS: Final = 8
#: The best plans, of which parents are drawn.
POPULATION: Final = 12
#: Plans of which the best becomes a parent.
TOURNAMENT: Final = 3
#: The part of the plans that are drawn at random all the same.
STRANGERS: Final = 0.1
#: How often two parents exchange fields.
CROSSED: Final = 0.6


@dataclass(frozen=True, slots=True)
class EvolutionaryStrategy:
    """A population of the best plans so far; children are measured, and take the places of worse ones."""

    name: str = "evolutionary"

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan, then the best of the history, then random ones."""
        return _EvolutionarySearch(self.name, task, history, rng)


class _EvolutionarySearch(PointSearch):
    def _next(self) -> LoopPoint:
        rng, ran = self._rng, [p for p, taken in self._seconds.items() if taken != float("inf")]
        if len(self._proposed) < FOUNDERS or not ran or rng.random() < STRANGERS:
            return self._space.sample(rng)
        best = sorted(ran, key=self._seconds.__getitem__)[:POPULATION]
        child = self._parent(best)
        if rng.random() < CROSSED:
            other = self._parent(best)
            child = tuple(rng.choice(pair) for pair in zip(child, other, strict=True))
        return self._mutated(child)

    def _parent(self, best: list[LoopPoint]) -> LoopPoint:
        return best[min(self._rng.randrange(len(best)) for _ in range(TOURNAMENT))]

    def _mutated(self, point: LoopPoint) -> LoopPoint:
        """One field drawn anew, or a step further, and each other one as rarely as there are many."""
        rng, parameters = self._rng, self._space.parameters
        if not parameters:
            return point
        out, sure = list(point), rng.randrange(len(parameters))
        for n, parameter in enumerate(parameters):
            if n == sure or rng.random() < 1 / (2 * len(parameters)):
                last = len(parameter.options) - 1
                step = min(max(out[n] + rng.choice((-1, 1)), 0), last)
                out[n] = step if rng.random() < 0.5 else rng.randint(0, last)
        return tuple(out)
