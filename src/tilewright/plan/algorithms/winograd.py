"""The tree of Winograd convolutions: all stages fused over blocks of tiles.

::

    parallel for (n, blocks of tiles):
        transform the block's input                    # [x, y, tiles, ic], second cache level
        for each output depth:
            for each point: a matrix product           # register tiles, as any contraction
            for each tile and vector of channels: transform back, epilogue

Where weights are most of what is read (few tiles, many channels), threads share the channels of the result
instead: each transforms all of the input, and reads its own part of the weights, once a block::

    parallel for (n, parts of the channels):
        for blocks of tiles:
            transform the block's input
            for panels of channels:                    # sums of one panel: first cache level
                for each output depth:
                    for each point: a matrix product   # asks for the weights of the next point
                    for each tile and vector of channels: transform back, epilogue
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright.cost import HELD_SHARE, Machine, second_cache
from tilewright.ir import Index, Program, Stage
from tilewright.lang import WinogradMatch
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.prefetch import LEAST_WAIT
from tilewright.plan.contraction.register_tiling import MAX_ROWS, is_tileable, register_tile
from tilewright.plan.contraction.tiles import inner_tile
from tilewright.schedule import with_layout
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
    expanded,
    sequence,
    shared_chain,
)

#: Suffixes of the stages that a Winograd convolution consists of, in order.
WINOGRAD_STAGES: Final = ("rows", "cols", "points", "lines", "tiles")
#: Vectors of channels in a register tile.
VECTORS: Final = (1, 2, 3, 4)
#: What one more block costs, in tiles.
BLOCK_TILES: Final = 0.02


@dataclass(frozen=True, slots=True)
class TileBlocks:
    """How the tiles of a convolution are divided: ``block`` tiles in a block, ``tiles`` in all blocks.

    Threads share blocks, or ``parts`` equal parts of the result's channels, in panels of ``panel`` channels.
    The busiest thread computes ``turns`` blocks of an image, each in ``cycles`` a step of the reduction.
    """

    block: int
    tiles: int
    turns: int
    cycles: float
    parts: int = 1
    panel: int = 0


def tile_blocks(program: Program, match: WinogradMatch, m: int, machine: Machine) -> tuple[TileBlocks, ...]:
    """The ways to divide the tiles: by blocks, and by channels if these divide evenly among threads."""
    depth = program.buffer(match.data.buffer).shape[2].as_int() if match.depth else 1
    ic, oc = match.extent(match.ic) * depth, match.extent(match.oc)
    point = 4 * (m + 2) ** 2
    lanes = machine.target.lanes(match.dtype)
    machine = machine.with_threads(max(1, machine.threads // match.extent(match.n)))
    shared = _even_blocks(match, m, point * (ic + oc), machine, -(-oc // lanes))
    if machine.threads == 1 or oc % (machine.threads * lanes):
        return (shared,)
    vectors = oc // machine.threads // lanes
    counts = tuple(v for v in VECTORS if vectors % v == 0)
    apart = _even_blocks(
        match, m, point * (ic + counts[-1] * lanes), machine.with_threads(1), vectors, counts
    )
    best = register_tile(machine.target, apart.block, vectors, counts, max_rows=MAX_ROWS)
    return shared, replace(apart, parts=machine.threads, panel=best.vectors * lanes)


def _even_blocks(
    match: WinogradMatch,
    m: int,
    bytes_per_tile: int,
    machine: Machine,
    vectors: int,
    counts: tuple[int, ...] = VECTORS,
) -> TileBlocks:
    """Blocks that are small enough for the cache, and that ``threads`` share evenly."""
    tiles = -(-match.extent(match.rows) // m) * -(-match.extent(match.cols) // m)
    size = second_cache(machine.target)
    most = max(1, int(size * HELD_SHARE) // bytes_per_tile)
    least = -(-tiles // most)
    best: tuple[float, int, int] | None = None
    for blocks in range(least, 2 * least + 2 * machine.threads + 1):
        block = -(-tiles // blocks)
        done = -(-tiles // block)
        # tiles that the busiest thread computes
        cost = -(-done // machine.threads) * block + BLOCK_TILES * done
        if best is None or cost < best[0] - 1e-9:
            best = (cost, block, done)
    assert best is not None
    _, block, done = best
    cycles = register_tile(machine.target, block, vectors, counts, max_rows=MAX_ROWS).cycles
    return TileBlocks(block, done * block, -(-done // machine.threads), cycles)


def winograd_nest(
    program: Program,
    match: WinogradMatch,
    m: int,
    blocks: TileBlocks,
    last: Stage,
    machine: Machine,
) -> Nest:
    """The nest of a Winograd convolution whose result ``last`` consumes point by point.

    ``blocks`` is one of :func:`tile_blocks`, ``last`` has the convolution's own stage inlined.
    Raises ScheduleError where the products have no register tile.
    """
    target = machine.target
    part = {p: program.stage(f"{match.stage.name}_{p}") for p in WINOGRAD_STAGES}
    axis = dict(zip(_parts(match), [it.name for it in last.iters], strict=True))
    n, oc, h, w = (axis[x] for x in ("n", "oc", "rows", "cols"))
    lanes, channels = target.lanes(match.dtype), match.extent(match.oc)
    # tiles of the result are one axis, which is cut in blocks
    tile = f"{h}/{m}*{w}/{m}"
    width = lanes if blocks.parts > 1 else min(lanes, channels)
    product, packed = _products(program, part["points"], blocks, match, m, target)
    back = [
        Place(
            part[p].name, "make", "register", expanded([it.name for it in part[p].iters], Leaf(part[p].name))
        )
        for p in ("lines", "tiles")
    ]
    element = [Step(h, 1, "unroll"), Step(w, 1, "unroll"), Step(oc, 1, "vector")]
    body = sequence(*back, chain(element, Leaf(last.name)))
    body = sequence(product, chain([Step(tile, 1), Step(oc, width)], body))
    panels = [Step(oc, blocks.panel)] if blocks.parts > 1 else []
    depth = [Step(axis["depth"], 1)] if match.depth else []
    body = sequence(_input_transform(part["rows"], part["cols"], lanes), chain([*panels, *depth], body))
    outer = [Step(tile, blocks.block)]
    if blocks.parts > 1:
        outer.insert(0, Step(oc, channels // blocks.parts))
    body = chain(outer[1:], body)
    images, threads = Step(n, 1), machine.threads > 1
    if threads and match.extent(match.n) > 1:
        body = shared_chain([images, outer[0]], 2, body)
    else:
        body = chain([images], shared_chain(outer[:1], int(threads), body))
    return Nest(last.name, body, () if packed is None else (packed,))


def _parts(match: WinogradMatch) -> list[str]:
    return ["n", "oc", *(["depth"] if match.depth else []), "rows", "cols"]


def _input_transform(rows: Stage, cols: Stage, lanes: int) -> Place:
    """Both steps of the input transform for one tile and one vector of channels at a time."""
    *lead, x, y, t, c = [it.name for it in cols.iters]
    *outer, step, tap, channel = [it.name for it in rows.iters]
    made = Place(rows.name, "make", "register", expanded([*outer, tap, step, channel], Leaf(rows.name)))
    vector = [Step(x, 1, "unroll"), Step(y, 1, "unroll"), Step(c, 1, "vector")]
    body = Level(((c, lanes),), sequence(made, chain(vector, Leaf(cols.name))))
    return Place(cols.name, "make", "local", chain([*(Step(a, 1) for a in (*lead, t))], body))


def _waits(match: WinogradMatch, m: int, blocks: TileBlocks, target: Target) -> bool:
    """Whether reading the weights from memory once takes a part of the products' time that shows."""
    taps = match.extent(match.kd) if match.kd is not None else 1
    depth = match.extent(match.depth) if match.depth is not None else 1
    steps = (m + 2) ** 2 * match.extent(match.ic) * taps
    waiting = match.dtype.bytes * steps * match.extent(match.oc) / blocks.parts / target.memory[-1].bandwidth
    return waiting > LEAST_WAIT * steps * depth * blocks.turns * blocks.cycles


