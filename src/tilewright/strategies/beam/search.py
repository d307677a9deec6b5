"""The beam search: passes over the stages from the results backwards, two phases each (Section 3 and 4)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from math import ceil, inf, log2
from random import Random
from types import MappingProxyType
from typing import Final, TypeAlias

from tilewright.cost import Machine
from tilewright.plan import StageGraph
from tilewright.strategies.beam.cost import CostModel
from tilewright.strategies.beam.fixed import Fixed, keeps
from tilewright.strategies.beam.hashing import sample, structure, token
from tilewright.strategies.beam.network import Network, Sample, train
from tilewright.strategies.beam.options import places, room_of, tilings
from tilewright.strategies.beam.state import Kernel, Place, State, Tiling, changed, held, kernels, start

#: A decision about a stage: its place, the root of its nest (-1: none), its tiling where it is a root.
Choice: TypeAlias = tuple[Place, int, Tiling | None]
#: What a structure is to those of one pass: that before the last stage was decided, and what that one shows.
Key: TypeAlias = tuple[int, Hashable]

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
    """A state of the beam, its nests with their times, and the time of all.

    ``shape`` numbers its structure, ``base`` that before the stage that was decided last, ``path`` has those
    that it came from.
    """

    state: State
    shape: int
    base: int
    nests: Mapping[int, Kernel]
    times: Mapping[int, float]
    seconds: float
    path: tuple[int, ...] = ()

    def others(self, root: int) -> tuple[float, tuple[float, ...]]:
        """The time of all nests before that of a root, and those of the nests after it."""
        at, times = list(self.times).index(root), tuple(self.times.values())
        return sum(times[:at]), times[at + 1 :]


@dataclass(slots=True, eq=False)
class Step:
    """A decision about a stage in a state of the beam, the nests that it changes, the time of all then."""

    parent: Entry
    choice: Choice
    key: Key
    new: Mapping[int, Kernel]
    times: Mapping[int, float]
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Decisions about one stage that look alike."""

    shown: Hashable
    choices: tuple[Choice, ...]


@dataclass(slots=True, eq=False)
class Bucket:
    """Steps to states of one structure, from each state of the beam in turn; few of many are ever taken."""

    size: int = 0
    parts: list[tuple[Entry, Alike]] = field(default_factory=list)

    def add(self, entry: Entry, steps: Alike) -> None:
        """The steps from one state."""
        self.parts.append((entry, steps))
        self.size += len(steps.choices)

    def __getitem__(self, n: int) -> tuple[Entry, Choice]:
        for entry, steps in self.parts:
            if n < len(steps.choices):
                return entry, steps.choices[n]
            n -= len(steps.choices)
        raise IndexError(n)


@dataclass(frozen=True, slots=True)
class Known:
    """The tilings of nests, and what they show to a depth: found once for all searches of a program."""

    tilings: dict[int, list[Tiling | None]] = field(default_factory=dict)
    alike: dict[tuple[int, int], list[Alike]] = field(default_factory=dict)


