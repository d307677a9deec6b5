"""Strategies by name, and what they choose without measuring."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Final

from tilewright.cost import seconds, tree_of
from tilewright.plan import Planned, UnitPlan, plan_seconds
from tilewright.strategies.baselines.anneal import AnnealStrategy
from tilewright.strategies.baselines.descent import DescentStrategy
from tilewright.strategies.baselines.evolutionary import EvolutionaryStrategy
from tilewright.strategies.baselines.random import RandomStrategy
from tilewright.strategies.beam.strategy import BeamStrategy
from tilewright.strategies.construct.strategy import ConstructStrategy
from tilewright.strategies.joint.strategy import JointStrategy
from tilewright.strategies.polyhedral.strategy import PolyhedralStrategy
from tilewright.strategies.search import History, Strategy, Task
from tilewright.support import InputError, ScheduleError, known_names

#: Strategies besides the default one: one line each.
STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {
        strategy.name: strategy
        for strategy in (
            RandomStrategy(),
            DescentStrategy(),
            EvolutionaryStrategy(),
            AnnealStrategy(),
            ConstructStrategy(),
            ConstructStrategy("construct-tree", method="tree"),
            ConstructStrategy("construct-paper", variant="paper"),
            JointStrategy(),
            JointStrategy("loop-only", layouts=False),
            JointStrategy("template", actors=False),
            BeamStrategy(),
            PolyhedralStrategy(),
        )
    }
)
#: The name of the strategy that searches nothing.
DEFAULT: Final = "default"
#: Those that vary whatever the rules of a target leave open; others reason about CPUs.
ON_DEVICES: Final = frozenset({"random", "descent", "evolutionary", "anneal"})
#: Candidates that are priced where nothing is measured.
PRICED: Final = 32
#: How many times faster than the default plan the analytic model must say that another one is, for it to be
#: taken unmeasured. Of 32 shapes and stages, plans with predicted gains of 1.02 to 1.24 were 0.68 to
#: 1.6 times as fast as the default, those from 1.7 on 1.03 to 1.14
#: (``benchmarks/construct.py``, decision 0224).
MARGIN: Final = 1.3


def find_strategy(name: str | Strategy) -> Strategy | None:
    """A strategy by its name; ``None`` for the default one. Raises InputError for an unknown name."""
    if not isinstance(name, str):
        return name
    if name == DEFAULT:
        return None
    if name not in STRATEGIES:
        names = (DEFAULT, *STRATEGIES)
        raise InputError(f"there is no strategy {name!r}", hint=known_names(name, names, "strategies"))
    return STRATEGIES[name]


def best_by_model(strategy: Strategy, task: Task, seed: int = 0, count: int = PRICED) -> Planned:
    """The plan of a strategy's candidate that the analytic model says is the fastest.

    The first candidate of every strategy is the default plan, so that there always is one; what predicts
    nothing of its own must beat it by :data:`MARGIN`. Candidates that are refused are left out; raises
    ScheduleError where all are.
    """
    search = strategy.start(task, History(), Random(seed))
    best: tuple[float, Planned] | None = None
    refused: ScheduleError | None = None
    for candidate in search.propose(count):
        if not isinstance(candidate.plan, UnitPlan):
            continue
        try:
            s = candidate.schedule(task)
        except ScheduleError as error:
            refused = error
            continue
        price = candidate.predicted
        if price is None:
            price = plan_seconds(task.program, candidate.plan, task.machine, task.constants)
        if price is None:
            price = seconds(tree_of(s.func, task.machine.target.operations), task.machine)
        if best is None or price < best[0]:
            # the default's price counts as so much less; others are compared with one another as they are
            first = best is None and candidate.predicted is None
            best = (price / MARGIN if first else price, Planned(candidate.plan, s))
    if best is None:
        raise refused or ScheduleError(f"the strategy {strategy.name} proposes no plan")
    return best[1]
