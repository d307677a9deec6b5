"""Clusters: stages that make one nest, each with its rule, and how they become a plan that is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.plan.catalog import RULES
from tilewright.plan.fallback import fell_back
from tilewright.plan.rule import Context, Nest
from tilewright.plan.unit import UnitPlan
from tilewright.schedule import Schedule
from tilewright.support import InternalError, ScheduleError


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan, and the schedule that it became."""

    plan: UnitPlan
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Cluster:
    """Stages that make one nest, by a rule; ``simpler`` is what is done where a step of it is refused.

    Without anything simpler (``None``) the whole program is planned in another way. ``plan`` is its plan
    where that is decided already, by default the rule's.
    """

    rule: str
    root: str
    stages: tuple[str, ...] = ()
    simpler: tuple[Cluster, ...] | None = ()
    plan: object = None


def carry_out(s: Schedule, context: Context, found: Sequence[Cluster]) -> Planned:
    """The clusters, each by the default plan of its rule."""
    rewrites, nests = s.trace, list[Nest]()
    for cluster in found:
        s, made = _carry_out(s, context, cluster)
        nests += made
    return Planned(UnitPlan(rewrites, tuple(nests), quantities=context.machine.on.measured), s)


def _carry_out(s: Schedule, context: Context, cluster: Cluster) -> tuple[Schedule, list[Nest]]:
    rule = RULES[cluster.rule]
    try:
        problem = rule.match(context, cluster.root, cluster.stages)
        if problem is None:
            raise InternalError(f"the rule {cluster.rule} does not fit the stage {cluster.root}")
        plan = rule.default(problem) if cluster.plan is None else cluster.plan
        done = rule.build(s, problem, plan)
        return done, [Nest(cluster.rule, cluster.root, cluster.stages, plan)]
    except ScheduleError as error:
        if cluster.simpler is None:
            raise
        s = fell_back(s, f"stage {cluster.root} by a simpler rule", error)
    nests: list[Nest] = []
    for each in cluster.simpler:
        s, made = _carry_out(s, context, each)
        nests += made
    return s, nests
