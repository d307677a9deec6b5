"""Reductions on GPUs taken apart: parts for the threads of a row, or for blocks where results are few."""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.analysis import flat_index
from tilewright.cost import nest_seconds
from tilewright.ir import Program, Stage, stmt_loads
from tilewright.plan.fallback import fell_back
from tilewright.plan.gpu.product import MULTIPLES
from tilewright.plan.gpu.products import least_seconds, matrices_of, product_size
from tilewright.plan.gpu.windows import window_of
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import GpuTarget, Instruction

#: Elements of a row from which on threads share it.
LONG_ROW: Final = 32
#: Elements of a row for each thread, about: fewer cost more in joining parts than they save.
EACH: Final = 8
#: Parts of a row, at most: threads of a block.
MOST_PARTS: Final = 256
#: Parts that one thread joins at most; more are joined in two steps, the first of which leaves so many.
JOINED: Final = 32
LEFT: Final = 16
#: Elements from which on blocks share one row, and those that each of them gets at least.
SHARED_ROW: Final = 8192
BLOCK_SHARE: Final = 2048
#: Parts of the sums of a product that are tried.
SPLITS: Final = (2, 4, 8, 16, 32)
#: Threads of a block that joins them.
JOINERS: Final = 128


def split_reductions(s: Schedule, target: GpuTarget) -> tuple[Schedule, frozenset[str]]:
    """Take apart what too few threads would reduce. Rewrites the program only.

    Also returns the stages whose results are parts that blocks compute, each a row of its own.
    """
    before = {stage.name for stage in s.require_program().stages}
    for name in [stage.name for stage in s.require_program().stages]:
        program = s.require_program()
        stage = program.stage(name)
        if not stage.is_reduction or not all(it.extent.is_const for it in stage.iters):
            continue
        if window_of(program, stage) is not None or (
            stage.init is None and not _fills_copies(program, stage)
        ):
            continue
        try:
            if matrices_of(program, stage) is not None:
                s = _split_product(s, stage, target)
            else:
                s = _split_row(s, stage, target)
        except ScheduleError as error:
            s = fell_back(s, f"{name} is reduced in order", error)
    made = {stage.name for stage in s.require_program().stages} - before
    return s, frozenset(name for name in made if name.removesuffix("_parts") in before)


def _fills_copies(program: Program, stage: Stage) -> bool:
    """Whether an update at places that data say has enough to do for copies of all its buffer."""
    held = program.buffer(stage.writes[0]).shape
    if not all(extent.is_const for extent in held):
        return False
    updates = prod(it.extent.as_int() for it in stage.iters)
    return updates >= EACH * LONG_ROW * prod(extent.as_int() for extent in held)


def _split_product(s: Schedule, stage: Stage, target: GpuTarget) -> Schedule:
    """Parts of long sums with few results, where the model says that pays (split-K)."""
    program = s.require_program()
    size, least = product_size(program, stage, target), least_seconds(program, stage, target)
    axis = max((it for it in stage.iters if it.kind == "red"), key=lambda it: it.extent.as_int())
    length = axis.extent.as_int()
    result = program.buffer(stage.writes[0]).dtype.bytes
    best = 1
    for parts in SPLITS:
        if length % parts or size.sums // parts < MULTIPLES[2]:
            continue
        results = size.batch * size.rows * size.columns
        joined = nest_seconds(
            target,
            blocks=-(-results // JOINERS),
            threads=JOINERS,
            turns=parts,
            access_bytes=result,
            # each part is written and read again
            nbytes=2 * parts * results * result,
        )
        seconds = least_seconds(program, stage, target, parts) + joined
        if seconds < least:
            least, best = seconds, parts
    return s if best == 1 else s.rfactor(stage.name, axis.name, length // best, name=f"{stage.name}_parts")


def _split_row(s: Schedule, stage: Stage, target: GpuTarget) -> Schedule:
    """Parts of a row for the threads of a warp or a block; parts for blocks where rows lie across memory."""
    sums = [it for it in stage.iters if it.kind == "red"]
    length = prod(it.extent.as_int() for it in sums)
    results = prod(it.extent.as_int() for it in stage.iters if it.kind == "par")
    enough = target.units * target.threads_per_unit // 2
    if length < LONG_ROW or (length <= 4 * LONG_ROW and results >= enough and not _along_rows(s, stage)):
        return s
    if not _along_rows(s, stage) and results >= target.warp:
        parts = next((n for n in (4, 8, 16, 32, 64) if results * n >= enough), 64)
        axis = max(sums, key=lambda it: it.extent.as_int())
        share = -(-axis.extent.as_int() // parts)
        if results >= enough or share < EACH:
            return s
        return s.rfactor(stage.name, axis.name, share, name=f"{stage.name}_parts")
    s, axis_name = fused_axes(s, stage.name, [it.name for it in sums])
    name, joined = stage.name, f"{stage.name}_joined"
    if results < target.units and length >= SHARED_ROW:
        # too few rows for all multiprocessors: blocks have parts of them, which one block joins
        count = min(-(-2 * target.units // results), length // BLOCK_SHARE)
        length = -(-length // count)
        name, joined = f"{stage.name}_parts", f"{stage.name}_parts_joined"
        s = s.rfactor(stage.name, axis_name, length, name=name)
        if count > JOINED:
            s = s.rfactor(stage.name, f"{axis_name}_o", JOINED, part="inner", name=f"{stage.name}_joined")
        results *= count
        axis_name = f"{axis_name}_i"
    parts = target.warp
    while parts < MOST_PARTS and length >= 2 * parts * EACH and (results < enough // parts or length > 4096):
        parts *= 2
    parts = min(parts, target.threads_per_block, max(2, length))
    s = s.rfactor(name, axis_name, parts, part="inner", name=f"{stage.name}_lanes")
    if parts > JOINED:
        # a warp joins as many as it has threads
        left = target.warp if any(is_warp_reduction(row) for row in target.instructions) else LEFT
        s = s.rfactor(name, f"{axis_name}_i", left, part="inner", name=joined)
    return s


def is_warp_reduction(row: Instruction) -> bool:
    """Whether an instruction reduces one element of each thread of a warp to a single result."""
    return len(row.axes) == 1 and not row.result.axes


def fused_axes(s: Schedule, stage: str, axes: list[str]) -> tuple[Schedule, str]:
    """The axes of a stage as one, by its name."""
    first, *rest = axes
    for axis in rest:
        before = {it.name for it in s.require_program().stage(stage).iters}
        s = s.fuse_iterators(stage, first, axis)
        (first,) = {it.name for it in s.require_program().stage(stage).iters} - before
    return s, first


def _along_rows(s: Schedule, stage: Stage) -> bool:
    """Whether neighbours along the last reduction axis lie together in the largest operand."""
    program: Program = s.require_program()
    last = [it.name for it in stage.iters if it.kind == "red"][-1]
    count = {it.name: it.extent.as_int() for it in stage.iters}
    largest = max(
        (ld for ld in stmt_loads(stage.body) if ld.buffer not in stage.writes),
        key=lambda ld: prod(count[name] for name in ld.vars),
        default=None,
    )
    if largest is None:
        return False
    flat = flat_index(program, largest.buffer, largest.indices)
    return flat is not None and flat.coefficient(last) == 1
