"""The micro-kernel of a contraction: the nest inside a register tile, its order, what is expanded."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.analysis import Contraction, contiguous_reduction, row_axis
from tilewright.cost import reloaded_rows
from tilewright.plan.contraction.instructions import use_of
from tilewright.plan.contraction.register_tiling import RegisterTile, shared_windows
from tilewright.schedule import Schedule
from tilewright.target import Target

#: Multiply-adds of one turn of the innermost reduction loop, at most: more lets the register allocator spill.
MAX_FMAS_PER_TURN: Final = 120
#: Steps of the innermost reduction loop that are unrolled, at most.
MAX_STEPS_PER_TURN: Final = 4
#: The same where border tiles have several copies of the loop: keeps compile time in bounds.
MAX_STEPS_PER_COPY: Final = 2
#: Multiply-adds of one turn that are enough there: more are no faster (28 and 56 measured, to 0.5%).
FMAS_PER_COPY: Final = 24
#: Windows up to this many taps are expanded in the micro-kernel where there is no k axis: rows share what
#: they load (Granite Rapids, depthwise 7x7, 2 threads: 96 at 56 pixels 179 -> 100 us, 384 at 14 58 -> 33).
MAX_EXPANDED_TAPS: Final = 49


def _together(c: Contraction) -> int:
    """Steps of the reduction that are done at once."""
    use = use_of(c)
    return 1 if use is None else use.depth


def loops_below(s: Schedule, block: str, loop: str) -> list[str]:
    """The loops around a block that are inside ``loop``, outermost first."""
    loops = list(s.loops(block))
    return loops[loops.index(loop) + 1 :]


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


def accumulate_tile(
    s: Schedule, c: Contraction, at: str, loops: tuple[str, str, str], steps: int
) -> Schedule:
    """Keep a tile of the result in registers from ``at`` on: load it, add to it, store it again.

    ``loops`` inside are those over the reduction, of which ``steps`` are unrolled, the rows, and a vector.
    """
    step, rows, vector = loops
    out = f"{c.stage.name}_acc"
    s = s.cache(c.stage.writes[0], at=at, scope="register", mode="accumulate", name=out)
    s = s.annotate(at, "outline").annotate(step, "unroll", str(steps)).unroll(rows).vectorize(vector)
    for block in (out, f"{out}_out"):
        s = expand_tile(s, block, loops_below(s, block, at), c)
    return s.vectorize(s.loops(f"{c.stage.name}_init")[-1])


def cut_whole(s: Schedule, sizes: Sequence[tuple[str, int, int]]) -> Schedule:
    """Give what is left of extents that sizes do not divide code of its own: loops, extents, sizes."""
    for loop, extent, size in sizes:
        if 0 < extent // size < s.loop(loop).extent.as_int():
            copies = dict.fromkeys(x for b in s.blocks() for x in s.loops(b) if x.startswith(loop))
            for x in copies:
                s = s.partition(x, extent // size)
    return s


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the innermost reduction loop: ``unroll`` steps of it.

    The elements of ``reload`` rows are loaded by each multiply-add instead of being broadcast.
    """

    unroll: int = 1
    reload: int = 0


def is_expanded(c: Contraction) -> bool:
    """Whether a micro-kernel has its windows expanded, and no loop over steps."""
    taps = math.prod(c.extent(a) for a in c.axes("window"))
    return not c.axes("k") and use_of(c) is None and taps <= MAX_EXPANDED_TAPS


@dataclass(frozen=True, slots=True)
class Innermost:
    """The innermost loop of a reduction: its axis, how many ``steps`` it has.

    ``run`` is its part of an axis that lies in blocks (``None``: the whole one), ``windows_outside`` says
    whether the loops over windows are outside of those over ``k``, so that they can be cut at the padding.
    """

    axis: str
    run: int | None
    steps: int
    windows_outside: bool


