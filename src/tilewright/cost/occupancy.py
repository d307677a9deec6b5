"""Occupancy: how many blocks of a kernel a multiprocessor holds, and what limits them.

After NVIDIA's occupancy calculator (CUDA C++ Programming Guide, 5.2.3 and 16.x; Nsight Compute, "Occupancy
Calculator"): registers are given to warps in units of 256, warps to the four schedulers evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tilewright.target import GpuTarget

REGISTER_UNIT: Final = 256
"""Registers that a warp gets at a time."""
SCHEDULERS: Final = 4
"""Parts of a multiprocessor, each with a quarter of its registers and warps."""
RESERVED_SHARED: Final = 1024
"""Bytes of shared memory that the system takes of each block."""

Limit = Literal["blocks", "threads", "registers", "shared memory"]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks on a multiprocessor, the part of its threads that are theirs, and what allows no more."""

    blocks: int
    fraction: float
    limit: Limit

    def waves(self, grid: int, target: GpuTarget) -> float:
        """How often all multiprocessors are filled by so many blocks."""
        return grid / max(1, self.blocks * target.units)


def occupancy(target: GpuTarget, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """The occupancy of a kernel with ``threads`` a block, ``registers`` a thread and shared memory a block.

    Where a block does not fit at all, there are none of it.

    >>> from tilewright.target import A100
    >>> occupancy(A100, 256, 64, 8192)
    Occupancy(blocks=4, fraction=0.5, limit='registers')
    """
    warps = -(-threads // target.warp)
    of_a_warp = -(-max(1, registers) * target.warp // REGISTER_UNIT) * REGISTER_UNIT
    by_registers = target.registers_per_unit // SCHEDULERS // of_a_warp * SCHEDULERS // warps
    fits: dict[Limit, int] = {
        "blocks": target.blocks_per_unit,
        "threads": target.threads_per_unit // (warps * target.warp),
        "registers": by_registers if registers <= target.registers_per_thread else 0,
        "shared memory": (
            target.blocks_per_unit
            if not shared_bytes
            else target.shared_per_unit // min(shared_bytes + RESERVED_SHARED, target.shared_per_unit)
            if shared_bytes <= target.shared_per_block
            else 0
        ),
    }
    limit = min(fits, key=lambda name: fits[name])
    blocks = fits[limit]
    return Occupancy(blocks, blocks * warps * target.warp / target.threads_per_unit, limit)
