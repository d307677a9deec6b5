"""The strategy ``beam``: the default plan, then those of found states, the fastest by the model first.

Each call for candidates that finds none left runs another batch, of one beam search and greedy ones with
other seeds (one-shot takes the first, top-k measures k). On CPUs; of programs without stages to decide about
the default plan is the only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tilewright.strategies.beam.cost import CostModel
from tilewright.strategies.beam.emit import to_plan
from tilewright.strategies.beam.graph import graph_of
from tilewright.strategies.beam.network import Network
from tilewright.strategies.beam.search import Pricer, Settings, batch
from tilewright.strategies.search import Candidate, History, Search, Task, Trial
from tilewright.support import ScheduleError
from tilewright.target import CpuTarget

#: Samples of a batch: one beam search, all others greedy.
SAMPLES: Final = 80
#: Batches after which a search has nothing left.
BATCHES: Final = 20


@dataclass(frozen=True, slots=True)
class BeamStrategy:
    """Beam search. ``network`` scales the coefficients of the cost."""

    name: str = "beam"
    settings: Settings = field(default_factory=Settings)
    samples: int = SAMPLES
    batches: int = BATCHES
    network: Network | None = field(default=None, compare=False)

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan."""
        return BeamTaskSearch(task, rng, self)


class BeamTaskSearch:
    """One search for one task. ``pricer`` and ``graph`` are of its program, for reports."""

    def __init__(self, task: Task, rng: Random, strategy: BeamStrategy) -> None:
        self._task, self._strategy = task, strategy
        self._seed = rng.getrandbits(32)
        self.graph = graph_of(task.program)
        self.pricer = Pricer(
            CostModel(self.graph, task.machine, strategy.network), strategy.settings.memoising
        )
        self._left = self._candidates()

    def propose(self, count: int) -> Sequence[Candidate]:
        """The next best candidates, the default plan first of all."""
        return [candidate for _, candidate in zip(range(count), self._left, strict=False)]

    def observe(self, trials: Sequence[Trial]) -> None:
        """Nothing is learned yet."""

    def expected_gain(self) -> float:
        """Not known."""
        return 0.0

    def _candidates(self) -> Iterator[Candidate]:
        task, strategy = self._task, self._strategy
        default = task.default().plan
        yield Candidate("beam", default)
        if not any(n.plain for n in self.graph.nodes) or not isinstance(task.machine.target, CpuTarget):
            return
        seen = {default}
        for number in range(strategy.batches):
            found = batch(
                self.graph,
                task.machine,
                self.pricer,
                self._seed + number,
                strategy.settings,
                strategy.samples,
            )
            for each in found:
                try:
                    plan = to_plan(self.graph, each.state, task.machine, task.constants).plan
                except ScheduleError:
                    # a stage outside of the groups; those of the groups are never refused
                    continue
                if plan not in seen:
                    seen.add(plan)
                    yield Candidate("beam", plan, each.seconds)
