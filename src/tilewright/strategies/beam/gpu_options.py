"""Options of kernels on GPUs: elements of a thread, threads of a block (Anderson et al., Section 4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil, prod
from typing import Final

from tilewright.strategies.beam.state import GpuTiling
from tilewright.target import GpuTarget

#: Elements of a thread along an axis; the odd ones where the threads along it are then whole warps.
SERIAL: Final = (1, 2, 4, 8)
ODD: Final = (3, 5, 7)
#: Threads of a block along the innermost axis, and along others.
INNERMOST: Final = (16, 32, 64)
OTHERS: Final = (1, 2, 4, 8, 16)
#: Elements of a thread that are written out: fewer.
MOST_SERIAL: Final = 16
#: Blocks for each multiprocessor, at least, where the result is large enough.
BLOCKS: Final = 2
#: Part of a block's lanes that have elements, at least.
LANES_USED: Final = 0.5


def innermost(extents: Sequence[int]) -> int:
    """The axis along which neighbouring threads lie: the first one of 16 or more, from the last one on."""
    rank = len(extents)
    return next((axis for axis in reversed(range(rank)) if extents[axis] >= INNERMOST[0]), rank - 1)


def serial_sizes(extent: int, warp: int) -> list[int]:
    """Elements of a thread along an axis."""
    odd = [n for n in ODD if extent % n == 0 and extent // n % warp == 0]
    return sorted(n for n in (*SERIAL, *odd) if n == 1 or n <= extent)


def thread_sizes(extent: int, serial: int, along: bool) -> list[int]:
    """Threads of a block along an axis; ``along``: it is the innermost."""
    count = ceil(extent / serial)
    sizes = [n for n in (INNERMOST if along else OTHERS) if n < 2 * count]
    return sizes or [1 << (count - 1).bit_length()]


def all_kernels(extents: Sequence[int], warp: int) -> Iterator[GpuTiling]:
    """Every way to cut a result into blocks, threads and their elements, before anything is pruned."""
    lanes, rank = innermost(extents), len(extents)
    order = tuple(range(rank))
    for serial in product(*(serial_sizes(n, warp) for n in extents)):
        threads = [
            thread_sizes(n, each, axis == lanes)
            for axis, (n, each) in enumerate(zip(extents, serial, strict=True))
        ]
        for counts in product(*threads):
            tile = tuple(each * count for each, count in zip(serial, counts, strict=True))
            yield GpuTiling(tile, order, lanes, serial, rank)


def kernels_of(extents: Sequence[int], target: GpuTarget) -> Iterator[GpuTiling]:
    """Those that are worth a price: within the device's limits, with few idle lanes and multiprocessors."""
    for tiling in all_kernels(extents, target.warp):
        if not _is_pruned(extents, tiling, target):
            yield tiling


def _is_pruned(extents: Sequence[int], t: GpuTiling, target: GpuTarget) -> bool:
    threads = t.turns(t.tile)
    if threads > target.threads_per_block or prod(t.expand) >= MOST_SERIAL:
        return True
    if any(size > each and size >= 2 * n for n, size, each in zip(extents, t.tile, t.expand, strict=True)):
        return True
    points, blocks = prod(extents), prod(ceil(n / size) for n, size in zip(extents, t.tile, strict=True))
    warps = ceil(threads / target.warp)
    if points >= BLOCKS * target.units * target.warp:
        # large enough to keep the device at work
        if blocks < BLOCKS * target.units or threads < LANES_USED * warps * target.warp:
            return True
        used = prod(n / (ceil(n / size) * size) for n, size in zip(extents, t.tile, strict=True))
        return used < LANES_USED
    return False
