"""The trees of a chain: producers at a tile of the last result, a register tile for each contraction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tilewright.analysis import Contraction, row_axis
from tilewright.cost import Machine
from tilewright.ir import IndexMap, Program, Stage, var
from tilewright.plan.contraction.nest import TileProblem, default_tiles
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.register_tiling import MAX_ROWS, choose_tile, is_tileable, vector_width
from tilewright.plan.contraction.sharing import sharing
from tilewright.plan.contraction.tiles import inner_tile, tiles_nests
from tilewright.plan.elementwise.plan import elements
from tilewright.plan.fused.bands import Band, channel_block, summed_axis
from tilewright.plan.fused.chain import Chain, Link, chain_of, find_links, treats_channels_apart, window
from tilewright.plan.rows.nest import row_body
from tilewright.plan.threads import is_balanced, share_steps
from tilewright.schedule import Schedule, with_layout
from tilewright.support import ScheduleError
from tilewright.target import Target
from tilewright.tiling import (
    Body,
    Cut,
    Leaf,
    Level,
    Nest,
    Place,
    Step,
    chain,
    guarded,
    sequence,
    shared_chain,
)

#: Elements of a row of the operand that are transposed together, at least.
SMALLEST_SQUARE: Final = 4


def row_chain_nests(links: Chain, machine: Machine) -> tuple[Nest, ...]:
    """The nests of two links with whole rows between them, in tiles of as many rows as register tiles.

    Raises ScheduleError where threads cannot share its rows.
    """
    target = machine.target
    head, tail = links.links
    program = head.program
    first, last = (_tileable(program, link, target) for link in links.links)
    names = dict(zip(_axes(last, tail.end), [it.name for it in tail.end.iters], strict=True))
    machine = sharing(tail.stage, machine)
    heads, rows = prod(last.extent(a) for a in links.outer), last.extent(tail.axis)
    even = is_balanced(heads, machine.threads)
    tile = choose_tile(first, target).rows if row_axis(first) else 1
    if not even:
        tile = _shared_tile(rows, heads, machine)
    cut = rows % tile > 0
    tile = min(tile, rows)
    outer = [a for a in first.axes("batch") if a != first.vector]
    places = [
        _made(
            head,
            inner_tile(first, head.epilogue, {head.axis: tile} | dict.fromkeys(outer, 1), program, target),
        )
    ]
    places += [Place(stage.name, "make", "local", row_body(stage, stage.iters)) for stage in head.rows]
    own = inner_tile(last, tail.epilogue, {tail.axis: tile} | dict.fromkeys(links.outer, 1), program, target)
    # rows that are left go through the tiles of whole ones, with conditions
    left = {names[tail.axis]: rows % tile}
    core, rest = sequence(*places, own), sequence(*places, guarded(own, left=left))
    nests: list[Nest] = []
    batch = [Step(names[a], 1) for a in links.outer]
    threads = machine.threads > 1
    made: Place | None = None
    if head.panels is not None:
        alone = machine.with_threads(1 if even else machine.threads)
        body, layout = _panels(program, head.panels, first, alone)
        buffer = head.panels.writes[0]
        if batch and even:
            made = Place(head.panels.name, "make", "local", body, None, layout)
        else:
            # made by all threads for all of them
            scopes = ((buffer, "global"),) if threads else ()
            nests.append(Nest(head.panels.name, body, ((buffer, layout),), scopes))
    block = Step(names[tail.axis], tile)
    whole = rows // tile * tile
    if even:
        body = chain([block], core)
        if cut:
            body = Cut(block.axis, (whole,), (body, chain([block], rest)))
        body = shared_chain(
            batch, len(batch) if threads else 0, body if made is None else sequence(made, body)
        )
    elif cut:
        # tiles outside of heads where the last one gets a nest of its own: what is left is one thread's
        parts = (chain(batch, core), chain([block, *batch], rest))
        body = Cut(block.axis, (whole,), (shared_chain([block], int(threads), parts[0]), parts[1]))
    else:
        steps = [*batch, block]
        body = shared_chain(steps, len(steps) if threads else 0, core)
    return (*nests, Nest(tail.end.name, body))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A chain right before its loops are cut into bands of ``rows`` rows.

    Constant operands lie in panels by ``layouts``, and what threads share of a sum is a stage of its own,
    whose results the contraction ``total`` adds up for as many parts as there are threads. ``program`` has
    the layouts by which tiles are chosen, ``tiles`` are the links' contractions there, ``end`` is the stage
    after ``total``. ``s`` has the rewrites.
    """

    s: Schedule
    chain: Chain
    program: Program
    tiles: tuple[Contraction, ...]
    rows: int
    layouts: tuple[tuple[str, tuple[str, ...]], ...]
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
    program, layouts = _pack(chain, target)
    tiles = tuple(_tileable(program, link, target) for link in chain.links)
    if band.parts == 1:
        return Prepared(s, chain, program, tiles, band.rows, layouts)
    total = is_tileable(program, program.stage(old.stage.name), target, old.epilogue)
    if total is None:
        raise ScheduleError(f"the sum of the parts of {old.stage.name} has no register tile")
    return Prepared(s, chain, program, tiles, band.rows, layouts, band.parts, total, old.epilogue)


