"""The cost of a nest: Anderson et al.'s Appendix B, repaired, with caches of a CPU for the memories of a GPU.

The time of a stage is the sum of terms, each a feature times a coefficient that is not negative. Coefficients
are those of the machine (the analytic model), each times what a network says of the stage's features; without
a network, once. Sums are over the stages of all nests: nests do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Final

import numpy as np

from tilewright.cost import Machine
from tilewright.plan import StageGraph
from tilewright.strategies.beam.features import (
    ALGORITHM,
    FEATURES,
    StageFeatures,
    algorithm_features,
    features,
)
from tilewright.strategies.beam.network import Floats, Network, Sample, new_network
from tilewright.strategies.beam.state import Kernel

#: The terms of a stage's cost, in the order of their vector.
TERMS: Final = (
    "compute",
    "compute inlined",
    "turns",
    "loads",
    "loads apart",
    "scattered loads",
    "stores",
    "second level",
    "third level",
    "memory",
    "runs",
    "allocation",
    "parallelism",
    "working set",
    "false sharing",
)
#: Vector loads, elements a step apart, and those that are looked up one by one, that start in a cycle; vector
#: stores.
LOADS_PER_CYCLE: Final = 2.0
APART_PER_CYCLE: Final = 2.0
SCATTERED_PER_CYCLE: Final = 1.0
STORES_PER_CYCLE: Final = 1.0
#: Cycles until a run of elements comes from the third level, and from memory.
RUN_CYCLES: Final = (30.0, 150.0)
#: Vectors that an expanded loop holds besides its expression's own, in parts of the registers.
HELD_SHARE: Final = 0.75
#: Cycles of a turn of a loop, of starting a producer's loops once, of an allocation inside of a nest, of
#: starting the threads, and of one task.
TURN_CYCLES: Final = 8.0
PRODUCTION_CYCLES: Final = 20.0
ALLOCATION_CYCLES: Final = 20.0
FORK_CYCLES: Final = 5000.0
TASK_CYCLES: Final = 200.0


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A nest's stages: what the network sees of them, and their terms with the machine's coefficients."""

    algorithm: Floats
    schedule: Floats
    terms: Floats


