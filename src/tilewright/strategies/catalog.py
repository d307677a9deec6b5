"""Strategies by name, and what they choose without measuring."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Final

from tilewright.codegen import ALL_CALLS, check
from tilewright.cost import CostModel, Machine, seconds, tree_of
from tilewright.lower import lower
from tilewright.plan import Planned, UnitPlan
from tilewright.schedule import Schedule
from tilewright.strategies.baselines.anneal import AnnealStrategy
from tilewright.strategies.baselines.descent import DescentStrategy
from tilewright.strategies.baselines.evolutionary import EvolutionaryStrategy
from tilewright.strategies.baselines.random import RandomStrategy
from tilewright.strategies.beam.strategy import BeamStrategy
from tilewright.strategies.construct.strategy import ConstructStrategy
from tilewright.strategies.edits import EditsStrategy
from tilewright.strategies.joint.strategy import JointStrategy
from tilewright.strategies.polyhedral.strategy import PolyhedralStrategy
from tilewright.strategies.pricing import Prices
from tilewright.strategies.search import (
    AnyTime,
    Candidate,
    Foreseeing,
    History,
    Search,
    Strategy,
    Task,
)
from tilewright.support import Catalog, InputError, ScheduleError, TargetError, known_names
from tilewright.target import GpuTarget

#: Strategies besides the default one: one line each.
STRATEGIES: Final[Catalog[str, Strategy]] = Catalog(
    "strategies",
    (
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
        EditsStrategy(),
    ),
)
#: The name of the strategy that searches nothing.
DEFAULT: Final = "default"
#: The name of the one that measures, of ``tune``.
MEASURED: Final = "auto"
#: Those that vary whatever the rules of a target leave open; others reason about CPUs.
ON_DEVICES: Final = frozenset(
    {"random", "descent", "evolutionary", "anneal", "beam", "construct", "construct-tree", "construct-paper"}
)
#: Candidates that are priced where nothing is measured.
PRICED: Final = 32
#: Seconds that a search which is not measured may take.
ONE_SHOT: Final = 40.0


def find_strategy(name: str | Strategy) -> Strategy | None:
    """A strategy by its name; ``None`` for the default one. Raises InputError for an unknown name."""
    if not isinstance(name, str):
        return name
    if name == DEFAULT:
        return None
    if name not in STRATEGIES:
        if name == MEASURED:
            raise InputError(
                f"the strategy {name!r} measures, which compiling does not", hint="`tilewright tune` does"
            )
        names = (DEFAULT, *STRATEGIES)
        raise InputError(f"there is no strategy {name!r}", hint=known_names(name, names, "strategies"))
    return STRATEGIES[name]


def best_by_model(
    strategy: Strategy, task: Task, seed: int = 0, count: int = PRICED, model: CostModel = seconds
) -> Planned:
    """The plan of a strategy's candidate that a cost model says is the fastest, by default the analytic one.

    The first candidate of every strategy is the default plan, so that there always is one; it is taken where
    nothing is cheaper. Who asks for a strategy by name gets its best, though models err (decision 0254).
    Candidates that are refused, by a primitive or by code generation, are left out; raises ScheduleError or
    TargetError where all are. Searches that can be stopped are, after :data:`ONE_SHOT` seconds.
    """
    search = strategy.start(task, History(), Random(seed))
    if isinstance(search, AnyTime):
        search.end_by(time.monotonic() + ONE_SHOT)
    prices, default = Prices(task, model), task.default()
    best: tuple[float, Planned] | None = None
    refused: ScheduleError | TargetError | None = None
    for price, candidate in _in_order(search, prices, count):
        if best is not None and price is not None and best[0] <= price:
            break
        assert isinstance(candidate.plan, UnitPlan)
        try:
            s = default.schedule if candidate.plan == default.plan else candidate.schedule(task)
            if price is None:
                price = model(tree_of(s.func, task.machine.target.operations), task.machine)
            if best is None or price < best[0]:
                _require_code(s, task.machine)
        except (ScheduleError, TargetError) as error:
            refused = error
            continue
        if best is None or price < best[0]:
            best = (price, Planned(candidate.plan, s))
    if best is None:
        raise refused or ScheduleError(f"the strategy {strategy.name} proposes no plan")
    return best[1]


def _in_order(search: Search, prices: Prices, count: int) -> Iterator[tuple[float | None, Candidate]]:
    """Candidates with their prices: the default, then those that may be cheapest first.

    Those whose price is known by scheduling only come before all others.
    """

    def priced(candidate: Candidate) -> tuple[float | None, Candidate]:
        known = candidate.predicted
        assert isinstance(candidate.plan, UnitPlan)
        return prices.seconds(candidate.plan) if known is None else known, candidate

    if isinstance(search, Foreseeing):
        yield from map(priced, search.unmeasured())
        return
    found = [priced(c) for c in search.propose(count) if isinstance(c.plan, UnitPlan)]
    yield from found[:1]
    yield from sorted(found[1:], key=lambda each: -1.0 if each[0] is None else each[0])


def _require_code(s: Schedule, machine: Machine) -> None:
    """Raise what code generation would refuse of a schedule: ScheduleError, TargetError."""
    on = machine.on
    if isinstance(on, GpuTarget):
        check(lower(s.func, native=ALL_CALLS, one_by_one=on.language == "c"), on)
    else:
        check(lower(s.func, native=on.functions), on)
