"""The cost of a kernel on a GPU: Anderson et al.'s Appendix B, repaired, with the device's own coefficients.

Repairs: what is read per thread counts once a thread, transactions have coefficients, idle multiprocessors
by real division, no efficiency below a 32nd. Coefficients are the device's, each times what a network says of
the stage's features; without a network, once. Kernels do not overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Final

from tilewright.cost import LAUNCH_SECONDS, Machine
from tilewright.plan import StageGraph
from tilewright.strategies.beam.cost import CostModel
from tilewright.strategies.beam.features import StageFeatures
from tilewright.strategies.beam.gpu_features import GPU_FEATURES, TRANSACTION, gpu_features
from tilewright.strategies.beam.network import Network
from tilewright.strategies.beam.state import Kernel
from tilewright.target import GpuTarget

#: The terms of a stage's cost, in the order of their vector.
GPU_TERMS: Final = (
    "compute",
    "compute inlined",
    "global loads",
    "shared loads",
    "global stores",
    "shared stores",
    "memory",
    "registers",
    "realizations",
    "launch",
    "productions",
    "working set",
)
#: The least part of what is moved or of lanes that counts as used.
LEAST: Final = 1 / 32
#: Warps that a multiprocessor needs to hide what it waits for.
HIDING: Final = 8
#: Multiprocessor's cycles of a barrier around a producer in shared memory, and of a register that is kept.
BARRIER_CYCLES: Final = 40.0
KEPT_CYCLES: Final = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class GpuCostModel(CostModel):
    """Prices kernels on a device."""

    names: ClassVar[tuple[str, ...]] = GPU_TERMS
    described: ClassVar[tuple[str, ...]] = GPU_FEATURES

    def features(self, kernel: Kernel) -> tuple[StageFeatures, ...]:
        """The features of a kernel's stages."""
        return gpu_features(self.graph, kernel, self.machine)

    def terms(self, f: StageFeatures) -> list[float]:
        """The terms of a stage in seconds, each with the coefficient of the device."""
        target, v, node = self.machine.gpu, f.values, f.node
        hz = target.clock_hz or 1e9
        blocks = v["num_blocks"]
        # of so many blocks each multiprocessor has as many, but for what is left over: real division
        units = min(float(target.units), blocks)
        waste = ceil(blocks / units) / (blocks / units)
        resident = max(1.0, v["max_block_occupancy"] * target.blocks_per_unit)
        hidden = min(1.0, resident * v["num_warps_per_block"] / HIDING)
        rate = hz * units / waste * max(hidden, LEAST)
        lanes = max(1 - v["idle_lane_wastage"], v["warp_lane_utilization"], LEAST)
        cycles = 1 / target.fma_per_cycle / lanes / rate
        first, memory = target.memory[0], target.memory[-1]
        loaded = blocks * v["num_global_mem_loads_per_block"] * TRANSACTION
        stored = blocks * v["num_global_mem_stores_per_block"] * TRANSACTION
        fed = v["unique_global_bytes_read_per_realization"] if v["inner_parallelism"] > 1 else 0.0
        return [
            (v["num_scalars"] * node.work - v["inlined_work"]) * cycles,
            v["inlined_work"] * cycles,
            loaded / max(v["global_mem_load_efficiency"], LEAST) / (4 * memory.bandwidth) / rate,
            blocks * v["num_shared_mem_loads_per_block"] / rate,
            stored / max(v["global_mem_store_efficiency"], LEAST) / memory.bandwidth / rate,
            blocks * v["num_shared_mem_stores_per_block"] / rate,
            (self._read(f) + stored) / memory.bandwidth / (hz * units),
            fed * blocks / max(1.0, first.bandwidth) / rate,
            v["num_realizations"] * KEPT_CYCLES / rate,
            LAUNCH_SECONDS if v["num_productions"] == 1 else 0.0,
            v["num_productions"] * BARRIER_CYCLES / rate if 1 < v["num_productions"] <= blocks else 0.0,
            v["working_set_at_thread"]
            * v["num_threads_per_block"]
            * blocks
            * KEPT_CYCLES
            / rate
            / target.warp,
        ]

    def _read(self, f: StageFeatures) -> float:
        """Bytes that come from memory at least: whole buffers that no stage of the kernel keeps."""
        loads = f.values["num_blocks"] * f.values["num_global_mem_loads_per_block"] * TRANSACTION
        whole = sum(r.access.bytes for r in f.node.reads)
        return min(loads, float(whole))


def model_of(g: StageGraph, machine: Machine, network: Network | None = None) -> CostModel:
    """The cost model of a machine."""
    return (GpuCostModel if isinstance(machine.on, GpuTarget) else CostModel)(g, machine, network)
