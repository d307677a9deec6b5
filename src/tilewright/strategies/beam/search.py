"""The beam search: passes over the stages from the results backwards, two phases each (Section 3 and 4)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, log2
from random import Random
from types import MappingProxyType
from typing import Final, TypeAlias

from tilewright.cost import Machine
from tilewright.plan import StageGraph
from tilewright.strategies.beam.cost import CostModel
from tilewright.strategies.beam.fixed import Fixed
from tilewright.strategies.beam.hashing import sample, structure, token
from tilewright.strategies.beam.network import Network, Sample, train
from tilewright.strategies.beam.options import places, room_of, tilings
from tilewright.strategies.beam.state import Kernel, Place, State, Tiling, changed, held, kernels, start

Shape: TypeAlias = tuple[Hashable, ...]

#: What a state costs more for each time that its structure was seen and did not last.
PENALTY: Final = 0.1
#: Depth of the structures of which one is measured before the next of the same.
VARIED: Final = 3
#: What the model says of a state, in times of the best: beyond, it comes after all others.
LIKELY: Final = 1.5
#: Part of a batch's time, where that is limited, that its beam search may take.
BEAM_SHARE: Final = 0.6
#: Nests whose features are kept.
MOST_KEPT: Final = 20_000


@dataclass(frozen=True, slots=True)
class Settings:
    """How a search is done. Sampling, freezing and memoisation can each be switched off.

    ``free`` are stages that freezing leaves free at least; the paper's are ceil(log2 N), of N stages.
    """

    beam: int = 32
    passes: int = 5
    sampling: bool = True
    freezing: bool = True
    memoising: bool = True
    free: int = 12


@dataclass(frozen=True, slots=True)
class Found:
    """A complete state, and its seconds by the model."""

    seconds: float
    state: State


@dataclass(slots=True)
class Counts:
    """What a search did: states priced, and nests whose features were computed."""

    states: int = 0
    features: int = 0


@dataclass(slots=True)
class Pricer:
    """Prices nests by their features, which no other nest changes; what was found of one is kept."""

    model: CostModel
    memoising: bool = True
    counts: Counts = field(default_factory=Counts)
    _kept: OrderedDict[Kernel, float] = field(default_factory=OrderedDict)

    def seconds(self, state: State) -> float:
        """The time of all nests that are decided."""
        self.counts.states += 1
        return sum(self.nest(k) for k in kernels(self.model.graph, state))

    def sample(self, state: State, seconds: float) -> Sample:
        """What the network learns from a state that was measured."""
        model = self.model
        nests = (model.features(k) for k in kernels(model.graph, state))
        return model.sample(nests, seconds)

    def learn(self, network: Network, samples: Sequence[Sample], steps: int) -> None:
        """Price by this network, trained on what was measured: all prices are others from here on."""
        self.model = replace(self.model, network=train(network, samples, steps))
        self._kept.clear()

    def nest(self, kernel: Kernel) -> float:
        """The time of one nest."""
        found = self._kept.get(kernel) if self.memoising else None
        if found is not None:
            return found
        self.counts.features += 1
        found = self.model.seconds(self.model.features(kernel))
        if self.memoising:
            self._kept[kernel] = found
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A state of the beam, its structure and those that it came from, its nests with their times."""

    state: State
    shape: Shape
    nests: Mapping[int, Kernel]
    times: Mapping[int, float]
    path: tuple[Shape, ...] = ()

    @property
    def seconds(self) -> float:
        """The time of all nests."""
        return sum(self.times.values())


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A decision about a stage in a state of the beam: its place, or its tiling."""

    parent: Entry
    node: int
    place: Place
    home: int
    tiling: Tiling | None

    @property
    def state(self) -> State:
        """The state that it leads to."""
        state = self.parent.state
        if state.places[self.node] != self.place:
            return state.placed(self.node, self.place, self.home)
        return state if self.tiling is None else state.tiled(self.node, self.tiling)


@dataclass(slots=True)
class BeamSearch:
    """Searches for one program. The same generator gives the same states in every run.

    ``known`` are the tilings of nests that were found so far; searches may share them. A pass that has not
    ended at the moment ``until`` of ``time.monotonic`` is given up. ``fixed`` parts are not searched.
    """

    graph: StageGraph
    machine: Machine
    pricer: Pricer
    rng: Random
    settings: Settings = Settings()
    known: dict[int, list[Tiling | None]] = field(default_factory=dict)
    until: float = inf
    fixed: Fixed = field(default_factory=dict)
    _held: dict[Kernel, int] = field(default_factory=dict, repr=False)

    @property
    def room(self) -> int:
        """Bytes for all that a tile holds."""
        return room_of(self.machine)

    def run(self) -> list[Found]:
        """The states of the last pass's beam, and the best ones of those before, the best first."""
        frozen = self._frozen() if self.settings.freezing else {}
        best: dict[State, float] = {}
        seen: dict[Hashable, int] = {}
        for number in range(self.settings.passes):
            good: set[Hashable] = set()
            used: set[Hashable] = set()
            finished = self._pass(number, frozen, seen, used, good)
            if finished is None:
                break
            for found in finished:
                best[found.state] = min(found.seconds, best.get(found.state, found.seconds))
            for each in used - good:
                seen[each] = seen.get(each, 0) + 1
            for each in good:
                seen.pop(each, None)
        ranked = sorted(best.items(), key=lambda item: item[1])
        return [Found(seconds, state) for state, seconds in ranked if self._fits(state)]

    def _fits(self, state: State) -> bool:
        for kernel in kernels(self.graph, state):
            if kernel not in self._held:
                self._held[kernel] = held(self.graph, kernel)
            if self._held[kernel] > self.room:
                return False
        return True

    def _pass(
        self,
        number: int,
        frozen: dict[int, Place],
        seen: dict[Hashable, int],
        used: set[Hashable],
        good: set[Hashable],
    ) -> list[Found] | None:
        """The states of one pass; ``None`` where its time was over before it had any."""
        depth = number + 1
        first = start(self.graph)
        nests = {kernel[0]: kernel for kernel in kernels(self.graph, first)}
        beam = [
            Entry(
                first,
                structure(first, depth),
                nests,
                {root: self.pricer.nest(k) for root, k in nests.items()},
            )
        ]
        for node in self.graph.order:
            if time.monotonic() >= self.until:
                return None
            for phase in (1, 2):
                if phase == 2 and all(entry.state.places[node] != "own" for entry in beam):
                    continue
                beam = self._kept([s for e in beam for s in self._steps(e, node, phase, frozen)], depth, seen)
                used.update(entry.path[-1] for entry in beam)
        for entry in beam[: max(1, len(beam) // 4)]:
            good.update(entry.path)
        return [Found(entry.seconds, entry.state) for entry in beam]

    def _kept(self, steps: list[Step], depth: int, seen: dict[Hashable, int]) -> list[Entry]:
        """The states of a phase that go on: sampled by structure, priced, the best by penalised price."""
        buckets: dict[Hashable, list[tuple[Shape, Step]]] = {}
        for step in steps:
            shape = step.parent.shape
            own = token(step.place, step.home, step.tiling, depth)
            key = (*shape[: step.node], own, *shape[step.node + 1 :])
            buckets.setdefault(key, []).append((key, step))
        if self.settings.sampling:
            chosen = sample(buckets, self.rng)
        else:
            chosen = [each for members in buckets.values() for each in members]
        priced = []
        for n, (key, step) in enumerate(chosen):
            entry = self._entry(step, key)
            priced.append((entry.seconds * (1 + PENALTY * seen.get(key, 0)), n, entry))
        priced.sort(key=lambda item: item[:2])
        return [entry for _, _, entry in priced[: self.settings.beam]]

    def _entry(self, step: Step, key: Shape) -> Entry:
        self.pricer.counts.states += 1
        parent, state = step.parent, step.state
        if state == parent.state:
            return Entry(state, key, parent.nests, parent.times, (*parent.path, key))
        new = changed(self.graph, state, step.node, parent.nests)
        times = {root: self.pricer.nest(kernel) for root, kernel in new.items()}
        nests, known = {**parent.nests, **new}, {**parent.times, **times}
        return Entry(state, key, nests, known, (*parent.path, key))

    def _steps(self, entry: Entry, node: int, phase: int, frozen: dict[int, Place]) -> Iterator[Step]:
        state = entry.state
        if phase == 2:
            own = state.places[node] == "own"
            for tiling in self.tilings(node) if own else (None,):
                yield Step(entry, node, state.places[node], state.homes[node], tiling)
            return
        known = node in self.fixed
        fused = known or node not in frozen
        options = list(places(self.graph, state, node, fused=fused, room=self.room, every=known))
        if known:
            options = [s for s in options if (s.places[node], s.homes[node]) == self.fixed[node]]
        elif node in frozen:
            options = [s for s in options if s.places[node] == frozen[node]] or options
        for option in options:
            yield Step(entry, node, option.places[node], option.homes[node], None)

    def tilings(self, node: int) -> list[Tiling | None]:
        """The tilings of a nest, found once."""
        if node not in self.known:
            self.known[node] = tilings(self.graph, node, self.machine)
        return self.known[node]

    def _frozen(self) -> dict[int, Place]:
        """Places of all stages but the costliest, found among nests of their own and inlining alone."""
        order = list(self.graph.order)
        count = max(self.settings.free, ceil(log2(max(2, len(order)))))
        if len(order) <= count:
            return {}
        state = start(self.graph)
        for node in order:
            options = list(places(self.graph, state, node, fused=False))
            tiled = [s.tiled(node, self.tilings(node)[0]) if s.places[node] == "own" else s for s in options]
            state = min(tiled, key=self.pricer.seconds)
        costs: dict[int, float] = dict.fromkeys(order, 0.0)
        for kernel in kernels(self.graph, state):
            if kernel[0] in costs:
                costs[kernel[0]] += self.pricer.nest(kernel)
        rest = sorted(order, key=lambda n: -costs[n])[count:]
        return {n: state.places[n] for n in rest}


def batch(
    g: StageGraph,
    machine: Machine,
    pricer: Pricer,
    seed: int,
    settings: Settings,
    samples: int,
    until: float = inf,
    fixed: Fixed = MappingProxyType({}),
) -> list[Found]:
    """One beam search and so many less one greedy ones: their best states, each once, the best first.

    Those that do not end by ``until`` are given up: the beam search must leave the greedy ones their part.
    """
    best: dict[State, float] = {}
    known: dict[int, list[Tiling | None]] = {}
    greedy = Settings(1, 1, settings.sampling, False, settings.memoising)
    now = time.monotonic()
    first = until if until == inf else now + BEAM_SHARE * (until - now)
    beam = BeamSearch(g, machine, pricer, Random(f"{seed}/0"), settings, known, first, fixed)
    for each in beam.run():
        best[each.state] = each.seconds
    for n in range(1, samples):
        if time.monotonic() >= until:
            break
        search = BeamSearch(g, machine, pricer, Random(f"{seed}/{n}"), greedy, known, until, fixed)
        for each in search.run()[:1]:
            best.setdefault(each.state, each.seconds)
    return [Found(t, s) for s, t in sorted(best.items(), key=lambda item: item[1])]


def varied(found: Sequence[Found]) -> list[Found]:
    """States in the order in which they are worth a measurement: the best of each structure in turns.

    Many states differ in nothing that the model sees; those of one structure (which stages share a nest,
    which axes are cut, in lanes, parallel) follow one another only after the others. What takes much longer
    than the best by the model comes last.
    """
    least = min((each.seconds for each in found), default=0.0)
    turns: dict[Hashable, int] = {}
    keyed = []
    for n, each in enumerate(sorted(found, key=lambda each: each.seconds)):
        shape = structure(each.state, VARIED)
        turns[shape] = turns.get(shape, -1) + 1
        keyed.append((each.seconds > LIKELY * least, turns[shape], n, each))
    return [each for *_, each in sorted(keyed, key=lambda key: key[:3])]
