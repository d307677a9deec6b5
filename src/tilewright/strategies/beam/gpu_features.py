"""Features of the stages of a kernel on a GPU: Anderson et al.'s Appendix A, from its tiling and boxes alone.

Accesses of a warp are counted address by address: its threads' elements, by the strides of what is read, in
transactions of global memory or by banks of shared memory; the last warp of a block, which may have fewer
threads, by itself. What several written-out elements of a thread read is read once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod
from types import MappingProxyType
from typing import Final, TypeAlias

from tilewright.analysis import Box
from tilewright.cost import Machine, occupancy
from tilewright.ir import Index
from tilewright.plan import Node, StageGraph
from tilewright.strategies.beam.features import StageFeatures, stages_of, tile_spans
from tilewright.strategies.beam.state import Kernel, Place, Tiling
from tilewright.target import GpuTarget

#: Bytes of a transaction of global memory, and of a word of shared memory.
TRANSACTION: Final = 32
WORD: Final = 4
#: Registers of a thread besides the elements that it keeps and its expression's.
OTHER_REGISTERS: Final = 16
#: Accesses of which the traffic is kept.
MOST_ACCESSES: Final = 8_192
#: Threads of a block of a kernel whose loops its rule makes.
DEFAULT_THREADS: Final = 128
#: Names of the features, in the order of their vector.
GPU_FEATURES: Final = (
    "num_scalars",
    "points_computed_total",
    "points_computed_minimum",
    "points_computed_per_thread",
    "num_blocks",
    "num_threads_per_block",
    "num_warps_per_block",
    "num_active_warps_per_block",
    "num_realizations",
    "num_productions",
    "inner_parallelism",
    "outer_parallelism",
    "inlined_calls",
    "inlined_work",
    "unrolled_loop_extent",
    "unique_global_bytes_read_per_realization",
    "unique_shared_bytes_read_per_realization",
    "unique_register_bytes_read_per_thread",
    "global_bytes_at_task",
    "shared_bytes_at_task",
    "register_bytes_at_task",
    "global_innermost_bytes_at_task",
    "num_global_mem_loads_per_block",
    "num_global_mem_stores_per_block",
    "num_shared_mem_loads_per_block",
    "num_shared_mem_stores_per_block",
    "global_mem_load_efficiency",
    "global_mem_store_efficiency",
    "shared_mem_load_efficiency",
    "shared_mem_store_efficiency",
    "block_occupancy",
    "warp_lane_utilization",
    "idle_lane_wastage",
    "shared_mem_occupancy",
    "shared_mem_block_limit_factor",
    "max_warp_occupancy",
    "max_block_occupancy",
    "working_set_at_thread",
    "expr_branching",
)


#: Threads of a block along each axis, and elements from what one accesses to what the next one does.
Threads: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The threads of a block as they compute a stage: by axes how many, and elements to the next one.

    Neighbours lie along the axis ``last``, where there is one; the others follow in order, the last fastest.
    """

    axes: tuple[str, ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]
    last: int

    def threads(self, where: Index) -> Threads:
        """How many threads there are, and how far apart they access, in elements, from the fastest on."""
        order = [self.last] if self.counts else []
        order += [n for n in reversed(range(len(self.counts))) if n != self.last]
        return tuple((self.counts[n], where.coefficient(self.axes[n]) * self.steps[n]) for n in order)


@dataclass(frozen=True, slots=True)
class Traffic:
    """One access by all threads of a block: how often it is served, bytes that are moved and used."""

    count: int
    moved: int
    used: int


