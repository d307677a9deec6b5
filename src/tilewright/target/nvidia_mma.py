"""NVIDIA's matrix units: products of small matrices by all threads of a warp together (``mma.sync``).

Shapes and types: PTX ISA, "Matrix multiply-accumulate operation using mma instruction". A row says what *one
thread* of the warp gets of a product of 16 x 8 results: two rows, eight apart, of two neighbouring columns.
So sums are ordinary private buffers, and where no warp does it each thread computes its own four. The loop
over ``thread.x`` around it has 32 iterations, and thread ``t`` has rows ``t // 4`` and ``t // 4 + 8`` of the
warp's, columns ``2 * (t % 4)`` and the next; factors are in shared or global memory. Which of their elements
a thread really reads is the matter of the emitted text.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import BF16, F16, F32, I8, I32, U8, Binary, DType, tf32_rounded
from tilewright.target.instruction import Instruction, Placement, contraction, element, stage_of

#: Results of one thread of a warp.
THREAD_TILE: Final = (2, 2)

_PLACES: Final = tuple(
    (operand, Placement(strided=tuple(axes)))
    for operand, axes in (("result", "rc"), ("a", "rk"), ("b", "kc"))
)


def _mma(name: str, depth: int, a: DType, b: DType, total: DType, feature: str) -> Instruction:
    """``result[r, c] += a[r, k] * b[k, c]`` of a thread."""
    axes = (("r", THREAD_TILE[0]), ("c", THREAD_TILE[1]), ("k", depth))
    result, factors = element("result", "rc", total), (element("a", "rk", a), element("b", "kc", b))
    if F32 in (a, b):
        sums = Binary("add", result, Binary("mul", *map(tf32_rounded, factors)))
        stage = stage_of("product", axes, result, sums)
    else:
        stage = contraction(axes, result, *factors)
    return Instruction(
        name=name,
        stage=stage,
        placements=_PLACES,
        features=frozenset({feature}),
        latency=33,
        per_cycle=0.5,
        gathers=True,
    )


INSTRUCTIONS: Final = (
    _mma("mma_m16n8k16_f16", 16, F16, F16, F32, "mma_f16"),
    _mma("mma_m16n8k16_bf16", 16, BF16, BF16, F32, "mma_bf16"),
    _mma("mma_m16n8k8_tf32", 8, F32, F32, F32, "mma_tf32"),
    _mma("mma_m16n8k32_i8", 32, I8, I8, I32, "mma_i8"),
    _mma("mma_m16n8k32_u8i8", 32, U8, I8, I32, "mma_i8"),
    _mma("mma_m16n8k32_i8u8", 32, I8, U8, I32, "mma_i8"),
    _mma("mma_m16n8k32_u8", 32, U8, U8, I32, "mma_i8"),
)
"""Products of numbers of 16 bits and of bytes; of f32 as far as TF32 has their digits."""
