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

from dataclasses import dataclass
from typing import Final

from tilewright.ir import Load, Mod, Program, Stage, Var
from tilewright.schedule import Schedule
from tilewright.strategies.roles import Contraction, contraction, group_length, run_length
from tilewright.strategies.tiles import register_tile
from tilewright.target import Target

#: Multiply-adds of one turn of the innermost reduction loop, at most: more lets the register allocator spill.
MAX_FMAS_PER_TURN: Final = 120
#: Steps of the innermost reduction loop that are unrolled, at most.
MAX_STEPS_PER_TURN: Final = 4
#: The same where the loop itself is expanded several times: keeps compile time in bounds.
MAX_STEPS_PER_COPY: Final = 2
#: Windows up to this many taps are expanded in the micro-kernel where there is no k axis.
MAX_EXPANDED_TAPS: Final = 9
#: Rows of a tile, at most.
MAX_ROWS: Final = 14


def is_tileable(program: Program, stage: Stage, target: Target) -> Contraction | None:
    """The contraction of a stage that this rule can schedule, else ``None``."""
    c = contraction(program, stage)
    if c is None:
        return None
    dtype = c.write.value.dtype
    if not all(it.extent.is_const for it in stage.iters) or not dtype.is_float:
        return None
    for ld in (c.a, c.b):
        if ld is not None and any(c.vector in i.vars for i in ld.indices) and run_length(ld, c.vector) == 0:
            return None
    return c if (c.extent(c.vector) or 0) * 2 > target.lanes(dtype) else None


@dataclass(frozen=True, slots=True)
class _Tile:
    """Loop names of the tiled result, outermost first within each group."""

    outer: tuple[str, ...]
    around: str  # the loop whose body is the micro-kernel
    inner: tuple[str, ...]  # expanded loops inside of it, without the vector loop
    vector: str
    ragged: tuple[str, ...]  # loops whose last iteration is partial


def schedule_contraction(
    s: Schedule, c: Contraction, epilogue: Stage | None, target: Target, threads: int
) -> Schedule:
    """Schedule a contraction and the stage that consumes it point by point, if there is one.

    Loops of both stages are those of the unscheduled program. ``threads`` run the result.
    """
    last = epilogue or c.stage
    s, tile, rows, vectors = _tile(s, c, last, target)
    block = c.stage.name
    if epilogue is not None:
        buffer = c.stage.writes[0]
        s = s.compute_at(block, tile.around).set_scope(buffer, "register")
        own = _loops_below(s, block, tile.around)
        s = _reduce(s, c, block, own, rows * vectors)
        s = s.vectorize(tile.vector)
        for loop in tile.inner:
            s = s.unroll(loop)
    else:
        out = f"{block}_acc"
        s = s.stage(c.stage.writes[0], at=tile.around, scope="register", mode="write", name=out)
        s = _reduce(s, c, block, _loops_below(s, block, tile.around), rows * vectors)
        copy = _loops_below(s, f"{out}_out", tile.around)
        for loop in copy[:-1]:
            s = s.unroll(loop)
        s = s.vectorize(copy[-1])
    s = s.annotate(tile.around, "outline")
    m_axes = [a for a in c.axes("m") if a != c.vector]
    guarded = bool(m_axes) and any(m_axes[-1] in cond.vars for cond in c.guard)
    return _parallelise(s, tile, last.name, guarded, threads)


