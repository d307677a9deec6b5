"""Operands stored with their padding, what is summed innermost, where instructions then do contractions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Final

from tilewright.analysis import Contraction
from tilewright.cost import Machine, bandwidth
from tilewright.ir import I32, Stage
from tilewright.plan.contraction.instructions import (
    has_instructions,
    matrix_instruction,
    matrix_runs,
    select_instruction,
)
from tilewright.plan.contraction.matrix_tiles import RESULTS, matrix_axes, products_cost
from tilewright.plan.contraction.precision import contraction_of, round_weights
from tilewright.plan.fallback import fell_back
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import Target

#: How many times cheaper one line must be than many: the copy of its results is a nest of its own.
MARGIN: Final = 1.03


def pad_for_matrices(s: Schedule, target: Target, constants: Collection[str]) -> Schedule:
    """Store operands of guarded contractions with zeros around them, what is summed up innermost.

    So are those that have an instruction, but for the order in which they lie: pictures of bytes as a user
    gives them, channel by channel.

    Rows of a matrix cannot be left out one by one where a tap meets the padding. Where lines do not fill the
    rows of matrices, or not of two by two of them, they are computed as one line if that is cheaper.
    """
    if not target.contractions:
        return s
    for stage in s.require_program().stages:
        s = store_for_matrices(s, stage.name, target, constants)
    return s


def store_for_matrices(
    s: Schedule, stage: str, target: Target, constants: Collection[str], *, always: bool = False
) -> Schedule:
    """The same for one stage; its operand is stored ``always``, or where matrices need that."""
    now = s.require_program()
    c = contraction_of(now, stage, target)
    if c is None or c.b is None:
        return s
    lines = _short_lines(c, target) if target.tiles else None
    place = _place(now.stage(stage), c, target)
    # as its operand lies no instruction takes it: a copy pays where each element meets many columns
    lacks = c.extent(c.vector) >= target.lanes(I32) and has_instructions(c, target)
    lacks = lacks and select_instruction(c, target) is None
    if place is None or not (c.guard or lines or always or lacks):
        return s
    try:
        padded = s.pad_operand(stage, *place)
        made = padded
        if lines is not None:
            if _steps(c, lines[:2]) != [1, 1]:
                made = padded.split_phases(stage, lines[:2])
            made = made.flatten_rows(stage, *lines, f"{stage}_lines")
    except ScheduleError as error:
        return fell_back(s, f"stage {stage} reads its operand as it is", error)
    for candidate in dict.fromkeys((made, padded if c.guard or always or lacks else made)):
        then = contraction_of(round_weights(candidate, target, constants).require_program(), stage, target)
        use = None if then is None else select_instruction(then, target)
        if use is not None and (use.tile is not None or lacks):
            return candidate
    return s


def _short_lines(c: Contraction, target: Target) -> tuple[str, str, int] | None:
    """Two iterators whose lines take longer each for itself than as one, and what its rows are a multiple of.

    The results of one line are stored once more, and read again.
    """
    axes = [a for a in c.axes("m") if a != c.vector]
    if len(axes) < 2 or not matrix_runs(c.a.dtype, target):
        return None
    lines, line = axes[-2:]
    steps = _steps(c, axes[-2:])
    if min(steps) < 1 or (max(steps) > 1 and not c.axes("window")):
        # steps without a window: the copy takes longer than what it saves (256-512 at 14 pixels 20 -> 23 us)
        return None
    found = matrix_instruction(c.a.dtype, target)
    if found is None:
        return None
    rows = matrix_axes(found)[0][1] * RESULTS // 2
    taps = [_taps(c, axis) for axis in axes[-2:]]
    # a window's steps go from phase to phase: what is left of it are whole steps
    pitch = c.extent(line) + taps[1] // steps[1]
    together = -(-((c.extent(lines) - 1) * pitch + c.extent(line)) // rows) * rows
    columns = c.extent(c.vector)
    depth = prod(c.extent(a) for a in c.axes("k", "window"))
    apart = products_cost(found, c.extent(line), columns, depth)
    one = products_cost(found, together, columns, depth)
    if one is None:
        return None
    if apart is None:
        # matrices of such few rows are not worth it
        return lines, line, rows
    stored = 2 * together * columns * c.write.value.dtype.bytes
    if not c.guard:
        # the operand too, that would be read where it is
        phases = prod(min(step, tap + 1) for step, tap in zip(steps, taps, strict=True))
        stored += 2 * together * phases * prod(c.extent(a) for a in c.axes("k")) * c.a.dtype.bytes
    planes = prod(c.extent(a) for a in (*c.axes("batch"), *axes[:-2]))
    copied = stored / bandwidth(Machine(target, 1), stored * planes) * found.per_cycle
    return (lines, line, rows) if c.extent(lines) * apart > MARGIN * (one + copied) else None


def _steps(c: Contraction, axes: Sequence[str]) -> list[int]:
    """By how many elements each of the axes moves ``a``; 0 for one that does so in several dimensions."""
    along = ([i for i in c.a.indices if axis in i.vars] for axis in axes)
    return [
        found[0].coefficient(axis) if len(found) == 1 else 0 for axis, found in zip(axes, along, strict=True)
    ]


def _taps(c: Contraction, axis: str) -> int:
    """How far a window reaches along an axis of the result, beyond its first element."""
    (along,) = (i for i in c.a.indices if axis in i.vars)
    return sum(along.coefficient(a) * (c.extent(a) - 1) for a in c.axes("window") if a in along.vars)


def _place(stage: Stage, c: Contraction, target: Target) -> tuple[int, str, tuple[int, ...], int] | None:
    """Which operand of the stage is ``a``, the name of its copy, its dimensions and blocks of the last.

    Blocks as long as a row of a matrix: what a product reads are whole lines then, side by side, and all taps
    read the same few of them.
    """
    operands = stage.operands
    found = [n for n, ld in enumerate(operands) if ld.buffer == c.a.buffer]
    if len(found) != 1:
        return None
    load = operands[found[0]]
    sums = [d for d, i in enumerate(load.indices) if i.as_var() in c.axes("k")]
    if not sums:
        return None
    along = max(sums, key=lambda d: c.extent(load.indices[d].as_var() or ""))
    order = (*(d for d in range(len(load.indices)) if d != along), along)
    extent = c.extent(load.indices[along].as_var() or "")
    block = next((d for d in matrix_runs(c.a.dtype, target) if extent % d == 0 and extent > d), 0)
    return found[0], f"{stage.name}_padded", order, block