@dataclass(slots=True)
class BeamSearch:
    """Searches for one program. The same generator gives the same states in every run.

    Searches may share what is ``known`` of tilings. A pass that has not ended at the moment ``until`` of
    ``time.monotonic`` is given up. ``fixed`` parts are not searched.
    """

    graph: StageGraph
    machine: Machine
    pricer: Pricer
    rng: Random
    settings: Settings = Settings()
    known: Known = field(default_factory=Known)
    until: float = inf
    fixed: Fixed = field(default_factory=dict)
    _held: dict[Kernel, int] = field(default_factory=dict, repr=False)
    #: Numbers of the structures that states of the beam had.
    _shapes: dict[Key, int] = field(default_factory=dict, repr=False)

    @property
    def room(self) -> int:
        """Bytes for all that a tile holds."""
        return room_of(self.machine)

    def run(self) -> list[Found]:
        """The states of the last pass's beam, and the best ones of those before, the best first."""
        frozen = self._frozen() if self.settings.freezing else {}
        best: dict[State, float] = {}
        seen: dict[int, int] = {}
        for number in range(self.settings.passes):
            good: set[int] = set()
            used: set[int] = set()
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
        self, number: int, frozen: dict[int, Place], seen: dict[int, int], used: set[int], good: set[int]
    ) -> list[Found] | None:
        """The states of one pass; ``None`` where its time was over before it had any."""
        depth = number + 1
        first = start(self.graph)
        nests = {kernel[0]: kernel for kernel in kernels(self.graph, first)}
        times = {root: self.pricer.nest(k) for root, k in nests.items()}
        shape = self._numbered((-1, structure(first, depth)))
        beam = [Entry(first, shape, shape, nests, times, sum(times.values()))]
        for node in self.graph.order:
            if time.monotonic() >= self.until:
                return None
            for tiled in (False, True):
                if tiled and all(entry.state.places[node] != "own" for entry in beam):
                    continue
                buckets: dict[Key, Bucket] = {}
                for entry in beam:
                    base = entry.base if tiled else entry.shape
                    if tiled:
                        options = self._tiled(entry, node, depth)
                    else:
                        options = self._placed(entry, node, depth, frozen)
                    for steps in options:
                        buckets.setdefault((base, steps.shown), Bucket()).add(entry, steps)
                beam = self._kept(node, buckets, seen)
                used.update(entry.shape for entry in beam)
        for entry in beam[: max(1, len(beam) // 4)]:
            good.update(entry.path)
        return [Found(entry.seconds, entry.state) for entry in beam]

    def _numbered(self, key: Key) -> int:
        return self._shapes.setdefault(key, len(self._shapes))

    def _kept(self, node: int, buckets: Mapping[Key, Bucket], seen: Mapping[int, int]) -> list[Entry]:
        """The states of a step that go on: sampled by structure, priced, the best by penalised price.

        Most are dropped again: what a state holds besides its price is made for the others alone.
        """
        priced: list[tuple[float, int, Step]] = []
        others: dict[Entry, tuple[float, tuple[float, ...]]] = {}
        for key, bucket in buckets.items():
            shape = self._shapes.get(key)
            factor = 1 + PENALTY * (0 if shape is None else seen.get(shape, 0))
            for n in sample(bucket.size, self.rng) if self.settings.sampling else range(bucket.size):
                entry, choice = bucket[n]
                place, home, tiling = choice
                if not entry.state.places[node]:
                    state = entry.state.placed(node, place, home)
                    new = changed(self.graph, state, node, entry.nests)
                    times = {root: self.pricer.nest(kernel) for root, kernel in new.items()}
                    seconds = sum({**entry.times, **times}.values())
                elif tiling is None:
                    new, times, seconds = {}, {}, entry.seconds
                else:
                    if entry not in others:
                        others[entry] = entry.others(node)
                    before, after = others[entry]
                    new = {node: (node, tiling, entry.nests[node][2])}
                    times = {node: self.pricer.nest(new[node])}
                    seconds = sum(after, before + times[node])
                step = Step(entry, choice, key, new, times, seconds)
                priced.append((seconds * factor, len(priced), step))
        self.pricer.counts.states += len(priced)
        return [self._entry(node, step) for _, _, step in nsmallest(self.settings.beam, priced)]

    def _entry(self, node: int, step: Step) -> Entry:
        parent, (place, home, tiling) = step.parent, step.choice
        state, shape = parent.state, self._numbered(step.key)
        if not state.places[node]:
            state = state.placed(node, place, home)
        elif tiling is not None:
            state = state.tiled(node, tiling)
        nests, times = {**parent.nests, **step.new}, {**parent.times, **step.times}
        return Entry(state, shape, step.key[0], nests, times, step.seconds, (*parent.path, shape))

    def _placed(self, entry: Entry, node: int, depth: int, frozen: Mapping[int, Place]) -> list[Alike]:
        """Phase 1: the places that a stage may have in a state."""
        state = entry.state
        known = node in self.fixed
        fused = known or node not in frozen
        options = list(places(self.graph, state, node, fused=fused, room=self.room, every=known))
        if known:
            options = [s for s in options if keeps(s, {node: self.fixed[node]})]
        elif node in frozen:
            options = [s for s in options if s.places[node] == frozen[node]] or options
        return alike([(s.places[node], s.homes[node], None) for s in options], depth)

    def _tiled(self, entry: Entry, node: int, depth: int) -> list[Alike]:
        """Phase 2: the tilings that a stage may have, where it has a nest of its own."""
        place, home = entry.state.places[node], entry.state.homes[node]
        if place != "own":
            return alike([(place, home, None)], depth)
        found = self.known.alike.get((node, depth))
        if found is None:
            choices: list[Choice] = [(place, home, tiling) for tiling in self.tilings(node)]
            found = self.known.alike[node, depth] = alike(choices, depth)
        return found

    def tilings(self, node: int) -> list[Tiling | None]:
        """The tilings of a nest, found once."""
        known = self.known.tilings
        if node not in known:
            known[node] = tilings(self.graph, node, self.machine)
        return known[node]

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


def alike(choices: Iterable[Choice], depth: int) -> list[Alike]:
    """Decisions about a stage by what they show to a depth, in the order in which they come."""
    found: dict[Hashable, list[Choice]] = {}
    for choice in choices:
        found.setdefault(token(*choice, depth), []).append(choice)
    return [Alike(shown, tuple(each)) for shown, each in found.items()]


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
    known = Known()
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