@lru_cache(maxsize=MOST_ACCESSES)
def _addresses(threads: Threads, warp: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Elements that threads of a whole warp access, and of the last one; the number of whole ones."""
    whole, rest = divmod(prod(size for size, _ in threads), warp)
    regular = [0]
    for size, apart in threads:
        regular = [at * apart + first for at in range(min(size, warp)) for first in regular][:warp]

    def address(thread: int) -> int:
        out = 0
        for size, apart in threads:
            thread, at = divmod(thread, size)
            out += at * apart
        return out

    return (
        tuple(regular if whole else ()),
        tuple(address(whole * warp + n) for n in range(rest)),
        whole,
    )


@lru_cache(maxsize=MOST_ACCESSES)
def global_traffic(threads: Threads, width: int, warp: int) -> Traffic:
    """An access of global memory, in transactions: of a whole warp and of the last one."""
    regular, tail, whole = _addresses(threads, warp)
    count = whole * len({n * width // TRANSACTION for n in regular})
    count += len({n * width // TRANSACTION for n in tail})
    used = whole * len({*regular}) + len({*tail})
    return Traffic(count, count * TRANSACTION, used * width)


@lru_cache(maxsize=MOST_ACCESSES)
def shared_traffic(threads: Threads, width: int, warp: int, banks: int) -> Traffic:
    """An access of shared memory, in cycles: a bank serves one of a warp's words in each."""
    regular, tail, whole = _addresses(threads, warp)

    def cycles(addresses: tuple[int, ...]) -> int:
        return max(
            Counter(word % banks for word in {n * width // WORD for n in addresses}).values(), default=0
        )

    count = whole * cycles(regular) + cycles(tail)
    used = whole * len({*regular}) + len({*tail})
    return Traffic(count, count * banks * WORD, used * width)


def gpu_features(g: StageGraph, kernel: Kernel, machine: Machine) -> tuple[StageFeatures, ...]:
    """The features of each stage of a kernel, the root's first."""
    target = machine.gpu
    root, tiling, members = kernel
    node, places = g.nodes[root], dict[int, Place](members)
    tile, thread = tile_spans(g, kernel)
    if tiling is None:
        threads = min(DEFAULT_THREADS, target.threads_per_block)
        blocks = ceil(node.points / threads)
    else:
        threads = tiling.turns(tiling.tile)
        blocks = prod(ceil(n / t) for n, t in zip(node.extents, tiling.tile, strict=True))
    shared = sum(_points(tile[n]) * g.nodes[n].width for n, place in members if place == "tile" and n in tile)
    calls: dict[int, float] = {root: float(node.points)}
    for n, place in members:
        if place == "tile":
            calls[n] = float(_points(tile[n]) * blocks)
        elif place == "row":
            calls[n] = float(_points(thread[n]) * blocks * threads)
    out = []
    for stage in stages_of(g, kernel):
        n, place = stage.index, places.get(stage.index, "own")
        whole = _whole(g, stage, place, calls[n], blocks, threads, tile, thread)
        lanes = _lanes(g, n, place, tiling, tile, thread, threads)
        accessed = _accesses(g, stage, places, tiling, lanes, calls[n] / blocks, threads, target)
        values = whole | _held(g, stage, places, tile, thread, shared, threads, blocks, target) | accessed
        out.append(StageFeatures(stage, MappingProxyType(values), GPU_FEATURES))
    return tuple(out)


def _points(box: Box) -> int:
    return prod(hi - lo + 1 for lo, hi in box)


def _whole(
    g: StageGraph,
    node: Node,
    place: Place,
    computed: float,
    blocks: int,
    threads: int,
    tile: Mapping[int, Box],
    thread: Mapping[int, Box],
) -> dict[str, float]:
    """How much is computed, how often, by how many."""
    n = node.index
    per = {"tile": blocks, "row": blocks * threads}.get(str(place), 1)
    box = thread if place in ("row", "own") else tile
    return {
        "num_scalars": computed * node.sums,
        "points_computed_total": computed,
        "points_computed_minimum": float(node.points),
        "points_computed_per_thread": computed / blocks / threads,
        "num_blocks": float(blocks),
        "num_threads_per_block": float(threads),
        "num_realizations": float(per),
        "num_productions": float(per),
        "inner_parallelism": float({"own": blocks, "tile": threads}.get(str(place), 1)),
        "outer_parallelism": float({"own": 1, "tile": blocks}.get(str(place), blocks * threads)),
        "inlined_calls": computed * node.sums * node.inlined,
        "inlined_work": computed * node.sums * max(0.0, node.work - g.nodes[n].work),
        "unrolled_loop_extent": float(_points(box[n])) if place == "own" and n in box else 1.0,
        "expr_branching": float(node.branching),
    }


def _held(
    g: StageGraph,
    node: Node,
    places: Mapping[int, Place],
    tile: Mapping[int, Box],
    thread: Mapping[int, Box],
    shared: int,
    threads: int,
    blocks: int,
    target: GpuTarget,
) -> dict[str, float]:
    """What is kept where, and how many blocks and warps a multiprocessor then holds."""
    n, place = node.index, places.get(node.index, "own")
    kept = [_points(thread[m]) * g.nodes[m].width for m, p in places.items() if p == "row" and m in thread]
    registers = min(target.registers_per_thread, OTHER_REGISTERS + node.branching + sum(kept) // WORD)
    found = occupancy(target, threads, registers, shared)
    warps = ceil(threads / target.warp)
    per_block = target.shared_per_unit // max(1, shared)
    mine = float(_points(tile[n]) * node.width) if n in tile else 0.0
    own = float(_points(thread[n]) * node.width) if n in thread else 0.0
    return {
        "num_warps_per_block": float(warps),
        "num_active_warps_per_block": float(warps),
        "block_occupancy": threads / target.threads_per_block,
        "warp_lane_utilization": threads / (warps * target.warp),
        "idle_lane_wastage": (warps * target.warp - threads) / target.threads_per_unit,
        "shared_mem_occupancy": shared / target.shared_per_block,
        "shared_mem_block_limit_factor": min(1.0, per_block / target.blocks_per_unit),
        "max_warp_occupancy": found.fraction,
        "max_block_occupancy": found.blocks / target.blocks_per_unit,
        "global_bytes_at_task": mine if place == "own" else 0.0,
        "shared_bytes_at_task": mine if place == "tile" else 0.0,
        "register_bytes_at_task": own if place == "row" else 0.0,
        "working_set_at_thread": float(sum(kept)),
    }


def _lanes(
    g: StageGraph,
    n: int,
    place: Place,
    tiling: Tiling | None,
    tile: Mapping[int, Box],
    thread: Mapping[int, Box],
    threads: int,
) -> Lanes:
    """The threads of a block as they compute a stage."""
    node = g.nodes[n]
    last = len(node.names) - 1
    if place == "tile" or tiling is None:
        # elements one after another, the last axis fastest, as many as there are threads
        counts, left = [1] * len(node.names), threads
        extents = [hi - lo + 1 for lo, hi in tile[n]] if place == "tile" else list(node.extents)
        for axis in range(last, -1, -1):
            counts[axis] = max(1, min(extents[axis], left))
            left = max(1, left // counts[axis])
        return Lanes(node.names, tuple(counts), (1,) * len(node.names), last)
    counts = [t // e for t, e in zip(tiling.tile, tiling.expand, strict=True)]
    if len(counts) == len(node.names):
        return Lanes(node.names, tuple(counts), tiling.expand, tiling.vector)
    # a producer of another rank: neighbours along its last axis
    alone = (*(1,) * last, threads) if node.names else ()
    return Lanes(node.names, alone, (1,) * len(node.names), last)


def _accesses(
    g: StageGraph,
    node: Node,
    places: Mapping[int, Place],
    tiling: Tiling | None,
    lanes: Lanes,
    computed: float,
    threads: int,
    target: GpuTarget,
) -> dict[str, float]:
    """Loads and stores of a block, in transactions, and how much of what they move is used."""
    place = places.get(node.index, "own")
    warp, banks = target.warp, target.banks
    serial = tiling.expand if tiling is not None and place == "own" else (1,) * len(node.names)
    turns = computed / threads / prod(serial) * node.sums
    loads = {"global": 0.0, "shared": 0.0}
    moved = {"global": 0.0, "shared": 0.0}
    used = {"global": 0.0, "shared": 0.0}
    unique = {"global": 0.0, "shared": 0.0, "register": 0.0}
    for read, moves in zip(node.reads, g.moves(node, serial), strict=True):
        scope = {"tile": "shared", "row": "register"}.get(str(places.get(read.node)), "global")
        width = read.access.width
        unique[scope] += sum(each.count for each in moves) * width
        if scope == "register":
            continue
        for each in moves:
            threads_at = lanes.threads(each.where)
            found = (
                global_traffic(threads_at, width, warp)
                if scope == "global"
                else shared_traffic(threads_at, width, warp, banks)
            )
            loads[scope] += each.count * turns * found.count
            moved[scope] += each.count * turns * found.moved
            used[scope] += each.count * turns * found.used
    stores, efficiency = _stores(g, node, place, lanes, computed / threads, target)
    across = lanes.counts[-1] if lanes.counts else 1
    return {
        "unique_global_bytes_read_per_realization": unique["global"],
        "unique_shared_bytes_read_per_realization": unique["shared"],
        "unique_register_bytes_read_per_thread": unique["register"],
        "num_global_mem_loads_per_block": loads["global"],
        "num_shared_mem_loads_per_block": loads["shared"],
        "num_global_mem_stores_per_block": stores if place == "own" else 0.0,
        "num_shared_mem_stores_per_block": stores if place == "tile" else 0.0,
        "global_mem_load_efficiency": used["global"] / moved["global"] if moved["global"] else 1.0,
        "shared_mem_load_efficiency": used["shared"] / moved["shared"] if moved["shared"] else 1.0,
        "global_mem_store_efficiency": efficiency if place == "own" else 1.0,
        "shared_mem_store_efficiency": efficiency if place == "tile" else 1.0,
        "global_innermost_bytes_at_task": float(across * node.width) if place == "own" else 0.0,
    }


def _stores(
    g: StageGraph, node: Node, place: Place, lanes: Lanes, each: float, target: GpuTarget
) -> tuple[float, float]:
    """Transactions of a block's stores, and the part of what they move that is stored."""
    if place == "row":
        return 0.0, 1.0
    where = g.stored(node.index)
    if place == "tile":
        found = shared_traffic(lanes.threads(where), node.width, target.warp, target.banks)
    else:
        found = global_traffic(lanes.threads(where), node.width, target.warp)
    return found.count * each, found.used / found.moved
