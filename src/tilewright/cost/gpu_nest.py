"""What a nest that memory decides costs on a GPU: bytes, and how many threads are there to wait for them."""

from __future__ import annotations

from math import ceil
from typing import Final

from tilewright.cost.gpu_product import LAUNCH_SECONDS
from tilewright.cost.occupancy import occupancy
from tilewright.target import GpuTarget

#: Registers of a thread that moves elements and computes little (NVRTC: 16 to 40 for such kernels).
FEW_REGISTERS: Final = 32
#: Accesses that a thread has under way at once.
UNDER_WAY: Final = 2


def nest_seconds(
    target: GpuTarget,
    *,
    blocks: int,
    threads: int,
    turns: float,
    access_bytes: int,
    nbytes: int,
    shared_bytes: int = 0,
    barriers: int = 0,
    registers: int = FEW_REGISTERS,
    busy: float = 0.0,
) -> float:
    """Seconds of ``blocks`` of ``threads`` with ``turns`` accesses of ``access_bytes``.

    Memory serves as many bytes as threads ask for (Little's law: bandwidth x latency is under way); each turn
    and each barrier has its latency; a block keeps its multiprocessor ``busy`` for so many cycles. Infinite
    where a block does not fit.
    """
    held = occupancy(target, threads, registers, shared_bytes)
    if not held.blocks:
        return float("inf")
    memory, shared = target.memory[-1], target.level("shared")
    clock = target.clock_hz or 1e9
    resident = min(held.blocks, ceil(blocks / target.units))
    under_way = resident * threads * access_bytes * UNDER_WAY
    rate = min(memory.bandwidth, under_way / memory.latency)
    serving = min(blocks, target.units)
    waves = ceil(blocks / (held.blocks * target.units))
    latency = waves * (turns / UNDER_WAY * memory.latency + barriers * 2 * shared.latency)
    working = ceil(blocks / target.units) * busy
    return max(nbytes / (rate * serving), latency, working) / clock + LAUNCH_SECONDS
