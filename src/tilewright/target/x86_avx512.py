"""x86-64 with AVX-512 (the level called x86-64-v4): 32 vector registers of 512 bits and 8 mask registers.

Figures: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), ch. 2; AMD Software
Optimization Guide for the Zen 4 (57647) and Zen 5 (58455) microarchitectures; A. Fog, Instruction tables.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tilewright.ir import BF16, F32, I8, I32, U8
from tilewright.target.model import CACHE_LINE, Instruction, MemoryLevel, Operand, Target

KIB: Final = 1024

VPDPBUSD: Final = Instruction(
    name="vpdpbusd",
    axes=(("lane", 16), ("k", 4)),
    result=Operand(name="result", dtype=I32, axes=("lane",)),
    a=Operand(name="a", dtype=U8, axes=("lane", "k")),
    b=Operand(name="b", dtype=I8, axes=("lane", "k")),
    emitter="llvm.x86.avx512.vpdpbusd.512",
    features=frozenset({"avx512vnni"}),
    latency=5,
    per_cycle=2,
    lanes=("lane",),
)
"""Sixteen dot products of four unsigned with four signed bytes; sums do not saturate."""

VDPBF16PS: Final = Instruction(
    name="vdpbf16ps",
    axes=(("lane", 16), ("k", 2)),
    result=Operand(name="result", dtype=F32, axes=("lane",)),
    a=Operand(name="a", dtype=BF16, axes=("lane", "k")),
    b=Operand(name="b", dtype=BF16, axes=("lane", "k")),
    emitter="llvm.x86.avx512bf16.dpbf16ps.512",
    features=frozenset({"avx512bf16"}),
    latency=6,
    per_cycle=1,
    lanes=("lane",),
)
"""Sixteen dot products of two bf16 pairs, accumulated in f32; subnormals count as zero."""

INSTRUCTIONS: Final = (VPDPBUSD, VDPBF16PS)

X86_AVX512: Final = Target(
    name="x86_avx512",
    arch="x86_64",
    units=8,
    vector_registers=32,
    vector_bits=512,
    preferred_vector_bits=512,
    fma_per_cycle=2,
    fma_latency=4,
    masked=True,
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

FMA_PER_CYCLE: Final = MappingProxyType(
    {"znver4": 1.0, "znver5": 2.0, "icelake-client": 1.0, "tigerlake": 1.0}
)
"""Full-width FMAs a cycle by LLVM's CPU name, where not two. Zen 4 runs them over two cycles on 256-bit
pipes.
"""

RATES: Final = MappingProxyType(
    {
        ("znver5", "vdpbf16ps"): 2.0,
        ("sapphirerapids", "vdpbf16ps"): 0.5,
        ("emeraldrapids", "vdpbf16ps"): 0.5,
    }
)
"""Instructions that start in a cycle by LLVM's CPU name and their own, where not the table's.

Measured on Zen 5 and Emerald Rapids, of f32's peak: 2.0 and 0.49.
"""

BANDWIDTHS: Final = MappingProxyType(
    {
        "znver4": (64.0, 32.0, 16.0, 6.0),
        "znver5": (128.0, 64.0, 16.0, 6.0),
        "emeraldrapids": (128.0, 45.0, 10.0, 6.0),
    }
)
"""Bytes a cycle of L1, L2, L3 and memory by LLVM's CPU name, where not the table's."""

FAR_REQUESTS: Final = MappingProxyType({"znver4": (2, 4), "znver5": (0, 0), "emeraldrapids": (0, 0)})
"""How often to ask ahead for lines of main memory by LLVM's CPU name, where not the table's.

Zen 4 drops requests that find no room among the pending ones. Of reading, 8448x2816 by 4 columns reached
47, 54, 79, 86% with 1 to 4 requests, by one column 76, 84, 86, 93%; 6144x2048, of which the last level keeps
a part, 54, 66, 68, 56% and 81, 77, 72, 66%; 4x1024x65536 68, 80, 90, 96%. On Zen 5 each costs: 7680x2560 by
one column took 0.52, 0.63, 0.97 ms with 0, 1, 2 requests where the last level kept the matrix, reading 0.51;
1x4096x4096 0.43, 0.53, 0.69, reading 0.36; from memory they made no difference. Emerald Rapids: 1 to 4
columns of 25 to 67 MB 0 to 11% slower with 1 than with 0, 2x4096x4096 5%; of 1 to 2 GB the same.
"""

LAST_LEVEL_SHARES: Final = MappingProxyType({"emeraldrapids": 5 * KIB * KIB, "znver4": 4 * KIB * KIB})
"""Bytes of the last cache level that each core brings, by LLVM's CPU name, where a guest sees all of it.

