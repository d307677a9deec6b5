"""Prices of plans by the analytic model, without scheduling: what searches rank candidates by."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from tilewright.cost import CostModel, LoopTree, seconds
from tilewright.plan import RULES, Context, Nest, UnitPlan, rewritten
from tilewright.strategies.search import Task
from tilewright.support import ScheduleError

#: Nests whose loops and seconds are kept: those around a few plans.
MOST_NESTS: Final = 1 << 12


class Prices:
    """Seconds of a task's plans by a cost model, the analytic one unless another is given.

    Programs and problems are matched once for all plans with the same rewrites. Nests are priced once, as
    plans that are an edit apart share all but one.
    """

    def __init__(self, task: Task, model: CostModel = seconds) -> None:
        self._task, self._model = task, model
        self._problems: dict[tuple[Any, ...], list[tuple[Context, Any] | None]] = {}
        self._loops = lru_cache(MOST_NESTS)(self._made)
        self._seconds = lru_cache(MOST_NESTS)(self._of_nest)

    def tree(self, plan: UnitPlan) -> LoopTree | None:
        """The loops of a plan; ``None`` where a nest of it is known by scheduling only."""
        nodes: list[Any] = []
        for nest, matched in zip(plan.nests, self._matched(plan), strict=True):
            made = None if matched is None else self._loops(*matched, nest)
            if made is None:
                return None
            nodes += made.nests
        return LoopTree(tuple(nodes))

    def _made(self, context: Context, problem: Any, nest: Nest) -> LoopTree | None:
        return RULES[nest.rule].loops(context, problem, nest.plan)

    def _of_nest(self, context: Context, problem: Any, nest: Nest) -> float | None:
        made = self._loops(context, problem, nest)
        return None if made is None else seconds(made, self._task.machine)

    def seconds(self, plan: object) -> float | None:
        """The time of a plan; with the analytic model by the rules' own, where they all have one.

        ``None`` for one that is known by scheduling only or whose rewrites are refused, and for traces.
        """
        if not isinstance(plan, UnitPlan):
            return None
        own = [
            None if matched is None else RULES[nest.rule].seconds(matched[1], nest.plan)
            for nest, matched in zip(plan.nests, self._matched(plan), strict=True)
        ]
        if self._model is seconds and own and None not in own:
            return sum(each for each in own if each is not None)
        if self._model is not seconds:
            tree = self.tree(plan)
            return None if tree is None else self._model(tree, self._task.machine)
        # the analytic one takes nest after nest
        found = [
            None if matched is None else self._seconds(*matched, nest)
            for nest, matched in zip(plan.nests, self._matched(plan), strict=True)
        ]
        return None if None in found else sum(each for each in found if each is not None)

    def _matched(self, plan: UnitPlan) -> list[tuple[Context, Any] | None]:
        if any(map(_decides_match, plan.nests)):
            return [None] * len(plan.nests)
        key = (plan.rewrites, *((n.rule, n.root, n.stages) for n in plan.nests))
        if key not in self._problems:
            task = self._task
            try:
                _, context = rewritten(task.program, plan, task.machine, task.constants)
            except ScheduleError:
                # scheduling it says why
                self._problems[key] = [None] * len(plan.nests)
            else:
                found = [RULES[n.rule].match(context, n.root, n.stages) for n in plan.nests]
                self._problems[key] = [None if each is None else (context, each) for each in found]
        return self._problems[key]


def _decides_match(nest: Nest) -> bool:
    """Whether a nest's plan says what its rule matches: then problems differ from plan to plan."""
    return nest.rule == "lanes" or hasattr(nest.plan, "of")


def by_price(prices: Callable[[Any], float | None], items: list[Any]) -> list[Any]:
    """Items the cheapest first, those without a price after them as they stand."""
    priced = [(price, n) for n, item in enumerate(items) if (price := prices(item)) is not None]
    order = [n for _, n in sorted(priced)]
    return [items[n] for n in (*order, *(n for n in range(len(items)) if n not in {*order}))]