def _products(
    program: Program, points: Stage, blocks: TileBlocks, match: WinogradMatch, m: int, target: Target
) -> tuple[Place, tuple[str, tuple[str, ...]] | None]:
    """The matrix products of one block, weights in panels; and the layout of the weights."""
    full = {it.name: it.extent.as_int() for it in points.iters}
    box = {it.name: 1 for it in points.iters if it.kind == "par"}
    box |= {"x": full["x"], "y": full["y"], "t": min(blocks.block, full["t"]), "o": blocks.panel or full["o"]}
    iters = tuple(
        replace(it, lo=Index(0), hi=Index(box[it.name])) if it.kind == "par" else it for it in points.iters
    )
    here = replace(points, iters=iters)
    loose = is_tileable(program, here, target, packed=False)
    packed = None if loose is None else panel_layout(program, loose, target, ())
    if packed is not None:
        inputs = (with_layout(b, packed[1]) if b.name == packed[0] else b for b in program.inputs)
        program = replace(program, inputs=tuple(inputs))
    ready = is_tileable(program, here, target)
    if ready is None or ready.b is None:
        raise ScheduleError(f"{points.name} has no register tile")
    body = inner_tile(ready, None, box, program, target)
    if _waits(match, m, blocks, target):
        # for those of the next point while those of the present one are used
        body = _together(body, "x", "y", (("prefetch", f"{ready.b.buffer}@spread"),))
    return Place(points.name, "make", "local", body), packed


def _together(body: Body, outer: str, inner: str, hints: tuple[tuple[str, str], ...]) -> Body:
    """Two levels, one directly inside of the other, as one."""
    if isinstance(body, Cut):
        return Cut(body.axis, body.at, tuple(_together(x, outer, inner, hints) for x in body.parts))
    if not isinstance(body, Level):
        return body
    if body.axes[0][0] == outer and isinstance(body.body, Level) and body.body.axes[0][0] == inner:
        return Level((*body.axes, *body.body.axes), body.body.body, "serial", hints)
    return Level(body.axes, _together(body.body, outer, inner, hints), body.bind, body.hints, body.tail)
