"""Asking ahead for rows and weights that a contraction reads next, and for the lines that a tile writes.

An operand blocked along the reduction, such as a convolution's data in blocks of channels, is one stream a
block, each a few lines long a tile: more than the hardware follows, and every line of a tile's first block is
waited for. So each step over the blocks asks for the same block of the next row (Zen 4, 28 images, 256
channels to 64 at 56 pixels: 78% of the peak without, 95% with). Lines side by side are best asked for into
the second cache level (91% into the first); a stride leaves lines out, and what is then asked for into the
second level comes no sooner (75% with and without, 90% into the first: 256 channels to 128, strided;
but where another hardware thread uses that level too, lines asked for early are lost there).

Where a core is shared, its window is too short to hide even the second cache level, and where pages are found
slowly no window hides those of the next block: there each block of a 1x1 convolution asks for the next one,
into the first level, and for nothing else (`cost.walks_slowly`; not for instructions that sum products: bf16
ResNet-50 0.999 of the time, MobileNet-V2 1.009).

The lines of a tile's results are asked for before its reduction, which hides that another core or the memory
has them (0.2 to 1.3% of such convolutions; nothing where their results fit in the second cache level).

The weights of a large network come from memory in each run, and the first tile of each panel would wait for
them: for one image the time to read them adds to that of the products. So the next panel is asked for while
tiles use the present one, a little in each step (Zen 5, one image: 7% of ResNet-50, 15% of ResNet-18).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tilewright.analysis import Contraction, contiguous_reduction, footprint
from tilewright.cost import (
    HELD_SHARE,
    MATRIX_SHARE,
    exceeds_caches,
    goes_past_caches,
    second_cache,
    shares_core,
    walks_slowly,
)
from tilewright.ir import CONST, FloorDiv, Index, Program
from tilewright.plan.contraction.instructions import tile_of, use_of
from tilewright.plan.contraction.register_tiling import RegisterTile, vector_width
from tilewright.target import Target
from tilewright.tiling import Step

#: Part of the time of computing that waiting for a panel of weights must take, for it to be asked for before.
LEAST_WAIT: Final = 0.03


def request_rows(
    c: Contraction,
    outer: Sequence[Step],
    inner: Sequence[Step],
    result: str | None,
    program: Program,
    target: Target,
) -> None:
    """Prefetch what the next row of tiles reads of ``a``, where that is blocked along the reduction.

    ``outer`` are the loops around the tiles, the last one over the tiles of a row, and ``inner`` those inside
    of a tile; hints are given to them. The lines of a tile's ``result`` are asked for too, unless that is
    ``None`` or so large that it goes past the caches.
    """
    axis, step = contiguous_reduction(c, c.axes("k"))
    if c.b is None or axis is None or step is None or c.extent(axis) <= step:
        return
    *_, around = outer
    if result is not None and not goes_past_caches(_bytes(program, result), target):
        around.hint("prefetch", result)
    # of instructions' loops, what they do by themselves counts
    fed = [] if use_of(c) is not None else [*outer, *inner]
    blocks = next((s for s in fed if s.axis == axis), None)
    if blocks is None:
        return
    near = walks_slowly(target) and not c.axes("window")
    if near and (apart := _blocks_apart(program, c, axis, step)) > 0:
        blocks.hint("prefetch", f"{c.a.buffer}+{apart}:1")
        return
    rows = next((s for s in (*outer[-2:-1], around) if s.count > 1), None)
    if rows is None or rows.axis not in c.axes("m"):
        return
    further = rows.size * sum(
        i.coefficient(rows.axis) * stride
        for i, stride in zip(c.a.indices, _strides(program, c), strict=False)
    )
    if further <= 0:
        return
    tied = {v for i in c.a.indices if rows.axis in i.vars for v in i.vars} & set(c.axes("window"))
    taps = [s for s in fed if s.axis in tied]
    loop = max((blocks, *taps), key=fed.index)
    strided = any(abs(i.coefficient(a)) > 1 for i in c.a.indices for a in c.axes("m"))
    level = f":{2 if shares_core(target) else 1}" if strided else ""
    loop.hint("prefetch", f"{c.a.buffer}+{further}{level}")


def request_panels(
    c: Contraction,
    panels: Step | None,
    loops: Sequence[Step],
    tile: RegisterTile,
    program: Program,
    target: Target,
) -> Step | None:
    """Prefetch weights, or a matrix larger than the caches: the next panel during this one, and the loop.

    ``loops`` are those around the register tile; each iteration of ``panels`` uses a panel.
    """
    # temporaries too: pieces of a matrix given at run time
    buffer = None if c.b is None else program.buffer(c.b.buffer)
    if c.b is None or buffer is None or not (buffer.scope == CONST or exceeds_caches(buffer, target)):
        return None
    width = tile.vectors * vector_width(c, target)
    read = {a: c.extent(a) for a in c.axes("k", "window")} | {c.vector: min(c.extent(c.vector), width)}
    panel, second = footprint(c.b, read), second_cache(target)
    step = _cycles_of_step(c, tile, target)
    several = panels is not None and panels in loops[:-1] and panels.count > 1
    share = HELD_SHARE if buffer.scope == CONST else MATRIX_SHARE
    if panels is None or not several or 2 * panel > share * second:
        return None
    tiles = prod(s.count for s in loops[loops.index(panels) + 1 :])
    steps = prod(c.extent(a) for a in c.axes("k", "window"))
    waiting = panel / target.memory[-1].bandwidth
    if tiles <= 1 or waiting <= LEAST_WAIT * tiles * steps * step:
        return None
    # what matrices use is read a line a cycle: room in the first level is for that
    level = ":2" if tile_of(c) is not None else ""
    panels.hint("prefetch", f"{buffer.name}@spread{level}")
    return panels


def _cycles_of_step(c: Contraction, tile: RegisterTile, target: Target) -> float:
    """Cycles of a tile for one step of the reduction."""
    found = use_of(c)
    if found is None or found.tile is None:
        return tile.rows * tile.vectors / target.fma_per_cycle
    together = found.tile.row_tiles * found.tile.column_tiles
    return together / (target.operations[found.instruction].per_cycle * found.tile.depth)


def _blocks_apart(program: Program, c: Contraction, axis: str, step: int) -> int:
    """How many elements further on ``a`` is read one block of ``step`` along ``axis`` later; 0: unknown."""
    return sum(
        coefficient * stride
        for i, stride in zip(c.a.indices, _strides(program, c), strict=False)
        for atom, coefficient in i.terms
        if isinstance(atom, FloorDiv) and atom.arg.as_var() == axis and atom.divisor == step
    )


def _strides(program: Program, c: Contraction) -> list[int]:
    """The elements that one step of each index of ``a`` moves over; none where that cannot be said."""
    arguments = (*program.inputs, *program.outputs)
    buffer = next((b for b in arguments if b.name == c.a.buffer), None)
    if buffer is None or buffer.halo is not None or not all(e.is_const for e in buffer.physical_shape):
        return []
    # as the indices of `a`: without dimensions of one element
    sizes = [e.as_int() for e in buffer.physical_shape if e != Index(1)]
    return [prod(sizes[n + 1 :]) for n in range(len(c.a.indices))]


def _bytes(program: Program, name: str) -> int:
    """Bytes of an argument of constant shape; 0 for other buffers."""
    for b in (*program.inputs, *program.outputs):
        if b.name == name and all(e.is_const for e in b.physical_shape):
            return prod(e.as_int() for e in b.physical_shape) * b.dtype.bytes
    return 0
