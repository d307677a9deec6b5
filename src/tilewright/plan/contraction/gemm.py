"""Products of two matrices that are both given at run time: tiles as large as registers allow, few copies.

Where a few times the first operand fits into the last cache level, each thread takes a part of its rows, and
asks for the next panel of the second operand while it works on one::

    parallel for groups of rows, one a thread:
        rows[i / R][k / 16][i % R][k % 16] = a[i, k]          # only where rows of a tile lie in one cache set
        for panels:                                         # each stays in the second cache level
            for tiles of R rows: the micro-kernel of a contraction

Where a panel's lines need more of a set of the second level than it has, or each waits for the address of its
page for longer than a tile's step takes, or its rows begin within lines while others use the last level,
threads share the panels, and each panel is copied just before its use; so are all panels of a thread where
the first operand is larger, and threads then share the rows where the second one is small::

    parallel for groups of panels, one a thread:
        panels[j / P][k][j % P] = b[k, j]
        for blocks of rows:
            rows[i / R][k / 16][i % R][k % 16] = a[i, k]        # as above; whole cache lines move
            for panels of the group:                          # the next one is asked for
                for tiles of R rows: the micro-kernel

In place, rows whose distance is a multiple of a large power of two fall into the same sets of the first cache
level, and a panel's lines lie in as many pages as it has rows. The copies are those of Goto and van de Geijn,
"Anatomy of High-Performance Matrix Multiplication", 2008, section 4, without blocks along the reduction: the
second cache level gives a panel fast enough. Each thread has copies of its own: lines of tiles that the other
one made would come from its cache whenever they are read (187 instead of 225 GFLOP/s). Parts of threads are
equal to a row or column; what is left of them in tiles is code of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import lcm
from typing import Final

from tilewright.analysis import Contraction, row_axis
from tilewright.cost import (
    AGAIN_SHARE,
    HELD_SHARE,
    KEPT_SHARE,
    LARGE_SHARE,
    ROWS_SHARE,
    WAYS,
    Machine,
    first_ways,
    last_cache,
    page_cycles,
    perhaps_kept,
    rows_collide,
    second_cache,
    whole_cache,
)
from tilewright.ir import CONST, Load, Program, Stage, floordiv, mod, stmt_loads, var
from tilewright.plan.contraction.instructions import use_of
from tilewright.plan.contraction.kernel import micro_kernel
from tilewright.plan.contraction.register_tiling import (
    MAX_ROWS,
    RegisterTile,
    register_tile,
    vector_width,
)
from tilewright.plan.streaming_stores import reads_as_much
from tilewright.target import Target
from tilewright.tiling import Body, Cut, Leaf, Nest, Place, Step, chain, sequence, shared_chain

#: Rows and columns from which on copying the other operand pays: each element is used so often.
MIN_USES: Final = 128
#: Rows where a panel's lines need more of a set of the second cache level than it has: otherwise each tile
#: fetches them from the third again (Zen 5, of cycles at the peak: 1024x1024x1024 78 -> 96%, 512x1024x1024
#: 57 -> 96%, 128x1024x1024 56 -> 88%, 64x1024x1024 55 -> 79%, 32x1024x1024 52 -> 68%), or where each line
#: waits for its address.
MIN_USES_SCATTERED: Final = 32
#: How much more cycles of multiply-adds a tile may need than the best one, if its operands come faster: 9x3
#: as much as 14x2, 6x4 0.3% more.
TILE_MARGIN: Final = 1.002
#: An extent that tiles of up to 14 divide: what is left of the real ones matters little.
MANY: Final = lcm(*range(1, MAX_ROWS + 1))


def is_large_product(program: Program, c: Contraction, machine: Machine, constants: Collection[str]) -> bool:
    """Whether a contraction is a product of two plain matrices, not constants, for the rules of this file."""
    target = machine.target
    axes = plain_product(program, c, constants)
    if axes is None:
        return False
    row, k = axes
    rows, columns = c.extent(row), c.extent(c.vector)
    tile = product_tile(c, target)
    if columns_scattered(c, target) and columns >= 2 * machine.threads * tile.vectors * vector_width(
        c, target
    ):
        return rows >= MIN_USES_SCATTERED
    nbytes = rows * c.extent(k) * c.a.dtype.bytes
    return nbytes > LARGE_SHARE * whole_cache(target) and min(rows, columns) >= MIN_USES


def plain_product(program: Program, c: Contraction, constants: Collection[str]) -> tuple[str, str] | None:
    """The rows and the reduction of ``c[i, j] = sum_k a[i, k] b[k, j]``; None for any other contraction.

    ``a`` and ``b`` are matrices given at run time as they are; columns are vectors, other axes have one step.
    """
    if (
        c.b is None
        or use_of(c) is not None
        or c.guard
        or c.run is not None
        or c.axes("window")
        or len(c.axes("k")) != 1
    ):
        return None
    row, (k,) = row_axis(c), c.axes("k")
    wide = [name for name in c.axes("batch", "m", "n") if c.extent(name) > 1]
    if row is None or sorted(wide) != sorted({row, c.vector}) or c.vector not in c.axes("n"):
        return None
    if not all(is_plain_input(program, ld, constants) for ld in (c.a, c.b)):
        return None
    if any(not ld.indices or any(i.as_var() is None for i in ld.indices) for ld in (c.a, c.b)):
        return None
    if c.a.indices[-1].as_var() != k or c.b.indices[-1].as_var() != c.vector:
        return None
    return row, k


def is_plain_input(program: Program, ld: Load, constants: Collection[str]) -> bool:
    """Whether a load reads what is given at run time, stored as its indices say."""
    buffer = program.buffer(ld.buffer)
    return buffer.layout is None and buffer.scope != CONST and buffer.name not in constants


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """Register tiles of ``tile_rows`` rows and ``vectors`` vectors; its rows come in ``blocks``.

    ``shared`` is the axis of which each thread has an equal part. ``rows`` and ``columns`` say whether
    the first and the second operand are copied, ``each`` whether panels of the second one are copied one by
    one, ``ahead`` whether the next one is asked for.
    """

    tile_rows: int
    vectors: int
    shared: str
    rows: bool
    columns: bool
    blocks: int
    each: bool = False
    ahead: bool = False

    @property
    def tile(self) -> RegisterTile:
        """The register tile."""
        return RegisterTile(self.tile_rows, self.vectors, 0.0)


def plan_gemm(c: Contraction, machine: Machine, epilogue: Stage | None = None) -> GemmPlan:
    """How a product of plain matrices is done, see the head of this file; ``epilogue`` takes the results."""
    plan, target = _plan_gemm(c, machine), machine.target
    nbytes = c.extent(c.axes("k")[0]) * c.extent(c.vector) * c.a.dtype.bytes
    kept = nbytes <= HELD_SHARE * second_cache(target)
    if epilogue is None or plan.each or not kept or not reads_as_much(c, epilogue, target):
        return plan
    row = row_axis(c)
    assert row is not None
    own = _parts(c.extent(row), machine.threads if plan.shared == row else 1)
    return replace(plan, blocks=_parts(own, plan.tile_rows))


def _plan_gemm(c: Contraction, machine: Machine) -> GemmPlan:
    target = machine.target
    row, (k,) = row_axis(c), c.axes("k")
    assert row is not None and c.b is not None
    last, line = last_cache(target), c.extent(k) * c.a.dtype.bytes
    tile = product_tile(c, target)
    copied = rows_collide(tile.rows, line, ways=first_ways(target))
    if c.extent(row) * line <= AGAIN_SHARE * perhaps_kept(target):
        across = _columns_across_lines(c, tile, target)
        if columns_scattered(c, target) or across:
            # lines of one set would push each other out before they are copied, two panels the present one
            ahead = not (across or columns_collide(c, target))
            return GemmPlan(tile.rows, tile.vectors, c.vector, copied, True, 1, each=True, ahead=ahead)
        return GemmPlan(tile.rows, tile.vectors, row, copied, False, 1, ahead=True)
    small = machine.threads * c.extent(c.vector) * line <= KEPT_SHARE * last
    shared = row if small else c.vector
    own = c.extent(row) // (machine.threads if small else 1)
    blocks = _parts(_parts(own, tile.rows), _tiles_of_block(own, c.extent(k), tile.rows, machine))
    return GemmPlan(tile.rows, tile.vectors, shared, copied, True, blocks, ahead=True)


def product_tile(c: Contraction, target: Target) -> RegisterTile:
    """Of the tiles with the fewest cycles the one whose rows need no copy, or whose operands come fastest.

    Rows come from the third cache level, panels from the second. Zen 5, of cycles at the peak, 9x3 instead of
    14x2: 512x1500x2048, where 14 rows have to be copied, 94 -> 95%, 512x6000x2560 95.5 -> 97%, 512x1500x2816
    the same.
    """
    found = [register_tile(target, MANY, MANY, (n,), max_rows=MAX_ROWS) for n in (1, 2, 3, 4)]
    least = min(tile.cycles for tile in found)
    apart = c.extent(c.axes("k")[0]) * c.a.dtype.bytes
    rates = [level.bandwidth for level in target.memory[1:3]]

    def cost(tile: RegisterTile) -> tuple[bool, float]:
        loaded = tile.vectors * target.preferred_vector_bits / 8 / rates[0]
        loaded += tile.rows * c.a.dtype.bytes / rates[-1]
        return rows_collide(tile.rows, apart, ways=first_ways(target)), loaded / (tile.rows * tile.vectors)

    return min((tile for tile in found if tile.cycles <= TILE_MARGIN * least), key=cost)


def columns_scattered(c: Contraction, target: Target) -> bool:
    """Whether the lines of a panel of the second operand lie too far apart for tiles to read it in place."""
    return columns_collide(c, target) or columns_wait(c, target)


def columns_collide(c: Contraction, target: Target) -> bool:
    """Whether a panel of the second operand needs more of a set of the second cache level than it has."""
    assert c.b is not None
    span = second_cache(target) // WAYS
    return rows_collide(c.extent(c.axes("k")[0]), c.extent(c.vector) * c.b.dtype.bytes, span)


def columns_wait(c: Contraction, target: Target) -> bool:
    """Whether each line of a panel waits for its address for longer than a tile's step takes.

    What the second level keeps waits little. Emerald Rapids, copied instead of in place: 35x1500x2048 13% and
    100x1500x2048 15% less time, 48x3000x1024 36, 40x2100x600 25, 128x776x768 11; 512x1500x2816 the same;
    40x1000x600 5% more.
    """
    assert c.b is not None
    apart = c.extent(c.vector) * c.b.dtype.bytes
    if c.extent(c.axes("k")[0]) * apart <= second_cache(target):
        return False
    tile = product_tile(c, target)
    return page_cycles(apart, target) > tile.rows * tile.vectors / target.fma_per_cycle


def _columns_across_lines(c: Contraction, tile: RegisterTile, target: Target) -> bool:
    """Whether rows of a panel begin within lines, and others use the level from which such panels come again.

    A panel in place takes a line more a row then, and two of them more than the second level. Zen 4 while
    others work, copied instead of in place: 512x1500x2816 29.4 -> 23.2 ms, 512x1500x2048 22.4 -> 16.7,
    512x3000x2048 40.9 -> 34.0, 512x1500x1536 12.7 -> 12.2; rows of whole lines, 512x6000x2560, 73.6 -> 80.9.
    """
    assert c.b is not None
    whole_lines = c.extent(c.vector) * c.b.dtype.bytes % target.memory[0].line == 0
    panel = c.extent(c.axes("k")[0]) * tile.vectors * target.preferred_vector_bits // 8
    room = HELD_SHARE * second_cache(target)
    return not whole_lines and 2 * panel > room and whole_cache(target) > last_cache(target)


def _parts(extent: int, size: int) -> int:
    """The parts of ``size`` that cover an extent; or the size of so many parts."""
    return -(-extent // size)


def _tiles_of_block(rows: int, k: int, tile: int, machine: Machine) -> int:
    """Row tiles of a block that leaves most of the last cache level to the rest; blocks about equal."""
    tiles = _parts(rows, tile)
    most = max(1, int(whole_cache(machine.target) * ROWS_SHARE) // (4 * k * tile * machine.threads))
    return _parts(tiles, _parts(tiles, most))


def copied_run(extent: int) -> int:
    """Elements along the reduction that are copied together: a cache line of f32 where that divides."""
    return next(run for run in (16, 8, 4, 2, 1) if extent % run == 0)


def _logical(c: Contraction, ld: Load) -> Load:
    """A load as the stage has it."""
    return next(x for x in stmt_loads(c.stage.body) if x.buffer == ld.buffer)


def rows_copy(c: Contraction, rows: int, steps: int) -> Place:
    """A copy of what is used of the first operand, in tiles of ``rows``.

    Of each row cache lines are copied together, as far as they divide the ``steps`` of the reduction.
    """
    run, a = copied_run(steps), _logical(c, c.a)
    *ones, row, depth = [f"d{n}" for n in range(len(a.indices))]
    loops = [Step(row, rows), Step(depth, run), Step(row, 1), Step(depth, 1, "vector")]
    layout = (*ones, f"{row}//{rows}", f"{depth}//{run}", f"{row}%{rows}", f"{depth}%{run}")
    return Place(a.buffer, "copy", "local", chain(loops, Leaf(a.buffer)), None, layout)


def _panels_copy(c: Contraction, columns: int) -> Place:
    """A copy of what is used of the second operand, in panels."""
    assert c.b is not None
    b = _logical(c, c.b)
    *ones, depth, column = [f"d{n}" for n in range(len(b.indices))]
    loops = [Step(column, columns), Step(depth, 1), Step(column, 1, "vector")]
    layout = (*ones, f"{column}//{columns}", depth, f"{column}%{columns}")
    return Place(b.buffer, "copy", "local", chain(loops, Leaf(b.buffer)), None, layout)


def gemm_nest(c: Contraction, epilogue: Stage | None, plan: GemmPlan, machine: Machine) -> Nest:
    """The nest of a product and the stage that consumes it point by point, if there is one."""
    stage, last, row, (k,) = c.stage, epilogue or c.stage, row_axis(c), c.axes("k")
    assert row is not None and c.b is not None
    rows, columns = plan.tile_rows, plan.vectors * vector_width(c, machine.target)
    parts = {axis: machine.threads if axis == plan.shared else 1 for axis in (row, c.vector)}
    own = {axis: _parts(c.extent(axis), n) for axis, n in parts.items()}
    tiles = _parts(_parts(own[row], rows), plan.blocks)
    # what the last thread has at least, which may have a little less than the others
    least = {axis: c.extent(axis) - (n - 1) * own[axis] for axis, n in parts.items()}
    pars = [it.name for it in stage.iters if it.kind == "par"]
    names = dict(zip(pars, [it.name for it in last.iters], strict=False))
    i, j = names[row], names[c.vector]
    core = _core(c, epilogue, plan, (row, k), names, machine)
    # tiles of the last block that some thread has not whole, or not at all
    size = tiles * rows
    blocks = _parts(_parts(own[row], rows), tiles)
    whole = least[row] // rows - (blocks - 1) * tiles
    exact = least[row] % size == 0 and whole == tiles
    there = min(size, own[row] - (blocks - 1) * size)
    cuts = [] if exact else [n * rows for n in (max(whole, 0), max(whole, 0) + 1) if 0 < n * rows < there]
    panels = _panels_copy(c, columns)
    panel = Step(j, columns)
    if plan.ahead:
        # copied one by one, panels are asked for where they come from
        of = f"{panels.value}_copy" if plan.columns and not plan.each else panels.value
        panel.hint("prefetch", f"{of}@spread")

    def block(last_one: bool) -> Body:
        """A block of rows: panels, each of tiles; ``last_one``: the last of some thread."""
        tile = chain([Step(i, rows, hints={"outline": ""})], core)
        body = Cut(i, tuple(cuts), (tile,) * (len(cuts) + 1)) if last_one and cuts else tile
        if plan.columns and plan.each:
            body = sequence(panels, body)
        body = chain([panel], body)
        end = least[c.vector] // columns * columns
        body = Cut(j, (end,), (body, body)) if 0 < end < own[c.vector] else body
        if plan.rows:
            body = sequence(rows_copy(c, rows, c.extent(k)), body)
        return chain([Step(i, size)], body)

    if blocks > 1 and not exact:
        body: Body = Cut(i, ((blocks - 1) * size,), (block(False), block(True)))
    else:
        body = block(not exact)
    if plan.columns and not plan.each:
        body = sequence(panels, body)
    group = Step(names[plan.shared], own[plan.shared])
    return Nest(last.name, shared_chain([group], int(machine.threads > 1), body))


def _core(
    c: Contraction,
    epilogue: Stage | None,
    plan: GemmPlan,
    axes: tuple[str, str],
    names: Mapping[str, str],
    machine: Machine,
) -> Body:
    """The micro-kernel: a tile of the result in registers, and what becomes of it."""
    row, k = axes
    tiled, name = c, c.stage.name
    if plan.rows:
        run = copied_run(c.extent(k))
        a, b = var(row), var(k)
        place = (floordiv(a, plan.tile_rows), floordiv(b, run), mod(a, plan.tile_rows), mod(b, run))
        tiled = replace(c, a=replace(c.a, indices=place))
    tile = [Step(row, 1, "unroll"), Step(c.vector, 1, "vector")]
    kernel = micro_kernel(tiled, plan.tile, tile, machine.target, None, [k])
    nest = chain(kernel.rows, Leaf(name))
    if epilogue is None:
        return sequence(Place(c.stage.writes[0], "keep", "register", nest, chain(tile, Leaf(name))))
    rest = [Step(names[s.axis], s.size, s.bind) for s in tile]
    return sequence(Place(name, "make", "register", nest), chain(rest, Leaf(epilogue.name)))
