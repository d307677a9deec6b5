"""NVIDIA's reductions over the threads of a warp: by shuffles of registers (``shfl.sync``).

An ``Exec`` of one is the warp's, as those of matrix units are: each thread reads one element, and after five
exchanges the first one adds what came of all to the result. Exchanges and latencies: CUDA C++ Programming
Guide, "Warp Shuffle Functions"; Luo et al., arXiv:2402.13499.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import F32, I32, Binary, DType
from tilewright.target.instruction import Instruction, Placement, element, stage_of

WARP: Final = 32


def _reduction(op: str, dtype: DType) -> Instruction:
    """``result = op(result, a[l])`` over 32 elements."""
    result = element("result", (), dtype)
    value = Binary(op, result, element("a", ("l",), dtype))
    return Instruction(
        name=f"warp_{op}_{dtype.name}",
        stage=stage_of("reduced", (("l", WARP),), result, value),
        placements=(("a", Placement(strided=("l",))),),
        latency=5 * 25,
        per_cycle=1 / 5,
    )


INSTRUCTIONS: Final = tuple(_reduction(op, dtype) for dtype in (F32, I32) for op in ("add", "max", "min"))
"""Sums and extremes of a warp."""
