"""Methods of a schedule for the primitives for blocks of threads (``schedule/gpu/``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tilewright.schedule.methods import Methods


class GpuMethods(Methods):
    """Primitives for blocks of threads. Each is documented in the file of its name."""

    __slots__ = ()

    def cooperative_copy(self, block: str, threads: Sequence[int], *, vector: int = 1) -> Self:
        """Share the copies of a tile among the threads of a block."""
        return self.apply("cooperative_copy", block, threads, vector=vector)

    def pipeline(self, loop: str, stages: int) -> Self:
        """Fill tiles for later iterations while one computes."""
        return self.apply("pipeline", loop, stages)

    def pad_stride(self, buffer: str, elements: int) -> Self:
        """Keep the rows of a tile further apart than they are long."""
        return self.apply("pad_stride", buffer, elements)

    def swizzle(self, buffer: str, groups: int, *, vector: int = 1, rows: int = 1) -> Self:
        """Store the groups of each row of a tile in another order."""
        return self.apply("swizzle", buffer, groups, vector=vector, rows=rows)

    def virtual_threads(self, loops: Sequence[str], axis: str, count: int) -> Self:
        """Give the iterations of loops to fewer threads, in turn."""
        return self.apply("virtual_threads", loops, axis, count)