@dataclass(frozen=True, slots=True, eq=False)
class CostModel:
    """Prices nests on a machine; ``network`` scales its coefficients, where one is given."""

    graph: StageGraph
    machine: Machine
    network: Network | None = None
    #: Names of the terms, and of the features of stages.
    names: ClassVar[tuple[str, ...]] = TERMS
    described: ClassVar[tuple[str, ...]] = FEATURES

    def features(self, kernel: Kernel) -> tuple[StageFeatures, ...]:
        """The features of a nest's stages."""
        return features(self.graph, kernel, self.machine)

    def fresh(self, seed: int = 0) -> Network:
        """A network of this model that has not been trained: its factors are all 1."""
        return new_network(ALGORITHM, len(self.described), len(self.names), seed)

    def seen(self, stages: Sequence[StageFeatures]) -> Seen:
        """What is known of a nest before the network is asked."""
        return Seen(
            np.log1p(np.array([algorithm_features(f.node) for f in stages])),
            np.log1p(np.array([f.vector() for f in stages])),
            np.array([self.terms(f) for f in stages]),
        )

    def seconds(self, stages: Sequence[StageFeatures]) -> float:
        """The time of a nest. Nests do not overlap, and do not look at one another."""
        seen = self.seen(stages)
        if self.network is None:
            return float(seen.terms.sum())
        return float((seen.terms * self.network.factors(seen.algorithm, seen.schedule)).sum())

    def by_stage(self, stages: Sequence[StageFeatures]) -> dict[int, float]:
        """The time of each stage of a nest, by its number."""
        seen = self.seen(stages)
        factors = 1.0 if self.network is None else self.network.factors(seen.algorithm, seen.schedule)
        return dict(zip((f.node.index for f in stages), (seen.terms * factors).sum(1).tolist(), strict=True))

    def sample(self, nests: Iterable[Sequence[StageFeatures]], seconds: float) -> Sample:
        """What the network learns from a schedule that was measured: all of its nests, and its time."""
        seen = [self.seen(stages) for stages in nests]
        return Sample(
            np.concatenate([s.algorithm for s in seen]),
            np.concatenate([s.schedule for s in seen]),
            np.concatenate([s.terms for s in seen]),
            seconds,
        )

    def terms(self, f: StageFeatures) -> list[float]:
        """The terms of a stage in seconds, each with the coefficient of the machine."""
        node, v, target = f.node, f.values, self.machine.target
        hz = self.machine.clock_hz
        cores = self.machine.threads
        tasks = max(1.0, v["inner_parallelism"] * v["outer_parallelism"])
        # of so many tasks each core has as many, but for what is left over: real division
        speed = min(cores, tasks)
        waste = ceil(tasks / speed) / (tasks / speed)
        lanes = target.lanes(node.dtype)
        full = max(v["lane_utilization"], 1 / lanes)
        rate = hz * speed / waste
        # copies of the expression side by side: what no register holds is stored and loaded again
        live = v["unrolled_loop_extent"] * node.branching
        cycles = max(1.0, live / (HELD_SHARE * target.vector_registers)) / lanes / full / target.fma_per_cycle
        levels = target.memory
        bandwidths = [levels[min(n, len(levels) - 1)].bandwidth for n in (1, 2, 3)]
        shared = v["innermost_bytes_at_task"] < 64 and v["inner_parallelism"] > 1
        return [
            (v["instructions"] - v["inlined_work"]) * cycles / rate,
            v["inlined_work"] * cycles / rate,
            (v["loop_turns"] * TURN_CYCLES + v["num_productions"] * PRODUCTION_CYCLES) / rate,
            v["vector_loads"] / full / LOADS_PER_CYCLE / rate,
            v["apart_loads"] / APART_PER_CYCLE / rate,
            v["scattered_loads"] / SCATTERED_PER_CYCLE / rate,
            v["vector_stores"] / full / STORES_PER_CYCLE / rate,
            v["l2_bytes_read"] / bandwidths[0] / rate,
            v["l3_bytes_read"] / bandwidths[1] / rate,
            (v["memory_bytes_read"] + self._written(v)) / bandwidths[2] / hz,
            (v["l3_runs_read"] * RUN_CYCLES[0] + v["memory_runs_read"] * RUN_CYCLES[1]) / rate,
            v["num_realizations"] * ALLOCATION_CYCLES / rate,
            self._parallelism(v) / hz,
            self._overflow(v) / bandwidths[1] / rate,
            v["num_scalars"] / hz if shared else 0.0,
        ]

    def _parallelism(self, v: Mapping[str, float]) -> float:
        """Cycles to start the threads and their tasks."""
        tasks = v["inner_parallelism"]
        return (FORK_CYCLES if tasks > 1 else 0.0) + tasks * TASK_CYCLES / self.machine.threads

    def _written(self, v: Mapping[str, float]) -> float:
        """Bytes of a result that goes to memory: those of producers inside of a nest stay in caches."""
        last = max((level.size for level in self.machine.target.memory if level.size is not None), default=0)
        inside = v["outer_parallelism"] > 1 or v["bytes_at_realization"] < v["bytes_at_root"]
        return 0.0 if inside or v["bytes_at_root"] <= last / 2 else 2 * v["bytes_stored"]

    def _overflow(self, v: Mapping[str, float]) -> float:
        """Bytes that a tile's working set has more than the second level, read again in each production."""
        levels = [level.size for level in self.machine.target.memory if level.size is not None]
        room = levels[min(1, len(levels) - 1)] if levels else 0
        return max(0.0, v["working_set_at_tile"] - room) * v["num_realizations"]
