"""The nest inside of a register tile: reductions, rows, vectors; or products of whole tiles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.analysis import Contraction, contiguous_reduction, row_axis
from tilewright.cost import KEPT_SHARE, first_cache, shares_core
from tilewright.ir import Program, Stage, Var
from tilewright.plan.contraction.instructions import tile_of, use_of
from tilewright.plan.contraction.matrix_tiles import MatrixTile
from tilewright.plan.contraction.microkernel import (
    Turn,
    default_turn,
    innermost_of,
    is_expanded,
    masking_windows,
)
from tilewright.plan.contraction.register_tiling import RegisterTile, shared_windows, vector_width
from tilewright.plan.contraction.tile_loops import TileLoops
from tilewright.support import InternalError
from tilewright.target import Target
from tilewright.tiling import Body, Cut, Leaf, Place, Step, Tail, chain, expanded, sequence


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """The loops inside of a tile: those of the sums; of tile registers also of their ``start`` and ``drain``.

    ``scope`` is where the sums are.
    """

    rows: Sequence[Step]
    start: Sequence[Step] | None = None
    drain: Sequence[Step] | None = None
    scope: str = "register"


def micro_kernel(
    c: Contraction,
    tile: RegisterTile,
    result: Sequence[Step],
    target: Target,
    turn: Turn | None,
    reds: Collection[str],
) -> Kernel:
    """Sums in vector registers. ``result`` are the loops over the tile, vectors last; ``reds`` are summed."""
    use = use_of(c)
    windows, ks = ([a for a in c.axes(role) if a in reds] for role in ("window", "k"))

    def one(axis: str, expanded: bool = False) -> Step:
        return Step(axis, 1, "unroll" if expanded else "serial", c.extent(axis))

    if is_expanded(c):
        # rows share what they load along their own window; lanes that are off are known where taps are
        shared = [a for a in shared_windows(c) if a in reds] or windows[-1:]
        masking = [a for a in windows if any({a, c.vector} <= cond.vars for cond in c.guard)]
        known = list(dict.fromkeys((*masking, *shared)))
        rest = [a for a in windows if a not in known]
        return Kernel([*map(one, rest), *(one(a, True) for a in known), *result])
    if turn is None:
        turn = default_turn(c, tile, target, reds)
    fmas = tile.rows * tile.vectors
    masking = masking_windows(c, reds, fmas)
    windows = [a for a in windows if a not in masking]
    inner = innermost_of(c, fmas, reds)
    order = (*windows, *ks) if inner.windows_outside else (*ks, *windows)
    front = [one(a) for a in order if a != inner.axis]
    run = c.extent(inner.axis)
    if inner.run is not None:
        front.insert(0, Step(inner.axis, inner.run, count=c.extent(inner.axis) // inner.run))
        run = inner.run
    depth = 1 if use is None else use.depth
    last = Step(inner.axis, depth, count=run // depth)
    if turn.unroll > 1:
        last.hint("unroll", str(turn.unroll))
    if turn.reload:
        last.hint("reload", f"{turn.reload}/{tile.rows}")
    # innermost, the neighbours that an instruction takes together
    group = [] if use is None else [Step(inner.axis, 1)]
    return Kernel([*front, last, *(one(a, True) for a in masking), *result, *group])


def result_loops(c: Contraction, t: TileLoops, keep: bool, vectors: int, target: Target) -> list[Step]:
    """The contraction's own loops over the result inside of a tile: rows outside of vectors, lanes last.

    So each broadcast is used up before the next one is loaded. With ``keep`` its results are copied out.
    """
    *others, _ = t.inner
    rows = [s for s in others if s.axis != c.vector]
    groups = [s for s in others if s.axis == c.vector]
    if c.run is not None:
        # the same vectors as in the result, also where its runs are shorter than a register
        width = vector_width(c, target)
        whole = width if keep else vectors * width
        groups = groups if keep else []
        if whole > c.run:
            groups = [*groups, Step(c.vector, c.run)]
    if not keep:
        order = [it.name for it in c.stage.iters]
        rows = sorted(rows, key=lambda s: order.index(s.axis))
    return [*(s.bound("unroll") for s in (*rows, *groups)), Step(c.vector, 1, "vector")]


def matrix_kernel(c: Contraction, rows: int, columns: int, program: Program, target: Target) -> Kernel:
    """Products of whole tiles, which begin and end by moves: results stay in tile registers meanwhile."""
    use, tile, row = use_of(c), tile_of(c), row_axis(c)
    if use is None or tile is None or row is None:
        raise InternalError(f"{c.stage.name} is done by no instruction for whole matrices")
    sizes = ((row, rows, tile.rows), (c.vector, columns, tile.columns))
    front = [Step(a, n, "unroll", size // n) for a, size, n in sizes if size > n]
    inner = [Step(row, 1), Step(c.vector, 1)]
    sums = [it.name for it in c.stage.iters if it.name in c.axes("k", "window")]
    deep = Step(use.axis, tile.depth, count=c.extent(use.axis) // tile.depth)
    others = [Step(a, 1, count=c.extent(a)) for a in sums if a != use.axis]
    pieces = [s for s in others if _chooses_pieces(c, s.axis)]
    taps = [s for s in others if s not in pieces]
    # all taps of a block while its few lines are in the first cache level
    in_blocks = contiguous_reduction(c)[1] is not None
    outer = [deep, *taps, *pieces] if in_blocks else [*taps, deep, *pieces]
    _request_columns(c, outer, program, tile, target)
    for s in pieces:
        s.bind = "unroll"
    moved = [*front, *inner]
    return Kernel([*outer, *moved, Step(use.axis, 1)], moved, moved, "tile")


def _chooses_pieces(c: Contraction, axis: str) -> bool:
    """Whether a reduction axis only says which of few pieces of its operands are multiplied."""
    atoms = [atom for ld in (c.a, c.b) if ld is not None for i in ld.indices for atom, _ in i.terms]
    return not any(isinstance(atom, Var) and atom.name == axis for atom in atoms)


def _request_columns(
    c: Contraction, loops: Sequence[Step], program: Program, tile: MatrixTile, target: Target
) -> None:
    """Ask for what the next product takes of panels that the first cache level does not keep.

    Taps read the same few lines of the other operand, so that a core of its own fetches panels by itself:
    Granite Rapids, ResNet-50 0.96 of the time without requests, ResNet-18's first stage 0.90, but TinyBERT,
    without taps, 1.02. Where another hardware thread takes the first level's lines they pay (Emerald Rapids,
    decision 0068).
    """
    if c.axes("window") and not shares_core(target):
        return
    loop = next((s for s in reversed(loops) if s.count > 1), None)
    arguments = {b.name: b for b in (*program.inputs, *program.outputs)}
    buffer = None if c.b is None else arguments.get(c.b.buffer)
    if c.b is None or loop is None or buffer is None or buffer.layout is None:
        return
    step = tile.depth * tile.columns * tile.column_tiles
    panel = prod(c.extent(a) for a in c.axes("k", "window")) * tile.columns * tile.column_tiles
    if panel * c.b.dtype.bytes > KEPT_SHARE * first_cache(target):
        loop.hint("prefetch", f"{c.b.buffer}+{step}:1")


def kernel_body(
    c: Contraction, epilogue: Stage | None, t: TileLoops, k: Kernel, names: dict[str, str]
) -> Body:
    """What stands inside of the loops over tiles: sums in registers or tiles, and what becomes of them.

    ``names`` are what axes are called in the stage that ends the nest.
    """
    use, name, result = use_of(c), c.stage.name, c.stage.writes[0]
    borders = (("borders", ""),)
    nest = chain(k.rows, Leaf(name, "" if use is None else use.instruction))
    if k.start is not None and use is not None:
        nest = sequence(Place(result, "init", k.scope, chain(k.start, Leaf(name, use.clear))), nest)
    if epilogue is not None:
        last = t.inner[-1]
        if k.drain is None:
            inner = [Step(names[s.axis], s.size, s.bind) for s in t.inner]
        else:
            # from tiles results come by memory, row by row: nothing is expanded
            inner = [Step(names[s.axis], s.size, "vector" if s is last else "serial") for s in t.inner]
        rest = chain(inner, Leaf(epilogue.name))
        made = Place(name, "make", k.scope, nest, None, (), borders)
        if k.drain is None or use is None:
            return sequence(made, rest)
        axes = result_axes(c)
        # columns last, as tiles have them
        order = [*(n for n in range(len(axes)) if axes[n] != c.vector), axes.index(c.vector)]
        drain = [Step(f"d{axes.index(s.axis)}", s.size, s.bind) for s in k.drain]
        layout = tuple(f"d{n}" for n in order)
        return sequence(
            made, Place(result, "copy", "local", chain(drain, Leaf(result, use.store)), None, layout), rest
        )
    if k.drain is not None and use is not None:
        drained = chain(k.drain, Leaf(name, use.store))
    else:
        # copied in the order of the result's own dimensions, lanes last
        axes = result_axes(c)
        own = sorted({s.axis for s in t.inner if s.axis != c.vector}, key=axes.index)
        drained = chain([*(Step(a, 1, "unroll") for a in own), Step(c.vector, 1, "vector")], Leaf(name))
    return sequence(Place(result, "keep", k.scope, nest, drained, (), borders))


def result_axes(c: Contraction) -> list[str | None]:
    """The iterator along each dimension of the result."""
    return [i.as_var() for i in c.write.indices]


def accumulated_tile(c: Contraction, k: str, row: str, steps: int, tail: Tail = "exact") -> Body:
    """A tile of the result in registers: loaded, added to for some steps of the reduction, stored again."""
    tile = expanded([row, c.vector], Leaf(c.stage.name))
    step = Step(k, 1, hints={"unroll": str(steps)}, tail=tail)
    return sequence(Place(c.stage.writes[0], "accumulate", "register", chain([step], tile), tile))


def with_rest(step: Step, least: int, extent: int, body: Body) -> Body:
    """A loop, and another for what some part does not have whole: ``least`` elements of an ``extent``."""
    loop, end = chain([step], body), least // step.size * step.size
    return Cut(step.axis, (end,), (loop, loop)) if 0 < end < extent else loop
