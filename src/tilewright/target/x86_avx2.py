"""x86-64 with AVX2 and FMA (the level called x86-64-v3): 16 vector registers of 256 bits, no mask registers.

Figures: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), ch. 2; AMD Software
Optimization Guide for the Zen 3 microarchitecture (56665); A. Fog, Instruction tables.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import I8, I32, U8
from tilewright.target.cpu import CpuTarget
from tilewright.target.instruction import Emission
from tilewright.target.lane_dots import lane_dot
from tilewright.target.model import CACHE_LINE, MemoryLevel

KIB: Final = 1024

VPDPBUSD_256: Final = lane_dot(
    "vpdpbusd",
    Emission(intrinsic="llvm.x86.avx512.vpdpbusd.{bits}", form="lanes", word="i32", bits=(128, 256)),
    8,
    U8,
    I8,
    I32,
    features=frozenset({"avxvnni"}),
    latency=5,
    per_cycle=2,
)
"""Eight dot products of four unsigned with four signed bytes, in the VEX encoding."""

INSTRUCTIONS: Final = (VPDPBUSD_256,)

X86_AVX2: Final = CpuTarget(
    name="x86_avx2",
    arch="x86_64",
    units=4,
    vector_registers=16,
    vector_bits=256,
    preferred_vector_bits=256,
    fma_per_cycle=2,
    fma_latency=4,
    memory=(
        MemoryLevel(name="l1", size=32 * KIB, line=CACHE_LINE, latency=5, bandwidth=64),
        MemoryLevel(name="l2", size=512 * KIB, line=CACHE_LINE, latency=13, bandwidth=32),
        MemoryLevel(name="l3", size=8 * KIB * KIB, line=CACHE_LINE, latency=45, bandwidth=12, shared_by=4),
        MemoryLevel(name="memory", size=None, line=CACHE_LINE, latency=250, bandwidth=5, shared_by=4),
    ),
    instructions=(),
    llvm_triple="x86_64-unknown-linux-gnu",
    llvm_cpu="x86-64-v3",
    features=frozenset({"avx2", "fma", "f16c", "bmi2"}),
)
"""A generic machine of this class: two 256-bit FMA pipes, the caches of a desktop core."""
