"""What products by instructions cost, beside multiply-adds of f32: rates and cycles."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from tilewright.ir import F32, Buffer, DType
from tilewright.mapping import LayoutNeed, PadNeed, Use
from tilewright.target import Instruction, Target

#: Instructions of a multiply-add of narrow integers: both are widened, multiplied, added.
WIDENED: Final = 4.0
#: The same of narrow floats, of which the vector is widened (Granite Rapids, bf16, 8x512x512: 38 us).
WIDENED_FLOATS: Final = 2.0
#: Cycles of as many elements as a vector has lanes of 32 bits, packed (Granite Rapids: 512x512 in 15 us).
PACKED: Final = 4.0


def product_rate(row: Instruction, target: Target) -> float:
    """Products of an instruction in the time of one multiply-add of f32."""
    return row.products * row.per_cycle / (target.fma_per_cycle * target.lanes(F32))


def products_rate(factor: DType, total: DType, target: Target) -> float:
    """How many times faster products of two such factors are than multiply-adds of f32, at least 1."""
    best = 1.0
    for row in target.contractions:
        types = {row.a.dtype, row.b.dtype}
        if types == {factor} and row.result.dtype == total:
            best = max(best, product_rate(row, target))
    return best


def is_fast(row: Instruction, target: Target) -> bool:
    """Whether an instruction's products are faster than multiply-adds of the same numbers."""
    return product_rate(row, target) * (1.0 if row.result.dtype.is_float else WIDENED) > 1


def multiply_add_cycles(count: int, factor: DType, total: DType, target: Target) -> float:
    """Cycles of so many multiply-adds one by one, in full vectors; factors are widened to ``total``."""
    narrow = WIDENED_FLOATS if total.is_float else WIDENED
    each = narrow if factor.bytes < total.bytes else 1.0
    return count * each / (target.fma_per_cycle * target.lanes(total))


def packing_cycles(b: Buffer, target: Target) -> float:
    """Cycles of putting a matrix into panels of groups: each vector of it is loaded, shuffled and stored."""
    elements = prod(e.as_int() if e.is_const else 0 for e in b.shape)
    return PACKED * elements / target.lanes(F32)


def selected_cycles(use: Use, tensors: Mapping[str, Buffer], target: Target) -> tuple[float] | None:
    """Cycles of a selected instruction, with packing at run time what it reads in groups of neighbours.

    All ``tensors`` are given at run time. ``None`` where multiply-adds one by one take fewer.
    """
    row = target.operations[use.instruction]
    found = execution_cycles(row, use.executions)
    for need in use.mapping.needs:
        if isinstance(need, LayoutNeed):
            found += packing_cycles(tensors[need.buffer], target)
        elif not isinstance(need, PadNeed):
            return None
    points = prod(it.extent.as_int() if it.extent.is_const else 1 for it in use.stages[0].iters)
    plain = multiply_add_cycles(points, row.b.dtype, row.result.dtype, target)
    return (found,) if found < plain else None


def execution_cycles(row: Instruction, count: float) -> float:
    """Cycles of so many executions of an instruction that do not wait for one another."""
    return count / row.per_cycle
