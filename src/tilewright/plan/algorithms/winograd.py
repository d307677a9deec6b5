"""The schedule of Winograd convolutions: all stages fused over blocks of tiles.

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
from tilewright.plan.contraction.nest import schedule_inner
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.prefetch import LEAST_WAIT
from tilewright.plan.contraction.register_tiling import MAX_ROWS, is_tileable, register_tile
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import Target

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


def schedule_winograd(
    s: Schedule,
    match: WinogradMatch,
    m: int,
    blocks: TileBlocks,
    last: Stage,
    machine: Machine,
) -> Schedule:
    """Schedule the stages of a Winograd convolution whose result ``last`` consumes point by point.

    ``blocks`` is one of :func:`tile_blocks`, ``last`` has the convolution's own stage inlined.
    Raises ScheduleError where a primitive refuses.
    """
    target = machine.target
    program = s.require_program()
    name = match.stage.name
    part = {p: f"{name}_{p}" for p in WINOGRAD_STAGES}
    points = program.stage(part["points"])
    loops = dict(zip(_parts(match), s.loops(last.name), strict=True))
    batch = match.extent(match.n)
    lanes = target.lanes(match.dtype)

    # tiles of the result, in blocks
    s = s.split(loops["rows"], m, names=["th", "ti"]).split(loops["cols"], m, names=["tw", "tj"])
    outside, panels = [], []
    if blocks.parts > 1:
        part_of = match.extent(match.oc) // blocks.parts
        factors = [part_of // blocks.panel, blocks.panel // lanes, lanes]
        s = s.split(loops["oc"], factors, names=["cs", "cp", "co", "cv"])
        outside, panels = ["cs"], ["cp"]
    else:
        s = s.split(loops["oc"], min(lanes, match.extent(match.oc)), names=["co", "cv"])
    depth = [loops["depth"]] if match.depth else []
    front = [loops["n"], *outside]
    s = s.reorder(*front, *panels, *depth, "th", "tw", "co", "ti", "tj", "cv")
    s = s.fuse("th", "tw", names=["tt"]).split("tt", blocks.block, names=["tb", "tq"])
    s = s.reorder(*front, "tb", *panels, *depth, "tq", "co", "ti", "tj", "cv")
    inner = ["tb", *panels, *depth][-1]
    s = s.compute_at(part["tiles"], "co").compute_at(part["lines"], "co")
    s = s.compute_at(part["points"], inner).compute_at(part["cols"], "tb")
    for stage in ("lines", "tiles"):
        s = s.set_scope(part[stage], "register")
        s = _expand(s, part[stage], "co")
    s = s.unroll("ti").unroll("tj").vectorize("cv")
    s = _input_transform(s, part["rows"], part["cols"], lanes)
    s, weights = _products(s, program, points, inner, target)
    if _waits(match, m, blocks, target):
        # for those of the next point while those of the present one are used
        xy = f"{points.name}_xy"
        s = s.fuse(f"{points.name}_x", f"{points.name}_y", names=[xy])
        s = s.annotate(xy, "prefetch", f"{weights}@spread")
    if machine.threads > 1:
        outer = "cs" if outside else "tb"
        if batch > 1:
            s, outer = s.fuse(loops["n"], outer, names=["nb"]), "nb"
        s = s.parallel(outer)
    return s


def _parts(match: WinogradMatch) -> list[str]:
    return ["n", "oc", *(["depth"] if match.depth else []), "rows", "cols"]


def _below(s: Schedule, block: str, loop: str) -> list[str]:
    loops = list(s.loops(block))
    return loops[loops.index(loop) + 1 :]


def _expand(s: Schedule, block: str, within: str) -> Schedule:
    """Expand a small nest, its last loop in vectors."""
    own = _below(s, block, within)
    for loop in own[:-1]:
        s = s.unroll(loop)
    return s.vectorize(own[-1])


def _input_transform(s: Schedule, rows: str, cols: str, lanes: int) -> Schedule:
    """Both steps of the input transform for one tile and one vector of channels at a time."""
    *lead, x, y, t, c = _below(s, cols, "tb")
    s = s.split(c, lanes)
    s = s.reorder(*lead, t, f"{c}_o", x, y, f"{c}_i")
    s = s.unroll(x).unroll(y).vectorize(f"{c}_i")
    s = s.compute_at(rows, f"{c}_o").set_scope(rows, "register")
    *_, step, tap, _ = own = _below(s, rows, f"{c}_o")
    s = s.reorder(tap, step)
    return _expand(s, rows, f"{c}_o") if own else s


def _waits(match: WinogradMatch, m: int, blocks: TileBlocks, target: Target) -> bool:
    """Whether reading the weights from memory once takes a part of the products' time that shows."""
    taps = match.extent(match.kd) if match.kd is not None else 1
    depth = match.extent(match.depth) if match.depth is not None else 1
    steps = (m + 2) ** 2 * match.extent(match.ic) * taps
    waiting = match.dtype.bytes * steps * match.extent(match.oc) / blocks.parts / target.memory[-1].bandwidth
    return waiting > LEAST_WAIT * steps * depth * blocks.turns * blocks.cycles


def _products(
    s: Schedule, program: Program, points: Stage, within: str, target: Target
) -> tuple[Schedule, str]:
    """The matrix products of one block, weights in panels; and the name of the weights."""
    extents = dict(zip([it.name for it in points.iters], _below(s, points.name, within), strict=True))
    iters = tuple(
        replace(it, lo=Index(0), hi=s.loop(extents[it.name]).extent) if it.kind == "par" else it
        for it in points.iters
    )
    here = replace(points, iters=iters)
    loose = is_tileable(program, here, target, packed=False)
    if loose is None:
        raise ScheduleError(f"{points.name} has no register tile")
    packed = panel_layout(program, loose, target, ())
    if packed is not None:
        s = s.set_layout(*packed)
        arguments = {b.name: b for b in s.func.buffers}
        program = replace(program, inputs=tuple(arguments[b.name] for b in program.inputs))
    ready = is_tileable(program, here, target)
    if ready is None:
        raise ScheduleError(f"{points.name} has no register tile")
    assert ready.b is not None
    return schedule_inner(s, ready, within, target), ready.b.buffer
