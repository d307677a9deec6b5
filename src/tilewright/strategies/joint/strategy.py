"""The strategy ``joint``: layouts and loops explored in turns, then loops under the best layouts (ALT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from tilewright.analysis import find_operator
from tilewright.plan import EXACT, UnitPlan
from tilewright.schedule import ALGORITHMS, Step
from tilewright.strategies.joint.layouts import LayoutAgent
from tilewright.strategies.joint.loops import LoopPoint, LoopSpace, adopted, loop_space
from tilewright.strategies.joint.model import CostModel
from tilewright.strategies.joint.ppo import Critic, Learner
from tilewright.strategies.joint.settings import (
    DRAWN,
    MOST_REFUSED,
    QUICK,
    REFUSED,
    JointSettings,
)
from tilewright.strategies.joint.templates import LayoutSpace, Point, layout_space
from tilewright.strategies.joint.walk import Visited, states_of, walk
from tilewright.strategies.search import Candidate, History, Search, Task, Trial
from tilewright.support import ScheduleError


@dataclass(frozen=True, slots=True)
class JointStrategy:
    """Joint tuning by the paper's search; ``settings`` say how much of it.

    ``layouts`` and ``actors`` take parts of it away: without the first loops alone are tuned, under the
    layouts that the task has; without the second layouts are the fixed ones of templates, and points are
    drawn and chosen by the learned model alone.
    """

    name: str = "joint"
    settings: JointSettings = QUICK
    layouts: bool = True
    actors: bool = True

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan, then the best of the history under the layouts that the task has."""
        return _JointSearch(task, history, rng, self)


@dataclass(slots=True, eq=False)
class _Layout:
    """One choice of layouts under exploration, and the best that its loops came to."""

    steps: tuple[Step, ...]
    features: dict[str, float]
    loops: LoopSpace
    point: Point | None
    best: float = REFUSED
    rounds: int = 0
    known: dict[LoopPoint, float] = field(default_factory=dict)
    asked: set[LoopPoint] = field(default_factory=set)