def _tile(s: Schedule, c: Contraction, last: Stage, target: Target) -> tuple[Schedule, _Tile, int, int]:
    """Split and order the loops of the result."""
    write = c.write
    lanes = target.lanes(write.value.dtype)
    loops = s.loops(last.name)
    loop_of = dict(zip([it.name for it in last.iters], loops, strict=True))
    # the axis of the last stage that runs along the same dimension as the contraction's
    pars = [it.name for it in last.iters if it.kind == "par"]
    names = [i.as_var() for i in write.indices]
    loop = {name: loop_of[axis] for name, axis in zip(names, pars, strict=True) if name is not None}

    extent = {it.name: c.extent(it.name) or 1 for it in c.stage.iters}
    broadcast = c.vector in c.axes("n")
    m_axes = [a for a in c.axes("m") if a != c.vector]
    n_axes = [a for a in c.axes("n") if a != c.vector]
    row = m_axes[-1] if m_axes else None
    group = n_axes[-1] if n_axes else None
    whole = -(-extent[c.vector] // lanes)
    counts = vector_counts(c, lanes)
    chosen = register_tile(target, extent[row] if row else 1, counts, max_rows=MAX_ROWS, broadcast=broadcast)

    ragged: list[str] = []

    def split(axis: str, factor: int) -> tuple[str, str]:
        nonlocal s
        s = s.split(loop[axis], factor)
        if extent[axis] % factor:
            ragged.append(f"{loop[axis]}_o")
        return f"{loop[axis]}_o", f"{loop[axis]}_i"

    n_outer: list[str] = []
    inner: list[str] = []
    vector = loop[c.vector]
    if group is not None:
        o, i = split(group, max(1, chosen.vectors // whole))
        n_outer.append(o)
        inner.append(i)
    elif extent[c.vector] > chosen.vectors * lanes:
        o, vector = split(c.vector, chosen.vectors * lanes)
        n_outer.append(o)
    around: str | None = None
    if row is not None:
        around, i = split(row, chosen.rows)
        inner.insert(0, i)
    batch = [loop[a] for a in c.axes("batch") if a != c.vector]
    other_n = [loop[a] for a in n_axes if a != group]
    other_m = [loop[a] for a in m_axes if a != row]
    outer = [*batch, *other_n, *n_outer, *other_m]
    if around is None:
        if not outer:
            s = s.split(vector, extent[c.vector])
            outer, vector = [f"{vector}_o"], f"{vector}_i"
        around = outer.pop()
    reductions = [loop_of[it.name] for it in last.iters if it.kind == "red"]
    order = [*outer, around, *reductions, *inner, vector]
    if len(order) > 1:
        s = s.reorder(*order)
    return s, _Tile(tuple(outer), around, tuple(inner), vector, tuple(ragged)), chosen.rows, chosen.vectors


def vector_counts(c: Contraction, lanes: int) -> tuple[int, ...]:
    """Numbers of vectors that a tile may have along n: what packed panels say, else up to four."""
    n_axes = [a for a in c.axes("n") if a != c.vector]
    extent = c.extent(c.vector) or 1
    whole = -(-extent // lanes)
    if n_axes:
        packed = group_length(c.b, n_axes[-1]) if c.b is not None else None
        if packed is not None:
            return (packed * whole,)
        groups = c.extent(n_axes[-1]) or 1
        return tuple(g * whole for g in (1, 2, 3, 4) if groups % g == 0 and (g == 1 or g * whole <= 4))
    for ld in (c.a, c.b):
        panel = run_length(ld, c.vector) if ld is not None else None
        if panel:
            return (-(-panel // lanes),)
    return tuple(v for v in (1, 2, 3, 4) if v <= whole)


def _loops_below(s: Schedule, block: str, loop: str) -> list[str]:
    loops = list(s.loops(block))
    return loops[loops.index(loop) + 1 :]


def _reduce(s: Schedule, c: Contraction, block: str, loops: list[str], fmas: int) -> Schedule:
    """Order, unroll and vectorise the nest of the contraction inside a tile, its start in front."""
    kinds = {it.name: it.kind for it in c.stage.iters}
    feeds = _fed_by(s, block, loops)
    reds = {axis: loop for loop, axis in feeds.items() if kinds[axis] == "red"}
    pars = [loop for loop in loops if kinds[feeds[loop]] == "par"]
    vector = next((loop for loop in pars if feeds[loop] == c.vector), pars[-1])
    # rows outside of vectors: each broadcast is used up before the next one is loaded
    rows = set(c.axes("m"))
    pars.sort(key=lambda loop: (loop == vector, feeds[loop] not in rows))
    windows = [reds[a] for a in c.axes("window") if a in reds]
    ks = [reds[a] for a in c.axes("k") if a in reds]
    taps = 1
    for a in c.axes("window"):
        taps *= c.extent(a) or 1
    if not ks and taps <= MAX_EXPANDED_TAPS:
        s = s.reorder(*windows, *pars) if len([*windows, *pars]) > 1 else s
        s = s.decompose_init(block, [*windows, *pars][0])
        # neighbouring results share what they load along the last window axis
        s = s.unroll(windows[-1])
    else:
        axis, step = _contiguous(c.a, tuple(a for a in c.axes("k", "window") if a in reds))
        last = reds.get(axis or "", (windows or ks)[-1])
        steps = c.extent(axis) or 1 if axis else c.extent(feeds[last]) or 1
        front = [loop for loop in (*ks, *windows) if loop != last]
        if step is not None and steps > step:
            s = s.split(last, step)
            front.insert(0, f"{last}_o")
            last, steps = f"{last}_i", step
        red = [*front, last]
        copies = 1
        for loop in _decided_by_copies(c, reds):
            if loop != last:
                s = s.unroll(loop)
                copies *= s.loop(loop).extent.as_int()
        s = s.reorder(*red, *pars) if len([*red, *pars]) > 1 else s
        s = s.decompose_init(block, red[0])
        most = MAX_STEPS_PER_TURN if copies == 1 else MAX_STEPS_PER_COPY
        unroll = next(
            u for u in range(most, 0, -1) if steps % u == 0 and (u == 1 or u * fmas <= MAX_FMAS_PER_TURN)
        )
        if unroll > 1:
            s = s.annotate(last, "unroll", str(unroll))
    for b in (block, f"{block}_init"):
        own = [loop for loop in s.loops(b) if loop in pars or loop.removesuffix("_init") in pars]
        for loop in own[:-1]:
            s = s.unroll(loop)
        s = s.vectorize(own[-1])
    return s


def _decided_by_copies(c: Contraction, reds: dict[str, str]) -> list[str]:
    """Window loops that a guard ties to the tiled row axis: expanded, each copy knows what it may read."""
    m_axes = [a for a in c.axes("m") if a != c.vector]
    if not m_axes:
        return []
    tied = {v for cond in c.guard if m_axes[-1] in cond.vars for v in cond.vars}
    return [reds[a] for a in c.axes("window") if a in tied and a in reds]


def _fed_by(s: Schedule, block: str, loops: list[str]) -> dict[str, str]:
    """Each loop's iterator: the one whose binding mentions it."""
    found = s.block(block)
    out: dict[str, str] = {}
    for it, bind in zip(found.iters, found.bind, strict=True):
        for loop in loops:
            if loop in bind.vars:
                out[loop] = it.name
    return {loop: out[loop] for loop in loops if loop in out}


def _contiguous(a: Load, reds: tuple[str, ...]) -> tuple[str | None, int | None]:
    """The reduction axis along the last dimension of ``a``, and its run length (``None``: all of it)."""
    if not a.indices:
        return None, None
    for atom, coefficient in a.indices[-1].terms:
        if coefficient != 1:
            continue
        if isinstance(atom, Var) and atom.name in reds:
            return atom.name, None
        if isinstance(atom, Mod):
            name = atom.arg.as_var()
            if name in reds:
                return name, atom.divisor
    return None, None


def _parallelise(s: Schedule, tile: _Tile, stage: str, guarded: bool, threads: int) -> Schedule:
    """Exact copies for partial and border tiles, then the outer loops as one parallel loop."""
    tiles = s.loop(tile.around).extent.as_int()
    if guarded and tiles > 1:
        # the first and the last tile meet the padding, those between do not
        s = s.partition(tile.around, 1)
        if tiles > 2:
            s = s.partition(f"{tile.around}_1", -1)
    elif tile.around in tile.ragged:
        s = s.partition(tile.around, -1)
    for loop in tile.ragged:
        if loop != tile.around:
            s = s.partition(loop, -1)
    if threads == 1:
        return s
    if not tile.outer:
        return s.parallel(tile.around)
    started: set[str] = set()
    for name in s.blocks():
        loops = s.loops(name)
        if s.block(name).stage == stage and not started & set(loops):
            s, fused = _fuse(s, list(loops[: len(tile.outer)]))
            started.add(fused)
            s = s.parallel(fused)
    return s


def _fuse(s: Schedule, loops: list[str]) -> tuple[Schedule, str]:
    name = loops[0]
    for inner in loops[1:]:
        fused = f"{name}_{inner}"[:60]
        s = s.fuse(name, inner, names=[fused])
        name = fused
    return s, name
