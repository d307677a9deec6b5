"""Random search: plans drawn from the spaces around the default plan, none twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tilewright.plan import UnitPlan, Variants
from tilewright.strategies.search import Candidate, History, Search, Task, Trial
from tilewright.support import ScheduleError

#: Draws in a row that were known already, after which a space is taken for exhausted.
MOST_REPEATS = 64


@dataclass(frozen=True, slots=True)
class RandomStrategy:
    """Each nest of the default plan gets a plan of its space, drawn alike."""

    name: str = "random"

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan."""
        return _RandomSearch(task, rng)


class _RandomSearch:
    def __init__(self, task: Task, rng: Random) -> None:
        self._rng = rng
        self._variants = Variants(task.program, task.default().plan, task.machine, task.constants)
        self._seen: set[UnitPlan] = set()

    def propose(self, count: int) -> Sequence[Candidate]:
        found: list[Candidate] = []
        repeats = 0
        while len(found) < count and repeats < MOST_REPEATS:
            plan = self._drawn() if self._seen else self._variants.plan
            if plan is None or plan in self._seen:
                repeats += 1
                continue
            repeats = 0
            self._seen.add(plan)
            found.append(Candidate("random", plan))
        return found

    def observe(self, trials: Sequence[Trial]) -> None:
        """Nothing is learned."""

    def expected_gain(self) -> float:
        """Not known."""
        return 0.0

    def _drawn(self) -> UnitPlan | None:
        """A choice for each nest; ``None`` where one cannot be written down."""
        nests = enumerate(self._variants.nests)
        try:
            return self._variants.chosen({n: v.space.sample(self._rng) for n, v in nests if v is not None})
        except ScheduleError:
            return None
