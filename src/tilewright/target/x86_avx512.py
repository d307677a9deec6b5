"""x86-64 with AVX-512 (the level called x86-64-v4): 32 vector registers of 512 bits and 8 mask registers.

Figures: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), ch. 2; AMD Software
Optimization Guide for the Zen 4 (57647) and Zen 5 (58455) microarchitectures; A. Fog, Instruction tables.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import BF16, F32, I8, I16, I32, U8
from tilewright.target.cpu import CpuTarget
from tilewright.target.instruction import Emission
from tilewright.target.lane_dots import lane_dot
from tilewright.target.model import CACHE_LINE, MemoryLevel

KIB: Final = 1024
_BITS: Final = (128, 256, 512)

VPDPBUSD: Final = lane_dot(
    "vpdpbusd",
    Emission(intrinsic="llvm.x86.avx512.vpdpbusd.{bits}", form="lanes", word="i32", bits=_BITS),
    16,
    U8,
    I8,
    I32,
    features=frozenset({"avx512vnni"}),
    latency=5,
    per_cycle=2,
)
"""Sixteen dot products of four unsigned with four signed bytes; sums do not saturate."""

VPDPWSSD: Final = lane_dot(
    "vpdpwssd",
    Emission(intrinsic="llvm.x86.avx512.vpdpwssd.{bits}", form="lanes", word="i32", bits=_BITS),
    16,
    I16,
    I16,
    I32,
    features=frozenset({"avx512vnni"}),
    latency=5,
    per_cycle=2,
)
"""Sixteen dot products of two signed 16-bit numbers; sums do not saturate."""

VDPBF16PS: Final = lane_dot(
    "vdpbf16ps",
    Emission(intrinsic="llvm.x86.avx512bf16.dpbf16ps.{bits}", form="lanes", word="bfloat", bits=_BITS),
    16,
    BF16,
    BF16,
    F32,
    features=frozenset({"avx512bf16"}),
    latency=6,
    per_cycle=1,
)
"""Sixteen dot products of two bf16 pairs, accumulated in f32; subnormals count as zero."""

INSTRUCTIONS: Final = (VPDPBUSD, VPDPWSSD, VDPBF16PS)

X86_AVX512: Final = CpuTarget(
    name="x86_avx512",
    arch="x86_64",
    units=8,
    vector_registers=32,
    vector_bits=512,
    preferred_vector_bits=512,
    fma_per_cycle=2,
    fma_latency=4,
    memory=(
        MemoryLevel(name="l1", size=32 * KIB, line=CACHE_LINE, latency=5, bandwidth=128),
        MemoryLevel(name="l2", size=1024 * KIB, line=CACHE_LINE, latency=14, bandwidth=48),
        MemoryLevel(name="l3", size=16 * KIB * KIB, line=CACHE_LINE, latency=60, bandwidth=12, shared_by=8),
        MemoryLevel(name="memory", size=None, line=CACHE_LINE, latency=300, bandwidth=4, shared_by=8),
    ),
    instructions=(VPDPBUSD,),
    llvm_triple="x86_64-unknown-linux-gnu",
    llvm_cpu="x86-64-v4",
    features=frozenset(
        {
            "avx512f",
            "avx512bw",
            "avx512cd",
            "avx512dq",
            "avx512vl",
            "avx512vnni",
            "avx2",
            "fma",
            "f16c",
            "bmi2",
        }
    ),
    functions=frozenset({"ldexp", "exp2_fraction"}),
)
"""A generic machine of this class: two 512-bit FMA pipes, the caches of a server core."""
