"""The strategy ``construct``: the default plan, then constructed ones, the fastest by the model first.

Nothing is compiled and nothing is timed. On CPUs only, and of each unit only contractions by register tiles
and general reductions are constructed; the other nests keep their default plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal, TypeAlias

from tilewright.plan import RULES, UnitPlan, rewritten
from tilewright.strategies.construct.benefit import PAPER, REPAIRED, Forms
from tilewright.strategies.construct.emit import Construction, construction
from tilewright.strategies.construct.exact import MOST_TILES, exact_states, tile_count
from tilewright.strategies.construct.tree import tree_states
from tilewright.strategies.construct.walk import WALKS, best_states
from tilewright.strategies.search import Candidate, History, Search, Task, Trial

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

    def plans(self, made: Construction, rng: Random) -> list[Any]:
        """Different plans of a nest, in the order of the best state of each."""
        space, method = made.tilings, self.method
        if method == "auto":
            few = self.variant == "repaired" and tile_count(space) <= MOST_TILES
            method = "exact" if few else "walk"
        if method == "exact":
            states = exact_states(space)
        elif method == "tree":
            states = tree_states(space)
        else:
            states = best_states(space, rng, self.walks, self.forms)
        return list(dict.fromkeys(made.plan_of(state) for _, state in states))


class _ConstructSearch:
    def __init__(self, task: Task, rng: Random, strategy: ConstructStrategy) -> None:
        self._default = task.default().plan
        _, context = rewritten(task.program, self._default, task.machine, task.constants)
        self._nests: list[list[Any]] = []
        for nest in self._default.nests:
            rule = RULES[nest.rule]
            problem = rule.match(context, nest.root, nest.stages)
            made = construction(problem, rule.space(problem), task.machine)
            plans = [] if made is None else strategy.plans(made, rng)
            self._nests.append([plan for plan in plans if plan != nest.plan] or [nest.plan])
        self._left = self._candidates()

    def propose(self, count: int) -> Sequence[Candidate]:
        return [candidate for _, candidate in zip(range(count), self._left, strict=False)]

    def observe(self, trials: Sequence[Trial]) -> None:
        """Nothing is learned."""

    def expected_gain(self) -> float:
        """Not known."""
        return 0.0

    def _candidates(self) -> Iterator[Candidate]:
        """The default, then the best plans of all nests together, the second ones …

        They say no seconds: the model compares tilings of one nest, and not with the default's.
        """
        yield Candidate("construct", self._default)
        seen: set[UnitPlan] = {self._default}
        for n in range(max(map(len, self._nests), default=0)):
            plans = (each[min(n, len(each) - 1)] for each in self._nests)
            nests = zip(self._default.nests, plans, strict=True)
            unit = replace(self._default, nests=tuple(replace(nest, plan=plan) for nest, plan in nests))
            if unit not in seen:
                seen.add(unit)
                yield Candidate("construct", unit)