A guest of a few cores shares that level with all others of the socket. Emerald Rapids, 2 cores, 300 MiB
reported: lines read in random order take 42 ns of 4 MB, 77 of 8, 130 of 16 to 512 MB. Counting on all of it,
4096x4096 transposed took 12.4 ms, on the cores' share 4.3; 65536x1024x4 36.7 and 9.4; the product
4608x3000x1536 377 and 179. Zen 4, 2 of 8 cores that share 32 MiB, with the others at work: 22 ns of 4 and 8
MB, 160 of 16, 195 of 64; counting on the cores' share instead of all, the products 3072x1500x1024 68.7 ->
48.6 ms, 1024x3000x2048 92.4 -> 62.8, results of 13 MB transposed 1.40 -> 0.67. While the others rest, all of
it is there.
"""

LENT_LEVELS: Final = frozenset({"znver4"})
"""LLVM's names of the CPUs whose last cache level keeps more than the cores' share while others rest."""

PAGE_WALKS: Final = MappingProxyType({"emeraldrapids": 50.0})
"""Cycles of a line for its address, by LLVM's CPU name, where not the latency of the second TLB.

Emerald Rapids as a guest whose memory the host maps by 4 KiB, whatever the guest asks for: lines of 16384
pages, 1 MB, in random order 26.7 ns each, side by side 7.6.
"""

SHARED_ISSUE: Final = MappingProxyType({"sapphirerapids": (2.4, 1.75), "emeraldrapids": (2.4, 1.75)})
"""Instructions and loads a cycle while the core's other hardware thread works, by LLVM's CPU name.

A virtual CPU of Emerald Rapids is a hardware thread, the other one often another guest's. Multiply-adds of
registers alone ran at 160 to 175 GFLOP/s all the time; tiles in the first level, 64 steps, at 175 or, most of
the time, at 128 (14x2 and 7x2), 136 (7x3), 143 (9x3), 146 (6x4), 148 (5x5): all of them 2.4 instructions a
cycle. With all broadcasts as operands of multiply-adds the limit was 1.76 loads a cycle (14x2 137, 28x1 138).
"""

STORE_REQUESTS: Final = frozenset({"emeraldrapids"})
"""LLVM's names of the CPUs whose stores wait for lines one after the other, where these lie apart.

Emerald Rapids: 1000x1000 transposed in squares, by hand, 409 us; with the result's lines asked for, to be
written, 64 elements ahead 214; copying takes 143.
"""

GAPS_LEVELS: Final = MappingProxyType({"sapphirerapids": 2, "emeraldrapids": 2})
"""The cache level for lines that are asked for with gaps between, by LLVM's CPU name, where not the table's.

Strided 1x1 convolutions, 28 images, of which each line is asked for a row ahead (``strategies/ahead.py``), in
turns: into the second instead of the first level 256-128 at 56 pixels 8.89 -> 8.16 ms, 512-1024 at 28 29.2 ->
27.8, 256-512 at 56 30.6 -> 30.0. On Zen 4 the second level gains nothing.
"""

NEXT_BLOCKS: Final = frozenset({"emeraldrapids"})
"""LLVM's names of the CPUs on which a tile's rows are best asked for a block of channels ahead.

Emerald Rapids while the core is shared: with half of the scheduler's entries, multiply-adds that wait for
the second cache level fill it in about 20 cycles, at the start of each block. 1x1 layers of ResNet-50, 28
images, the next block asked for into the first level, against the next row into the second, in turns: 0.93 to
0.97 of the time with 14 rows, 0.89 to 0.95 with 7; both requests 0.98 to 1.04, none 0.95 to 1.12.
"""

FAR_CHUNKS: Final = frozenset({"emeraldrapids"})
"""LLVM's names of the CPUs that take rows from main memory faster in chunks of the columns they share.

Emerald Rapids, 4 columns, ms: 512x4x500000 48.4 -> 39.4, 6144x4x2048 1.40 -> 1.33, 8448x4x2816 2.99 -> 2.61,
7680x4x2560 2.03 -> 1.93; on Zen 4 requests for the rows do as well (`strategies/lane_chunks.py`).
"""

PAST_SHARES: Final = MappingProxyType({"znver5": 0.5})
"""Part of the last cache level from which on results go past it, by LLVM's CPU name, where not all of it.

Zen 5, 32 MiB that others use too, results past the caches from 16 MiB on in place of 32, in turns: depthwise
3x3 16x32 at 112 pixels (26 MB) 0.63 to 0.74 of the time; of the peak ResNet-50's 1x1 64-64 at 56 pixels, 28
images (22 MB) 0.83 -> 0.92, 256-1024 at 14 0.92 -> 0.95, 3x3 64-64 0.95 -> 0.97; models with 16 images 1.00
to 1.01. From 8 MiB on: 0.48 of the time of 13 MB transposed, but ResNet-18 with 16 images 1.06.
"""
