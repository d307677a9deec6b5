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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.analysis import Contraction, footprint, row_axis
from tilewright.cost import BLOCK_SHARE, Machine, second_cache
from tilewright.ir import Buffer, Index, Stage
from tilewright.plan.contraction.boundary_tiles import cut_borders
from tilewright.plan.contraction.cache_blocking import RowBlock, choose_row_block
from tilewright.plan.contraction.instructions import InstructionUse, tile_of, use_of
from tilewright.plan.contraction.line_tiling import Beside, lines_beside
from tilewright.plan.contraction.matrix_nests import fill_matrix
from tilewright.plan.contraction.microkernel import (
    Turn,
    default_turn,
    expand_tile,
    fed_by,
    loops_below,
    reduce_tile,
)
from tilewright.plan.contraction.output_order import (
    InOrder,
    keep_part,
    part_loop,
    shares_lines,
    transpose_parts,
)
from tilewright.plan.contraction.prefetch import ask_ahead, ask_for_panels
from tilewright.plan.contraction.register_tiling import RegisterTile, choose_tile, vector_width
from tilewright.plan.contraction.sharing import shared_axis, sharing
from tilewright.plan.contraction.tile_order import bands_pass, columns_inside
from tilewright.plan.trees import is_balanced
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class TilePlan:
    """How a contraction is done by register tiles: what :func:`schedule_contraction` carries out.

    A tile has ``rows`` results along the row axis and ``vectors`` vectors; where ``lines`` names another m
    axis, it takes so many neighbours along that one, too. ``threads`` share the result: evenly the axis
    ``shared``, or, if that is ``None``, the outer loops. ``block`` is an m axis and how much of it stays in
    cache while all panels of the other operand pass (``None``: no blocks). ``columns_inside`` says whether
    tiles follow one another along the vectors first. ``turn`` is that of the reduction's innermost loop
    (``None``: the default one); with ``prefetch`` what comes next is asked for where the machine's figures
    say that it pays. ``instruction`` does the products, and says how operands must lie for that
    (``None``: multiply-adds do).
    """

    rows: int
    vectors: int
    threads: int
    shared: str | None = None
    lines: tuple[str, int] | None = None
    block: tuple[str, int] | None = None
    columns_inside: bool = False
    turn: Turn | None = None
    prefetch: bool = True
    instruction: InstructionUse | None = None

    @property
    def tile_rows(self) -> int:
        """Rows of a tile along all of its axes."""
        return self.rows * (self.lines[1] if self.lines is not None else 1)


@dataclass(frozen=True, slots=True)
class _Uneven:
    """Blocks of rows that do not divide their axis: the loop over them, and that over what one has.

    The last block has ``whole`` full iterations of that, and perhaps a ``partial`` one.
    """

    blocks: str
    inside: str
    whole: int
    partial: bool


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
    columns: tuple[str, ...] = ()  # the loops over the panels of one result
    parts: tuple[str, ...] = ()  # the outer loops whose iterations make parts that lie together in the result
    rows: str | None = None  # the loop of which each iteration uses rows of a that one thread's caches keep
    uneven: _Uneven | None = None  # the last block of rows, where it is smaller


@dataclass(frozen=True, slots=True)
class TileProblem:
    """A contraction to be done by register tiles, and what is done together with it.

    ``epilogue`` is the stage that consumes the result point by point; ``outputs`` are the arguments that are
    written. ``panels`` names the stage that makes the operand ``b`` in the order in which it is read, tile
    by tile. A result that a copy puts ``in_order`` is copied part by part. What makes the operand ``a`` is
    put by ``rows`` into the loop over blocks of rows that stay in the second cache level, if there is one.
    An operand ``b`` that is ``copied`` for it is made by each thread that takes a part of an m axis.
    """

    c: Contraction
    epilogue: Stage | None
    outputs: tuple[Buffer, ...]
    panels: str | None = None
    in_order: InOrder | None = None
    rows: Callable[[Schedule, str], Schedule] | None = None
    copied: bool = False

    @property
    def last(self) -> Stage:
        """The stage whose loops are tiled."""
        return self.epilogue or self.c.stage


