"""What a product of matrices costs on a GPU: tiles, occupancy, waves, bank conflicts, each memory level.

A multiprocessor works on as many blocks at once as fit (``occupancy``). In each step along the sums a block
reads a slice of both operands, which caches serve, copies it to shared memory, and multiplies: whichever of
arithmetic, shared memory and the second cache level takes longest decides, and where copies do not run ahead
their latency comes on top, divided among the blocks that are there (after Volkov, Better Performance at
Lower Occupancy, 2010; roofline of each level).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

from tilewright.cost.occupancy import occupancy
from tilewright.target import GpuTarget

#: Elements of f32 that one access serves without conflicts, whose addresses follow one another from thread to
#: thread: 128 bits.
ACCESS_ELEMENTS: Final = 4
#: Registers of a thread besides its sums and operands: addresses, counters, copies under way. NVRTC takes
#: 24 to 28 for products and convolutions of 4x4 to 8x8 results a thread (sm_80, sm_90).
OTHER_REGISTERS: Final = 28
#: Registers that hold what a thread copies, at most: four accesses of 128 bits for each operand.
MOST_COPIED: Final = 32
#: Instructions of a step along the sums besides products and reads: loop, addresses.
STEP_OVERHEAD: Final = 16
#: Threads that read one address together get it at once: the part of their reads that is left.
BROADCAST: Final = 0.5
#: Seconds from one kernel to the next in a captured graph (NVIDIA, Constant Time Launch for Straight-Line
#: CUDA Graphs, 2024: 1.5 to 2.5 us a node).
LAUNCH_SECONDS: Final = 2e-6


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a block does in a step along the sums: cycles of a multiprocessor, and bytes read there.

    ``arithmetic`` are those in which instructions start, ``alone`` those until a block that has the
    multiprocessor to itself is done; ``read_bytes`` come from shared memory.
    """

    arithmetic: float
    alone: float
    read_bytes: float


class BlockTiles(Protocol):
    """A tile of a block and how its threads compute it."""

    @property
    def rows(self) -> int:
        """Rows of a block's tile."""

    @property
    def columns(self) -> int:
        """Columns of it."""

    @property
    def depth(self) -> int:
        """Terms of a step."""

    @property
    def stages(self) -> int:
        """Slices in shared memory at once."""

    @property
    def threads(self) -> int:
        """Threads of a block."""

    @property
    def registers(self) -> int:
        """Registers of a thread, about."""

    def shared_bytes(self, element: int) -> int:
        """Bytes of shared memory of a block."""

    def work(self, element: int, target: GpuTarget) -> StepWork:
        """What a block does in a step, its operands of ``element`` bytes."""


