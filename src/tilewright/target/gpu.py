"""GPUs, and what is programmed like one: blocks of threads on multiprocessors, shared memory, registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tilewright.support import TargetError
from tilewright.target import nvidia_mma, nvidia_warp, nvidia_wgmma
from tilewright.target.instruction import Instruction
from tilewright.target.model import MemoryLevel, ParallelLevel, TargetBase

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
SECTOR: Final = 32
"""Bytes of a sector: the unit of transfer from memory and from the second cache level."""

WIDE_ATOMICS: Final = "int64_atomics"
"""The feature of an OpenCL device whose threads may update integers of 64 bits at once."""

Language = Literal["cuda", "opencl", "c"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTarget(TargetBase):
    """A device whose code is text in ``language``: CUDA C++, OpenCL C, or C99 for this CPU in its place.

    ``units`` are multiprocessors (OpenCL's compute units), ``warp`` the threads that run in step there.
    ``threads_per_block``, ``shared_per_block`` (bytes) and ``registers_per_thread`` limit a kernel,
    ``threads_per_unit``, ``blocks_per_unit``, ``shared_per_unit`` and ``registers_per_unit`` (of 32 bits)
    what is at work at once. Shared memory has ``banks`` of four bytes a cycle each. ``fma_per_cycle`` are
    f32 multiply-adds that a multiprocessor starts in a cycle, ``tensor_per_cycle`` those of f16 with f32
    sums in its matrix units (0: none). Bandwidths of ``memory`` are bytes a cycle for one multiprocessor;
    levels with a ``scope`` are those that programs choose.
    """

    language: Language
    warp: int
    threads_per_block: int
    threads_per_unit: int
    blocks_per_unit: int
    registers_per_thread: int
    registers_per_unit: int
    shared_per_block: int
    shared_per_unit: int
    fma_per_cycle: float
    tensor_per_cycle: float = 0.0
    banks: int = 32

    def __post_init__(self) -> None:
        # not super(): dataclasses with slots are made anew, and it would not find the class
        TargetBase.__post_init__(self)
        if (
            self.warp < 1
            or self.threads_per_block % self.warp
            or self.threads_per_unit < self.threads_per_block
        ):
            raise TargetError(
                f"target {self.name!r}: a multiprocessor holds at least one block, and a block whole warps"
            )
        if self.shared_per_block > self.shared_per_unit:
            raise TargetError(f"target {self.name!r}: a block has more shared memory than its multiprocessor")
        scopes = [level.scope for level in self.memory if level.scope]
        if scopes != ["register", "shared", "global"]:
            raise TargetError(
                f"target {self.name!r}: needs memory levels of the scopes register, shared and global, in "
                f"this order, not {', '.join(scopes) or 'none'}"
            )

    @property
    def parallel(self) -> tuple[ParallelLevel, ...]:
        """Blocks, threads of a block, and elements that one thread accesses at once (as bytes)."""
        return (
            ParallelLevel(kind="thread", count=self.units * self.blocks_per_unit, axis="block.x"),
            ParallelLevel(kind="thread", count=self.threads_per_block, axis="thread.x"),
            ParallelLevel(kind="vector", count=16),
        )

    @property
    def matrix_units(self) -> tuple[Instruction, ...]:
        """The instructions that add products of two matrices to a warp's results."""
        return tuple(row for row in self.instructions if row.gathers and row.threads == self.warp)

    @property
    def group_units(self) -> tuple[Instruction, ...]:
        """The instructions by which several warps together add products to their results."""
        return tuple(row for row in self.instructions if row.gathers and row.threads > self.warp)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the device's own memory."""
        size = self.memory[-1].size
        assert size is not None  # of scope global, which every table states
        return size


def nvidia_gpu(
    name: str,
    arch: str,
    *,
    units: int,
    clock_hz: float,
    fma_per_cycle: float,
    tensor_per_cycle: float,
    threads_per_unit: int,
    blocks_per_unit: int,
    shared_kib: tuple[int, int],
    l1_kib: int,
    l2_mib: float,
    memory_gib: float,
    bandwidth: float,
    latencies: tuple[float, float, float, float],
    features: frozenset[str] = frozenset(),
) -> GpuTarget:
    """An NVIDIA device by the figures in which they differ.

    ``shared_kib`` are those of a block and of a multiprocessor, ``bandwidth`` is bytes a second of the
    device's memory, ``latencies`` are cycles of shared memory, L1, L2 and memory. Common to all since Volta
    (CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"): 65536 registers,
    255 a thread, 1024 threads a block, 32 banks.
    """
    shared, l1, l2, far = latencies
    return GpuTarget(
        name=name,
        arch=arch,
        language="cuda",
        units=units,
        clock_hz=clock_hz,
        warp=32,
        threads_per_block=1024,
        threads_per_unit=threads_per_unit,
        blocks_per_unit=blocks_per_unit,
        registers_per_thread=255,
        registers_per_unit=1 << 16,
        shared_per_block=shared_kib[0] * KIB,
        shared_per_unit=shared_kib[1] * KIB,
        fma_per_cycle=fma_per_cycle,
        tensor_per_cycle=tensor_per_cycle,
        memory=(
            MemoryLevel(
                name="registers",
                size=256 * KIB,
                line=4,
                latency=1,
                bandwidth=12 * fma_per_cycle,
                scope="register",
            ),
            MemoryLevel(
                name="shared", size=shared_kib[1] * KIB, line=4, latency=shared, bandwidth=128, scope="shared"
            ),
            MemoryLevel(name="l1", size=l1_kib * KIB, line=128, latency=l1, bandwidth=64),
            MemoryLevel(
                name="l2", size=int(l2_mib * MIB), line=SECTOR, latency=l2, bandwidth=48, shared_by=units
            ),
            MemoryLevel(
                name="memory",
                size=int(memory_gib * GIB),
                line=SECTOR,
                latency=far,
                bandwidth=bandwidth / clock_hz / units,
                shared_by=units,
                scope="global",
            ),
        ),
        features=features,
        instructions=(
            *(row for row in nvidia_mma.INSTRUCTIONS if row.features <= features and arch != "sm_70"),
            *(row for row in nvidia_wgmma.INSTRUCTIONS if row.features <= features),
            *nvidia_warp.INSTRUCTIONS,
        ),
    )
