"""The strategy ``construct``: the default plan, then constructed ones, the fastest by the model first.

Nothing is compiled and nothing is timed here; where somebody measures the first ones, plans around the
fastest follow, one field changed (a descent, which the paper does not have). Of each unit contractions by
register tiles and general reductions are constructed, on GPUs products of matrices. Where a rule prices its
plans itself and has few (windows, rows, element-wise nests of GPUs), they are one level whose states are all
priced. The other nests keep their default plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from random import Random
from typing import Any, Final, Literal, TypeAlias

from tilewright.plan import Rule, Space, UnitPlan, Variants
from tilewright.strategies.construct.benefit import PAPER, REPAIRED, Forms
from tilewright.strategies.construct.blocks import BlockConstruction, BlockSpace, exact_blocks
from tilewright.strategies.construct.emit import Construction, construction
from tilewright.strategies.construct.exact import MOST_TILES, exact_states, tile_count
from tilewright.strategies.construct.tree import tree_states
from tilewright.strategies.construct.walk import WALKS, best_states
from tilewright.strategies.pricing import Prices
from tilewright.strategies.search import Candidate, History, Search, Task, Trial
from tilewright.support import ScheduleError
from tilewright.target import GpuTarget

#: Plans of a nest of one level, at most, that are all priced.
MOST_PRICED: Final = 4096
#: Candidates in the order of the model before those around the fastest measured one, where any was measured.
FIRST: Final = 8
#: Options of a field, in their order, on either side of a plan's own that such a candidate may have.
NEAR: Final = 2

Method: TypeAlias = Literal["auto", "exact", "walk", "tree"]
"""How states are found; ``auto``: exactly where there are few tiles, else by walks."""


@dataclass(frozen=True, slots=True)
class ConstructStrategy:
    """Construction of each nest: by the values of its states, by walks, or by the tree alone (Roller).

    ``variant="paper"`` walks by the formulas as they are printed. Raises ValueError for another one.
    """

    name: str = "construct"
    method: Method = "auto"
    variant: Literal["repaired", "paper"] = "repaired"
    walks: int = WALKS

    def __post_init__(self) -> None:
        if self.variant not in ("repaired", "paper"):
            raise ValueError(f"there is no variant {self.variant!r} of construction")

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan."""
        return _ConstructSearch(task, rng, self)

    @property
    def forms(self) -> Forms:
        """The forms of the formulas that lead walks."""
        return PAPER if self.variant == "paper" else REPAIRED

    def plans(self, made: Construction | BlockConstruction, rng: Random) -> list[Any]:
        """Different plans of a nest, in the order of the best state of each."""
        space, method = made.tilings, self.method
        if method == "auto":
            few = self.variant == "repaired" and tile_count(space) <= MOST_TILES
            method = "exact" if few else "walk"
        if method == "exact":
            states = exact_blocks(space) if isinstance(space, BlockSpace) else exact_states(space)
        elif method == "tree":
            states = tree_states(space)
        else:
            states = best_states(space, rng, self.walks, self.forms)
        # what no rule makes costs infinitely much
        return list(dict.fromkeys(made.plan_of(state) for cost, state in states if isfinite(cost[0])))


def priced_plans(rule: Rule[Any, Any], problem: Any, space: Space[Any]) -> list[Any]:
    """The plans of a nest of one level by what its rule says they cost, the fastest first.

    Empty where the rule does not price plans, or has too many.
    """
    if space.size > MOST_PRICED or rule.seconds(problem, space.default) is None:
        return []
    priced = ((rule.seconds(problem, plan), str(plan), plan) for plan in space)
    finite = [each for each in priced if each[0] is not None and isfinite(each[0])]
    return [plan for _, _, plan in sorted(finite, key=lambda each: each[:2])]


