"""Prices of plans by the analytic model, without scheduling: what searches rank candidates by."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from tilewright.cost import CostModel, LoopTree, seconds
from tilewright.plan import RULES, Context, UnitPlan, rewritten
from tilewright.schedule import Step
from tilewright.strategies.search import Task
from tilewright.support import ScheduleError
from tilewright.target import Target
from tilewright.tiling import Nest as Tree

#: Nests whose loops and seconds are kept: those around a few plans.
MOST_NESTS: Final = 1 << 12


class Prices:
    """Seconds of a task's plans by a cost model, the analytic one unless another is given.

    Programs are rewritten once for all plans with the same steps. Nests are priced once, as plans that are an
    edit apart share all but one.
    """

    def __init__(self, task: Task, model: CostModel = seconds) -> None:
        self._task, self._model = task, model
        self._contexts: dict[tuple[Step, ...], Context] = {}
        self._problems: dict[tuple[Any, ...], Any] = {}
        self._loops = lru_cache(MOST_NESTS)(self._made)
        self._seconds = lru_cache(MOST_NESTS)(self._of_nest)

    def tree(self, plan: UnitPlan) -> LoopTree | None:
        """The loops of a plan; ``None`` on devices, and where its rewrites are refused."""
        context = self._context(plan)
        if context is None:
            return None
        found = [self._loops(context, nest.trees) for nest in plan.nests]
        whole = [node for made in found if made is not None for node in made.nests]
        return None if None in found else LoopTree(tuple(whole))

    def seconds(self, plan: object) -> float | None:
        """The time of a plan; ``None`` for traces, and plans whose rewrites are refused.

        On devices that of the rules' own models, which do not know trees that were edited.
        """
        if not isinstance(plan, UnitPlan):
            return None
        if not isinstance(self._task.machine.on, Target):
            found = self._by_rules(plan)
        elif self._model is not seconds:
            tree = self.tree(plan)
            return None if tree is None else self._model(tree, self._task.machine)
        else:
            # the analytic one takes nest after nest
            context = self._context(plan)
            found = [None if context is None else self._seconds(context, nest.trees) for nest in plan.nests]
        return None if None in found else sum(each for each in found if each is not None)

    def _made(self, context: Context, trees: tuple[Tree, ...]) -> LoopTree | None:
        return context.prices.loops(trees) if isinstance(context.machine.on, Target) else None

    def _of_nest(self, context: Context, trees: tuple[Tree, ...]) -> float | None:
        made = self._loops(context, trees)
        return None if made is None else seconds(made, self._task.machine)

    def _context(self, plan: UnitPlan) -> Context | None:
        """What trees of a plan are priced in; ``None`` where scheduling says why there is none."""
        steps = (*plan.rewrites.steps, *(step for nest in plan.nests for step in nest.steps))
        if steps not in self._contexts:
            task = self._task
            try:
                self._contexts[steps] = Context(task.program, task.machine, task.constants).after(steps)
            except ScheduleError:
                return None
        return self._contexts[steps]

    def _by_rules(self, plan: UnitPlan) -> list[float | None]:
        key = (plan.rewrites, *((nest.rule, nest.root, nest.stages) for nest in plan.nests))
        if key not in self._problems:
            task = self._task
            try:
                context = rewritten(task.program, plan, task.machine, task.constants)[1]
            except ScheduleError:
                return [None]
            self._problems[key] = [
                None if nest.choice is None else RULES[nest.rule].match(context, nest.root, nest.stages)
                for nest in plan.nests
            ]
        return [
            None if problem is None else RULES[nest.rule].seconds(problem, nest.choice)
            for nest, problem in zip(plan.nests, self._problems[key], strict=True)
        ]


def by_price(prices: Callable[[Any], float | None], items: list[Any]) -> list[Any]:
    """Items the cheapest first, those without a price after them as they stand."""
    priced = [(price, n) for n, item in enumerate(items) if (price := prices(item)) is not None]
    order = [n for _, n in sorted(priced)]
    return [items[n] for n in (*order, *(n for n in range(len(items)) if n not in {*order}))]
