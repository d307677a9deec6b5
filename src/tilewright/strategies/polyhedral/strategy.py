"""The strategy ``polyhedral``: the default plan, then groupings by the fusion model, the fastest first.

A plan is which stages are inlined, and of the program after that its groups: of each the live-out space, its
tile, and of each producer its place. Groupings come from Algorithm 1 on boxes, for several ways to inline;
Where candidates are measured, schedule trees on exact sets follow, then neighbours of the fastest plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Final

from tilewright.plan import MARGIN, RULES, Context, Fused, FusionSearch, UnitPlan, plan_groups
from tilewright.strategies.polyhedral.trees import tree_candidates
from tilewright.strategies.search import Candidate, History, Search, Task, Trial
from tilewright.support import ScheduleError
from tilewright.target import CpuTarget

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


class PolyhedralSearch:
    """One search for one task; ``fusion`` finds and prices the plans of its program."""

    def __init__(self, task: Task, name: str) -> None:
        self._task, self._name = task, name
        self.fusion = FusionSearch(task.program, task.machine)
        self._known: dict[UnitPlan, Fused] = {}
        self._measured: dict[UnitPlan, float] = {}
        self._tried: set[UnitPlan] = set()
        self._followed = False
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

    def _candidates(self) -> Iterator[Candidate]:
        task = self._task
        plan = task.default().plan
        default = self.fusion.fused_of(plan)
        if default is None or not isinstance(task.machine.target, CpuTarget):
            yield Candidate(self._name, plan)
            return
        self._known[plan] = default
        yield Candidate(self._name, plan, (1 - MARGIN) * self.fusion.seconds(default))
        yield from self._planned(self.fusion.run())

    def _trees(self) -> Iterator[Candidate]:
        """Schedule trees, for each way to inline: nothing but a run tells what they are worth."""
        for inlined in dict.fromkeys(fused.inlined for fused in self._known.values()):
            for trace in tree_candidates(self._task, inlined):
                yield Candidate(self._name, trace)

    def _begins_near(self) -> bool:
        """Go on with schedule trees, then the neighbours of the fastest plan that has none proposed yet."""
        if self._measured and not self._followed:
            self._followed = True
            self._left = self._trees()
            return True
        best = sorted((t, n, p) for n, (p, t) in enumerate(self._measured.items()) if p in self._known)
        for _, _, plan in best[:NEAR]:
            if plan in self._tried:
                continue
            self._tried.add(plan)
            near = [(self.fusion.seconds(f), f) for f in self._neighbours(self._known[plan])]
            self._left = islice(self._planned(sorted(near, key=lambda each: each[0])), NEIGHBOURS)
            return True
        return False

    def _planned(self, found: Sequence[tuple[float, Fused]]) -> Iterator[Candidate]:
        """The candidates of what was found, each plan once."""
        task = self._task
        for seconds, fused in found:
            try:
                planned = plan_groups(task.program, task.machine, task.constants, fused.inlined, fused.nests)
            except ScheduleError:
                # a stage outside of the groups; those of the groups are never refused
                continue
            if planned.plan not in self._known:
                self._known[planned.plan] = fused
                yield Candidate(self._name, planned.plan, seconds)

    def _neighbours(self, fused: Fused) -> Iterator[Fused]:
        """The plans that differ in one number or one place of one nest."""
        context = Context(self.fusion.model(fused.inlined).graph.program, self._task.machine)
        rule = RULES["pipeline"]
        for n, nest in enumerate(fused.nests):
            problem = rule.match(context, nest.root, nest.stages)
            if problem is None:
                continue
            for plan in rule.space(problem).neighbours(nest.plan):
                changed = replace(nest, plan=plan)
                yield Fused(fused.inlined, (*fused.nests[:n], changed, *fused.nests[n + 1 :]))
