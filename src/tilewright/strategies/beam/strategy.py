"""The strategy ``beam``: the default plan, then those of found states, the fastest of each structure first.

Each round is a batch of one beam search and greedy ones with other seeds. Where candidates are measured, a
round proposes its best ones only, and the next one begins with a network that was trained on all that were
measured so far, starting from the one that comes with the package (autotuning, as in Section 5), and with the
neighbours of the fastest of them (which the paper has not). Where nobody measures, all states of a batch are
proposed (top-k measures k; one-shot takes the best, where it promises more than the default plan): of the
first of them those that keep their vectors in registers come first. Of programs without stages to decide
about the default plan is the only one. What differs between CPUs and GPUs are options, features and terms of
the cost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from math import inf
from random import Random
from typing import Final

from tilewright.plan import Planned, UnitPlan, graph_of
from tilewright.strategies.beam.emit import from_plan, to_plan
from tilewright.strategies.beam.fixed import fixed_parts, keeps
from tilewright.strategies.beam.gpu_cost import model_of
from tilewright.strategies.beam.neighbours import neighbours
from tilewright.strategies.beam.network import Network, Sample
from tilewright.strategies.beam.search import Found, Pricer, Settings, batch, varied
from tilewright.strategies.beam.spills import least_spilled, vector_spills
from tilewright.strategies.beam.state import State, kernels
from tilewright.strategies.beam.weights import gain_errors, shipped
from tilewright.strategies.search import Candidate, History, Search, Task, Trial
from tilewright.support import ScheduleError
from tilewright.target import CpuTarget

#: Samples of the first batch, one beam search and all others greedy; of those after a training.
SAMPLES: Final = 80
SAMPLES_AGAIN: Final = 16
#: Batches after which a search has nothing left.
BATCHES: Final = 20
#: The fastest states that were measured, whose neighbours are candidates of the next round.
NEAR: Final = 3
#: Candidates of a batch that are measured before the network is trained again, and steps of that.
MEASURED: Final = 12
STEPS: Final = 200
#: Candidates of the first batch that are compiled for what they spill: a few more than top-k takes.
FILTERED: Final = 8
#: Part of the time that is left which one batch may take.
BATCH_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True)
class BeamStrategy:
    """Beam search. ``network`` scales the coefficients of the cost: that of the package where none is given.

    Without ``trained`` there is none until something is measured. ``filtered``: of the first candidates those
    that spill no vector register come first. ``fixed`` are places of stages by name, as
    :func:`~tilewright.strategies.beam.fixed.fixed_parts` reads them: only plans that have them are proposed.
    """

    name: str = "beam"
    settings: Settings = field(default_factory=Settings)
    samples: int = SAMPLES
    batches: int = BATCHES
    network: Network | None = field(default=None, compare=False)
    trained: bool = True
    filtered: bool = True
    fixed: Mapping[str, str] = field(default_factory=dict)

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin with the default plan."""
        return BeamTaskSearch(task, rng, self)


