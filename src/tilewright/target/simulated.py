"""CPUs in place of GPUs: through PoCL, which runs OpenCL kernels on CPUs, and through C.

PoCL runs the threads of a block as loops on one core, vectors of them at once, so a compute unit is a core,
and shared memory lies in its caches (Jääskeläinen et al., pocl: A Performance-Portable OpenCL Implementation,
2015). Figures of caches are those of a server core (``x86_avx2.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.target.gpu import GIB, KIB, MIB, WIDE_ATOMICS, GpuTarget
from tilewright.target.model import MemoryLevel

POCL: Final = GpuTarget(
    name="pocl",
    arch="pocl",
    language="opencl",
    units=2,
    warp=8,
    threads_per_block=4096,
    threads_per_unit=4096,
    blocks_per_unit=1,
    registers_per_thread=255,
    registers_per_unit=1 << 20,
    shared_per_block=512 * KIB,
    shared_per_unit=512 * KIB,
    fma_per_cycle=16,
    features=frozenset({WIDE_ATOMICS}),
    memory=(
        MemoryLevel(name="registers", size=1 * KIB, line=32, latency=1, bandwidth=192, scope="register"),
        MemoryLevel(name="l1", size=32 * KIB, line=64, latency=5, bandwidth=64),
        MemoryLevel(name="shared", size=512 * KIB, line=64, latency=13, bandwidth=32, scope="shared"),
        MemoryLevel(name="l3", size=8 * MIB, line=64, latency=45, bandwidth=12, shared_by=2),
        MemoryLevel(
            name="memory", size=4 * GIB, line=64, latency=250, bandwidth=5, shared_by=2, scope="global"
        ),
    ),
)
"""A machine of two cores."""

SIMULATED: Final = replace(POCL, name="c", arch="c", language="c")
"""The same through C: a thread runs after the other, compiled by the system's compiler."""
