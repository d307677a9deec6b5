"""From the stages of a program to nests: rules are asked for clusters, and these are carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tilewright.plan.catalog import RULES
from tilewright.plan.fallback import fell_back
from tilewright.plan.rule import Asked, Cluster, Context, Nest
from tilewright.plan.unit import UnitPlan
from tilewright.schedule import Schedule
from tilewright.support import InternalError, ScheduleError
from tilewright.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan, and the schedule that it became."""

    plan: UnitPlan
    schedule: Schedule


def clusters(
    context: Context, decided: Mapping[str, Cluster], ends: frozenset[str] = frozenset()
) -> list[Cluster]:
    """The nests of all stages, in the program's order: those ``decided``, and what rules propose for others.

    On CPUs each stage has its turn, the last one first, and the first rule that proposes something is obeyed;
    on devices each rule has, for all stages that are left. Proposals with a stage of others are passed over.
    """
    program, on = context.program, context.machine.on
    rules = [rule for rule in RULES.values() if isinstance(on, rule.machines)]
    found = dict(decided)
    taken = frozenset(name for cluster in decided.values() for name in cluster.names)
    turns = [(stage,) for stage in reversed(program.stages)] if isinstance(on, Target) else [program.stages]
    for turn, rule in product(turns, rules):
        roots = tuple(stage for stage in turn if stage.name not in taken)
        for cluster in rule.propose(Asked(context, roots, taken, decided, ends)) if roots else ():
            if cluster.names.isdisjoint(taken):
                found[cluster.root] = cluster
                taken |= cluster.names
    return [found[stage.name] for stage in program.stages if stage.name in found]


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
