"""The plans of a kernel that differ from one in what the rules of its nests chose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.catalog import RULES
from tilewright.plan.rule import Cluster, Context, Nest, Rule
from tilewright.plan.space import Space
from tilewright.plan.unit import UnitPlan, matched, rewritten, trees_of, with_nest, written


@dataclass(frozen=True, slots=True, eq=False)
class Varied:
    """A nest with the rule that wrote it, what that matched, and the space of its choices."""

    nest: Nest
    rule: Rule[Any, Any]
    problem: Any
    space: Space[Any]

    @property
    def cluster(self) -> Cluster:
        """What the rule was asked for."""
        return Cluster(self.nest.rule, self.nest.root, self.nest.stages)


class Variants:
    """A plan, and for each nest what its rule says of it; ``None`` for trees that no rule wrote."""

    def __init__(
        self, program: Program, plan: UnitPlan, machine: Machine, constants: Collection[str] = ()
    ) -> None:
        self.plan = written(program, plan, machine, constants)
        self.context = rewritten(program, self.plan, machine, constants)[1]
        self.nests = tuple(_varied(self.context, nest) for nest in self.plan.nests)

    def chosen(self, choices: Mapping[int, Any]) -> UnitPlan:
        """The plan with other choices for nests by their numbers.

        Raises ScheduleError where one cannot be written down.
        """
        nests = list(self.plan.nests)
        for n in range(min(choices, default=len(nests)), len(nests)):
            variant = self.nests[n]
            if variant is None or not (n in choices or variant.rule.follows):
                continue
            choice = choices.get(n, nests[n].choice)
            made = variant.rule.write(variant.cluster, variant.problem, choice, trees_of(nests[:n]))
            nests[: n + 1] = with_nest(nests[:n], made)
        return replace(self.plan, nests=tuple(nests))


def _varied(context: Context, nest: Nest) -> Varied | None:
    if nest.choice is None:
        return None
    rule, problem = RULES[nest.rule], matched(context, nest)
    return Varied(nest, rule, problem, rule.space(problem))
