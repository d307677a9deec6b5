"""Register tiles: which contractions have one, and of what shape, by an analytic model of the vector unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tilewright.analysis import Contraction, match_contraction, row_axis, run_length
from tilewright.cost import HELD_SHARE, PANEL_SHARE, first_ways, last_cache, rows_collide, second_cache
from tilewright.ir import I32, Load, Program, Stage
from tilewright.plan.contraction.instructions import stored_for_instruction, tile_of
from tilewright.support import ScheduleError
from tilewright.target import Target

#: Vector loads and broadcasts that can start in one cycle, for each fused multiply-add that can.
LOADS_PER_FMA: Final = 2.0
#: The part of a vector that columns of whole numbers fill at least, as a divisor. 500 rows of 64, us:
#: 8 columns 64 -> 4, 4 columns 17 -> 2.8, 3 columns 4.2; of 2 single products take 8.5.
LEAST_FILLED: Final = 8
#: Reduction steps between loop overheads of a micro-kernel: loop counter, jump and address updates.
LOOP_OVERHEAD_CYCLES: Final = 1.0
#: Registers besides accumulators and vectors, so that LLVM spills none (measured): multiply-adds of AVX-512
#: can take a broadcast from memory; elsewhere loads are scheduled ahead of their use, into registers.
SPARE_WITH_BROADCASTS: Final = 1
SPARE_ELSEWHERE: Final = 3

#: Part of the time to read weights from memory that products do not hide where panels are not asked for.
SHOWN: Final = 0.5

#: What partial tiles cost beyond their cycles: code of their own, and loops that do not fuse.
PARTIAL_TILE_FACTOR: Final = 1.02
#: How many of a panel's lines that have left the second cache level the model counts.
LEFT: Final = 1 / 32
#: Elements that lanes may lie apart in a reduction of one operand, or of groups.
MOST_APART: Final = 4
#: Lanes of a vector that holds a whole short row, at least.
FEWEST_LANES: Final = 4
#: Vectors of a reduction, over all its axes, from which on it pays to sum up in lanes.
VECTORS_OF_SUMS: Final = 2
#: Rows of a tile, at most.
MAX_ROWS: Final = 14
#: Vectors of a tile.
VECTORS: Final = (1, 2, 3, 4)
#: Rows of a band of tiles along rows, at most: as fast as 14 from the caches, each is a stream of its own.
BAND: Final = 7
#: The same where values come from memory: 4, 7 and 14 rows of 16x32x112x112 took 1.4, 1.6, 2.3 ms.
STREAMED_BAND: Final = 4
#: Taps along the rows of a tile whose elements fit into registers beside as many rows as there may be.
KEPT_TAPS: Final = 3


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
    panel: tuple[int, int] | None = None,
    stall: float = 0.0,
) -> RegisterTile:
    """The tile that needs the fewest cycles per reduction step for the whole result.

    ``row_extent`` is the extent of the tiled m axis, ``vector_extent`` the vectors along n, ``vector_counts``
    the allowed numbers of them in a tile (a partial tile counts as a full one). With ``broadcast`` each row
    costs a load of its own per step. ``groups`` are rows that a tile must not cross: its rows divide that.
    ``panel`` are the bytes of weights that one vector reads in the whole reduction, and how often each is
    used with other rows: where the second cache level does not hold two panels, the next one cannot be asked
    for meanwhile, and products wait for memory.
    ``stall`` are cycles that a step waits for each of its vectors.

    Raises ScheduleError where no number of vectors is allowed: blocks of weights that no group is made of.
    """
    best: RegisterTile | None = None
    for vectors in vector_counts:
        waits = 0.0 if panel is None else _waiting(target, vectors, vector_extent, *panel)
        limit = min(max_rows, row_extent, rows_in_registers(target, vectors, broadcast))
        for rows in range(1, max(1, limit) + 1):
            if groups is not None and groups % rows:
                continue
            if stall and rows * -(-row_extent // rows) - row_extent >= -(-row_extent // rows):
                # as many tiles of fewer rows: a small one waits as long as the others
                continue
            whole, tail = divmod(row_extent, rows)
            wait = stall * vectors
            cost = whole * (_step(target, rows, vectors, broadcast) + wait)
            if tail:
                cost = (cost + _step(target, tail, vectors, broadcast) + wait) * PARTIAL_TILE_FACTOR
            cost = cost * -(-vector_extent // vectors) + waits
            if (
                best is None
                or cost < best.cycles - 1e-9
                or (abs(cost - best.cycles) < 1e-9 and rows > best.rows)
            ):
                best = RegisterTile(rows, vectors, cost)
    if best is None:
        raise ScheduleError(
            f"no register tile of {vector_extent} vectors has {vector_counts} of them",
            hint="lay constants out in blocks that divide those of groups",
        )
    return best


def rows_in_registers(target: Target, vectors: int, broadcast: bool) -> int:
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


def _waiting(target: Target, vectors: int, vector_extent: int, nbytes: int, uses: int) -> float:
    """Cycles of a reduction step in which all of its weights come from memory, for one of so many ``uses``.

    0 where the next panel of ``vectors`` vectors can be asked for while the present one is used.
    """
    if 2 * vectors * nbytes <= HELD_SHARE * second_cache(target):
        return 0.0
    return SHOWN * vector_extent * target.preferred_vector_bits / 8 / target.memory[-1].bandwidth / uses


def is_tileable(
    program: Program, stage: Stage, target: Target, last: Stage | None = None, *, packed: bool = True
) -> Contraction | None:
    """The contraction of a stage that this rule can schedule, else ``None``.

    With ``packed`` its vector axis must already move both operands by single elements; without, ``b`` may be
    laid out in any way.
    """
    if not all(it.extent.is_const for s in (stage, last or stage) for it in s.iters):
        return None
    if stage.init is None:
        # an update goes on with what is there: its tile is not defined in registers first
        return None
    c = match_contraction(program, stage, last)
    if c is None:
        return None
    c = stored_for_instruction(c, target)
    total = c.write.value.dtype
    if not total.is_float and total != I32 and (c.b is not None or total.kind == "bool"):
        return None
    lanes = vector_width(c, target)
    if c.group is not None and c.group % lanes:
        return None
    if c.group is not None and packed and c.b is not None and c.group % (run_length(c.b, c.vector) or lanes):
        # weights that lie in wider blocks than the channels of a group
        return None
    for ld in (c.a if c.group is None else None, c.b if packed else None):
        if ld is None or not any(c.vector in i.vars for i in ld.indices):
            continue
        run = run_length(ld, c.vector)
        alone = c.vector in c.axes("batch") and (c.b is None or c.vector not in _moving(c.b))
        alone = alone or (ld is c.b and c.rows is not None) or _short_row(c, lanes)
        if alone and 1 < ld.indices[-1].coefficient(c.vector) <= MOST_APART:
            # a strided window, of one operand or of small groups: lanes picked from whole vectors
            continue
        if run is not None and run % lanes:
            return None
        if run == 0:
            return None
    filled = min(c.extent(c.vector), c.run or lanes)
    # half of the smallest part of a vector may be empty where there are columns beside a row of two; where
    # nothing else has columns, blocks of channels are faster for small images
    part = lanes == FEWEST_LANES < target.lanes(total) and c.vector in c.axes("n")
    # sums of whole numbers have no other rule: vectors along the reduction are of floats
    few = not total.is_float and c.b is not None and c.vector in c.axes("n")
    least = LEAST_FILLED if few else 2
    return c if filled * least > lanes or (part and filled * 2 == lanes) else None


def _moving(ld: Load) -> frozenset[str]:
    """The iterators that a load moves with."""
    return frozenset(v for i in ld.indices for v in i.vars)


def _short_row(c: Contraction, lanes: int) -> bool:
    """Whether vectors run along a row of at most one of ``lanes``, which the second operand does not have.

    As where each group of a convolution makes one result. Where images may lie side by side, as in depthwise
    convolutions, they are columns beside the row: blocks of channels take those.
    """
    if c.b is None or c.vector in c.axes("n") or c.extent(c.vector) > lanes:
        return False
    images = [a for a in c.axes("batch") if a != c.vector]
    return not any(i.as_var() in images for i in c.a.indices)


def vector_width(c: Contraction, target: Target) -> int:
    """Lanes of the vectors along the contiguous axis of the result; columns of a matrix."""
    matrix = tile_of(c)
    if matrix is not None:
        return matrix.columns
    lanes = target.lanes(c.write.value.dtype)
    if c.run is not None:
        return min(lanes, c.run)
    if c.group is not None:
        # the part of a vector that a group is made of
        while lanes > FEWEST_LANES and c.group % lanes:
            lanes //= 2
        return lanes
    part = lanes
    while part > FEWEST_LANES and c.extent(c.vector) <= part // 2:
        part //= 2
    columns = math.prod(c.extent(axis) for axis in c.axes("n"))
    summed = math.prod(c.extent(axis) for axis in c.axes("k", "window"))
    if _short_row(c, lanes) or (
        c.vector in c.axes("n") and (columns >= 2 * part or summed < VECTORS_OF_SUMS * lanes)
    ):
        # the part of a vector that holds the row: there are more columns, as of a transposed convolution's
        # phases, or nothing besides, and sums too short to be in lanes
        return part
    return lanes


def choose_tile(c: Contraction, target: Target) -> RegisterTile:
    """Rows and vectors of the register tile: what packed panels say, else the model's choice."""
    matrix = tile_of(c)
    if matrix is not None:
        return RegisterTile(matrix.rows * matrix.row_tiles, matrix.column_tiles, 0.0)
    width = vector_width(c, target)
    whole = -(-c.extent(c.vector) // width)
    rows = row_axis(c)
    broadcast = c.vector in c.axes("n")
    stall = 0.0
    if not broadcast:
        counts: tuple[int, ...] = (1,)
    else:
        panel = run_length(c.b, c.vector) if c.b is not None else None
        counts = (max(1, panel // width),) if panel else tuple(v for v in VECTORS if v <= whole)
        if counts and rows_in_registers(target, counts[-1], broadcast) < 1:
            # no panel but the weights of a group, which lie together
            counts = VECTORS
        stall = 0.0 if panel else _stall(c, target)
        if c.run is not None and not panel:
            counts = tuple(v for v in counts if whole % v == 0)
        if c.group is not None:
            counts = tuple(v for v in counts if c.group % (v * width) == 0)
    most = _most_rows(c, target)
    if stall:
        # besides, rows that fit into a set of the first level
        apart = c.extent(c.axes("k")[0]) * c.a.dtype.bytes
        while rows_collide(most, apart, ways=first_ways(target)):
            most -= 1
    return register_tile(
        target, c.extent(rows) if rows else 1, whole, counts,
        max_rows=most, broadcast=broadcast, groups=c.rows if rows else None, panel=_panel(c, width),
        stall=stall,
    )  # fmt: skip


def _panel(c: Contraction, width: int) -> tuple[int, int] | None:
    """Bytes of weights that one vector reads, and how often; ``None`` where rows of one axis alone use them.

    Also for narrow weights: the instructions that sum up their products take longer than multiply-adds, and
    few rows of one vector would wait for them.
    """
    if c.b is None or c.b.dtype.bytes < c.write.value.dtype.bytes or c.vector in c.axes("batch"):
        return None
    uses = math.prod(c.extent(a) for a in c.axes("m") if a != row_axis(c))
    read = math.prod(c.extent(a) for a in c.axes("k", "window"))
    return (read * width * c.b.dtype.bytes, uses) if uses > 1 else None


def _stall(c: Contraction, target: Target) -> float:
    """Cycles that each step of a tile waits for a vector of ``b``, read in place, that has left its cache."""
    second = target.memory[1] if len(target.memory) > 2 else None
    if c.b is None or second is None or second.size is None or len(c.axes("k")) != 1 or c.axes("window"):
        return 0.0
    # two vectors, which begin anywhere in a line unless rows are whole lines
    apart = c.extent(c.vector) * c.b.dtype.bytes
    nbytes = 2 * target.preferred_vector_bits // 8 + (second.line if apart % second.line else 0)
    if c.extent(c.axes("k")[0]) * nbytes <= PANEL_SHARE * second.size:
        return 0.0
    return LEFT * nbytes / 2 / target.memory[2].bandwidth


def _most_rows(c: Contraction, target: Target) -> int:
    """Rows of a tile, at most: with what windows share in registers, and few streams to and from memory."""
    taps = math.prod(c.extent(a) for a in shared_windows(c))
    most = MAX_ROWS if taps <= KEPT_TAPS else min(MAX_ROWS, (target.vector_registers - taps) // 2 - 1)
    if c.run is not None or taps == 1:
        return most
    results = math.prod(it.extent.as_int() for it in c.stage.iters if it.kind == "par")
    far = results * c.write.value.dtype.bytes * 2 > last_cache(target)
    return min(most, STREAMED_BAND if far else BAND)


def shared_windows(c: Contraction) -> tuple[str, ...]:
    """The window axes by which rows of a tile read the same elements."""
    row = row_axis(c)
    if row is None or c.vector in c.axes("n"):
        return ()
    return tuple(a for a in c.axes("window") if any(a in i.vars and row in i.vars for i in c.a.indices))
