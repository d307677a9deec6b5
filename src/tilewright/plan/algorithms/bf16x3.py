"""Sums of f32 products by three bf16 products each: where instructions for whole matrices do those faster.

Measured on Granite Rapids, 2 cores, f32 against this: matrix products 512x1500x1536 6.6 -> 3.3 ms,
3072x1500x1024 24 -> 12; ResNet-50's 1x1 kernel 1024-256 at 14 pixels 306 -> 182 us, 3x3 256-256 at 14 pixels
by Winograd's method 317 -> 212.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import physical, row_axis
from tilewright.cost import Machine, bandwidth
from tilewright.ir import BF16, F32, Program, Stage
from tilewright.lang import SumMatch, match_sum
from tilewright.plan.algorithms.choice import PRODUCT_EFFICIENCY, with_weights
from tilewright.plan.contraction.instructions import InstructionUse, matrix_instruction, select_instruction
from tilewright.plan.contraction.matrix_tiles import products_cost
from tilewright.plan.contraction.padding import store_for_matrices
from tilewright.plan.contraction.precision import contraction_of
from tilewright.plan.contraction.sharing import sharing
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, get_logger
from tilewright.target import Target

_log = get_logger(__name__)

#: How much faster than the best other method the model must show this one to be, before it is chosen.
MARGIN: Final = 1.2
#: Cycles until threads have begun, and ended, to store pieces.
START_CYCLES: Final = 10_000.0
#: Cycles of one number whose neighbours along the reduction do not lie beside it.
GATHER_CYCLES: Final = 2.0


@dataclass(frozen=True, slots=True)
class Bf16x3Choice:
    """A schedule in which a sum's products are done by pieces, and the cycles of the sum so and directly."""

    schedule: Schedule
    cycles: float
    direct: float
    plan: None = None
    """The sum stays one stage, which is planned as others are."""
    stages: tuple[str, ...] = ()
    match: None = None

    def rewrite(self, s: Schedule, last: Stage | None) -> Schedule:
        """The program with products of pieces: it was made to be judged."""
        return self.schedule

    @property
    def gain(self) -> float:
        """Cycles that are surely saved; 0 where none are."""
        return max(0.0, self.direct - MARGIN * self.cycles)

    @property
    def saved(self) -> float:
        """Cycles that are saved by the model where the method is chosen; 0 where it is not."""
        return self.direct - self.cycles if self.gain > 0 else 0.0


def choose_bf16x3(
    s: Schedule, stage: Stage, machine: Machine, constants: Collection[str] = ()
) -> Bf16x3Choice | None:
    """The method for a stage of a program, ``None`` for stages that it cannot do."""
    target = machine.target
    if not target.tiles or matrix_instruction(BF16, target) is None:
        return None
    match = match_sum(s.require_program(), stage)
    if match is None or not (match.constant or _is_plain(match)):
        return None
    try:
        made = _in_pieces(s, match, target, constants, ())
        if made is not None and not match.constant:
            found = _matrix(made, stage, target)
            assert found is not None and found.tile is not None
            panels = (found.tile.columns * found.tile.column_tiles, found.group)
            made = _in_pieces(s, match, target, constants, panels)
    except ScheduleError as error:
        _log.info("stage %s: %s", stage.name, error.what)
        return None
    if made is None:
        return None
    now = made.require_program().stage(stage.name)
    if sharing(now, machine).threads != sharing(stage, machine).threads:
        # three products for each would start threads that the sum is not worth
        return None
    return Bf16x3Choice(made, *_cycles(s, made, match, machine))


def _cycles(s: Schedule, made: Schedule, match: SumMatch, machine: Machine) -> tuple[float, float]:
    """Cycles of a sum by the method, and directly: products, what is stored besides, weights from memory."""
    target = machine.target
    units = min(sharing(match.stage, machine).threads, target.units)
    c = contraction_of(made.require_program(), match.stage.name, target)
    assert c is not None and c.b is not None
    found = _matrix(made, match.stage, target)
    row = row_axis(c)
    assert found is not None and row is not None
    instruction = target.operations[found.instruction]
    depth = prod(c.extent(a) for a in c.axes("k", "window"))
    others = prod(c.extent(a) for a in c.axes("batch", "m", "n") if a not in (row, c.vector))
    count = products_cost(instruction, c.extent(row), c.extent(c.vector), depth)
    assert count is not None
    before, after = s.require_program(), made.require_program()
    weights = F32.bytes * _elements(before, match.other.buffer)
    # read as they are and stored as pieces, which are as long
    moved = 2 * BF16.bytes * _elements(after, c.a.buffer)
    if not match.constant:
        moved += 2 * weights
    # tiles are stored for what follows, one after the other in the same place
    results = 2 * F32.bytes * prod(it.extent.as_int() for it in match.stage.iters if it.kind == "par")
    gathered = 0.0
    if not set(c.axes("k")) & physical(before, match.data).indices[-1].vars:
        gathered = GATHER_CYCLES * _elements(before, match.data.buffer) / units
    stored = moved / bandwidth(machine.with_threads(units), moved / units)
    stored += results / target.memory[1].bandwidth
    rest = START_CYCLES + gathered + stored / units
    nbytes = weights if match.constant else 0
    products = count * others / instruction.per_cycle / units
    rate = target.lanes(F32) * target.fma_per_cycle * units * PRODUCT_EFFICIENCY
    direct = prod(it.extent.as_int() for it in match.stage.iters) / rate
    return (
        with_weights(products, rest, machine, nbytes, 1),
        with_weights(direct, 0.0, machine, nbytes, 1),
    )


def _elements(program: Program, name: str) -> int:
    return prod(e.as_int() for e in program.buffer(name).shape)


def _in_pieces(
    s: Schedule, match: SumMatch, target: Target, constants: Collection[str], panels: tuple[int, ...]
) -> Schedule | None:
    """The schedule with products of pieces, the first operand's stored for matrices; ``None`` if none do."""
    name, weights = match.stage.name, f"{match.other.buffer}_pieces"
    s = s.bf16x3(name, weights if match.constant else "", panels)
    s = store_for_matrices(s, name, target, {*constants, weights}, always=True).inline_stage(match.pieces)
    return s if _matrix(s, match.stage, target) is not None else None


def _matrix(s: Schedule, stage: Stage, target: Target) -> InstructionUse | None:
    """How instructions for matrices do a stage's products; ``None`` where none does."""
    c = contraction_of(s.require_program(), stage.name, target)
    use = None if c is None else select_instruction(c, target)
    return use if use is not None and use.tile is not None else None


def _is_plain(match: SumMatch) -> bool:
    """Whether a sum is a product of two matrices, the rows of the second one along the reduction."""
    axes = [[i.as_var() for i in ld.indices] for ld in (match.data, match.other)]
    reductions = [it.name for it in match.stage.iters if it.kind == "red"]
    columns = [it.name for it in match.stage.iters if it.kind == "par"][-1:]
    rows = axes[0][:-1]
    return (
        len(reductions) == len(columns) == 1
        and axes[1] == [*reductions, *columns]
        and axes[0][-1:] == reductions
        and None not in rows
        and columns[0] not in rows
    )
