"""AArch64 with Advanced SIMD (NEON): 32 vector registers of 128 bits, no masks.

Figures: Arm Neoverse N1 Software Optimization Guide (PJDOC-466751330-9707) and Neoverse N1 Core Technical
Reference Manual; those of the N1 stand for the class.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import BF16, F32, I8, I32
from tilewright.target.model import CACHE_LINE, Instruction, MemoryLevel, Operand, Target

KIB: Final = 1024

SDOT: Final = Instruction(
    name="sdot",
    axes=(("lane", 4), ("k", 4)),
    result=Operand(name="result", dtype=I32, axes=("lane",)),
    a=Operand(name="a", dtype=I8, axes=("lane", "k")),
    b=Operand(name="b", dtype=I8, axes=("lane", "k")),
    emitter="llvm.aarch64.neon.sdot.v4i32.v16i8",
    features=frozenset({"dotprod"}),
    latency=4,
    per_cycle=2,
    lanes=("lane",),
)
"""Four dot products of four signed bytes."""

BFMMLA: Final = Instruction(
    name="bfmmla",
    axes=(("i", 2), ("j", 2), ("k", 4)),
    result=Operand(name="result", dtype=F32, axes=("i", "j")),
    a=Operand(name="a", dtype=BF16, axes=("i", "k")),
    b=Operand(name="b", dtype=BF16, axes=("j", "k")),
    emitter="llvm.aarch64.neon.bfmmla",
    features=frozenset({"bf16"}),
    latency=5,
    per_cycle=2,
)
"""A 2x4 by 4x2 product of bf16 matrices, accumulated in f32."""

INSTRUCTIONS: Final = (SDOT, BFMMLA)

AARCH64_NEON: Final = Target(
    name="aarch64_neon",
    arch="aarch64",
    units=4,
    vector_registers=32,
    vector_bits=128,
    preferred_vector_bits=128,
    fma_per_cycle=2,
    fma_latency=4,
    masked=False,
    memory=(
        MemoryLevel(name="l1", size=64 * KIB, line=CACHE_LINE, latency=5, bandwidth=32),
        MemoryLevel(name="l2", size=1024 * KIB, line=CACHE_LINE, latency=11, bandwidth=32),
        MemoryLevel(name="l3", size=8 * KIB * KIB, line=CACHE_LINE, latency=60, bandwidth=16, shared_by=4),
        MemoryLevel(name="memory", size=None, line=CACHE_LINE, latency=250, bandwidth=6, shared_by=4),
    ),
    instructions=(SDOT,),
    llvm_triple="aarch64-unknown-linux-gnu",
    llvm_cpu="neoverse-n1",
    features=frozenset({"neon", "fp-armv8", "dotprod", "fullfp16"}),
)
"""A generic machine of this class: two 128-bit FMA pipes, the caches of a server core."""
