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
from tilewright.ir import Buffer
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