class _JointSearch:
    def __init__(self, task: Task, history: History, rng: Random, strategy: JointStrategy) -> None:
        self._task, self._rng, self._strategy = task, rng, strategy
        self._numbers = np.random.default_rng(rng.getrandbits(64))
        self._model = CostModel()
        first = loop_space(task)
        named = {step.primitive for step in first.base.rewrites.steps}
        self._algorithms = not named.isdisjoint(ALGORITHMS)
        self._space = self._layout_space()
        size = states_of(self._space)
        self._learner = Learner(Critic(self._numbers, size))
        self._agent = LayoutAgent(self._space, self._learner, self._numbers, size)
        self._layouts = [_Layout((), {}, first, None)]
        self._adopted = adopted(first, history)
        self._current = self._layouts[0]
        # its trial may be told before it is proposed
        self._pending: dict[UnitPlan, tuple[_Layout, LoopPoint]] = {
            first.base: (self._current, first.default)
        }
        self._untuned: float | None = None
        self._trials = 0
        self._seen: set[tuple[tuple[Step, ...], bool]] = {((), False)}
        self._plans: set[UnitPlan] = set()
        self._walked: list[tuple[_Layout, Visited]] = []
        # those whose actor waits for what becomes of them
        self._open: list[_Layout] = []
        self._exhausted = 0

    def propose(self, count: int) -> Sequence[Candidate]:
        """The default plan first; then the best of episodes under one layout after another."""
        if not self._plans:
            self._plans.add(self._current.loops.base)
            return [Candidate(self._strategy.name, self._current.loops.base)]
        settings = self._strategy.settings
        count = min(count, settings.measured)
        out = self._of_history(count)
        for _ in range(MOST_REFUSED):
            if len(out) == count:
                break
            joint = self._choose_layout(len(out))
            left = count - len(out)
            found = self._episode(self._current, min(settings.each, left) if joint else left)
            out += found
            if found:
                self._exhausted = 0
            else:
                self._current.rounds = settings.rounds
                self._exhausted += 1
        return out

    def _of_history(self, count: int) -> list[Candidate]:
        """Plans that were good for tasks like this one."""
        layout = self._layouts[0]
        out: list[Candidate] = []
        while self._adopted and len(out) < count:
            point = self._adopted.pop(0)
            plan = layout.loops.plan(point)
            if plan is None or plan in self._plans:
                continue
            self._plans.add(plan)
            layout.asked.add(point)
            self._pending[plan] = (layout, point)
            out.append(Candidate(self._strategy.name, plan))
        return out

    def _of_others(self, plan: UnitPlan) -> tuple[_Layout, LoopPoint] | None:
        """Where a plan that somebody else proposed is among those under the layouts that the task has."""
        layout = self._layouts[0]
        point = layout.loops.nearest(plan)
        if point is None or layout.loops.plan(point) != plan:
            return None
        self._plans.add(plan)
        layout.asked.add(point)
        return layout, point

    def observe(self, trials: Sequence[Trial]) -> None:
        """Each trial is a sample for the model, and a reward for the actors; those of others as well."""
        for trial in trials:
            plan = trial.candidate.plan
            found = None
            if isinstance(plan, UnitPlan):
                found = self._pending.pop(plan, None) or self._of_others(plan)
            ok = trial.status == "ok"
            if found is not None and self._untuned is None and ok:
                self._untuned = trial.best
            if found is None or self._untuned is None:
                continue
            layout, point = found
            ratio = trial.best / self._untuned if ok else REFUSED
            layout.known[point] = ratio
            layout.best = min(layout.best, ratio)
            self._model.add({**layout.features, **layout.loops.features(point)}, ratio)
            self._trials += 1
        for layout, visited in self._walked:
            visited.learn(self._learner, layout.known)
        self._walked.clear()
        for layout in [each for each in self._open if each.rounds >= self._strategy.settings.rounds]:
            self._open.remove(layout)
            self._agent.reward(layout.point, layout.best)

    def expected_gain(self) -> float:
        """What the model thinks the best point seen by it saves of the best time measured."""
        best = min((layout.best for layout in self._layouts), default=1.0)
        return float(min(max(0.0, 1 - self._current.best / best), 1.0)) if best > 0 else 0.0

    def _layout_space(self) -> LayoutSpace | None:
        if not self._strategy.layouts:
            return None
        operator = find_operator(self._task.program)
        if operator is None:
            return None
        task, levels = self._task, self._strategy.settings.levels
        target, more = task.machine.target, self._algorithms
        space = layout_space(task.program, operator, task.free, target, levels, algorithms=more)
        return space if space.factors else None

    def _choose_layout(self, proposed: int) -> bool:
        """In the joint stage another layout where the current one had its rounds; then the best one.

        ``proposed`` candidates are on their way. Returns whether it is the joint stage.
        """
        settings = self._strategy.settings
        if self._space is None:
            return False
        if self._trials + proposed >= settings.joint:
            done = sorted((each for each in self._layouts if each.known), key=lambda each: each.best)
            # where the best has nothing left the next ones have
            self._current = done[self._exhausted % len(done)] if done else self._current
            return False
        if self._current.rounds < settings.rounds:
            return True
        for _ in range(MOST_REFUSED):
            point = self._agent.choose(fixed=not self._strategy.actors)
            if point is None:
                break
            try:
                steps, direct = self._space.steps(point), self._space.direct(point)
                if (steps, direct) in self._seen:
                    self._agent.forget(point)
                    continue
                self._seen.add((steps, direct))
                loops = loop_space(self._task, steps, EXACT if direct else None)
            except ScheduleError:
                self._agent.reward(point, REFUSED)
                continue
            self._current = _Layout(steps, self._agent.features(point), loops, point)
            self._layouts.append(self._current)
            self._open.append(self._current)
            return True
        self._current = min(self._layouts, key=lambda each: each.best)
        return False

    def _episode(self, layout: _Layout, count: int) -> list[Candidate]:
        """A batch of points, a walk from the best of it, and the best points of both by the model."""
        layout.rounds += 1
        settings, loops = self._strategy.settings, layout.loops
        plans: dict[LoopPoint, UnitPlan | None] = {}

        def is_new(point: LoopPoint) -> bool:
            if point in layout.asked:
                return False
            if point not in plans:
                plans[point] = loops.plan(point)
            plan = plans[point]
            return plan is not None and plan not in self._plans

        def price(points: Sequence[LoopPoint]) -> list[float]:
            features = [{**layout.features, **loops.features(p)} for p in points]
            return [float(x) for x in self._model.predict(features)]

        drawn = [loops.default, *(loops.sample(self._rng) for _ in range(settings.batch))]
        drawn = list(dict.fromkeys((*layout.known, *drawn)))
        visited = list(drawn)
        if self._strategy.actors and self._model.ready:
            # before, all points are alike to the model: there is nothing to walk to
            start = min(zip(price(drawn), drawn, strict=True))[1]
            walked = walk(
                self._learner,
                self._numbers,
                self._agent.state(layout.point),
                loops,
                start,
                settings.episode,
                price,
            )
            self._walked.append((layout, walked))
            visited = list(dict.fromkeys((*drawn, *walked.points)))
        new = [point for point in visited if is_new(point)]
        prices = dict(zip(new, price(new), strict=True))
        chosen: list[LoopPoint] = []
        if new and loops.default in prices:
            # what the rules would do under these layouts comes first
            chosen.append(loops.default)
        at_random = count if not self._model.ready else int(DRAWN * count)
        ranked = sorted((p for p in new if p not in chosen), key=lambda p: (prices[p], p))
        chosen += ranked[: max(0, count - at_random - len(chosen))]
        rest = [p for p in new if p not in chosen]
        self._rng.shuffle(rest)
        chosen += rest[: count - len(chosen)]
        out: list[Candidate] = []
        for point in chosen:
            plan = plans.get(point)
            if plan is None or plan in self._plans:
                continue
            self._plans.add(plan)
            layout.asked.add(point)
            self._pending[plan] = (layout, point)
            predicted = None
            if self._untuned is not None and self._model.ready:
                predicted = prices[point] * self._untuned
            out.append(Candidate(self._strategy.name, plan, predicted))
        return out