def band_nests(p: Prepared, machine: Machine) -> tuple[Nest, ...]:
    """The nests of a chain in bands of rows, blocks of channels where a link treats channels apart.

    Where threads share the channels that the last link sums up, each computes a part of them.
    """
    target, program, links = machine.target, p.program, p.chain.links
    tail = links[-1]
    temps = {b.name for b in program.temps}

    def stored(end: Stage) -> tuple[str, ...]:
        """The blocks in which a link's result is stored."""
        layout = program.buffer(end.writes[0]).layout
        return () if layout is None or end.writes[0] not in temps else _text(layout)

    rows = {len(links) - 1: p.rows}
    for at in range(len(links) - 2, -1, -1):
        seen = window(links[at + 1])
        rows[at] = min(seen.step * rows[at + 1] + seen.overlap, links[at].c.extent(links[at].axis))
    last = [i.as_var() for i in tail.c.write.indices]
    at_band: list[Place] = []

    def own(at: int, channels: int | None) -> Body:
        """The register tiles of a link in its band, or in a block of channels of it."""
        link, c = links[at], p.tiles[at]
        names = [i.as_var() or "" for i in c.write.indices]
        box = {link.axis: rows[at]} | {names[last.index(a)]: 1 for a in p.chain.outer}
        apart = at > 0 and treats_channels_apart(link)
        size = channel_block(links[at - 1], target) if apart else channels
        if at < len(links) - 1:
            # of links before the last one a thread has its part of the channels
            share = c.extent(c.vector) // p.parts
            size = None if size is None else _dividing(size, share, vector_width(c, target))
            box[c.vector] = share if size is None else min(size, share)
        elif size is not None:
            box[c.vector] = min(size, c.extent(c.vector))
        body = inner_tile(c, link.epilogue, box, program, target)
        if apart and size is not None:
            axis = link.end.iters[_axes(link.c, link.end).index(link.c.vector)].name
            return Level(((axis, size),), sequence(made(at - 1, size), body))
        if at > 0:
            at_band.append(made(at - 1, None))
        return body

    def made(at: int, channels: int | None) -> Place:
        return _made(links[at], own(at, channels), stored(links[at].end))

    body = own(len(links) - 1, None)
    names = dict(zip(_axes(tail.c, tail.end), [it.name for it in tail.end.iters], strict=True))
    steps = [*(Step(names[a], 1) for a in p.chain.outer), Step(names[tail.axis], p.rows)]
    threads = machine.threads if p.total is None else p.parts
    body = shared_chain(steps, len(steps) if threads > 1 else 0, sequence(*at_band, body))
    mine = ((tail.end.writes[0], stored(tail.end)),) if stored(tail.end) else ()
    nest = Nest(tail.end.name, body, (*p.layouts, *mine))
    if p.total is None:
        return (nest,)
    total = TileProblem(p.total, p.end, program.outputs)
    return (nest, *tiles_nests(total, default_tiles(total, machine), p.s.require_program(), target))