class _ConstructSearch:
    def __init__(self, task: Task, rng: Random, strategy: ConstructStrategy) -> None:
        self._default = task.default().plan
        self._variants = Variants(task.program, self._default, task.machine, task.constants)
        self._nests: list[list[Any]] = []
        self._spaces: list[Space[Any] | None] = []
        for variant in self._variants.nests:
            space, plans = None, list[Any]()
            if variant is not None:
                made = construction(variant.problem, variant.space, task.machine)
                if made is not None:
                    space, plans = variant.space, strategy.plans(made, rng)
                else:
                    plans = priced_plans(variant.rule, variant.problem, variant.space)
                    space = variant.space if len(plans) > 1 else None
            self._spaces.append(space)
            # a nest without others keeps its own
            own = None if variant is None else variant.nest.choice
            self._nests.append([plan for plan in plans if plan != own] or [own])
        self._seen: set[UnitPlan] = set()
        # on devices rules price their own plans and the default's alike
        self._prices = Prices(task) if isinstance(task.machine.on, GpuTarget) else None
        self._left = self._candidates()
        self._best: tuple[float, UnitPlan] | None = None
        self._centre: UnitPlan | None = None
        self._around: Iterator[UnitPlan] = iter(())

    def propose(self, count: int) -> Sequence[Candidate]:
        """What construction ranks first; where trials were observed, plans around the fastest then."""
        found: list[Candidate] = []
        while len(found) < count:
            if self._best is not None and len(self._seen) >= FIRST and self._centre != self._best[1]:
                self._centre = self._best[1]
                self._around = self._neighbours(self._centre)
            unit = next((unit for unit in self._around if unit not in self._seen), None)
            candidate = next(self._left, None) if unit is None else Candidate("construct descent", unit)
            if candidate is None:
                break
            if isinstance(candidate.plan, UnitPlan):
                self._seen.add(candidate.plan)
            found.append(candidate)
        return found

    def observe(self, trials: Sequence[Trial]) -> None:
        """Remember the fastest plan."""
        for trial in trials:
            plan = trial.candidate.plan
            best = inf if self._best is None else self._best[0]
            if trial.status == "ok" and isinstance(plan, UnitPlan) and trial.best < best:
                self._best = trial.best, plan

    def expected_gain(self) -> float:
        """Not known."""
        return 0.0

    def _neighbours(self, unit: UnitPlan) -> Iterator[UnitPlan]:
        """Plans that differ from one in one field of one constructed nest, by a nearby option."""
        for at, (nest, space) in enumerate(zip(unit.nests, self._spaces, strict=True)):
            if space is None:
                continue
            for name, options in space.options.items():
                had = getattr(nest.choice, name, None)
                place = options.index(had) if had in options else 0
                near = options[max(0, place - NEAR) : place + NEAR + 1]
                for option in near if hasattr(nest.choice, name) else ():
                    choice = replace(nest.choice, **{name: option})
                    made = self._chosen({at: choice}, unit) if space.has(choice) else None
                    if made is not None:
                        yield made

    def _chosen(self, choices: Mapping[int, Any], unit: UnitPlan | None = None) -> UnitPlan | None:
        """The default, or another plan of the same nests, with other choices; ``None`` for refused ones."""
        nests = self._default.nests if unit is None else unit.nests
        now = {n: nest.choice for n, nest in enumerate(nests)} | dict(choices)
        changed = {n: choice for n, choice in now.items() if choice != self._default.nests[n].choice}
        try:
            return self._variants.chosen(changed)
        except ScheduleError:
            return None

    def _candidates(self) -> Iterator[Candidate]:
        """The default, then the best plans of all nests together, the second ones …

        On CPUs they say no seconds: the model compares tilings of one nest, and not with the default's.
        """
        yield self._candidate(self._default)
        for n in range(max(map(len, self._nests), default=0)):
            unit = self._chosen({at: each[min(n, len(each) - 1)] for at, each in enumerate(self._nests)})
            if unit is not None and unit not in self._seen and unit != self._default:
                yield self._candidate(unit)

    def _candidate(self, unit: UnitPlan) -> Candidate:
        return Candidate("construct", unit, None if self._prices is None else self._prices.seconds(unit))
