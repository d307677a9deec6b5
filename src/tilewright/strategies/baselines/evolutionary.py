"""Evolutionary search: plans with nests of two good ones, and some decisions drawn anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tilewright.plan import UnitPlan
from tilewright.strategies.baselines.plans import PlanSearch
from tilewright.strategies.search import History, Search, Task

#: Plans that are drawn at random before there are parents, and moves that they are away from the default.
FOUNDERS: Final = 8
FAR: Final = 4
#: The best plans, of which parents are drawn.
POPULATION: Final = 12
#: Plans of which the best becomes a parent.
TOURNAMENT: Final = 3
#: The part of the plans that are drawn at random all the same.
STRANGERS: Final = 0.1
#: How often two parents exchange nests.
CROSSED: Final = 0.6
#: How often a mutation is the last one.
LAST: Final = 0.6


@dataclass(frozen=True, slots=True)
class EvolutionaryStrategy:
    """A population of the best plans so far; children are measured, and take the places of worse ones."""

    name: str = "evolutionary"

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan, then the best of the history, then random ones."""
        return _EvolutionarySearch(self.name, task, history, rng)


class _EvolutionarySearch(PlanSearch):
    def _next(self) -> UnitPlan:
        rng, ran = self._rng, self._ran
        if len(self._proposed) < FOUNDERS or not ran or rng.random() < STRANGERS:
            plan = self._default
            for _ in range(FAR):
                plan = self._moves.drawn(plan)
            return plan
        child = self._parent(ran[:POPULATION])
        if rng.random() < CROSSED:
            child = self._crossed(child, self._parent(ran[:POPULATION]))
        child = self._moves.drawn(child)
        while rng.random() > LAST:
            child = self._moves.drawn(child)
        return child

    def _parent(self, best: list[UnitPlan]) -> UnitPlan:
        return best[min(self._rng.randrange(len(best)) for _ in range(TOURNAMENT))]

    def _crossed(self, a: UnitPlan, b: UnitPlan) -> UnitPlan:
        """Each nest of one of two plans, where these are of the same stages."""
        same = a.rewrites == b.rewrites and [(n.root, n.stages, n.steps) for n in a.nests] == [
            (n.root, n.stages, n.steps) for n in b.nests
        ]
        if not same:
            return a
        return replace(a, nests=tuple(self._rng.choice(pair) for pair in zip(a.nests, b.nests, strict=True)))
