"""Reductions along memory in chunks: what rows share stays in the first cache level.

A shared operand larger than half of that level comes from the second one for every tile of rows, in the way
of what the rows themselves bring::

    parallel for groups of rows, one a thread:
        panels[j, k] = b[k, j]
        for blocks of rows:
            sums[i, j, l] = 0                                     # first or second cache level
            for chunks of the reduction:                          # the chunk of the panels stays in the first
                for tiles of rows:
                    acc[i, j, l] = sums[i, j, l]                  # registers
                    for k in the chunk: acc[i, j, l] += a[i, k, l] * panels[j, k, l]
                    sums[i, j, l] = acc[i, j, l]
            for tiles of rows: c[i, j] = the sum over l

Runs of a tile are short now, so that the hardware follows none of them: where the rows come from
memory, each tile asks for what the next two read. 4608x4x1536 took 0.35 ms, 0.29 so (multiply-adds 0.24), and
0.52 and 0.33 where other guests of the machine used that level; 1024x4x4096 0.181 and 0.172.
"""

from __future__ import annotations

from typing import Final

from tilewright.cost import (
    CHUNK_SHARE,
    FAR_CHUNK_SHARE,
    KEPT_SHARE,
    buffer_bytes,
    comes_from_memory,
    fetches_ahead,
    first_cache,
    second_cache,
    shares_core,
    whole_cache,
)
from tilewright.ir import Buffer, Stage
from tilewright.plan.contraction.microkernel import loops_below
from tilewright.schedule import Schedule
from tilewright.target import Target

#: Rows of a tile, and of a block.
ROWS, BLOCK_ROWS = 4, 64
#: Steps of the innermost loop that are unrolled.
STEPS: Final = 2


def chunk_steps(rows: Buffer, panels: Buffer, steps: int, target: Target) -> int:
    """Steps of a chunk, of the ``steps`` of a reduction; 0 where all are done at once."""
    room, nbytes = first_cache(target), buffer_bytes(panels)
    far = buffer_bytes(rows) > whole_cache(target)
    if nbytes <= KEPT_SHARE * room or (far and not (shares_core(target) and fetches_ahead(target))):
        # from memory, requests alone do as well or better; and a core of one thread needs neither
        return 0
    chunks = -(-nbytes // max(1, int((FAR_CHUNK_SHARE if far else CHUNK_SHARE) * room)))
    return -(-steps // chunks)


def tiles_of_block(tiles: int) -> int:
    """Tiles of a block of rows: as many as divide a thread's."""
    return max(n for n in range(1, max(1, BLOCK_ROWS // ROWS) + 1) if tiles % n == 0)


def next_tiles(buffer: Buffer, elements: int, target: Target) -> tuple[str, ...]:
    """The hints that ask for the next tiles, so many elements apart.

    A core that fetches ahead by itself is helped by the next one in its first cache level (Zen 5: 1440x4x2560
    0.108 -> 0.094 ms), others by two in the second, where they may come from memory.
    """
    if fetches_ahead(target):
        return (f"{buffer.name}+{elements}:1",) if buffer_bytes(buffer) > second_cache(target) else ()
    if not comes_from_memory(buffer, target):
        return ()
    return tuple(f"{buffer.name}+{elements * n}" for n in (1, 2))


def sum_chunks(s: Schedule, partial: Stage, block: str, steps: int, streams: tuple[str, ...]) -> Schedule:
    """The vectors of sums of a block of rows, chunk by chunk; ``partial`` has one reduction loop."""
    name = partial.name
    s = s.compute_at(name, block).set_scope(partial.writes[0], "global")
    row, *others, lane, k = loops_below(s, name, block)
    extent = s.loop(k).extent.as_int()
    tile, inner, turn, step = f"{row}_tile", f"{row}_row", f"{k}_turn", f"{k}_step"
    s = s.split(row, ROWS, names=[tile, inner]).split(k, steps, names=[turn, step])
    s = s.reorder(turn, tile, step, inner, *others, lane).decompose_init(name, turn)
    acc = f"{name}_acc"
    s = s.cache(partial.writes[0], at=tile, scope="register", mode="accumulate", name=acc)
    s = s.annotate(step, "unroll", str(STEPS))
    if streams:
        s = s.annotate(step, "prefetch", ",".join(streams))
    s = _expand(s, [inner, *others, lane])
    for copy in (acc, f"{acc}_out"):
        s = _expand(s, loops_below(s, copy, tile))
    s = s.vectorize(s.loops(f"{name}_init")[-1])
    return s.partition(turn, -1) if extent % steps else s


def sums_in_registers(s: Schedule, partial: Stage, tile: str) -> Schedule:
    """The sums of a tile of rows, loaded to be joined."""
    copy = f"{partial.name}_rows"
    s = s.cache(partial.writes[0], at=tile, scope="register", name=copy)
    return _expand(s, loops_below(s, copy, tile))


def _expand(s: Schedule, loops: list[str]) -> Schedule:
    for loop in loops[:-1]:
        s = s.unroll(loop)
    return s.vectorize(loops[-1])
