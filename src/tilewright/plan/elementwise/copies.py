"""Loops of element-wise stages, above all of copies, by what is around them: divisions and readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.ir import (
    PARALLEL,
    Block,
    Exec,
    FloorDiv,
    Index,
    Mod,
    Program,
    Stage,
    blocks,
    floordiv,
    mod,
    stmt_loads,
    var,
)
from tilewright.schedule import Schedule

#: Groups of rows that are read for one panel after the other.
PANEL_GROUPS: Final = 8


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


def schedule_panels(s: Schedule, stage: Stage, program: Program, threads: int) -> Schedule | None:
    """A stage that makes a matrix' pieces in panels of columns, by groups; ``None`` for other stages.

    A few rows are read as they lie, for one panel after the other; vectors run along whole groups.
    """
    buffer = next((b for b in program.temps if b.name in stage.writes), None)
    layout = None if buffer is None else buffer.layout
    sizes = [it.extent for it in stage.iters]
    if layout is None or len(layout.exprs) != len(sizes) + 2 or any(not e.is_const for e in layout.shape):
        return None
    _, groups, _, width, group = (e.as_int() for e in layout.shape)
    dims = [var(d) for d in layout.dims]
    wanted = (
        floordiv(dims[1], width), floordiv(dims[0], group), dims[2], mod(dims[1], width), mod(dims[0], group)
    )  # fmt: skip
    if layout.exprs != wanted:
        return None
    k, column, piece = s.loops(stage.name)
    rows = max(n for n in range(1, PANEL_GROUPS + 1) if groups % n == 0)
    s = s.split(k, [rows, group], names=[f"{k}_block", f"{k}_group", f"{k}_own"])
    s = s.split(column, width, names=[f"{column}_panel", f"{column}_own"])
    vector = f"{column}_{k}_own"
    s = s.reorder(f"{k}_block", f"{column}_panel", f"{k}_group", piece, f"{column}_own", f"{k}_own")
    s = s.fuse(f"{column}_own", f"{k}_own", names=[vector]).unroll(piece).vectorize(vector)
    return s.parallel(f"{k}_block") if threads > 1 and groups > rows else s


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


def _read_at(block: Block, name: str) -> list[tuple[Index, ...]]:
    """Where a block reads a buffer, element by element or by an instruction."""
    body = block.body
    windows = body.windows if isinstance(body, Exec) else ()
    return [
        *(ld.indices for ld in block.reads if ld.buffer == name),
        *(w.offsets for w in windows if w.buffer == name and w.mode != "w"),
    ]
