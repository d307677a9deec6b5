"""The schedule of a chain: producers at a tile of the last result, a register tile for each contraction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tilewright.analysis import Contraction, row_axis
from tilewright.cost import Machine
from tilewright.ir import Index, Program, Stage, var
from tilewright.plan.contraction.microkernel import loops_below
from tilewright.plan.contraction.nest import TileProblem, default_tiles, schedule_contraction, schedule_inner
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.register_tiling import MAX_ROWS, choose_tile, is_tileable
from tilewright.plan.contraction.sharing import sharing
from tilewright.plan.fused.bands import Band, channel_block, summed_axis
from tilewright.plan.fused.chain import Chain, Link, chain_of, find_links, treats_channels_apart
from tilewright.plan.rows.nest import elements, parallelise, schedule_inner_rows
from tilewright.plan.trees import is_balanced
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import Target

#: Elements of a row of the operand that are transposed together, at least.
SMALLEST_SQUARE: Final = 4


def schedule_row_chain(s: Schedule, chain: Chain, machine: Machine) -> Schedule:
    """Schedule a chain of two links with whole rows between them, in tiles of as many rows as register tiles.

    Raises ScheduleError where a primitive refuses a step.
    """
    target = machine.target
    head, tail = chain.links
    program = head.program
    first, last = (_tileable(program, link, target) for link in chain.links)
    loop = dict(zip(_axes(last, tail.end), s.loops(tail.end.name), strict=True))
    batch = [loop[a] for a in chain.outer]
    machine = sharing(tail.stage, machine)
    heads = prod(last.extent(a) for a in chain.outer)
    even = is_balanced(heads, machine.threads)
    tile = choose_tile(first, target).rows if row_axis(first) else 1
    if not even:
        tile = _shared_tile(last.extent(tail.axis), heads, machine)
    s = s.split(loop[tail.axis], tile, names=["rows", "row"])
    rest = [v for a, v in loop.items() if v not in batch and a != tail.axis]
    cut = last.extent(tail.axis) % tile > 0
    # tiles outside of heads where the last one gets a nest of its own
    outer = ["rows", *batch] if cut and not even else [*batch, "rows"]
    s = s.reorder(*outer, "row", *rest)
    at = outer[-1]
    for stage in reversed([*head.stages, *([tail.stage] if tail.epilogue else [])]):
        s = s.compute_at(stage.name, at)
    s = _inner(s, first, head, at, target)
    s = schedule_inner_rows(s, head.rows, at)
    s = _inner(s, last, tail, at, target)
    if head.panels is not None:
        if batch and even:
            s = s.compute_at(head.panels.name, batch[-1])
        elif machine.threads > 1:
            # made by all threads for all of them
            s = s.set_scope(head.panels.writes[0], "global")
        s = _panels(s, program, head.panels, first, machine.with_threads(1 if even else machine.threads))
    if cut:
        s = s.partition("rows", -1)
    return _parallel(s, batch if even else outer[:1] if cut else outer, machine)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A chain right before its loops are cut into bands of ``rows`` rows.

    Constant operands lie in panels, and what threads share of a sum is a stage of its own, whose results the
    contraction ``total`` adds up for as many parts as there are threads. ``program`` has the layouts by which
    tiles are chosen, ``tiles`` are the links' contractions there, ``end`` is the stage after ``total``.
    """

    s: Schedule
    chain: Chain
    program: Program
    tiles: tuple[Contraction, ...]
    rows: int
    parts: int = 1
    total: Contraction | None = None
    end: Stage | None = None


def prepare_bands(s: Schedule, chain: Chain, band: Band, target: Target) -> Prepared:
    """All that the shapes of a chain decide about its schedule in bands; no loop changes but in parts.

    Raises ScheduleError where a contraction has no register tile, or sums in parts are no chain.
    """
    old = chain.links[-1]
    if band.parts > 1:
        s, chain = _in_parts(s, chain, band.parts, target)
    s, program = _pack(s, chain, target)
    tiles = tuple(_tileable(program, link, target) for link in chain.links)
    if band.parts == 1:
        return Prepared(s, chain, program, tiles, band.rows)
    total = is_tileable(program, program.stage(old.stage.name), target, old.epilogue)
    if total is None:
        raise ScheduleError(f"the sum of the parts of {old.stage.name} has no register tile")
    return Prepared(s, chain, program, tiles, band.rows, band.parts, total, old.epilogue)


