"""The nest of a contraction by instructions that multiply whole matrices.

Results stay in tile registers while the reduction passes; then they are stored to memory for what follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilewright.analysis import Contraction, contiguous_reduction, row_axis
from tilewright.cost import KEPT_SHARE, first_cache, shares_core
from tilewright.ir import TILE, Index, Stage, Var
from tilewright.plan.contraction.instructions import use_of
from tilewright.plan.contraction.matrix_tiles import MatrixTile
from tilewright.plan.contraction.microkernel import fed_by, loops_below
from tilewright.schedule import Schedule
from tilewright.support import InternalError
from tilewright.target import Target


def fill_matrix(s: Schedule, c: Contraction, epilogue: Stage | None, around: str, target: Target) -> Schedule:
    """The nest inside of ``around``: products in tile registers, stored for the epilogue, or as they are."""
    found = use_of(c)
    if found is None or found.tile is None:
        raise InternalError(f"{c.stage.name} is done by no instruction for whole matrices")
    tile = found.tile
    block, result = c.stage.name, c.stage.writes[0]
    stored = f"{block}_rows"
    if epilogue is not None:
        s = s.compute_at(block, around).set_scope(result, TILE)
        s = s.cache(result, at=around, name=stored)
        # columns last, as tiles have them
        names = _result_axes(c)
        columns = names.index(c.vector)
        order = [*(n for n in range(len(names)) if n != columns), columns]
        s = s.set_layout(stored, tuple(f"d{n}" for n in order))
    else:
        s = s.cache(result, at=around, scope=TILE, mode="write", name=f"{block}_tiles")
        stored = f"{block}_tiles_out"
    loops = loops_below(s, block, around)
    feeds = fed_by(s, block, loops)
    s, others, rows, columns_of = _cut(s, c, loops, feeds, tile)
    reductions = [loop for loop in others if feeds[loop] in c.axes("k", "window")]
    deep = next(loop for loop in reductions if feeds[loop] == found.axis)
    s = s.split(deep, tile.depth)
    others_summed = [loop for loop in reductions if loop != deep]
    pieces = [loop for loop in others_summed if _chooses_pieces(c, feeds[loop])]
    taps = [loop for loop in others_summed if loop not in pieces]
    # all taps of a block while its few lines are in the first cache level
    in_blocks = contiguous_reduction(c)[1] is not None
    outer = [f"{deep}_o", *taps, *pieces] if in_blocks else [*taps, f"{deep}_o", *pieces]
    around_it = [loop for loop in others if loop not in reductions]
    front = [*rows[:-1], *columns_of[:-1]]
    s = s.reorder(*around_it, *outer, *front, rows[-1], columns_of[-1], f"{deep}_i")
    s = s.decompose_init(block, outer[0])
    for loop in (*pieces, *front):
        s = s.unroll(loop)
    s = s.tensorize(rows[-1], found.instruction)
    s = _ask_for_columns(s, c, outer, tile, target)
    s = _move(s, c, f"{block}_init", around, tile, found.clear)
    s = _move(s, c, stored, around, tile, found.store)
    if epilogue is not None:
        s = s.vectorize(loops_below(s, epilogue.name, around)[-1])
    return s


def _chooses_pieces(c: Contraction, axis: str | None) -> bool:
    """Whether a reduction axis only says which of few pieces of its operands are multiplied."""
    atoms = [atom for ld in (c.a, c.b) if ld is not None for i in ld.indices for atom, _ in i.terms]
    return axis is not None and not any(isinstance(atom, Var) and atom.name == axis for atom in atoms)


def _move(s: Schedule, c: Contraction, block: str, around: str, tile: MatrixTile, instr: str) -> Schedule:
    """A nest over the results as moves of tiles."""
    loops = loops_below(s, block, around)
    # dimensions in the order of the result, whoever named them
    axes = dict(zip([it.name for it in s.block(block).iters], _result_axes(c), strict=True))
    feeds = {loop: axes[name] for loop, name in fed_by(s, block, loops).items()}
    s, others, rows, columns = _cut(s, c, loops, feeds, tile)
    front = [*rows[:-1], *columns[:-1]]
    # loops around the products too stay where they are
    shared = s.loops(c.stage.name)
    own = [loop for loop in others if loop not in shared]
    s = s.reorder(*own, *front, rows[-1], columns[-1])
    for loop in front:
        if s.loop(loop).kind.name != "unroll":
            s = s.unroll(loop)
    return s.tensorize(rows[-1], instr)


def _ask_for_columns(
    s: Schedule, c: Contraction, loops: Sequence[str], tile: MatrixTile, target: Target
) -> Schedule:
    """Ask for what the next product takes of panels that the first cache level does not keep.

    Taps read the same few lines of the other operand, so that a core of its own fetches panels by itself:
    Granite Rapids, ResNet-50 0.96 of the time without requests, ResNet-18's first stage 0.90, but TinyBERT,
    without taps, 1.02. Where another hardware thread takes the first level's lines they pay (Emerald Rapids,
    decision 0068).
    """
    if c.axes("window") and not shares_core(target):
        return s
    loop = next((loop for loop in reversed(loops) if s.loop(loop).extent != Index(1)), None)
    buffer = None if c.b is None else next((b for b in s.func.buffers if b.name == c.b.buffer), None)
    if c.b is None or loop is None or buffer is None or buffer.layout is None:
        return s
    step = tile.depth * tile.columns * tile.column_tiles
    panel = prod(c.extent(a) for a in c.axes("k", "window")) * tile.columns * tile.column_tiles
    if panel * c.b.dtype.bytes <= KEPT_SHARE * first_cache(target):
        return s
    return s.annotate(loop, "prefetch", f"{c.b.buffer}+{step}:1")


def _result_axes(c: Contraction) -> list[str | None]:
    """The iterator along each dimension of the result."""
    return [i.as_var() for i in c.write.indices]


def _cut(
    s: Schedule, c: Contraction, loops: Sequence[str], feeds: Mapping[str, str | None], tile: MatrixTile
) -> tuple[Schedule, list[str], list[str], list[str]]:
    """Loops over rows and columns, those over tiles before those within one, and all others before them."""
    row = row_axis(c)
    found: list[list[str]] = []
    for axis, size in ((row, tile.rows), (c.vector, tile.columns)):
        along = [loop for loop in loops if feeds.get(loop) == axis]
        if len(along) == 1 and s.loop(along[0]).extent.as_int() > size:
            s = s.split(along[0], size)
            along = [f"{along[0]}_o", f"{along[0]}_i"]
        found.append(along)
    rows, columns = found
    mine = {loop for loop in loops if feeds.get(loop) in (row, c.vector)}
    return s, [loop for loop in loops if loop not in mine], rows, columns
