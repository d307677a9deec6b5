"""The beam search: passes over the stages from the results backwards, two phases each (Section 3 and 4)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, log2
from random import Random
from typing import Final

from tilewright.cost import Machine
from tilewright.strategies.beam.cost import CostModel, Priced
from tilewright.strategies.beam.features import features
from tilewright.strategies.beam.graph import Graph
from tilewright.strategies.beam.hashing import sample, structure
from tilewright.strategies.beam.options import places, tilings
from tilewright.strategies.beam.state import Kernel, State, Tiling, kernels, start

#: What a state costs more for each time that its structure was seen and did not last.
PENALTY: Final = 0.1
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
    """Prices states, nest by nest; features of nests are kept, the cost never is."""

    model: CostModel
    memoising: bool = True
    counts: Counts = field(default_factory=Counts)
    _kept: OrderedDict[Kernel, Priced] = field(default_factory=OrderedDict)

    def seconds(self, state: State) -> float:
        """The time of all nests that are decided."""
        self.counts.states += 1
        return self.model.seconds([self.priced(k) for k in kernels(self.model.graph, state)])

    def priced(self, kernel: Kernel) -> Priced:
        """The features of a nest, as they enter its cost."""
        found = self._kept.get(kernel) if self.memoising else None
        if found is not None:
            self._kept.move_to_end(kernel)
            return found
        self.counts.features += 1
        found = self.model.priced(features(self.model.graph, kernel, self.model.machine))
        if self.memoising:
            self._kept[kernel] = found
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found


@dataclass(slots=True)
class BeamSearch:
    """Searches for one program. The same generator gives the same states in every run."""

    graph: Graph
    machine: Machine
    pricer: Pricer
    rng: Random
    settings: Settings = Settings()
    _tilings: dict[int, list[Tiling | None]] = field(default_factory=dict)

    def run(self) -> list[Found]:
        """The states of the last pass's beam, and the best ones of those before, the best first."""
        frozen = self._frozen() if self.settings.freezing else {}
        best: dict[State, float] = {}
        seen: dict[Hashable, int] = {}
        for number in range(self.settings.passes):
            good: set[Hashable] = set()
            used: set[Hashable] = set()
            finished = self._pass(number, frozen, seen, used, good)
            for found in finished:
                best[found.state] = min(found.seconds, best.get(found.state, found.seconds))
            for each in used - good:
                seen[each] = seen.get(each, 0) + 1
            for each in good:
                seen.pop(each, None)
        ranked = sorted(best.items(), key=lambda item: item[1])
        return [Found(seconds, state) for state, seconds in ranked]

    def _pass(
        self,
        number: int,
        frozen: dict[int, str],
        seen: dict[Hashable, int],
        used: set[Hashable],
        good: set[Hashable],
    ) -> list[Found]:
        depth = number + 1
        beam = [Found(0.0, start(self.graph))]
        beam[0] = Found(self.pricer.seconds(beam[0].state), beam[0].state)
        paths: dict[State, tuple[Hashable, ...]] = {beam[0].state: ()}
        for node in self.graph.order:
            for phase in (1, 2):
                children: dict[State, State] = {}
                for found in beam:
                    for child in self._children(found.state, node, phase, frozen):
                        children.setdefault(child, found.state)
                if len(children) == len(beam) and all(child == parent for child, parent in children.items()):
                    continue
                beam = self._kept(children, depth, seen)
                paths = {
                    f.state: (*paths[children[f.state]], structure(self.graph, f.state, depth)) for f in beam
                }
                used.update(paths[f.state][-1] for f in beam)
        for found in beam[: max(1, len(beam) // 4)]:
            good.update(paths[found.state])
        return beam

    def _kept(self, children: dict[State, State], depth: int, seen: dict[Hashable, int]) -> list[Found]:
        """The states of a phase that go on: sampled by structure, priced, the best by penalised price."""
        buckets: dict[Hashable, list[State]] = {}
        for child in children:
            buckets.setdefault(structure(self.graph, child, depth), []).append(child)
        chosen = sample(buckets, self.rng) if self.settings.sampling else list(children)
        keys = {child: key for key, members in buckets.items() for child in members}
        priced = []
        for n, child in enumerate(chosen):
            seconds = self.pricer.seconds(child)
            penalty = 1 + PENALTY * seen.get(keys[child], 0)
            priced.append((seconds * penalty, n, Found(seconds, child)))
        priced.sort(key=lambda item: item[:2])
        return [found for _, _, found in priced[: self.settings.beam]]

    def _children(self, state: State, node: int, phase: int, frozen: dict[int, str]) -> Iterator[State]:
        if phase == 1:
            options = places(self.graph, state, node, fused=node not in frozen)
            if node in frozen:
                found = list(options)
                yield from [s for s in found if s.places[node] == frozen[node]] or found
            else:
                yield from options
        elif state.places[node] != "own":
            yield state
        else:
            for tiling in self.tilings(node):
                yield state.tiled(node, tiling)

    def tilings(self, node: int) -> list[Tiling | None]:
        """The tilings of a nest, found once."""
        if node not in self._tilings:
            self._tilings[node] = tilings(self.graph, node, self.machine)
        return self._tilings[node]

    def _frozen(self) -> dict[int, str]:
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
                costs[kernel[0]] += self.pricer.model.seconds([self.pricer.priced(kernel)])
        rest = sorted(order, key=lambda n: -costs[n])[count:]
        return {n: state.places[n] for n in rest}


def batch(
    g: Graph, machine: Machine, pricer: Pricer, seed: int, settings: Settings, samples: int
) -> list[Found]:
    """One beam search and so many less one greedy ones: their best states, each once, the best first."""
    best: dict[State, float] = {}
    greedy = Settings(1, 1, settings.sampling, False, settings.memoising)
    found: Sequence[Found] = BeamSearch(g, machine, pricer, Random(f"{seed}/0"), settings).run()
    for each in found:
        best[each.state] = each.seconds
    for n in range(1, samples):
        search = BeamSearch(g, machine, pricer, Random(f"{seed}/{n}"), greedy)
        for each in search.run()[:1]:
            best.setdefault(each.state, each.seconds)
    return [Found(t, s) for s, t in sorted(best.items(), key=lambda item: item[1])]
