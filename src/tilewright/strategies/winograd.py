"""The schedule of Winograd convolutions: all stages fused over blocks of tiles.

::

    parallel for (n, blocks of tiles):
        transform the block's input                    # [x, y, tiles, ic], second cache level
        for each output depth:
            for each point: a matrix product           # register tiles, as any contraction
            for each tile and vector of channels: transform back, epilogue
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.ir import Index, Program, Stage
from tilewright.lang import WinogradMatch
from tilewright.schedule import Schedule
from tilewright.strategies.contraction import is_tileable, schedule_inner
from tilewright.strategies.packing import panel_layout
from tilewright.support import ScheduleError
from tilewright.target import Target

#: Suffixes of the stages that a Winograd convolution consists of, in order.
WINOGRAD_STAGES: Final = ("rows", "cols", "points", "lines", "tiles")
#: Part of the second cache level that the transformed input and the sums of one block may take.
CACHE_SHARE: Final = 0.6


def block_of_tiles(
    program: Program, match: WinogradMatch, m: int, target: Target, threads: int
) -> tuple[int, int]:
    """Tiles of one block, and of all blocks: few enough for the cache, blocks that threads share evenly."""
    tiles = -(-match.extent(match.rows) // m) * -(-match.extent(match.cols) // m)
    depth = program.buffer(match.data.buffer).shape[2].as_int() if match.depth else 1
    bytes_per_tile = 4 * (m + 2) ** 2 * (match.extent(match.ic) * depth + match.extent(match.oc))
    threads = max(1, threads // match.extent(match.n))
    size = target.level("l2").size or (1 << 20)
    most = max(1, int(size * CACHE_SHARE) // bytes_per_tile)
    least_blocks = -(-tiles // most)
    best: tuple[float, int] | None = None
    for blocks in range(least_blocks, 2 * least_blocks + 2 * threads + 1):
        block = -(-tiles // blocks)
        done = -(-tiles // block)
        # tiles that the busiest thread computes
        cost = -(-done // threads) * block + 0.02 * done
        if best is None or cost < best[0] - 1e-9:
            best = (cost, block)
    assert best is not None
    return best[1], -(-tiles // best[1]) * best[1]


def schedule_winograd(
    s: Schedule, match: WinogradMatch, m: int, block: int, last: Stage, target: Target, threads: int
) -> Schedule:
    """Schedule the stages of a Winograd convolution whose result ``last`` consumes point by point.

    ``block`` is what :func:`block_of_tiles` says, ``last`` has the convolution's own stage inlined.
    Raises ScheduleError where a primitive refuses.
    """
    program = s.program
    assert program is not None
    name = match.stage.name
    part = {p: f"{name}_{p}" for p in WINOGRAD_STAGES}
    points = program.stage(part["points"])
    loops = dict(zip(_parts(match), s.loops(last.name), strict=True))
    batch = match.extent(match.n)
    lanes = target.lanes(match.dtype)

    # tiles of the result, in blocks
    s = s.split(loops["rows"], m, names=["th", "ti"]).split(loops["cols"], m, names=["tw", "tj"])
    s = s.split(loops["oc"], min(lanes, match.extent(match.oc)), names=["co", "cv"])
    depth = [loops["depth"]] if match.depth else []
    s = s.reorder(loops["n"], *depth, "th", "tw", "co", "ti", "tj", "cv").fuse("th", "tw", names=["tt"])
    s = s.split("tt", block, names=["tb", "tq"])
    s = s.reorder(loops["n"], "tb", *depth, "tq", "co", "ti", "tj", "cv")
    inner = depth[0] if depth else "tb"
    s = s.compute_at(part["tiles"], "co").compute_at(part["lines"], "co")
    s = s.compute_at(part["points"], inner).compute_at(part["cols"], "tb")
    for stage in ("lines", "tiles"):
        s = s.set_scope(part[stage], "register")
        s = _expand(s, part[stage], "co")
    s = s.unroll("ti").unroll("tj").vectorize("cv")
    s = _input_transform(s, part["rows"], part["cols"], lanes)
    s = _products(s, program, points, inner, block, target)
    if threads > 1:
        outer = "tb"
        if batch > 1:
            s, outer = s.fuse(loops["n"], "tb", names=["nb"]), "nb"
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


def _products(
    s: Schedule, program: Program, points: Stage, within: str, block: int, target: Target
) -> Schedule:
    """The matrix products of one block, weights in panels."""
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
    return schedule_inner(s, ready, within, target)
