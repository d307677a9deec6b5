"""The default schedule of a contraction: register tiles, packed operands, the epilogue in registers.

The nest that results, for a result with rows ``m`` (one tiled axis and others around it), vectors ``n`` and a
reduction ``k``::

    parallel for (batch, n tiles, rows around):
        for m tiles:                      # body outlined: the micro-kernel
            acc[rows, vectors] = 0        # registers
            for k:                        # a few steps unrolled
                acc[...] += a[m, k] * b[k, n]
            out[...] = epilogue(acc[...])

What does not divide is a copy of its own with exact extents (``peel``); there are no masks in full tiles.
Reductions without a second operand (pooling) and depthwise convolutions take the same form: their rows share
loaded vectors instead of broadcasts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tilewright.ir import I32, Load, Program, Stage
from tilewright.schedule import Schedule
from tilewright.strategies.ahead import ask_ahead
from tilewright.strategies.blocking import CACHE_SHARE, choose_row_block, footprint
from tilewright.strategies.borders import cut_borders
from tilewright.strategies.caches import last_cache
from tilewright.strategies.dots import without_groups
from tilewright.strategies.roles import Contraction, contiguous_reduction, contraction, run_length
from tilewright.strategies.tiles import RegisterTile, register_tile
from tilewright.target import Target, find_instruction

#: Multiply-adds of one turn of the innermost reduction loop, at most: more lets the register allocator spill.
MAX_FMAS_PER_TURN: Final = 120
#: Steps of the innermost reduction loop that are unrolled, at most.
MAX_STEPS_PER_TURN: Final = 4
#: The same where border tiles have several copies of the loop: keeps compile time in bounds.
MAX_STEPS_PER_COPY: Final = 2
#: Multiply-adds of one turn that are enough there: more are no faster (28 and 56 measured, to 0.5%).
FMAS_PER_COPY: Final = 24
#: Windows up to this many taps are expanded in the micro-kernel where there is no k axis.
MAX_EXPANDED_TAPS: Final = 25
#: Taps along the rows of a tile whose elements fit into registers beside as many rows as there may be.
KEPT_TAPS: Final = 3
#: Register tiles that must use a panel of weights, for each thread to read all panels: the first one waits.
TILES_PER_PANEL: Final = 24
#: Parallel iterations for each thread from which on a remainder does not matter.
BALANCED_ITERATIONS: Final = 16
#: Products below which a contraction stays on one thread: 2 to 4 us of it, against 1 to 3 to start others.
MIN_PARALLEL_PRODUCTS: Final = 1 << 18
#: Results from which on storing them takes as long: lines that the other cores wrote last come from there.
MIN_PARALLEL_RESULTS: Final = 1 << 15
#: Elements that lanes may lie apart in a reduction of one operand.
MOST_APART: Final = 4
#: Rows of a tile, at most.
MAX_ROWS: Final = 14
#: Rows of a band of tiles along rows, at most: as fast as 14 from the caches, each is a stream of its own.
BAND: Final = 7
#: The same where values come from memory: 4, 7 and 14 rows of 16x32x112x112 took 1.4, 1.6, 2.3 ms.
STREAMED_BAND: Final = 4


def is_tileable(
    program: Program, stage: Stage, target: Target, last: Stage | None = None, *, packed: bool = True
) -> Contraction | None:
    """The contraction of a stage that this rule can schedule, else ``None``.

    With ``packed`` its vector axis must already move both operands by single elements; without, ``b`` may be
    laid out in any way.
    """
    if not all(it.extent.is_const for s in (stage, last or stage) for it in s.iters):
        return None
    c = contraction(program, stage, last)
    if c is None:
        return None
    c = without_groups(c, target)
    total = c.write.value.dtype
    if not total.is_float and total != I32 and (c.b is not None or total.kind == "bool"):
        return None
    lanes = vector_width(c, target)
    if c.group is not None and c.group % lanes:
        return None
    for ld in (c.a if c.group is None else None, c.b if packed else None):
        if ld is None or not any(c.vector in i.vars for i in ld.indices):
            continue
        run = run_length(ld, c.vector)
        alone = c.vector in c.axes("batch") and (c.b is None or c.vector not in _moving(c.b))
        if alone and 1 < ld.indices[-1].coefficient(c.vector) <= MOST_APART:
            # a strided window: lanes picked from whole vectors
            continue
        if run is not None and run % lanes:
            return None
        if run == 0:
            return None
    return c if min(c.extent(c.vector), c.run or lanes) * 2 > lanes else None


def _moving(ld: Load) -> frozenset[str]:
    """The iterators that a load moves with."""
    return frozenset(v for i in ld.indices for v in i.vars)


def vector_width(c: Contraction, target: Target) -> int:
    """Lanes of the vectors along the contiguous axis of the result."""
    lanes = target.lanes(c.write.value.dtype)
    return lanes if c.run is None else min(lanes, c.run)


def choose_tile(c: Contraction, target: Target) -> RegisterTile:
    """Rows and vectors of the register tile: what packed panels say, else the model's choice."""
    width = vector_width(c, target)
    whole = -(-c.extent(c.vector) // width)
    rows = row_axis(c)
    broadcast = c.vector in c.axes("n")
    if not broadcast:
        counts: tuple[int, ...] = (1,)
    else:
        panel = run_length(c.b, c.vector) if c.b is not None else None
        counts = (panel // width,) if panel else tuple(v for v in (1, 2, 3, 4) if v <= whole)
        if c.run is not None and not panel:
            counts = tuple(v for v in counts if whole % v == 0)
        if c.group is not None:
            counts = tuple(v for v in counts if c.group % (v * width) == 0)
    most = _most_rows(c, target)
    return register_tile(
        target, c.extent(rows) if rows else 1, whole, counts,
        max_rows=most, broadcast=broadcast, groups=c.rows if rows else None,
    )  # fmt: skip


def _most_rows(c: Contraction, target: Target) -> int:
    """Rows of a tile, at most: with what windows share in registers, and few streams to and from memory."""
    taps = math.prod(c.extent(a) for a in shared_windows(c))
    most = MAX_ROWS if taps <= KEPT_TAPS else min(MAX_ROWS, (target.vector_registers - taps) // 2 - 1)
    if c.run is not None or taps == 1:
        return most
    results = math.prod(it.extent.as_int() for it in c.stage.iters if it.kind == "par")
    far = results * c.write.value.dtype.bytes * 2 > last_cache(target)
    return min(most, STREAMED_BAND if far else BAND)


def shared_windows(c: Contraction) -> tuple[str, ...]:
    """The window axes by which rows of a tile read the same elements."""
    row = row_axis(c)
    if row is None or c.vector in c.axes("n"):
        return ()
    return tuple(a for a in c.axes("window") if any(a in i.vars and row in i.vars for i in c.a.indices))


def row_axis(c: Contraction) -> str | None:
    """The m axis whose results share a register tile: the one that lies closest together."""
    axes = [a for a in c.axes("m") if a != c.vector]
    return axes[-1] if axes else None


@dataclass(frozen=True, slots=True)
class _Tile:
    """Loop names of the tiled result, outermost first within each group."""

    outer: tuple[str, ...]
    around: str  # the loop whose body is the micro-kernel
    inner: tuple[str, ...]  # expanded loops inside of it, without the vector loop
    vector: str
    ragged: tuple[str, ...]  # loops whose last iteration is partial
    panels: str | None  # the loop of which each iteration uses one panel of b
    shared: bool = False  # whether the outermost loop has one iteration a thread
    cuts: tuple[tuple[str, str], ...] = ()  # loops over tiles, and the axis of each


def schedule_contraction(
    s: Schedule,
    c: Contraction,
    epilogue: Stage | None,
    target: Target,
    threads: int,
    panels: str | None = None,
) -> Schedule:
    """Schedule a contraction and the stage that consumes it point by point, if there is one.

    Loops of both stages are those of the unscheduled program. ``threads`` run the result. The stage
    ``panels``, if there is one, makes the operand ``b`` in the order in which it is read: it is computed tile
    by tile.
    """
    last = epilogue or c.stage
    threads = threads_for(c.stage, threads)
    s, tile, size = _tile(s, c, last, target, threads, blocks=panels is None)
    s = _fill(s, c, epilogue, tile, size)
    feeds = _fed_by(s, c.stage.name, list(s.loops(c.stage.name)))
    s = ask_ahead(s, c, feeds, tile.outer, tile.around, last.writes[0], target)
    if panels is not None:
        s = _pack_panels(s, panels, tile)
    s = s.annotate(tile.around, "outline")
    s = _peel(s, c, tile)
    if threads > 1:
        s = _parallelise(s, tile, last.name, threads)
    return cut_borders(s, c.stage.name)


def schedule_inner(
    s: Schedule,
    c: Contraction,
    within: str,
    target: Target,
    epilogue: Stage | None = None,
) -> Schedule:
    """Schedule a contraction whose nest is inside the loop ``within``, with its epilogue if there is one.

    The extents of ``c`` are those of its loops there; axes whose loops are further out are one index.
    """
    last = epilogue or c.stage
    below = loops_below(s, last.name, within)
    s, tile, size = _tile(s, c, last, target, 1, {a: v for v, a in _fed_by(s, last.name, below).items()})
    s = _fill(s, c, epilogue, tile, size)
    s = s.annotate(tile.around, "outline")
    s = _peel(s, c, tile)
    return cut_borders(s, c.stage.name)


def _fill(s: Schedule, c: Contraction, epilogue: Stage | None, tile: _Tile, size: RegisterTile) -> Schedule:
    """The micro-kernel: the reduction in registers, and what becomes of its result."""
    block = c.stage.name
    if epilogue is not None:
        s = s.compute_at(block, tile.around).set_scope(c.stage.writes[0], "register")
        s = reduce_tile(s, c, block, loops_below(s, block, tile.around), size.rows * size.vectors)
        s = s.vectorize(tile.vector)
        for loop in tile.inner:
            s = s.unroll(loop)
        return s
    out = f"{block}_acc"
    s = s.stage(c.stage.writes[0], at=tile.around, scope="register", mode="write", name=out)
    s = reduce_tile(s, c, block, loops_below(s, block, tile.around), size.rows * size.vectors)
    return expand_tile(s, f"{out}_out", loops_below(s, f"{out}_out", tile.around), c)


def _tile(
    s: Schedule,
    c: Contraction,
    last: Stage,
    target: Target,
    threads: int,
    loops: Mapping[str, str] | None = None,
    blocks: bool = False,
) -> tuple[Schedule, _Tile, RegisterTile]:
    """Split and order the loops of the result (``loops``: those of its iterators, default all around it).

    With ``blocks``, rows come in blocks for the second cache level where that pays.

    Where the m axes divide evenly, each thread takes a part of them: kernels one after another then find on
    their own core what they wrote there, and only weights go to all. Otherwise threads share the outer loops.
    """
    chosen = choose_tile(c, target)
    width = vector_width(c, target)
    loop_of = loops or dict(zip([it.name for it in last.iters], s.loops(last.name), strict=True))
    # the axis of the last stage that runs along the same dimension as the contraction's
    pars = [it.name for it in last.iters if it.kind == "par"]
    names = [i.as_var() for i in c.write.indices]
    along = [(name, axis) for name, axis in zip(names, pars, strict=True) if name is not None]
    loop = {name: loop_of[axis] for name, axis in along if axis in loop_of}
    ragged: list[str] = []
    inner: list[str] = []

    def split(axis: str, *factors: int) -> list[str]:
        nonlocal s
        size = int(np.prod(factors))
        parts = [f"{loop[axis]}_{n}" for n in range(len(factors) + 1)]
        s = s.split(loop[axis], list(factors), names=parts)
        if c.extent(axis) % size:
            ragged.append(parts[0])
        return parts

    row = row_axis(c)
    around: str | None = None
    share: list[str] = []
    cut = shared_axis(c, chosen, threads)
    block = None
    if blocks:
        tiled = None if row is None else (row, chosen.rows)
        block = choose_row_block(c, target, tiled, chosen.vectors * width, cut, threads)
    in_blocks: list[str] = []
    if row is not None:
        # parts of threads, blocks and tiles, all even but perhaps the tiles
        sizes = [chosen.rows]
        if block is not None and block.axis == row:
            sizes.insert(0, block.size // chosen.rows)
        if row == cut:
            sizes.insert(0, c.extent(row) // (threads * int(np.prod(sizes))))
        *front, around, rows = split(row, *sizes)
        if row == cut:
            share.append(front.pop(0))
        in_blocks += front
        inner.append(rows)
    n_outer: list[str] = []
    if c.run is not None:
        # vectors of one run each: the runs of a tile lie apart in memory
        outermost, group, vector = split(c.vector, chosen.vectors, width)
        n_outer.append(outermost)
        inner.append(group)
    elif c.extent(c.vector) > chosen.vectors * width:
        outermost, vector = split(c.vector, chosen.vectors * width)
        n_outer.append(outermost)
    else:
        vector = loop[c.vector]
    batch = [loop[a] for a in c.axes("batch") if a != c.vector and a in loop]
    other_n = [loop[a] for a in c.axes("n") if a != c.vector and a in loop]
    feeding = [(loop[a], a) for a in c.axes("batch") if a != c.vector and a in loop]
    other_m: list[str] = []
    outside: list[str] = []
    for a in c.axes("m"):
        if a in (row, c.vector) or a not in loop:
            continue
        if c.extent(a) == 1:
            # between no two loops that matter
            batch.append(loop[a])
            feeding.append((loop[a], a))
            continue
        sizes = [block.size] if block is not None and block.axis == a and block.size < c.extent(a) else []
        if a == cut:
            sizes.insert(0, c.extent(a) // (threads * int(np.prod(sizes))))
        parts = split(a, *sizes) if sizes else [loop[a]]
        if a == cut:
            share.append(parts.pop(0))
        if block is not None and block.axis == a:
            # the axes before and the blocks of this one: outside of the panels
            outside += [*other_m, *parts[:-1]]
            other_m = []
        other_m.append(parts[-1])
        feeding.append((parts[-1], a))
    if block is not None and block.axis == row:
        outside, other_m = [*other_m, *in_blocks], []
    columns, bands = n_outer[0] if n_outer and c.run is None else None, around
    outer = [*share, *batch, *outside, *other_n, *n_outer, *other_m]
    if c.vector in c.axes("batch") and not outside:
        # nothing is shared but by neighbouring rows: in the order in which results lie in memory
        axes = [it.name for it in c.stage.iters]
        of = dict(feeding) | dict.fromkeys(n_outer, c.vector)
        outer = [*share, *sorted((*batch, *n_outer, *other_m), key=lambda part: axes.index(of[part]))]
    if around is not None and outer and outer[-1] == columns and _rows_outside(c, target):
        outer[-1], around = around, columns
    if around is None:
        if not outer:
            whole, vector = split(c.vector, c.extent(c.vector))
            outer = [whole]
        around = outer.pop()
    reductions = [loop_of[it.name] for it in last.iters if it.kind == "red" and it.name in loop_of]
    order = [*outer, around, *reductions, *inner, vector]
    if len(order) > 1:
        s = s.reorder(*order)
    panels = next(iter([*n_outer[::-1], *other_n[::-1], *batch[::-1]]), None)
    cuts = tuple((part, axis) for part, axis in ((columns, c.vector), (bands, row)) if part and axis)
    tiles = _Tile(tuple(outer), around, tuple(inner), vector, tuple(ragged), panels, bool(share), cuts)
    return s, tiles, chosen


def _rows_outside(c: Contraction, target: Target) -> bool:
    """Whether tiles are done along the vectors first, then the next rows."""
    if c.vector in c.axes("batch") or c.b is None:
        # a band of rows from end to end, as it lies in memory
        return True
    # tiles with a border of their own, then, are no parallel loops of their own
    met = any(c.vector in cond.vars for cond in c.guard)
    read = footprint(c.b, {it.name: it.extent.as_int() for it in c.stage.iters})
    return met and read <= CACHE_SHARE * (target.level("l2").size or 0)


def shared_axis(c: Contraction, tile: RegisterTile, threads: int) -> str | None:
    """The outermost m axis, if threads can share it evenly; ``None`` where a batch does as well.

    What a thread reads of ``a`` then comes from its own core, if the kernel before shared the same axis, but
    each thread reads all of ``b``: worth it where its panels are used often, or ``b`` is the smaller part.
    """
    if threads == 1:
        return None
    batch = int(np.prod([c.extent(a) for a in c.axes("batch") if a != c.vector], initial=1))
    if c.b is not None and batch % threads == 0:
        return None
    axes = [a for a in c.axes("m") if a != c.vector and c.extent(a) > 1]
    if not axes:
        return None
    m = math.prod(c.extent(a) for a in axes)
    k = math.prod(c.extent(a) for a in c.axes("k"))
    n = math.prod(c.extent(a) for a in c.axes("n", "batch"))
    constant = 0 if c.b is None else n * k * math.prod(c.extent(a) for a in c.axes("window"))
    if m // (tile.rows * threads) < TILES_PER_PANEL and constant > m * (k + n):
        return None
    step = tile.rows if axes[0] == row_axis(c) else 1
    return axes[0] if c.extent(axes[0]) % (threads * step) == 0 else None


def loops_below(s: Schedule, block: str, loop: str) -> list[str]:
    """The loops around a block that are inside ``loop``, outermost first."""
    loops = list(s.loops(block))
    return loops[loops.index(loop) + 1 :]


def _pack_panels(s: Schedule, stage: str, tile: _Tile) -> Schedule:
    """Compute what one n tile needs of an operand just before it is used, vectors last."""
    if tile.panels is not None:
        s = s.compute_at(stage, tile.panels)
    loops = s.loops(stage)
    inner = loops[loops.index(tile.panels) + 1 :] if tile.panels else loops
    return s.vectorize(inner[-1])


def expand_tile(s: Schedule, block: str, loops: list[str], c: Contraction) -> Schedule:
    """Expand the nest of a copy of the result, vectors innermost."""
    position = [i.as_var() for i in c.write.indices].index(c.vector)
    along = s.block(block).bind[position].vars
    vector = next(loop for loop in loops if loop in along)
    rest = [loop for loop in loops if loop != vector]
    if rest and vector != loops[-1]:
        s = s.reorder(*rest, vector)
    for loop in rest:
        s = s.unroll(loop)
    return s.vectorize(vector)


def reduce_tile(s: Schedule, c: Contraction, block: str, loops: list[str], fmas: int) -> Schedule:
    """Order, unroll and vectorise the nest of the contraction inside a tile, its start in front."""
    kinds = {it.name: it.kind for it in c.stage.iters}
    if c.run is not None:
        # the same vectors as in the result, also where its runs are shorter than a register
        s, loops = _split_runs(s, c, block, loops)
    feeds = _fed_by(s, block, loops)
    reds = {axis: loop for loop, axis in feeds.items() if kinds[axis] == "red"}
    pars = [loop for loop in loops if kinds[feeds[loop]] == "par"]
    vector = [loop for loop in pars if feeds[loop] == c.vector][-1]
    # rows outside of vectors: each broadcast is used up before the next one is loaded
    rows = set(c.axes("m"))
    rows_of = math.prod(s.loop(loop).extent.as_int() for loop in pars if feeds[loop] == row_axis(c))
    pars.sort(key=lambda loop: (loop == vector, feeds[loop] not in rows))
    windows = [reds[a] for a in c.axes("window") if a in reds]
    ks = [reds[a] for a in c.axes("k") if a in reds]
    taps = 1
    for a in c.axes("window"):
        taps *= c.extent(a)
    if not ks and not c.dot and taps <= MAX_EXPANDED_TAPS:
        # rows share what they load along their own window; lanes that are off are known where taps are
        shared = [reds[a] for a in shared_windows(c)] or windows[-1:]
        masking = [reds[a] for a in c.axes("window") if any({a, c.vector} <= cond.vars for cond in c.guard)]
        expanded = list(dict.fromkeys((*masking, *shared)))
        windows = [*(loop for loop in windows if loop not in expanded), *expanded]
        s = s.reorder(*windows, *pars) if len([*windows, *pars]) > 1 else s
        s = s.decompose_init(block, [*windows, *pars][0])
        for loop in expanded:
            s = s.unroll(loop)
    else:
        axis, step = contiguous_reduction(c, [a for a in c.axes("k", "window") if a in reds])
        last = reds.get(axis or "", (windows or ks)[-1])
        steps, apart = c.extent(feeds[last]), _steps_apart(c, feeds[last], rows_of)
        front = [loop for loop in (*ks, *windows) if loop != last]
        if step is not None and steps > step:
            s = s.split(last, step)
            front.insert(0, f"{last}_o")
            last, steps = f"{last}_i", step
        group: list[str] = []
        if c.dot:
            # innermost, the neighbours that an instruction takes together
            depth = find_instruction(c.dot).depth
            s = s.split(last, depth)
            group, last, steps = [f"{last}_i"], f"{last}_o", steps // depth
        red = [*front, last]
        cut = [loop for loop in _met_by_rows(c, reds) if loop != last]
        s = s.reorder(*red, *pars, *group) if len([*red, *pars, *group]) > 1 else s
        s = s.decompose_init(block, red[0])
        if c.dot:
            s = s.tensorize(group[0], c.dot)
        most = min(MAX_STEPS_PER_COPY, -(-FMAS_PER_COPY // fmas)) if cut else MAX_STEPS_PER_TURN
        most = min(most, apart)
        unroll = next(
            u for u in range(most, 0, -1) if steps % u == 0 and (u == 1 or u * fmas <= MAX_FMAS_PER_TURN)
        )
        if unroll > 1:
            s = s.annotate(last, "unroll", str(unroll))
    s = _expand_loops(s, pars, vector)
    suffixed = {f"{loop}_init" for loop in pars}
    start = [loop for loop in s.loops(f"{block}_init") if loop in suffixed]
    s = s.reorder(*[f"{loop}_init" for loop in pars if f"{loop}_init" in start]) if len(start) > 1 else s
    return _expand_loops(s, start, f"{vector}_init")


def _split_runs(s: Schedule, c: Contraction, block: str, loops: list[str]) -> tuple[Schedule, list[str]]:
    assert c.run is not None
    for loop, axis in _fed_by(s, block, loops).items():
        if axis == c.vector and s.loop(loop).extent.as_int() > c.run:
            s = s.split(loop, c.run)
            at = loops.index(loop)
            return s, [*loops[:at], f"{loop}_o", f"{loop}_i", *loops[at + 1 :]]
    return s, loops


def _expand_loops(s: Schedule, loops: list[str], vector: str) -> Schedule:
    for loop in loops:
        s = s.vectorize(loop) if loop == vector else s.unroll(loop)
    return s


def _met_by_rows(c: Contraction, reds: dict[str, str]) -> list[str]:
    """Window loops that a guard ties to the tiled row axis: they are cut where a tile meets the padding."""
    row = row_axis(c)
    tied = {v for cond in c.guard if row in cond.vars for v in cond.vars}
    return [reds[a] for a in c.axes("window") if a in tied and a in reds]


def _steps_apart(c: Contraction, axis: str, rows: int) -> int:
    """Steps of a reduction axis after which some of ``rows`` rows read the elements of rows beside them.

    Unrolled further, those elements would be loaded once and kept, in registers that the sums need.
    """
    row = row_axis(c)
    if row is None or c.b is None:
        return MAX_STEPS_PER_TURN
    depth = find_instruction(c.dot).depth if c.dot else 1
    found = [MAX_STEPS_PER_TURN]
    for i in c.a.indices:
        if not {axis, row} <= i.vars:
            continue
        along, step = abs(i.coefficient(row)), abs(i.coefficient(axis)) * depth
        common = math.gcd(along, step)
        if common == 0 or step // common < rows:
            found.append(max(1, along // max(1, common)))
    return min(found)


def _fed_by(s: Schedule, block: str, loops: list[str]) -> dict[str, str]:
    """Each loop's iterator: the one whose binding mentions it."""
    found = s.block(block)
    out: dict[str, str] = {}
    for it, bind in zip(found.iters, found.bind, strict=True):
        for loop in loops:
            if loop in bind.vars:
                out[loop] = it.name
    return {loop: out[loop] for loop in loops if loop in out}


def threads_for(stage: Stage, threads: int) -> int:
    """The threads that a contraction of constant extents is worth."""
    products = math.prod(it.extent.as_int() for it in stage.iters)
    results = math.prod(it.extent.as_int() for it in stage.iters if it.kind == "par")
    return threads if products >= MIN_PARALLEL_PRODUCTS or results >= MIN_PARALLEL_RESULTS else 1


def _peel(s: Schedule, c: Contraction, tile: _Tile) -> Schedule:
    """Exact copies for partial and border tiles."""
    met = {v for cond in c.guard for v in cond.vars}
    guarded = {loop for loop, axis in tile.cuts if axis in met}
    for loop in dict.fromkeys((tile.around, *tile.ragged, *guarded)):
        s = _cut(s, loop, loop in guarded, loop in tile.ragged)
    return s


def _parallelise(s: Schedule, tile: _Tile, stage: str, threads: int) -> Schedule:
    """The outer loops of all copies as one parallel loop each."""
    started: set[str] = set()
    for name in s.blocks():
        loops = s.loops(name)
        if s.block(name).stage == stage and not started & set(loops):
            wanted = 1 if tile.shared else len(tile.outer)
            s, fused = _fuse(s, loops[: len(tile.outer) + 1], wanted, threads)
            started.add(fused)
            s = s.parallel(fused)
    return s


def _cut(s: Schedule, loop: str, guarded: bool, ragged: bool) -> Schedule:
    """Copies of the tiles that meet the padding, the first and the last one, or of the partial one."""
    tiles = s.loop(loop).extent.as_int()
    if guarded and tiles > 1:
        s = s.partition(loop, 1)
        return s.partition(f"{loop}_1", -1) if tiles > 2 else s
    return s.partition(loop, -1) if ragged else s


def _fuse(s: Schedule, loops: Sequence[str], wanted: int, threads: int) -> tuple[Schedule, str]:
    """Fuse the first ``wanted`` loops as far as they nest perfectly, more while threads would be unequal."""
    name = loops[0]
    count = s.loop(name).extent.as_int()
    for n, inner in enumerate(loops[1:], start=1):
        balanced = count % threads == 0 or count >= BALANCED_ITERATIONS * threads
        if s.loop(name).body is not s.loop(inner) or (n >= wanted and balanced):
            break
        count *= s.loop(inner).extent.as_int()
        fused = f"{name}_{inner}"[:60]
        s = s.fuse(name, inner, names=[fused])
        name = fused
    return s, name