def default_tiles(p: TileProblem, machine: Machine) -> TilePlan:
    """The tile with the fewest cycles, and the order of tiles that reads least from afar.

    Where the m axes divide evenly, each thread takes a part of them: kernels one after another then find on
    their own core what they wrote there, and only weights go to all. Otherwise threads share the outer loops,
    and also where two of them would write to the same lines of a result that is put in order.
    """
    target = machine.target
    c = p.c
    machine = sharing(p.c.stage, machine)
    chosen = choose_tile(c, target)
    columns = chosen.vectors * vector_width(c, target)
    cut = shared_axis(c, chosen, machine, p.copied)
    if p.in_order is not None and cut is not None:
        even = c.extent(c.vector) % (columns * machine.threads) == 0
        position = [i.as_var() for i in c.write.indices].index(cut)
        if even and shares_lines(p.in_order, position, machine):
            cut = None
    lines = None
    if p.panels is None and p.in_order is None:
        shared = math.prod(c.extent(a) for a in c.axes("batch", "n") if a != c.vector)
        shared *= -(-c.extent(c.vector) // columns)
        balanced = cut is not None or is_balanced(shared, machine.threads)
        lines = lines_beside(c, chosen, machine, cut, balanced)
    block = None
    if p.panels is None:
        row = row_axis(c)
        tiled = {} if row is None else {row: chosen.rows}
        tiled |= {} if lines is None else {lines.axis: lines.count}
        block = choose_row_block(c, machine, tiled, columns, cut, _owns_rows(p, cut, machine.threads))
    plan = _plan(p, machine, chosen, cut, lines, block)
    if tile_of(c) is not None:
        return plan
    return replace(plan, turn=default_turn(c, replace(chosen, rows=plan.tile_rows), target))


def inner_tiles(c: Contraction, epilogue: Stage | None, s: Schedule, target: Target) -> TilePlan:
    """The tiles of a contraction inside another nest: one thread, no blocks."""
    outputs = tuple(b for b in s.func.buffers if b.name in s.func.outputs)
    return _plan(TileProblem(c, epilogue, outputs), Machine(target, 1), choose_tile(c, target))


def _plan(
    p: TileProblem,
    machine: Machine,
    chosen: RegisterTile,
    cut: str | None = None,
    lines: Beside | None = None,
    block: RowBlock | None = None,
) -> TilePlan:
    inside = columns_inside(p.c, p.last, p.outputs, machine.target)
    if p.panels is None and p.in_order is None:
        inside = inside or bands_pass(p.c, chosen, machine.target)
    return TilePlan(
        chosen.rows,
        chosen.vectors,
        machine.threads,
        cut,
        None if lines is None else (lines.axis, lines.count),
        None if block is None else (block.axis, block.size),
        inside,
        instruction=use_of(p.c),
    )


def _owns_rows(p: TileProblem, cut: str | None, threads: int) -> bool:
    """Whether rows of ``a`` are made for this contraction, and one thread alone uses those of a block."""
    return p.rows is not None and (cut is not None or threads == 1)


def schedule_contraction(s: Schedule, p: TileProblem, plan: TilePlan, target: Target) -> Schedule:
    """Schedule a contraction and the stage that consumes it point by point, if there is one.

    Loops of both stages are those of the unscheduled program. Raises ScheduleError where a primitive refuses
    a step, or no loop makes parts of a good size.
    """
    c, last, threads = p.c, p.last, plan.threads
    s, tile = _tile(s, p, plan, target)
    size = RegisterTile(plan.tile_rows, plan.vectors, 0.0)
    part = None
    if p.in_order is not None:
        part = part_loop(s, p.in_order, tile.parts, tile.shared, Machine(target, threads))
        if part is None:
            raise ScheduleError(f"{last.name} is not made in parts that threads could share")
        s = s.reverse_compute_at(p.in_order.copy.name, part, keep_storage=True)
    s = _fill(s, c, p.epilogue, tile, size, target, plan.turn)
    if p.rows is not None and tile.rows is not None:
        s = p.rows(s, tile.rows)
    streamed = None
    if plan.prefetch:
        feeds = fed_by(s, c.stage.name, list(s.loops(c.stage.name)))
        written = None if p.in_order is not None else last.writes[0]
        if p.panels is None:
            columns = tile.panels if tile.panels in tile.columns else None
            s, streamed = ask_for_panels(s, c, columns, (*tile.outer, tile.around), size, target)
        s = ask_ahead(s, c, feeds, tile.outer, tile.around, written, target)
    if p.in_order is not None and part is not None:
        s = keep_part(s, p.in_order, part)
    if p.panels is not None:
        s = _pack_panels(s, p.panels, tile)
    s = s.annotate(tile.around, "outline")
    s = _peel(s, c, tile)
    if threads > 1:
        s = _parallelise(s, tile, last.name, threads, streamed)
    if p.in_order is not None:
        s = transpose_parts(s, p.in_order)
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
    loops = {axis: loop for loop, axis in fed_by(s, last.name, loops_below(s, last.name, within)).items()}
    plan = inner_tiles(c, epilogue, s, target)
    s, tile = _tile(s, TileProblem(c, epilogue, ()), plan, target, loops)
    size = RegisterTile(plan.tile_rows, plan.vectors, 0.0)
    s = _fill(s, c, epilogue, tile, size, target)
    s = s.annotate(tile.around, "outline")
    s = _peel(s, c, tile)
    return cut_borders(s, c.stage.name)


def _fill(
    s: Schedule,
    c: Contraction,
    epilogue: Stage | None,
    tile: _Tile,
    size: RegisterTile,
    target: Target,
    turn: Turn | None = None,
) -> Schedule:
    """The micro-kernel: the reduction in registers, and what becomes of its result."""
    if tile_of(c) is not None:
        return fill_matrix(s, c, epilogue, tile.around, target)
    block = c.stage.name
    if epilogue is not None:
        s = s.compute_at(block, tile.around).set_scope(c.stage.writes[0], "register")
        s = reduce_tile(s, c, block, loops_below(s, block, tile.around), size, target, turn)
        s = s.vectorize(tile.vector)
        for loop in tile.inner:
            s = s.unroll(loop)
        return s
    out = f"{block}_acc"
    s = s.cache(c.stage.writes[0], at=tile.around, scope="register", mode="write", name=out)
    s = reduce_tile(s, c, block, loops_below(s, block, tile.around), size, target, turn)
    return expand_tile(s, f"{out}_out", loops_below(s, f"{out}_out", tile.around), c)


@dataclass(slots=True)
class _Cutting:
    """The result's loops while they are cut: the schedule so far, and the parts by what becomes of them."""

    s: Schedule
    c: Contraction
    plan: TilePlan
    loop: Mapping[str, str]
    """The loop of each axis."""
    ragged: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    share: list[str] = field(default_factory=list)
    uneven: _Uneven | None = None

    @property
    def lines(self) -> Beside | None:
        """Neighbours along another axis that a tile has, too."""
        return None if self.plan.lines is None else Beside(*self.plan.lines)

    @property
    def block(self) -> RowBlock | None:
        """The rows that stay in cache."""
        return None if self.plan.block is None else RowBlock(*self.plan.block)

    def split(self, axis: str, *factors: int) -> list[str]:
        """The parts of an axis' loop, the outermost one first."""
        base, taken = self.loop[axis], {loop for block in self.s.blocks() for loop in self.s.loops(block)}
        # a second axis of that name in the user's program is called so, too: j_1
        while taken & {f"{base}_{n}" for n in range(len(factors) + 1)}:
            base = f"{base}_part"
        parts = [f"{base}_{n}" for n in range(len(factors) + 1)]
        self.s = self.s.split(self.loop[axis], list(factors), names=parts)
        if self.c.extent(axis) % math.prod(factors):
            self.ragged.append(parts[0])
        return parts

    def shared(self, axis: str, sizes: list[int]) -> list[int]:
        """The sizes with a thread's part before them, where threads share the axis."""
        if axis != self.plan.shared:
            return sizes
        return [self.c.extent(axis) // (self.plan.threads * math.prod(sizes)), *sizes]

    def rows(self, row: str) -> tuple[str, list[str]]:
        """Parts of threads, blocks and tiles, all even but perhaps the tiles: these, and those around."""
        sizes = [self.plan.rows]
        if self.block is not None and self.block.axis == row:
            sizes.insert(0, self.block.size // self.plan.rows)
        *front, around, rows = self.split(row, *self.shared(row, sizes))
        self._note_uneven(row, front, around)
        if row == self.plan.shared:
            self.share.append(front.pop(0))
        self.inner.append(rows)
        return around, front

    def _note_uneven(self, axis: str, front: list[str], inside: str) -> None:
        """Remember the last block of an axis, where that is smaller."""
        block, step = self.block, self.plan.rows if axis == row_axis(self.c) else 1
        left = 0 if block is None or block.axis != axis or not front else self.c.extent(axis) % block.size
        if left:
            self.ragged.remove(front[-1])
            self.uneven = _Uneven(front[-1], inside, left // step, left % step > 0)

    def vectors(self, width: int) -> tuple[str, list[str]]:
        """The loop over a vector's lanes, and the one over the vectors of tiles, if there are several."""
        c, vectors = self.c, self.plan.vectors
        if c.run is not None:
            # vectors of one run each: the runs of a tile lie apart in memory
            outermost, group, vector = self.split(c.vector, vectors, width)
            self.inner.append(group)
            return vector, [outermost]
        if c.extent(c.vector) > vectors * width:
            outermost, vector = self.split(c.vector, vectors * width)
            return vector, [outermost]
        return self.loop[c.vector], []

    def other(self, axis: str) -> list[str]:
        """The parts of another m axis that are around tiles."""
        block, lines = self.block, self.lines
        fits = block is not None and block.axis == axis and block.size < self.c.extent(axis)
        sizes = [block.size] if block is not None and fits else []
        if lines is not None and lines.axis == axis:
            sizes = [*(size // lines.count for size in sizes), lines.count]
        sizes = self.shared(axis, sizes)
        parts = self.split(axis, *sizes) if sizes else [self.loop[axis]]
        if fits and lines is None:
            self._note_uneven(axis, parts[:-1], parts[-1])
        if lines is not None and lines.axis == axis:
            self.inner.insert(0, parts.pop())
        if axis == self.plan.shared:
            self.share.append(parts.pop(0))
        return parts


def _cutting(
    s: Schedule, p: TileProblem, plan: TilePlan, loops: Mapping[str, str] | None
) -> tuple[_Cutting, list[str]]:
    """The result's loops as they are, and those of reductions of the last stage."""
    last = p.last
    loop_of = loops or dict(zip([it.name for it in last.iters], s.loops(last.name), strict=True))
    # the axis of the last stage that runs along the same dimension as the contraction's
    pars = [it.name for it in last.iters if it.kind == "par"]
    names = [i.as_var() for i in p.c.write.indices]
    along = [(name, axis) for name, axis in zip(names, pars, strict=True) if name is not None]
    loop = {name: loop_of[axis] for name, axis in along if axis in loop_of}
    reductions = [loop_of[it.name] for it in last.iters if it.kind == "red" and it.name in loop_of]
    return _Cutting(s, p.c, plan, loop), reductions


def _tile(
    s: Schedule, p: TileProblem, plan: TilePlan, target: Target, loops: Mapping[str, str] | None = None
) -> tuple[Schedule, _Tile]:
    """Split and order the loops of the result (``loops``: those of its iterators, default all around it)."""
    c, width, row = p.c, vector_width(p.c, target), row_axis(p.c)
    made, reductions = _cutting(s, p, plan, loops)
    loop, block = made.loop, made.block
    around, in_blocks = (None, []) if row is None else made.rows(row)
    vector, n_outer = made.vectors(width)
    batch = [loop[a] for a in c.axes("batch") if a != c.vector and a in loop]
    other_n = [loop[a] for a in c.axes("n") if a != c.vector and a in loop]
    feeding = {loop[a]: a for a in c.axes("batch") if a != c.vector and a in loop}
    other_m: list[str] = []
    outside: list[str] = []
    for a in c.axes("m"):
        if a in (row, c.vector) or a not in loop:
            continue
        if c.extent(a) == 1:
            # between no two loops that matter
            batch.append(loop[a])
            feeding[loop[a]] = a
            continue
        parts = made.other(a)
        if block is not None and block.axis == a:
            # the axes before and the blocks of this one: outside of the panels
            outside += [*other_m, *parts[:-1]]
            other_m = []
        other_m.append(parts[-1])
        feeding[parts[-1]] = a
    if block is not None and block.axis == row:
        outside, other_m = [*other_m, *in_blocks], []
    share = made.share
    columns, bands = n_outer[0] if n_outer and c.run is None else None, around
    outer = [*share, *batch, *outside, *other_n, *n_outer, *other_m]
    making = outer
    if p.in_order is not None and p.in_order.phases:
        # all phases of a row, so that a part is whole rows of the result
        inside = {it.name: it.extent.as_int() for it in c.stage.iters} | {c.vector: plan.vectors * width}
        if c.b is None or footprint(c.b, inside) > BLOCK_SHARE * second_cache(target):
            raise ScheduleError(f"{p.last.name} reads too much for the phases of a row to share the caches")
        making = [*share, *batch, *outside, *n_outer, *other_m]
        outer = [*making, *other_n]
    if c.vector in c.axes("batch") and not outside:
        # nothing is shared but by neighbouring rows: in the order in which results lie in memory
        axes = [it.name for it in c.stage.iters]
        of = feeding | dict.fromkeys(n_outer, c.vector) | {loop[a]: a for a in c.axes("n") if a in loop}
        loops_around = (*batch, *other_n, *n_outer, *other_m)
        outer = [*share, *sorted(loops_around, key=lambda part: axes.index(of[part]))]
    if around is not None and outer and outer[-1] == columns and plan.columns_inside:
        outer[-1], around = around, columns
    if around is None:
        if not outer:
            whole, vector = made.split(c.vector, c.extent(c.vector))
            outer = [whole]
        around = outer.pop()
    order = [*outer, around, *reductions, *made.inner, vector]
    s = made.s.reorder(*order) if len(order) > 1 else made.s
    panels = next(iter([*n_outer[::-1], *other_n[::-1], *batch[::-1]]), None)
    cuts = tuple((part, axis) for part, axis in ((columns, c.vector), (bands, row)) if part and axis)
    tiles = _Tile(
        tuple(outer), around, tuple(made.inner), vector, tuple(made.ragged), panels, bool(share), cuts,
        tuple(n_outer), tuple(part for part in making if part in outer),
        next(iter([*outside[::-1], *share[::-1]]), None)
        if _owns_rows(p, plan.shared, plan.threads) else None,
        made.uneven,
    )  # fmt: skip
    return s, tiles


def _pack_panels(s: Schedule, stage: str, tile: _Tile) -> Schedule:
    """Compute what one n tile needs of an operand just before it is used, vectors last."""
    if tile.panels is not None:
        s = s.compute_at(stage, tile.panels)
    loops = s.loops(stage)
    inner = loops[loops.index(tile.panels) + 1 :] if tile.panels else loops
    return s.vectorize(inner[-1])


def _peel(s: Schedule, c: Contraction, tile: _Tile) -> Schedule:
    """Exact copies for partial and border tiles."""
    met = {v for cond in c.guard for v in cond.vars}
    guarded = {loop for loop, axis in tile.cuts if axis in met}
    cut = dict.fromkeys((tile.around, *tile.ragged, *guarded))
    last = tile.uneven
    if last is not None:
        s = s.partition(last.blocks, -1)
        for loop in dict.fromkeys((*cut, last.inside)):
            if loop != last.inside:
                s = _cut(s, f"{loop}_1", loop in guarded, loop in tile.ragged)
            else:
                # tiles that the last block does not have are no code
                ends = (
                    last.whole - (loop in guarded and not last.partial),
                    last.whole,
                    last.whole + last.partial,
                )
                s = s.partition(f"{loop}_1", sorted({end for end in ends if end > 0}))
    for loop in cut:
        s = _cut(s, loop, loop in guarded, loop in tile.ragged)
    return s


def _parallelise(
    s: Schedule, tile: _Tile, stage: str, threads: int, innermost: str | None = None
) -> Schedule:
    """The outer loops of all copies as one parallel loop each, up to ``innermost`` if that is even."""
    return parallelise_tiles(s, (*tile.outer, tile.around), stage, threads, tile.shared, innermost)


def parallelise_tiles(
    s: Schedule,
    tiles: Sequence[str],
    stage: str,
    threads: int,
    shared: bool = False,
    innermost: str | None = None,
) -> Schedule:
    """Fuse the loops ``tiles`` around all copies of a stage into one parallel loop each.

    All but the innermost, the first one where that has an iteration a thread (``shared``), or those up to
    ``innermost`` if that is even; more while threads would have unequal parts.
    """
    started: set[str] = set()
    for name in s.blocks():
        loops = s.loops(name)
        if s.block(name).stage == stage and not started & set(loops):
            around = list(loops[: len(tiles)])
            # a loop of one iteration around several copies of tiles is no work for threads to share
            while len(around) > 1 and s.loop(around[0]).extent == Index(1) and not _nests(s, *around[:2]):
                del around[0]
            count = 1 if shared else len(around) - 1
            if innermost in around[:count]:
                count = around.index(innermost) + 1
            s, fused = _fuse(s, around, count, threads)
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


def _nests(s: Schedule, outer: str, inner: str) -> bool:
    """Whether a loop is all that is inside of another one."""
    return s.loop(outer).body is s.loop(inner)


def _fuse(s: Schedule, loops: Sequence[str], wanted: int, threads: int) -> tuple[Schedule, str]:
    """Fuse the first ``wanted`` loops as far as they nest perfectly, more while threads would be unequal."""
    name = loops[0]
    count = s.loop(name).extent.as_int()
    for n, inner in enumerate(loops[1:], start=1):
        if not _nests(s, name, inner) or (n >= wanted and is_balanced(count, threads)):
            break
        count *= s.loop(inner).extent.as_int()
        fused = f"{name}_{inner}"[:60]
        s = s.fuse(name, inner, names=[fused])
        name = fused
    return s, name