class BeamTaskSearch:
    """One search for one task. ``pricer`` and ``graph`` are of its program, for reports."""

    def __init__(self, task: Task, rng: Random, strategy: BeamStrategy) -> None:
        self._task, self._strategy = task, strategy
        self._seed = rng.getrandbits(32)
        self.graph = graph_of(task.program, task.machine.on)
        network = strategy.network
        on = task.machine.on
        if network is None and strategy.trained and isinstance(on, CpuTarget):
            network = shipped(on)
        model = model_of(self.graph, task.machine, network)
        self._network = network or model.fresh()
        errors = gain_errors(on)
        # what is taken unmeasured must promise more than such promises are off (decision 0356)
        self._margin = errors.untrained if network is None else errors.trained
        self.pricer = Pricer(model, strategy.settings.memoising)
        self._states: dict[UnitPlan, State] = {}
        self._samples: list[Sample] = []
        self._best: dict[float, State] = {}
        self._fixed = fixed_parts(self.graph, strategy.fixed)
        self._left = self._candidates()
        self._until = inf

    def end_by(self, until: float) -> None:
        """Give up searching at that moment: a batch, and carrying out plans that it found."""
        self._until = until

    def propose(self, count: int) -> Sequence[Candidate]:
        """The next best candidates, the default plan first of all; fewer where the time is over."""
        found: list[Candidate] = []
        while len(found) < count and not (found and time.monotonic() >= self._until):
            candidate = next(self._left, None)
            if candidate is None:
                break
            found.append(candidate)
        return found

    def observe(self, trials: Sequence[Trial]) -> None:
        """Remember what ran, for the next training."""
        for trial in trials:
            plan = trial.candidate.plan
            state = self._state_of(plan) if isinstance(plan, UnitPlan) and trial.status == "ok" else None
            if state is not None:
                self._samples.append(self.pricer.sample(state, trial.best))
                self._best[trial.best] = state

    def expected_gain(self) -> float:
        """Not known."""
        return 0.0

    def _state_of(self, plan: UnitPlan) -> State | None:
        return self._states.get(plan) or from_plan(self.graph, plan)

    def unmeasured(self) -> Iterator[Candidate]:
        """The default plan, then the states of the first batch that promise more, the fastest first.

        No more of them are carried out and compiled than it takes to know which may be taken.
        """
        below = inf
        for default in self._default():
            below = inf if default.predicted is None else default.predicted
            yield default
        found = self._batch(0, self._strategy.samples) if self._decides else ()
        pool = sorted(found[:FILTERED] if self._filters else found, key=lambda each: each.seconds)
        if not pool or pool[0].seconds >= below:
            return
        for each, planned, kept in self._filtered(
            self._planned(pool, {self._task.default().plan}), len(pool)
        ):
            if not kept or each.seconds >= below:
                return
            yield Candidate("beam", planned.plan, each.seconds)

    @property
    def _decides(self) -> bool:
        return any(n.plain for n in self.graph.nodes)

    @property
    def _filters(self) -> bool:
        return self._strategy.filtered and isinstance(self._task.machine.on, CpuTarget)

    def _default(self) -> Iterator[Candidate]:
        default = self._task.default().plan
        state = from_plan(self.graph, default, like=True)
        if not self._fixed or (state is not None and keeps(state, self._fixed)):
            price = None if state is None else self.pricer.seconds(state) / self._margin
            yield Candidate("beam", default, price)

    def _candidates(self) -> Iterator[Candidate]:
        strategy = self._strategy
        yield from self._default()
        if not self._decides:
            return
        seen = {self._task.default().plan}
        for number in range(strategy.batches):
            if time.monotonic() >= self._until:
                return
            learned = len(self._samples)
            if number and learned:
                self.pricer.learn(self._network, self._samples, STEPS)
            found = self._batch(number, SAMPLES_AGAIN if number and learned else strategy.samples)
            made = self._filtered(self._planned(found, seen), 0 if number else FILTERED)
            for new, (each, planned, kept) in enumerate(made, 1):
                if time.monotonic() >= self._until:
                    return
                self._states[planned.plan] = each.state
                yield Candidate("beam", planned.plan, each.seconds if kept else inf)
                if new == MEASURED and len(self._samples) > learned:
                    break

    def _batch(self, number: int, samples: int) -> Sequence[Found]:
        task, strategy = self._task, self._strategy
        seed = self._seed + number
        until = self._until
        if until < inf:
            until = time.monotonic() + BATCH_SHARE * (until - time.monotonic())
        found = varied(
            batch(self.graph, task.machine, self.pricer, seed, strategy.settings, samples, until, self._fixed)
        )
        if self._fixed and not found and time.monotonic() < until:
            raise ScheduleError(
                "no schedule has all fixed parts: "
                + ", ".join(f"{name} at {place}" for name, place in strategy.fixed.items()),
                hint="a stage can be inside of another's nest if only that nest reads it; leave one open",
            )
        near = {
            new: self.pricer.seconds(new)
            for _, state in sorted(self._best.items())[:NEAR]
            for new in neighbours(self.graph, state, task.machine)
            if keeps(new, self._fixed)
        }
        ranked = [Found(seconds, state) for state, seconds in sorted(near.items(), key=lambda item: item[1])]
        # turn by turn, the neighbours of what was measured first
        pairs = zip_longest(ranked, found)
        return [each for pair in pairs for each in pair if each is not None]

    def _planned(self, found: Sequence[Found], seen: set[UnitPlan]) -> Iterator[tuple[Found, Planned]]:
        """States carried out, each plan once."""
        task = self._task
        for each in found:
            if time.monotonic() >= self._until:
                return
            try:
                planned = to_plan(self.graph, each.state, task.machine, task.constants)
            except ScheduleError:
                # a stage outside of the groups; those of the groups are never refused
                continue
            if planned.plan not in seen:
                seen.add(planned.plan)
                yield each, planned

    def _filtered(
        self, made: Iterator[tuple[Found, Planned]], first: int
    ) -> Iterator[tuple[Found, Planned, bool]]:
        """Of so many first ones those that spill least, then all others, which nobody takes unmeasured."""
        on = self._task.machine.on
        if not first or not self._filters or not isinstance(on, CpuTarget):
            yield from ((*pair, True) for pair in made)
            return

        def spills(pair: tuple[Found, Planned]) -> int | None:
            return None if time.monotonic() >= self._until else vector_spills(pair[1].schedule, on)

        yield from ((*pair, kept) for pair, kept in least_spilled(islice(made, first), spills))
        yield from ((*pair, False) for pair in made)


def stage_seconds(task: Task, plan: UnitPlan) -> dict[str, float]:
    """What the model says of each stage under a plan, or under the state that is most like it."""
    on = task.machine.on
    g = graph_of(task.program, on)
    model = model_of(g, task.machine, shipped(on) if isinstance(on, CpuTarget) else None)
    state = from_plan(g, plan, like=True)
    out: dict[str, float] = {}
    for kernel in kernels(g, state) if state is not None else ():
        for n, seconds in model.by_stage(model.features(kernel)).items():
            out[g.nodes[n].name] = out.get(g.nodes[n].name, 0.0) + seconds
    return out
