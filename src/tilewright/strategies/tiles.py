"""Register tiles by an analytic model of the machine's vector unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.target import Target

#: Vector loads and broadcasts that can start in one cycle, for each fused multiply-add that can.
LOADS_PER_FMA: Final = 2.0
#: Reduction steps between loop overheads of a micro-kernel: loop counter, jump and address updates.
LOOP_OVERHEAD_CYCLES: Final = 1.0
#: Registers besides accumulators and vectors, so that LLVM spills none (measured): multiply-adds of AVX-512
#: can take a broadcast from memory; elsewhere loads are scheduled ahead of their use, into registers.
SPARE_WITH_BROADCASTS: Final = 1
SPARE_ELSEWHERE: Final = 3

#: What partial tiles cost beyond their cycles: code of their own, and loops that do not fuse.
PARTIAL_TILE_FACTOR: Final = 1.02


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """``rows`` results along an m axis times ``vectors`` vectors along the n axes, held in registers."""

    rows: int
    vectors: int
    cycles: float


def register_tile(
    target: Target,
    row_extent: int,
    vector_extent: int,
    vector_counts: tuple[int, ...],
    *,
    max_rows: int = 28,
    broadcast: bool = True,
    groups: int | None = None,
) -> RegisterTile:
    """The tile that needs the fewest cycles per reduction step for the whole result.

    ``row_extent`` is the extent of the tiled m axis, ``vector_extent`` the vectors along n, ``vector_counts``
    the allowed numbers of them in a tile (a partial tile counts as a full one). With ``broadcast`` each row
    costs a load of its own per step. ``groups`` are rows that a tile must not cross: its rows divide that.
    """
    best: RegisterTile | None = None
    for vectors in vector_counts:
        limit = min(max_rows, row_extent, _rows_in_registers(target, vectors, broadcast))
        for rows in range(1, max(1, limit) + 1):
            if groups is not None and groups % rows:
                continue
            whole, tail = divmod(row_extent, rows)
            cost = whole * _step(target, rows, vectors, broadcast)
            if tail:
                cost = (cost + _step(target, tail, vectors, broadcast)) * PARTIAL_TILE_FACTOR
            cost *= -(-vector_extent // vectors)
            if (
                best is None
                or cost < best.cycles - 1e-9
                or (abs(cost - best.cycles) < 1e-9 and rows > best.rows)
            ):
                best = RegisterTile(rows, vectors, cost)
    assert best is not None
    return best


def _rows_in_registers(target: Target, vectors: int, broadcast: bool) -> int:
    """Rows of ``vectors`` vectors that fit beside what a reduction step loads."""
    if "avx512f" in target.features:
        return (target.vector_registers - SPARE_WITH_BROADCASTS - vectors) // vectors
    free = target.vector_registers - SPARE_ELSEWHERE - vectors
    # LLVM puts the sum where a broadcast that is used once was: accumulators change their registers at each
    # step (on AVX2 8 rows of one vector spilled, 59 GFLOP/s; 4 of two: 110)
    return free // 2 if broadcast and vectors == 1 else free // vectors


def _step(target: Target, rows: int, vectors: int, broadcast: bool) -> float:
    """Cycles of one reduction step: multiply-adds, loads, or the latency of dependent accumulation."""
    fma = rows * vectors / target.fma_per_cycle
    loads = (vectors + (rows if broadcast else 0)) / (LOADS_PER_FMA * target.fma_per_cycle)
    return max(fma, loads, float(target.fma_latency)) + LOOP_OVERHEAD_CYCLES / 4
