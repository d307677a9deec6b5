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
    for serial, threads in _cuts(extents, warp):
        yield _tiling(extents, serial, threads)


def kernels_of(extents: Sequence[int], target: GpuTarget) -> Iterator[GpuTiling]:
    """Those that are worth a price: within the device's limits, with few idle lanes and multiprocessors."""
    for serial, threads in _cuts(extents, target.warp):
        if not _is_pruned(extents, serial, threads, target):
            yield _tiling(extents, serial, threads)


def _cuts(extents: Sequence[int], warp: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Elements of a thread along each axis, and threads of a block."""
    lanes = innermost(extents)
    for serial in product(*(serial_sizes(n, warp) for n in extents)):
        sizes = [
            thread_sizes(n, each, axis == lanes)
            for axis, (n, each) in enumerate(zip(extents, serial, strict=True))
        ]
        for threads in product(*sizes):
            yield serial, threads


def _tiling(extents: Sequence[int], serial: tuple[int, ...], threads: tuple[int, ...]) -> GpuTiling:
    tile, rank = tuple(each * count for each, count in zip(serial, threads, strict=True)), len(extents)
    return GpuTiling(tile, tuple(range(rank)), innermost(extents), serial, rank)


def _is_pruned(
    extents: Sequence[int], serial: tuple[int, ...], threads: tuple[int, ...], target: GpuTarget
) -> bool:
    count = prod(threads)
    if count > target.threads_per_block or prod(serial) >= MOST_SERIAL:
        return True
    sizes = [each * along for each, along in zip(serial, threads, strict=True)]
    if any(along > 1 and size >= 2 * n for n, size, along in zip(extents, sizes, threads, strict=True)):
        return True
    parts = [ceil(n / size) for n, size in zip(extents, sizes, strict=True)]
    warps = ceil(count / target.warp)
    if prod(extents) >= BLOCKS * target.units * target.warp:
        # large enough to keep the device at work
        if prod(parts) < BLOCKS * target.units or count < LANES_USED * warps * target.warp:
            return True
        used = prod(n / (part * size) for n, part, size in zip(extents, parts, sizes, strict=True))
        return used < LANES_USED
    return False