def innermost_of(c: Contraction, fmas: int, reds: Collection[str] | None = None) -> Innermost:
    """The innermost loop over a reduction in a micro-kernel.

    ``fmas`` are the multiply-adds of a step, ``reds`` the reduction axes inside the tile: by default all.
    """
    known = _reductions(c) if reds is None else reds
    masking = _masking(c, known, fmas)
    axis, run = contiguous_reduction(c, [a for a in c.axes("k", "window") if a in known and a not in masking])
    windows = [a for a in c.axes("window") if a in known and a not in masking]
    ks = [a for a in c.axes("k") if a in known]
    outside = bool(masking and ks) and run is None
    last = ks[-1] if outside else axis or (windows or ks)[-1]
    if run is not None and run >= c.extent(last):
        run = None
    steps = c.extent(last) if run is None else run
    return Innermost(last, run, steps // _together(c), outside)


def default_turn(
    c: Contraction, tile: RegisterTile, target: Target, reds: Collection[str] | None = None
) -> Turn:
    """The steps that pay for the loop around them, as far as registers and border tiles allow."""
    if is_expanded(c):
        return Turn()
    known, fmas, row = _reductions(c) if reds is None else reds, tile.rows * tile.vectors, row_axis(c)
    masking = _masking(c, known, fmas)
    inner = innermost_of(c, fmas, known)
    last, steps = inner.axis, inner.steps
    apart = _steps_apart(c, last, 1 if row is None else min(tile.rows, c.extent(row)))
    fmas *= math.prod(c.extent(axis) for axis in masking)
    cached = use_of(c) is not None or masking or c.vector in c.axes("batch")
    again = 0 if cached else reloaded_rows(target, tile.rows, tile.vectors)
    few = not again and any(axis != last for axis in _met_by_rows(c, known))
    most = min(MAX_STEPS_PER_COPY, -(-FMAS_PER_COPY // fmas)) if few else MAX_STEPS_PER_TURN
    unroll = next(
        u
        for u in range(min(most, apart), 0, -1)
        if steps % u == 0 and (u == 1 or u * fmas <= MAX_FMAS_PER_TURN)
    )
    return Turn(unroll, again if steps > unroll else 0)


def _reductions(c: Contraction) -> tuple[str, ...]:
    return tuple(it.name for it in c.stage.iters if it.kind == "red")


def reduce_tile(
    s: Schedule,
    c: Contraction,
    block: str,
    loops: list[str],
    tile: RegisterTile,
    target: Target,
    turn: Turn | None = None,
) -> Schedule:
    """Order, unroll and vectorise the nest of the contraction inside a tile, its start in front."""
    fmas = tile.rows * tile.vectors
    kinds = {it.name: it.kind for it in c.stage.iters}
    if c.run is not None:
        # the same vectors as in the result, also where its runs are shorter than a register
        s, loops = _split_runs(s, c, block, loops)
    feeds = fed_by(s, block, loops)
    reds = {axis: loop for loop, axis in feeds.items() if kinds[axis] == "red"}
    pars = [loop for loop in loops if kinds[feeds[loop]] == "par"]
    vector = [loop for loop in pars if feeds[loop] == c.vector][-1]
    # rows outside of vectors: each broadcast is used up before the next one is loaded
    rows = set(c.axes("m"))
    pars.sort(key=lambda loop: (loop == vector, feeds[loop] not in rows))
    windows = [reds[a] for a in c.axes("window") if a in reds]
    ks = [reds[a] for a in c.axes("k") if a in reds]
    if is_expanded(c):
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
        turn = default_turn(c, tile, target, reds) if turn is None else turn
        masking = [reds[a] for a in _masking(c, reds, fmas)]
        windows = [loop for loop in windows if loop not in masking]
        inner = innermost_of(c, fmas, reds)
        last = reds[inner.axis]
        around = (*windows, *ks) if inner.windows_outside else (*ks, *windows)
        front = [loop for loop in around if loop != last]
        if inner.run is not None:
            s = s.split(last, inner.run)
            front.insert(0, f"{last}_o")
            last = f"{last}_i"
        group: list[str] = []
        use = use_of(c)
        if use is not None:
            # innermost, the neighbours that an instruction takes together
            s = s.split(last, use.depth)
            group, last = [f"{last}_i"], f"{last}_o"
        red = [*front, last]
        order = [*red, *masking, *pars, *group]
        s = s.reorder(*order) if len(order) > 1 else s
        s = s.decompose_init(block, red[0])
        for loop in masking:
            s = s.unroll(loop)
        if use is not None:
            s = s.tensorize(group[0], use.instruction)
        if turn.unroll > 1:
            s = s.annotate(last, "unroll", str(turn.unroll))
        if turn.reload:
            s = s.annotate(last, "reload", f"{turn.reload}/{tile.rows}")
    s = _expand_loops(s, pars, vector)
    suffixed = {f"{loop}_init" for loop in pars}
    start = [loop for loop in s.loops(f"{block}_init") if loop in suffixed]
    s = s.reorder(*[f"{loop}_init" for loop in pars if f"{loop}_init" in start]) if len(start) > 1 else s
    return _expand_loops(s, start, f"{vector}_init")


def _split_runs(s: Schedule, c: Contraction, block: str, loops: list[str]) -> tuple[Schedule, list[str]]:
    assert c.run is not None
    for loop, axis in fed_by(s, block, loops).items():
        if axis == c.vector and s.loop(loop).extent.as_int() > c.run:
            s = s.split(loop, c.run)
            at = loops.index(loop)
            return s, [*loops[:at], f"{loop}_o", f"{loop}_i", *loops[at + 1 :]]
    return s, loops


def _expand_loops(s: Schedule, loops: list[str], vector: str) -> Schedule:
    for loop in loops:
        s = s.vectorize(loop) if loop == vector else s.unroll(loop)
    return s


def _masking(c: Contraction, reds: Collection[str], fmas: int) -> list[str]:
    """Window axes that say which lanes are off: expanded, where that is not too much code, so are masks."""
    tied = {v for cond in c.guard if c.vector in cond.vars for v in cond.vars}
    axes = [a for a in c.axes("window") if a in tied and a in reds]
    few = math.prod(c.extent(a) for a in axes) * fmas <= MAX_FMAS_PER_TURN
    return axes if few and len(axes) < len(reds) and use_of(c) is None else []


def _met_by_rows(c: Contraction, reds: Collection[str]) -> list[str]:
    """Window axes that a guard ties to the tiled row axis: they are cut where a tile meets the padding."""
    row = row_axis(c)
    tied = {v for cond in c.guard if row in cond.vars for v in cond.vars}
    return [a for a in c.axes("window") if a in tied and a in reds]


def _steps_apart(c: Contraction, axis: str, rows: int) -> int:
    """Steps of a reduction axis after which some of ``rows`` rows read the elements of rows beside them.

    Unrolled further, those elements would be loaded once and kept, in registers that the sums need.
    """
    row = row_axis(c)
    if row is None or c.b is None:
        return MAX_STEPS_PER_TURN
    depth = _together(c)
    found = [MAX_STEPS_PER_TURN]
    for i in c.a.indices:
        if not {axis, row} <= i.vars:
            continue
        along, step = abs(i.coefficient(row)), abs(i.coefficient(axis)) * depth
        common = math.gcd(along, step)
        if common == 0 or step // common < rows:
            found.append(max(1, along // max(1, common)))
    return min(found)


def fed_by(s: Schedule, block: str, loops: list[str]) -> dict[str, str]:
    """Each loop's iterator: the one whose binding mentions it."""
    found = s.block(block)
    out: dict[str, str] = {}
    for it, bind in zip(found.iters, found.bind, strict=True):
        for loop in loops:
            if loop in bind.vars:
                out[loop] = it.name
    return {loop: out[loop] for loop in loops if loop in out}
