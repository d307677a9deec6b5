"""NVIDIA's matrix units from Hopper on: products by the 128 threads of a warpgroup together (``wgmma``).

Shapes and types: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". As of ``mma.sync`` a row says
what *one thread* gets of a product of 64 x n results: two rows, eight apart, and of every eight columns two
neighbours. Thread ``t`` has rows ``16 * (t // 32) + t % 32 // 4`` and eight more, columns ``2 * (t % 4)`` and
the next of each eight. Factors lie in shared memory in rows of 128 bytes, turned by the swizzle that
``cp.async.bulk.tensor`` writes; of types but f16 and bf16 both lie along the sums.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import BF16, F16, F32, Binary, DType, tf32_rounded
from tilewright.target.instruction import Instruction, Placement, contraction, element, stage_of

#: Threads of a warpgroup.
WARPGROUP: Final = 128
#: Rows and columns of all threads' results, for each step of columns; a thread has two by two of those.
TILE: Final = (64, 8)
#: Columns of an instruction: all multiples of 8 up to this.
MOST_COLUMNS: Final = 256
#: Bytes of the terms of an instruction.
DEPTH_BYTES: Final = 32
FEATURE: Final = "wgmma"

_PLACES: Final = (
    ("result", Placement(strided=("r", "j", "c"), overlapping=("j", "c"))),
    ("a", Placement(strided=("r", "k"))),
    ("b", Placement(strided=("k", "j", "c"), overlapping=("j", "c"))),
)


def _wgmma(columns: int, kind: str, dtype: DType) -> Instruction:
    """``result[r, j, c] += a[r, k] * b[k, j, c]`` of a thread."""
    depth = DEPTH_BYTES // dtype.bytes
    axes = (("r", 2), ("j", columns // TILE[1]), ("c", 2), ("k", depth))
    result, a, b = element("result", "rjc", F32), element("a", "rk", dtype), element("b", "kjc", dtype)
    if dtype == F32:
        product = Binary("mul", *map(tf32_rounded, (a, b)))
        stage = stage_of("product", axes, result, Binary("add", result, product))
    else:
        stage = contraction(axes, result, a, b)
    return Instruction(
        name=f"wgmma_m64n{columns}k{depth}_{kind}",
        stage=stage,
        placements=_PLACES,
        features=frozenset({FEATURE}),
        # Luo et al., arXiv:2402.13499: 128 cycles of m64n256k16, less in proportion, from shared memory
        latency=max(16.0, columns / 2),
        per_cycle=2 / columns,
        gathers=True,
        threads=WARPGROUP,
    )


INSTRUCTIONS: Final = tuple(
    _wgmma(columns, kind, dtype)
    for kind, dtype in (("f16", F16), ("bf16", BF16), ("tf32", F32))
    for columns in range(TILE[1], MOST_COLUMNS + 1, TILE[1])
)
"""Products of numbers of 16 bits, and of f32 as far as TF32 has their digits."""