@dataclass(frozen=True, slots=True)
class ProductTiles:
    """A tile of a block, ``rows`` x ``columns`` in steps of ``depth``, and of each of its threads.

    A thread's rows lie together in groups of ``group_rows``, as far as it has so many, and the groups lie
    apart, each where a virtual thread of its own would have them (Gensor, Sec. IV-A); columns as well.
    """

    rows: int
    columns: int
    depth: int
    thread_rows: int
    thread_columns: int
    stages: int = 1
    group_rows: int = ACCESS_ELEMENTS
    group_columns: int = ACCESS_ELEMENTS

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.rows // self.thread_rows) * (self.columns // self.thread_columns)

    @property
    def registers(self) -> int:
        """Registers of a thread, about."""
        sums = self.thread_rows * self.thread_columns
        operands = 2 * (self.thread_rows + self.thread_columns)
        return sums + max(operands, min(self.copied, MOST_COPIED)) + OTHER_REGISTERS

    @property
    def copied(self) -> int:
        """Elements of both operands that a thread copies in a step."""
        return -(-(self.rows + self.columns) * self.depth // self.threads)

    @property
    def conflicts(self) -> tuple[int, int]:
        """Turns that reads of rows and of columns take for bank conflicts: one where there are none.

        Formula 3 of Gensor: groups wider than one access serves put neighbouring threads into the same banks.
        """
        rows = min(self.group_rows, self.thread_rows)
        columns = min(self.group_columns, self.thread_columns)
        return -(-rows // ACCESS_ELEMENTS), -(-columns // ACCESS_ELEMENTS)

    @property
    def reads(self) -> float:
        """Accesses to shared memory of a thread in a step of one, groups narrower than an access counted."""
        parts = ((self.thread_rows, self.group_rows), (self.thread_columns, self.group_columns))
        return sum(
            of / ACCESS_ELEMENTS * max(1.0, min(of, ACCESS_ELEMENTS) / min(of, group)) for of, group in parts
        )

    def shared_bytes(self, element: int) -> int:
        """Bytes of shared memory of a block."""
        return self.stages * (self.rows + self.columns) * self.depth * element

    def work(self, element: int, target: GpuTarget) -> StepWork:
        """What a block does in a step: multiply-adds, reads of shared memory, copies."""
        warps = ceil(self.threads / target.warp)
        products = self.thread_rows * self.thread_columns
        issue = issued(target)
        down, across = self.conflicts
        read = self.thread_rows * down + self.thread_columns * across
        arithmetic = (self.depth * (products + self.reads) + self.copied + STEP_OVERHEAD) * warps / issue
        # a warp waits for its own results
        alone = self.depth * products * max(1.0, 4 / min(4.0, warps / 1.0)) / issue * min(1, warps)
        return StepWork(arithmetic, alone, self.depth * self.threads * read * element * BROADCAST)


@dataclass(frozen=True, slots=True)
class ProductSize:
    """``batch`` products of ``rows`` x ``columns`` results and ``sums`` terms, of ``element`` bytes.

    ``operand_bytes`` are those that both operands really take in memory, where windows overlap fewer than
    matrices would.
    """

    batch: int
    rows: int
    columns: int
    sums: int
    element: int
    operand_bytes: int


def product_seconds(size: ProductSize, tiles: BlockTiles, target: GpuTarget) -> float:
    """Seconds of a product; infinite where a block does not fit.

    >>> from tilewright.target import A100
    >>> large = ProductSize(1, 4096, 4096, 4096, 4, 2 * 4 * 4096**2)
    >>> wide = product_seconds(large, ProductTiles(128, 128, 8, 8, 8, 2), A100)
    >>> narrow = product_seconds(large, ProductTiles(32, 32, 8, 2, 2, 2), A100)
    >>> 2 * 4096**3 / 19.5e12 < wide < narrow
    True
    """
    held = occupancy(target, tiles.threads, tiles.registers, tiles.shared_bytes(size.element))
    if not held.blocks:
        return float("inf")
    blocks = size.batch * ceil(size.rows / tiles.rows) * ceil(size.columns / tiles.columns)
    steps = ceil(size.sums / tiles.depth)
    work = tiles.work(size.element, target)
    shared = work.read_bytes / target.level("shared").bandwidth
    slices = (tiles.rows + tiles.columns) * tiles.depth * size.element
    caches = [level for level in target.memory if level.name in ("l2", "l3")]
    far = caches[-1] if caches else target.memory[-1]
    brought = slices / far.bandwidth
    busy = max(work.arithmetic, shared, brought)
    # one block alone also waits for its barriers: several hide that
    alone = max(work.alone, busy)
    latency = far.latency if tiles.stages == 1 else 0.0

    def step(resident: int) -> float:
        waiting = (alone + latency + target.level("shared").latency) if resident else 0.0
        # a slice has as many steps to come as are copied ahead of it
        hidden = target.memory[-1].latency / (tiles.stages - 1) if tiles.stages > 1 else 0.0
        return max(resident * busy, waiting, hidden)

    on_one = ceil(blocks / target.units)
    rounds, rest = divmod(on_one, held.blocks)
    start = target.memory[-1].latency * 2
    cycles = rounds * (steps * step(held.blocks) + start) + (steps * step(rest) + start if rest else 0)
    results = size.batch * size.rows * size.columns * size.element
    memory = (size.operand_bytes + results) / (target.memory[-1].bandwidth * target.units)
    return max(cycles, memory) / clock(target) + LAUNCH_SECONDS


def issued(target: GpuTarget) -> float:
    """Instructions of a warp that a multiprocessor starts a cycle."""
    return target.fma_per_cycle / target.warp


def clock(target: GpuTarget) -> float:
    """Cycles a second; of a device that does not say, those of a slow one."""
    return target.clock_hz or 1e9
