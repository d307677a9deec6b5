"""Two contractions with reductions of rows between them, such as attention, as one nest.

    parallel for each batch index:                 # a head
        panels of the first right operand          # vectors along its columns
        for tiles of rows:                         # as many as a register tile has
            scores = a · panels, point-wise work   # register tiles; the rows stay in the nearest cache level
            reductions and point-wise work on the rows
            out = rows · b                         # register tiles

The rows never leave the nearest cache level, and one start of the threads serves all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tilewright.ir import Index, Load, Program, Stage, Store, stmt_loads, var
from tilewright.schedule import Schedule
from tilewright.strategies.contraction import (
    BALANCED_ITERATIONS,
    MAX_ROWS,
    choose_tile,
    is_tileable,
    row_axis,
    schedule_inner,
    threads_for,
)
from tilewright.strategies.roles import Contraction
from tilewright.strategies.rows import elements, parallelise, schedule_inner_rows
from tilewright.support import ScheduleError
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Chain:
    """The stages of a program that is a chain, and its axes.

    ``panels``, if there is one, makes the right operand of ``first`` with its vectors last. ``epilogue`` is
    the point-wise stage after ``first``, ``rows`` what follows on its rows, ``last`` the second contraction,
    ``end`` the point-wise stage after that. ``row`` is the iterator of ``last`` along the rows.
    """

    panels: Stage | None
    first: Stage
    epilogue: Stage | None
    rows: tuple[Stage, ...]
    last: Stage
    end: Stage | None
    row: str


def find_chain(program: Program, target: Target) -> Chain | None:
    """The chain that the whole program is, with its operands gathered; ``None`` for other programs."""
    stages = list(program.stages)
    products = [at for at, stage in enumerate(stages) if _product(program, stage, target) is not None]
    if len(products) != 2:
        return None
    first, second = products
    panels = stages[0] if first == 1 and stages[0].writes[0] in stages[1].reads else None
    if first != (panels is not None) or len(stages) - second > 2:
        return None
    end = stages[second + 1] if second + 1 < len(stages) else None
    between = stages[first + 1 : second]
    epilogue = between[0] if between and not between[0].is_reduction else None
    rows = tuple(between if epilogue is None else between[1:])
    last = _product(program, stages[second], target)
    if last is None or not any(stage.is_reduction for stage in rows):
        return None
    own = [axis for axis in last.axes("m") if last.extent(axis) > 1]
    made = {buffer for stage in between for buffer in stage.writes}
    left = [ld for ld in stmt_loads(stages[second].body) if ld.buffer in made]
    if len(own) != 1 or len(left) != 1 or not _same_rows(program, left[0], own[0], last):
        return None
    dim = next(d for d, i in enumerate(left[0].indices) if i.as_var() == own[0])
    if not all(_keeps_rows(stage, dim, {*made, *stages[first].writes}) for stage in between):
        return None
    return Chain(panels, stages[first], epilogue, rows, stages[second], end, own[0])


def _product(program: Program, stage: Stage, target: Target) -> Contraction | None:
    """The contraction of two operands that a stage is, with what follows it point by point."""
    readers = [reader for name in stage.writes for reader in program.consumers(name)]
    after = readers[0] if len(readers) == 1 and not readers[0].is_reduction else None
    c = is_tileable(program, stage, target, after, packed=False)
    if c is None and after is not None:
        c = is_tileable(program, stage, target, packed=False)
    return c if c is not None and c.b is not None and c.axes("n") else None


def _same_rows(program: Program, load: Load, row: str, last: Contraction) -> bool:
    """Whether the second contraction reads its rows whole, at its own batch and row axes."""
    shape = program.buffer(load.buffer).shape
    *outer, along = load.indices
    sums = last.axes("k")
    whole = along.as_var() in sums and Index(last.extent(sums[0])) == shape[-1]
    names = [i.as_var() for i, size in zip(outer, shape, strict=False) if size != Index(1)]
    wanted = {a for a in (*last.axes("batch"), row) if last.extent(a) > 1}
    return len(sums) == 1 and whole and set(names) == wanted


def _keeps_rows(stage: Stage, dim: int, made: set[str]) -> bool:
    """Whether a stage computes a row, dimension ``dim``, from the same row of what it reads in ``made``."""
    body = stage.body
    if not isinstance(body, Store) or len(body.writes) != 1 or len(body.writes[0].indices) <= dim:
        return False
    row = body.writes[0].indices[dim].as_var()
    read = [ld for ld in stmt_loads(body) if ld.buffer in made]
    return row is not None and all(len(ld.indices) > dim and ld.indices[dim] == var(row) for ld in read)


def schedule_chain(s: Schedule, chain: Chain, target: Target, threads: int) -> Schedule:
    """Schedule a program that is a chain. Raises ScheduleError where a primitive refuses a step."""
    program = s.program
    assert program is not None
    first = _tileable(program, chain.first, chain.epilogue, target)
    last = _tileable(program, chain.last, chain.end, target)
    end = chain.end or chain.last
    loop = dict(zip(_axes(last, end), s.loops(end.name), strict=True))
    batch = [loop[a] for a in last.axes("batch")]
    threads = threads_for(chain.last, threads)
    heads = prod(last.extent(a) for a in last.axes("batch"))
    even = heads % threads == 0 or heads >= BALANCED_ITERATIONS * threads
    tile = choose_tile(first, target).rows if row_axis(first) else 1
    if not even:
        tile = _shared_tile(last.extent(chain.row), heads, threads, tile)
    s = s.split(loop[chain.row], tile, names=["rows", "row"])
    rest = [v for a, v in loop.items() if v not in batch and a != chain.row]
    s = s.reorder(*batch, "rows", "row", *rest)
    before = [chain.first, *([chain.epilogue] if chain.epilogue else []), *chain.rows]
    for stage in reversed([*before, *([chain.last] if chain.end else [])]):
        s = s.compute_at(stage.name, "rows")
    s = _inner(s, program, chain.first, chain.epilogue, target)
    s = schedule_inner_rows(s, chain.rows, "rows")
    s = _inner(s, program, chain.last, chain.end, target)
    if chain.panels is not None:
        if batch and even:
            s = s.compute_at(chain.panels.name, batch[-1])
        s = _panels(s, program, chain.panels, first, target, 1 if even else threads)
    if last.extent(chain.row) % tile:
        s = s.partition("rows", -1)
    return _parallel(s, batch if even else [*batch, "rows"], threads)


def _shared_tile(rows: int, heads: int, threads: int, tile: int) -> int:
    """Rows of a tile such that whole tiles can be shared among threads, where heads cannot evenly."""
    whole = [size for size in range(MAX_ROWS, MAX_ROWS // 4, -1) if rows % size == 0]
    if not whole and heads < threads:
        raise ScheduleError(f"{heads} x {rows} rows cannot be shared by {threads} threads")
    return whole[0] if whole else tile


def _panels(
    s: Schedule, program: Program, panels: Stage, first: Contraction, target: Target, threads: int
) -> Schedule:
    """One register tile's columns after the other; lanes outermost, so that what they gather stays cached."""
    *heads, along, columns = s.loops(panels.name)
    lanes = target.lanes(first.write.value.dtype)
    dims = len(program.buffer(panels.writes[0]).shape)
    width = choose_tile(first, target).vectors * lanes
    *outer, last = [f"d{d}" for d in range(dims)]
    s = s.set_layout(panels.writes[0], (*outer[:-1], f"{last}//{width}", outer[-1], f"{last}%{width}"))
    s = s.split(columns, lanes).reorder(f"{columns}_o", along, f"{columns}_i").vectorize(f"{columns}_i")
    return parallelise(s, [*heads, f"{columns}_o"], elements(panels), threads)


