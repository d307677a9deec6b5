"""Stages that make matrices in panels for products, and by which threads: decision 0421."""

from __future__ import annotations

from typing import Final

from tilewright.cost import BLOCK_SHARE, Machine, buffer_bytes, second_cache
from tilewright.ir import (
    GLOBAL,
    LOCAL,
    Buffer,
    Cast,
    Index,
    IndexMap,
    Load,
    Program,
    Stage,
    Store,
    floordiv,
    mod,
    var,
)
from tilewright.plan.elementwise.readers import loop_of_readers, shares_evenly, threads_of_reader
from tilewright.plan.fallback import fell_back
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError

#: Groups of rows that are read for one panel after the other.
PANEL_GROUPS: Final = 8


def schedule_panels(s: Schedule, stage: Stage, program: Program, machine: Machine) -> Schedule | None:
    """A stage that makes matrices in panels of columns, by groups of rows; ``None`` for other stages.

    ``[column // n][...][row // g][...][column % n][row % g]``: a few rows are read as they lie, for one panel
    after the other; vectors run along whole groups. Threads that read all panels each make their own, where
    their second cache level keeps them; those that share panels make the ones that they read.
    """
    buffer = next((b for b in program.temps if b.name in stage.writes), None)
    layout = None if buffer is None else buffer.layout
    loops = s.loops(stage.name)
    if buffer is None or layout is None or stage.is_reduction or len(loops) != len(layout.dims):
        return None
    found = _panels_of(layout)
    if found is None or any(not e.is_const for e in (*layout.shape, *buffer.shape)):
        return None
    width, group = (e.as_int() for e in layout.shape[-2:])
    columns, depth = (buffer.shape[d].as_int() for d in found[:2])
    if columns % width or depth % group:
        return None
    along = threads_of_reader(s, stage)
    follows = along == stage.iters[found[0]].name and shares_evenly(s, buffer.name, found[0])
    s, private = _by_each_thread(s, stage, buffer, machine) if along is None else (s, False)
    loops = s.loops(stage.name)[-len(layout.dims) :]
    column, k, outside, inside = loops[found[0]], loops[found[1]], found[2], found[3]
    rows = max(n for n in range(1, PANEL_GROUPS + 1) if depth // group % n == 0)
    block, panel, vector = f"{k}_block", f"{column}_panel", f"{column}_{k}_own"
    s = s.split(k, [rows, group], names=[block, f"{k}_group", f"{k}_own"])
    s = s.split(column, width, names=[panel, f"{column}_own"])
    around, within = ([loops[d] for d in dims] for dims in (outside, inside))
    front = [panel, *around, block] if follows else [*around, block, panel]
    s = s.reorder(*front, f"{k}_group", *within, f"{column}_own", f"{k}_own")
    s = s.fuse(f"{column}_own", f"{k}_own", names=[vector]).vectorize(vector)
    for loop in within:
        s = s.unroll(loop)
    shared = next((loops[d] for d in outside if buffer.shape[d].as_int() >= machine.threads), block)
    shared = panel if follows else shared
    if private or machine.threads == 1 or (shared == block and depth == rows * group):
        return s
    if buffer.scope == LOCAL:
        s = s.set_scope(buffer.name, GLOBAL)
    return s.parallel(shared)


def is_copy(stage: Stage) -> bool:
    """Whether a stage but moves elements, perhaps to another type: done again it costs their moves alone."""
    if not isinstance(stage.body, Store) or len(stage.body.writes) != 1 or stage.is_reduction:
        return False
    value = stage.body.writes[0].value
    return isinstance(value.a if isinstance(value, Cast) else value, Load)


def _by_each_thread(s: Schedule, stage: Stage, buffer: Buffer, machine: Machine) -> tuple[Schedule, bool]:
    """The stage computed by each thread for itself, and whether it is.

    Lines that another core has just written come slower than they are made again (decision 0421 has figures):
    so it is where each thread reads all that the stage copies, and its second cache level keeps that.
    """
    share = loop_of_readers(s, buffer.name) if is_copy(stage) else None
    if share is None or share.extent != Index(machine.threads):
        return s, False
    if buffer_bytes(buffer) > BLOCK_SHARE * second_cache(machine.target):
        return s, False
    try:
        return s.compute_at(stage.name, share.var), True
    except ScheduleError as error:
        return fell_back(s, f"threads make {buffer.name} together", error), False


def _panels_of(layout: IndexMap) -> tuple[int, int, list[int], list[int]] | None:
    """Which dimensions are columns and rows, which are outside of a panel's rows and which inside."""
    if len(layout.exprs) != len(layout.dims) + 2:
        return None
    dims = [var(d) for d in layout.dims]
    width, group = layout.shape[-2:]
    if not (width.is_const and group.is_const):
        return None
    n, g = width.as_int(), group.as_int()
    for column, i in enumerate(dims):
        for k, j in enumerate(dims):
            if (
                k == column
                or layout.exprs[-2:] != (mod(i, n), mod(j, g))
                or layout.exprs[0] != floordiv(i, n)
            ):
                continue
            rest = list(layout.exprs[1:-2])
            if floordiv(j, g) not in rest or any(x not in dims for x in rest if x != floordiv(j, g)):
                continue
            at = rest.index(floordiv(j, g))
            return column, k, [dims.index(x) for x in rest[:at]], [dims.index(x) for x in rest[at + 1 :]]
    return None