def _dividing(size: int, share: int, width: int) -> int:
    """The most channels of whole vectors up to ``size`` that a part consists of; of uneven ones ``size``."""
    return next((n for n in range(size, 0, -width) if share % n == 0), size) if size < share else size


def _made(link: Link, body: Body, layout: tuple[str, ...] = ()) -> Place:
    return Place(link.end.name, "make", "local", body, None, layout)


def _text(layout: IndexMap) -> tuple[str, ...]:
    return tuple(str(e) for e in layout.apply(tuple(var(f"d{n}") for n in range(len(layout.dims)))))


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


def _pack(chain: Chain, target: Target) -> tuple[Program, tuple[tuple[str, tuple[str, ...]], ...]]:
    """The program with constant operands in panels, by which tiles are chosen, and these layouts."""
    program, layouts = chain.links[0].program, list[tuple[str, tuple[str, ...]]]()
    for link in chain.links:
        packed = panel_layout(program, link.c, target, ())
        if packed is not None:
            inputs = (with_layout(b, packed[1]) if b.name == packed[0] else b for b in program.inputs)
            program = replace(program, inputs=tuple(inputs))
            layouts.append(packed)
    return program, tuple(layouts)


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


def _panels(
    program: Program, stage: Stage, first: Contraction, machine: Machine
) -> tuple[Body, tuple[str, ...]]:
    """One register tile's columns after the other; lanes outermost, so that what they gather stays cached."""
    *heads, along, columns = [Step(it.name, 1, count=it.extent.as_int()) for it in stage.iters]
    lanes = machine.target.lanes(first.write.value.dtype)
    width = choose_tile(first, machine.target).vectors * lanes
    *outer, last = [f"d{d}" for d in range(len(program.buffer(stage.writes[0]).shape))]
    layout = (*outer[:-1], f"{last}//{width}", outer[-1], f"{last}%{width}")
    depth, extent = along.count, columns.count
    square = next((n for n in (lanes, lanes // 2, SMALLEST_SQUARE) if n and depth % n == 0), 0)
    inside = [along, Step(columns.axis, 1, "vector")]
    if square >= SMALLEST_SQUARE:
        # rows of the operand lie across vectors: copies side by side are transposed in registers
        inside[:1] = [Step(along.axis, square), Step(along.axis, 1, "unroll")]
    body, block = chain(inside, Leaf(stage.name)), Step(columns.axis, lanes, count=-(-extent // lanes))
    if machine.threads == 1 and extent % lanes:
        # only the last vector has a mask: whole ones are squares that registers transpose
        body, whole = chain([block], body), extent // lanes * lanes
        return chain(heads, Cut(columns.axis, (whole,), (body, body)) if whole else body), layout
    steps, shared = share_steps([*heads, block], elements(stage), machine)
    return shared_chain(steps, shared, body), layout


def _axes(c: Contraction, end: Stage) -> list[str]:
    """For each iterator of ``end`` the one of the contraction that runs along the same dimension."""
    if end is c.stage:
        return [it.name for it in end.iters]
    found = [i.as_var() for i in c.write.indices]
    return [f"{n}" if name is None else name for n, name in enumerate(found)]


def _tileable(program: Program, link: Link, target: Target) -> Contraction:
    found = is_tileable(program, link.stage, target, link.epilogue)
    if found is None:
        raise ScheduleError(f"{link.stage.name} has no register tile")
    return found