def _parallel(s: Schedule, loops: list[str], threads: int) -> Schedule:
    if threads == 1 or not loops:
        return s
    name = loops[0]
    for inner in loops[1:]:
        s = s.fuse(name, inner, names=[f"{name}_{inner}"[:60]])
        name = f"{name}_{inner}"[:60]
    return s.parallel(name)


def _axes(c: Contraction, end: Stage) -> list[str]:
    """For each iterator of ``end`` the one of the contraction that runs along the same dimension."""
    if end is c.stage:
        return [it.name for it in end.iters]
    found = [i.as_var() for i in c.write.indices]
    return [f"{n}" if name is None else name for n, name in enumerate(found)]


def _inner(s: Schedule, program: Program, stage: Stage, after: Stage | None, target: Target) -> Schedule:
    """Register tiles for a contraction inside the loop over tiles of rows."""
    extents = {it.name: it.extent for it in stage.iters}
    end = after or stage
    own = s.loops(end.name)
    below = own[own.index("rows") + 1 :]
    c = _tileable(program, stage, after, target)
    block = s.block(end.name)
    for axis, bind in zip(_axes(c, end), block.bind, strict=True):
        inside = [v for v in below if v in bind.vars]
        if axis in extents and not any(it.name == axis and it.kind == "red" for it in stage.iters):
            extents[axis] = Index(prod(s.loop(v).extent.as_int() for v in inside))
    iters = tuple(replace(it, lo=Index(0), hi=extents[it.name]) for it in stage.iters)
    here = replace(c, stage=replace(stage, iters=iters))
    return schedule_inner(s, here, "rows", target, after)


def _tileable(program: Program, stage: Stage, after: Stage | None, target: Target) -> Contraction:
    found = is_tileable(program, stage, target, after)
    if found is None:
        raise ScheduleError(f"{stage.name} has no register tile")
    return found
