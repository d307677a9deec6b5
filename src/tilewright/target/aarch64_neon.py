"""AArch64 with Advanced SIMD (NEON): 32 vector registers of 128 bits, no masks.

Figures: Arm Neoverse N1 Software Optimization Guide (PJDOC-466751330-9707) and Neoverse N1 Core Technical
Reference Manual; those of the N1 stand for the class.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import BF16, F32, I8, I32
from tilewright.target.cpu import CpuTarget
from tilewright.target.instruction import Emission, Instruction, Placement, contraction, element
from tilewright.target.lane_dots import lane_dot
from tilewright.target.model import CACHE_LINE, MemoryLevel

KIB: Final = 1024
_BITS: Final = (64, 128)

SDOT: Final = lane_dot(
    "sdot",
    Emission(
        intrinsic="llvm.aarch64.neon.sdot.v{lanes}i32.v{elements}i8", form="lanes", word="i8", bits=_BITS
    ),
    4,
    I8,
    I8,
    I32,
    features=frozenset({"dotprod"}),
    latency=4,
    per_cycle=2,
)
"""Four dot products of four signed bytes."""

BFMMLA: Final = Instruction(
    name="bfmmla",
    stage=contraction(
        (("i", 2), ("j", 2), ("k", 4)),
        element("result", ("i", "j"), F32),
        element("a", ("i", "k"), BF16),
        element("b", ("j", "k"), BF16),
    ),
    placements=(
        ("result", Placement(strided=("i",))),
        ("a", Placement(strided=("i",), overlapping=("i",))),
        ("b", Placement(strided=("j",), overlapping=("j",))),
    ),
    emission=Emission(intrinsic="llvm.aarch64.neon.bfmmla", form="matrix", word="bfloat", bits=(128,)),
    features=frozenset({"bf16"}),
    latency=5,
    per_cycle=2,
)
"""A 2x4 by 4x2 product of bf16 matrices, accumulated in f32."""

INSTRUCTIONS: Final = (SDOT, BFMMLA)

AARCH64_NEON: Final = CpuTarget(
    name="aarch64_neon",
    arch="aarch64",
    units=4,
    vector_registers=32,
    vector_bits=128,
    preferred_vector_bits=128,
    fma_per_cycle=2,
    fma_latency=4,
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
