"""The strategy ``polyhedral``: the default plan, then groupings by the fusion model, the fastest first.

A plan is which stages are inlined, and of the program after that its groups: of each the live-out space, its
tile, and of each producer its place. Groupings come from Algorithm 1 on boxes, for several ways to inline.
Where candidates are measured, neighbours of the fastest ones follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Final

from tilewright.ir import Program
from tilewright.plan import (
    RULES,
    Context,
    Fuser,
    FusionModel,
    GroupPlan,
    Nest,
    UnitPlan,
    graph_of,
    nest_of,
    plan_groups,
)
from tilewright.strategies.polyhedral.inlining import inlined, variants
from tilewright.strategies.search import Candidate, History, Search, Task, Trial
from tilewright.support import ScheduleError
from tilewright.target import CpuTarget

#: What another plan must save by the model, in parts of the default's time, to be taken unmeasured: the
#: default's time is known of many machines, the model's errors are of this order.
MARGIN: Final = 0.05
#: Groupings of each way to inline that become candidates.
KEPT: Final = 8
#: The fastest measured plans whose neighbours are proposed, and how many of each.
NEAR: Final = 3
NEIGHBOURS: Final = 16


@dataclass(frozen=True, slots=True)
class PolyhedralStrategy:
    """Tile-then-fuse by the fusion model."""

    name: str = "polyhedral"

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan."""
        return PolyhedralSearch(task, self.name)


@dataclass(frozen=True, slots=True)
class Fused:
    """A plan as it is found: stages that are inlined, nests of groups of the program after that."""

    inlined: tuple[str, ...]
    nests: tuple[Nest, ...]


class PolyhedralSearch:
    """One search for one task. ``models`` are of the task's program, by what is inlined."""

    def __init__(self, task: Task, name: str) -> None:
        self._task, self._name = task, name
        self.models: dict[tuple[str, ...], FusionModel] = {}
        self._known: dict[UnitPlan, Fused] = {}
        self._measured: dict[UnitPlan, float] = {}
        self._tried: set[UnitPlan] = set()
        self._left: Iterator[Candidate] = self._candidates()

    def propose(self, count: int) -> Sequence[Candidate]:
        """The default plan, then what the model says is fastest, then neighbours of what was fast."""
        found = list(islice(self._left, count))
        while len(found) < count and self._begins_near():
            found += islice(self._left, count - len(found))
        return found

    def observe(self, trials: Sequence[Trial]) -> None:
        """Remember what ran: its neighbours are proposed when all groupings were."""
        for trial in trials:
            plan = trial.candidate.plan
            if isinstance(plan, UnitPlan) and trial.status == "ok":
                self._measured[plan] = trial.best

    def expected_gain(self) -> float:
        """Not known."""
        return 0.0

    def model(self, names: tuple[str, ...]) -> FusionModel:
        """The fusion model of the program with these stages inlined."""
        found = self.models.get(names)
        if found is None:
            program = inlined(self._task.program, names)
            assert program is not None
            found = self.models[names] = FusionModel(graph_of(program), self._task.machine)
        return found

    def seconds(self, fused: Fused) -> float:
        """What the model says of a plan: of stages in no group that each has a nest of its own."""
        model = self.model(fused.inlined)
        numbers = {n.name: n.index for n in model.graph.nodes}
        total, done = 0.0, set[str]()
        for nest in fused.nests:
            members = {numbers[m]: p for m, p in zip(nest.stages, nest.plan.placements, strict=True)}
            total += model.nest(numbers[nest.root], members, nest.plan)
            done |= {nest.root, *nest.stages}
        return total + sum(model.alone(n.index) for n in model.graph.nodes if n.name not in done)

    def _candidates(self) -> Iterator[Candidate]:
        task = self._task
        plan = task.default().plan
        default = fused_of(task.program, plan)
        if default is None or not isinstance(task.machine.target, CpuTarget):
            yield Candidate(self._name, plan)
            return
        self._known[plan] = default
        yield Candidate(self._name, plan, (1 - MARGIN) * self.seconds(default))
        found = [each for names in variants(task.program) for each in self._groupings(names)]
        yield from self._planned(sorted(found, key=lambda each: each[0]))

    def _begins_near(self) -> bool:
        """Go on with the neighbours of the fastest plan that has none proposed yet, if there is one."""
        best = sorted((t, n, p) for n, (p, t) in enumerate(self._measured.items()) if p in self._known)
        for _, _, plan in best[:NEAR]:
            if plan in self._tried:
                continue
            self._tried.add(plan)
            near = [(self.seconds(f), f) for f in self._neighbours(self._known[plan])]
            self._left = islice(self._planned(sorted(near, key=lambda each: each[0])), NEIGHBOURS)
            return True
        return False

    def _planned(self, found: Sequence[tuple[float, Fused]]) -> Iterator[Candidate]:
        """The candidates of what was found, each plan once."""
        task = self._task
        for seconds, fused in found:
            try:
                plan = plan_groups(
                    task.program, task.machine, task.constants, fused.inlined, fused.nests
                ).plan
            except ScheduleError:
                # a stage outside of the groups; those of the groups are never refused
                continue
            if plan not in self._known:
                self._known[plan] = fused
                yield Candidate(self._name, plan, seconds)

    def _groupings(self, names: tuple[str, ...]) -> list[tuple[float, Fused]]:
        fuser = Fuser(self.model(names))
        out: dict[Fused, float] = {}
        for grouping in fuser.run()[:KEPT]:
            nests = (nest_of(fuser, choice) for choice in reversed(grouping.nests))
            fused = Fused(names, tuple(n for n in nests if n is not None))
            out.setdefault(fused, self.seconds(fused))
        return [(seconds, fused) for fused, seconds in out.items()]

    def _neighbours(self, fused: Fused) -> Iterator[Fused]:
        """The plans that differ in one number or one place of one nest."""
        context = Context(self.model(fused.inlined).graph.program, self._task.machine)
        rule = RULES["pipeline"]
        for n, nest in enumerate(fused.nests):
            problem = rule.match(context, nest.root, nest.stages)
            if problem is None:
                continue
            for plan in rule.space(problem).neighbours(nest.plan):
                changed = replace(nest, plan=plan)
                yield Fused(fused.inlined, (*fused.nests[:n], changed, *fused.nests[n + 1 :]))


def fused_of(program: Program, plan: UnitPlan) -> Fused | None:
    """A plan as inlined stages and nests of groups; ``None`` where it rewrites in other ways."""
    steps = plan.rewrites.steps
    names = tuple(str(step.args[0]) for step in steps)
    if any(step.primitive != "inline_stage" for step in steps) or inlined(program, names) is None:
        return None
    return Fused(names, tuple(nest for nest in plan.nests if isinstance(nest.plan, GroupPlan)))
