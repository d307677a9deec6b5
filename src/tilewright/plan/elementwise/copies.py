"""Loops of element-wise stages, above all of copies, by what is around them: divisions and readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.cost import BLOCK_SHARE, Machine, buffer_bytes, second_cache
from tilewright.ir import (
    GLOBAL,
    LOCAL,
    PARALLEL,
    Block,
    Buffer,
    Cast,
    Exec,
    FloorDiv,
    Index,
    IndexMap,
    Load,
    MinMax,
    Mod,
    Program,
    Stage,
    Store,
    blocks,
    floordiv,
    mod,
    stmt_loads,
    var,
)
from tilewright.plan.fallback import fell_back
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError

#: Groups of rows that are read for one panel after the other.
PANEL_GROUPS: Final = 8
#: Pieces that a loop is cut into where its loads fold: each is code of its own.
MOST_FOLDS: Final = 4


def split_by_divisors(
    s: Schedule, stage: Stage, loops: Sequence[str], inner: str
) -> tuple[Schedule, dict[str, list[str]]]:
    """The loops, but ``inner``, of which loads take quotients and remainders split by the divisor.

    So there is a division for each of the outer loop's turns instead of each element.
    """
    parts = {loop: [loop] for loop in loops}
    atoms = [atom for ld in stmt_loads(stage.body) for i in ld.indices for atom, _ in i.terms]
    for loop, it in zip(loops, stage.iters, strict=True):
        divisors = {
            atom.divisor
            for atom in atoms
            if isinstance(atom, FloorDiv | Mod) and atom.arg.as_var() == it.name
        }
        if loop == inner or it.kind != "par" or len(divisors) != 1 or not it.extent.is_const:
            continue
        (divisor,) = divisors
        if it.extent.as_int() % divisor == 0 and it.extent.as_int() > divisor:
            parts[loop] = [f"{loop}_quotient", f"{loop}_rest"]
            s = s.split(loop, divisor, names=parts[loop])
    return s, parts


def folds(stage: Stage, axis: str) -> list[int]:
    """Where the smallest or largest of indices along an axis is another one: borders that mirror or repeat.

    Between two of these places loads move by single elements, there or back. None where there are many.
    """
    extent = next(it.extent for it in stage.iters if it.name == axis)
    if not extent.is_const:
        return []
    found: set[int] = set()
    for ld in stmt_loads(stage.body):
        for i in ld.indices:
            found |= _crossings(i, axis)
    inside = sorted(at for at in found if 0 < at < extent.as_int())
    return inside if len(inside) <= MOST_FOLDS else []


def _crossings(i: Index, axis: str) -> set[int]:
    """The values of an iterator from which on another argument of a minimum or maximum may be the one."""
    found: set[int] = set()
    for atom, _ in i.terms:
        if not isinstance(atom, MinMax) or {v for arg in atom.args for v in arg.vars} != {axis}:
            continue
        lines = [line for arg in atom.args for line in _lines(arg)]
        for n, one in enumerate(lines):
            for other in lines[:n]:
                step = one.coefficient(axis) - other.coefficient(axis)
                if step:
                    found.add(-((one.const - other.const) // step))
        for arg in atom.args:
            found |= _crossings(arg, axis)
    return found


def _lines(i: Index) -> list[Index]:
    """The affine indices that an index may be."""
    minmax = [(atom, c) for atom, c in i.terms if isinstance(atom, MinMax)]
    if not minmax:
        return [i]
    if len(i.terms) > 1 or minmax[0][1] not in (1, -1):
        return []
    (atom, sign) = minmax[0]
    return [line * sign + i.const for arg in atom.args for line in _lines(arg)]


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
    follows = along == loops[found[0]] and _shares_evenly(s, buffer.name, found[0])
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
    """The stage where each thread begins what it reads of it, if that is all, and near enough to it there.

    Lines that another core has just written come slower than they are made: u8 times i8 of 512x512x512, 2
    threads of Granite Rapids, 55.9 us with panels made together (the product alone 37.0).
    """
    outer = dict.fromkeys(
        next((f for f in place.loops if f.kind == PARALLEL), None)
        for place in blocks(s.func.body)
        if _read_at(place.node, buffer.name)
    )
    share = next(iter(outer)) if len(outer) == 1 and is_copy(stage) else None
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


def threads_of_reader(s: Schedule, stage: Stage) -> str | None:
    """The loop of an unscheduled stage along which threads share what reads its result, ``None`` for none.

    A thread that makes what it reads itself finds it in its own caches. The stages that read the result must
    be scheduled already; the outermost of their loops alone is looked at.
    """
    if len(stage.writes) != 1:
        return None
    dims: set[int] = set()
    for place in blocks(s.func.body):
        read = _read_at(place.node, stage.writes[0])
        outer = next((f.var for f in place.loops if f.kind == PARALLEL), None)
        moved = {it for it, at in place.node.binding().items() if outer in at.vars}
        dims.update(d for indices in read for d, i in enumerate(indices) if moved & i.vars)
    loops = s.loops(stage.name)
    return loops[dims.pop()] if len(dims) == 1 and len(loops) == len(stage.iters) else None


def _shares_evenly(s: Schedule, name: str, dim: int) -> bool:
    """Whether threads take parts of a dimension of a buffer: not where their loop is fused with others."""
    for place in blocks(s.func.body):
        outer = next((f.var for f in place.loops if f.kind == PARALLEL), "")
        at = place.node.binding()
        for indices in _read_at(place.node, name):
            if not any(at[it].coefficient(outer) for it in indices[dim].vars if it in at):
                return False
    return True


def _read_at(block: Block, name: str) -> list[tuple[Index, ...]]:
    """Where a block reads a buffer, element by element or by an instruction."""
    body = block.body
    windows = body.windows if isinstance(body, Exec) else ()
    return [
        *(ld.indices for ld in block.reads if ld.buffer == name),
        *(w.offsets for w in windows if w.buffer == name and w.mode != "w"),
    ]