def schedule_bands(p: Prepared, machine: Machine) -> Schedule:
    """Schedule a chain in bands of rows, blocks of channels where a link treats channels apart.

    Where threads share the channels that the last link sums up, each computes a part of them.
    Raises ScheduleError where a primitive refuses a step.
    """
    target = machine.target
    s, chain, program = p.s, p.chain, p.program
    tail = chain.links[-1]
    s = _store(s, program, tail.end)
    loop = dict(zip(_axes(tail.c, tail.end), s.loops(tail.end.name), strict=True))
    outer = [loop[a] for a in chain.outer]
    s = s.split(loop[tail.axis], p.rows, names=["band", "row"])
    rest = ["row" if a == tail.axis else v for a, v in loop.items() if v not in outer]
    s = s.reorder(*outer, "band", *rest)
    # where a link's result is stored, and where its sums are computed
    store, places = "band", list[str]()
    for at in range(len(chain.links) - 1, -1, -1):
        link = chain.links[at]
        if link is not tail:
            s = s.compute_at(link.end.name, store)
            s = _store(s, program, link.end)
        place, store = store, "band"
        if at and treats_channels_apart(link):
            size = channel_block(chain.links[at - 1], target)
            s, place = _in_blocks(s, link, size, place, f"block{at}"), f"block{at}"
            store = place
        if link.epilogue is not None:
            s = s.compute_at(link.stage.name, place)
        places.append(place)
    for c, link, place in zip(p.tiles, chain.links, reversed(places), strict=True):
        s = _inner(s, c, link, place, target)
    s = _parallel(s, [*outer, "band"], machine.with_threads(machine.threads if p.total is None else p.parts))
    if p.total is None:
        return s
    problem = TileProblem(p.total, p.end, tuple(b for b in s.func.buffers if b.name in s.func.outputs))
    return schedule_contraction(s, problem, default_tiles(problem, machine), target)


