"""From the stages of a program to nests: rules are asked for clusters, these are written and carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tilewright import tiling
from tilewright.ir import LoopFunction
from tilewright.plan.catalog import RULES
from tilewright.plan.fallback import fell_back
from tilewright.plan.rule import Asked, Cluster, Context, Nest, Rule
from tilewright.plan.unit import UnitPlan, trees_of
from tilewright.schedule import Schedule
from tilewright.support import InternalError, ScheduleError
from tilewright.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan, and the schedule that it became."""

    plan: UnitPlan
    schedule: Schedule

    @property
    def func(self) -> LoopFunction:
        """The scheduled function."""
        return self.schedule.func


@dataclass(frozen=True, slots=True, eq=False)
class _Written:
    """A nest, and what its rule was asked."""

    cluster: Cluster
    rule: Rule[Any, Any]
    problem: Any
    nest: Nest


@dataclass(frozen=True, slots=True, eq=False)
class _Refusal:
    """A cluster of which a step is refused."""

    cluster: Cluster
    error: ScheduleError


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
    """The clusters, each by its plan, by default that of its rule; by simpler ones where a step is refused.

    All nests are written first, then their steps on the program are applied, then their trees.
    """
    rewrites, left = s.trace, list(found)
    while True:
        made = _attempt(s, context, left)
        if not isinstance(made, _Refusal):
            done, nests = made
            plan = UnitPlan(rewrites, nests, quantities=context.machine.on.measured, notes=done.notes)
            return Planned(plan, done)
        cluster, at = made.cluster, left.index(made.cluster)
        if cluster.simpler is None:
            raise made.error
        s = fell_back(s, f"stage {cluster.root} by a simpler rule", made.error)
        left[at : at + 1] = cluster.simpler


def _attempt(
    s: Schedule, context: Context, found: Sequence[Cluster]
) -> tuple[Schedule, tuple[Nest, ...]] | _Refusal:
    written: list[_Written] = []
    for cluster in found:
        rule = RULES[cluster.rule]
        try:
            problem = rule.match(context, cluster.root, cluster.stages)
            if problem is None:
                raise InternalError(f"the rule {cluster.rule} does not fit the stage {cluster.root}")
            plan = rule.default(problem) if cluster.plan is None else cluster.plan
            nest = rule.write(cluster, problem, plan, trees_of(each.nest for each in written))
            s = s.replay(nest.steps)
        except ScheduleError as error:
            return _Refusal(cluster, error)
        written.append(_Written(cluster, rule, problem, nest))
    done: list[Nest] = []
    for n, each in enumerate(written):
        trees: list[tiling.Nest] = []
        for tree in each.nest.trees:
            if any(tree.root in _roots(other.nest) for other in written[:n]):
                # it stands in the nest of its readers
                continue
            guest = next(
                (k for k in range(n + 1, len(written)) if tree.root in _roots(written[k].nest)), None
            )
            try:
                s, applied, alone = _with_guest(s, each, tree, None if guest is None else written[guest])
            except ScheduleError as error:
                return _Refusal(each.cluster, error)
            if guest is not None and alone is not None:
                written[guest] = replace(written[guest], nest=alone)
            trees += applied
        done.append(replace(each.nest, trees=tuple(trees)))
        for what, reason in each.rule.remarks(each.problem, each.nest.choice):
            s = fell_back(s, what, ScheduleError(reason))
    return s, tuple(done)


def _roots(nest: Nest) -> set[str]:
    return {tree.root for tree in nest.trees}


def _with_guest(
    s: Schedule, written: _Written, tree: tiling.Nest, guest: _Written | None
) -> tuple[Schedule, list[tiling.Nest], Nest | None]:
    """A tree carried out, with the place that another nest has in it: where that is refused, without.

    Returns what was carried out, and the other nest by itself if it has to be.
    """
    if guest is not None:
        both = next(each for each in guest.nest.trees if each.root == tree.root)
        try:
            return tiling.apply(s, [both]), [both], None
        except ScheduleError as error:
            s = fell_back(s, f"{guest.cluster.root} has a nest of its own", error)
        alone = guest.rule.write(guest.cluster, guest.problem, guest.nest.choice)
        return (*_apply(s, written, tree), alone)
    return (*_apply(s, written, tree), None)


def _apply(s: Schedule, written: _Written, tree: tiling.Nest) -> tuple[Schedule, list[tiling.Nest]]:
    """A tree carried out, or what the rule has instead where a step is refused."""
    try:
        return tiling.apply(s, [tree]), [tree]
    except ScheduleError as error:
        refused = error
    for what, instead in written.rule.otherwise(written.problem, written.nest.choice, tree):
        made, trees = s, list[tiling.Nest]()
        try:
            for each in instead:
                if each.root == tree.root:
                    made, applied = tiling.apply(made, [each]), [each]
                else:
                    made, applied = _apply(made, written, each)
                trees += applied
        except ScheduleError:
            continue
        return fell_back(made, what, refused), trees
    raise refused
