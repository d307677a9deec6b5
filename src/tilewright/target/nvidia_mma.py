"""NVIDIA's matrix units: products of small matrices by all threads of a warp together (``mma.sync``).

Shapes and types: PTX ISA, "Matrix multiply-accumulate operation using mma instruction". An ``Exec`` of one is
the warp's: it stands outside of loops over ``thread.x``, along which a block has 32 threads. Its operands are
in shared or global memory; which thread holds what in registers is the matter of the emitted text.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import BF16, F16, F32, I8, I32, DType
from tilewright.target.instruction import Instruction, Placement, contraction, element


def _mma(name: str, depth: int, factor: DType, total: DType, feature: str) -> Instruction:
    """``result[i, j] += a[i, k] * b[k, j]`` of 16 x 8 results."""
    anywhere = {"result": ("i", "j"), "a": ("i", "k"), "b": ("k", "j")}
    return Instruction(
        name=name,
        stage=contraction(
            (("i", 16), ("j", 8), ("k", depth)),
            element("result", ("i", "j"), total),
            element("a", ("i", "k"), factor),
            element("b", ("k", "j"), factor),
        ),
        placements=tuple((operand, Placement(strided=axes)) for operand, axes in anywhere.items()),
        features=frozenset({feature}),
        latency=33,
        per_cycle=0.5,
    )


MMA_F16: Final = _mma("mma_m16n8k16_f16", 16, F16, F32, "mma_f16")
MMA_BF16: Final = _mma("mma_m16n8k16_bf16", 16, BF16, F32, "mma_bf16")
MMA_I8: Final = _mma("mma_m16n8k32_i8", 32, I8, I32, "mma_i8")

INSTRUCTIONS: Final = (MMA_F16, MMA_BF16, MMA_I8)