def _in_parts(s: Schedule, chain: Chain, parts: int, target: Target) -> tuple[Schedule, Chain]:
    """The last link's sums in parts of channels, each a stage's, and the chain that makes those."""
    old = chain.links[-1]
    axis = summed_axis(old)
    if axis is None:
        raise ScheduleError(f"{old.stage.name} has no reduction that threads could share")
    s = s.rfactor(old.stage.name, axis, old.c.extent(axis) // parts, name=f"{old.stage.name}_part")
    *links, tail = find_links(s.require_program(), target) or [old]
    names = [frozenset(name for stage in link.stages for name in stage.writes) for link in links]
    made = chain_of([*links, replace(tail, rows=())], names, target)
    if made is None or len(made.links) != len(chain.links):
        raise ScheduleError(f"the parts of {old.stage.name} are no chain")
    return s, made


def _pack(s: Schedule, chain: Chain, target: Target) -> tuple[Schedule, Program]:
    """Constant operands in panels, also in the program by which tiles are chosen."""
    program = chain.links[0].program
    for link in chain.links:
        packed = panel_layout(program, link.c, target, ())
        if packed is not None:
            s = s.set_layout(*packed)
            made = {b.name: b for b in s.func.buffers}
            program = replace(program, inputs=tuple(made[b.name] for b in program.inputs))
    return s, program


def _store(s: Schedule, program: Program, end: Stage) -> Schedule:
    """Store a link's result in the blocks that the program says."""
    layout = program.buffer(end.writes[0]).layout
    if layout is None or end.writes[0] not in {b.name for b in program.temps}:
        return s
    physical = layout.apply(tuple(var(f"d{n}") for n in range(len(layout.dims))))
    return s.set_layout(end.writes[0], [str(e) for e in physical])


def _in_blocks(s: Schedule, link: Link, size: int, within: str, name: str) -> Schedule:
    """The loop over channels of a link's result outermost, cut into blocks."""
    below = loops_below(s, link.end.name, within)
    block = s.block(link.end.name)
    at = _axes(link.c, link.end).index(link.c.vector)
    channels = next(loop for loop in below if loop in block.bind[at].vars)
    rest = [loop for loop in below if loop != channels]
    s = s.split(channels, size, names=[name, f"{name}_channel"])
    return s.reorder(name, f"{name}_channel", *rest)


def _shared_tile(rows: int, heads: int, machine: Machine) -> int:
    """Rows of a tile such that whole tiles can be shared among threads, where heads cannot evenly.

    Where none divides the rows, those that are left are one thread's.
    """

    def time(size: int) -> int:
        return -(-(rows // size) // machine.threads) * size + rows % size

    whole = [size for size in range(MAX_ROWS, MAX_ROWS // 4, -1) if rows % size == 0]
    if not whole and heads < machine.threads:
        raise ScheduleError(f"{heads} x {rows} rows cannot be shared by {machine.threads} threads")
    return whole[0] if whole else min(range(MAX_ROWS, MAX_ROWS // 4, -1), key=time)


def _panels(s: Schedule, program: Program, panels: Stage, first: Contraction, machine: Machine) -> Schedule:
    """One register tile's columns after the other; lanes outermost, so that what they gather stays cached."""
    *heads, along, columns = s.loops(panels.name)
    lanes = machine.target.lanes(first.write.value.dtype)
    dims = len(program.buffer(panels.writes[0]).shape)
    width = choose_tile(first, machine.target).vectors * lanes
    *outer, last = [f"d{d}" for d in range(dims)]
    s = s.set_layout(panels.writes[0], (*outer[:-1], f"{last}//{width}", outer[-1], f"{last}%{width}"))
    s = s.split(columns, lanes).reorder(f"{columns}_o", along, f"{columns}_i").vectorize(f"{columns}_i")
    depth = panels.iters[-2].extent.as_int()
    square = next((n for n in (lanes, lanes // 2, SMALLEST_SQUARE) if n and depth % n == 0), 0)
    if square >= SMALLEST_SQUARE:
        # rows of the operand lie across vectors: copies side by side are transposed in registers
        s = s.split(along, square).unroll(f"{along}_i")
    if machine.threads == 1 and panels.iters[-1].extent.as_int() % lanes:
        # only the last vector has a mask: whole ones are squares that registers transpose
        return s.partition(f"{columns}_o", -1)
    return parallelise(s, [*heads, f"{columns}_o"], elements(panels), machine)


def _parallel(s: Schedule, loops: list[str], machine: Machine) -> Schedule:
    if machine.threads == 1 or not loops:
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


def _inner(s: Schedule, c: Contraction, link: Link, within: str, target: Target) -> Schedule:
    """Register tiles for a contraction inside the loop ``within``."""
    extents = {it.name: it.extent for it in c.stage.iters}
    below = loops_below(s, link.end.name, within)
    for axis, bind in zip(_axes(c, link.end), s.block(link.end.name).bind, strict=True):
        inside = [v for v in below if v in bind.vars]
        if axis in extents and not any(it.name == axis and it.kind == "red" for it in c.stage.iters):
            extents[axis] = Index(prod(s.loop(v).extent.as_int() for v in inside))
    iters = tuple(replace(it, lo=Index(0), hi=extents[it.name]) for it in c.stage.iters)
    here = replace(c, stage=replace(c.stage, iters=iters))
    return schedule_inner(s, here, within, target, link.epilogue)


def _tileable(program: Program, link: Link, target: Target) -> Contraction:
    found = is_tileable(program, link.stage, target, link.epilogue)
    if found is None:
        raise ScheduleError(f"{link.stage.name} has no register tile")
    return found
