"""What a product of matrices by a GPU's matrix units costs: tiles of blocks and of warps.

As by multiply-adds of threads (``gpu_product``), but for what starts instructions: a multiprocessor's matrix
units do ``tensor_per_cycle`` multiply-adds of f16, twice as many of bytes, half as many of TF32 (NVIDIA's
architecture papers, as in ``target/nvidia.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.cost.gpu_product import MOST_COPIED, OTHER_REGISTERS, STEP_OVERHEAD, ProductSize, StepWork
from tilewright.target import GpuTarget

#: Rows and columns of a warp's product, and the bytes of terms that it sums.
UNIT_TILE: Final = (16, 8)
UNIT_BYTES: Final = 32
#: Bytes of a register.
WORD: Final = 4
#: Bytes of a copy.
COPY_BYTES: Final = 16
#: Bytes between rows of a slice, so that neighbours along a column are in other banks.
ROW_PAD: Final = 16
#: Cycles until a unit's result can be used (Luo et al., arXiv:2402.13499: 33 on A100 for m16n8k16).
UNIT_LATENCY: Final = 33


@dataclass(frozen=True, slots=True)
class WarpTiles:
    """A tile of a block, ``rows`` x ``columns`` in steps of ``depth``, and of each of its warps.

    >>> WarpTiles(128, 128, 32, 64, 32, 2).threads
    256
    """

    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    stages: int = 1

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def fragments(self) -> int:
        """Registers of a thread that hold factors of a warp's tile, for one product along the sums."""
        down, across = UNIT_TILE
        return self.warp_rows // down * 4 + self.warp_columns // across * 2

    @property
    def registers(self) -> int:
        """Registers of a thread, about: its sums, factors, what it copies, addresses."""
        sums = self.warp_rows * self.warp_columns // 32
        words = -(-(self.rows + self.columns) * self.depth // (2 * self.threads))
        return sums + max(2 * self.fragments, min(words, MOST_COPIED)) + OTHER_REGISTERS

    def shared_bytes(self, element: int) -> int:
        """Bytes of shared memory of a block, at most: whichever way slices lie."""
        slices = (self.rows + self.columns) * self.depth * element
        return self.stages * (slices + ROW_PAD * max(self.rows + self.columns, 2 * self.depth))

    def work(self, size: ProductSize, target: GpuTarget) -> StepWork:
        """What a block does in a step: products of warps, reads of factors, copies."""
        element = size.element
        along = -(-self.depth * element // UNIT_BYTES)
        down, across = UNIT_TILE
        products = self.warp_rows // down * (self.warp_columns // across)
        # a fragment of the first factor is one read; the second's as well of numbers of two bytes, which
        # may be turned; others lie across what a register takes, mostly: element by element
        first, second = self.warp_rows // down, self.warp_columns // across
        each_second = 1 if element == WORD // 2 else 2 * (WORD // element)
        reads = first + second * each_second
        words = first * 4 + second * max(2, each_second)
        each, width = self.depth / self.threads, COPY_BYTES // element
        copies = size.copy_instructions(self.rows * each, self.columns * each, (width, width))
        per_cycle = target.tensor_per_cycle * 2 / element
        return StepWork(
            self.warps,
            along * (products + reads) + copies + STEP_OVERHEAD,
            along * (UNIT_LATENCY + target.level("shared").latency),
            along * words * self.warps * 32 * WORD,
            (self.rows + self.columns) * each / width,
            self.rows * self.columns * self.depth / per_cycle,
        )
