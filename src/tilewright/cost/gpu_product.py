"""What a product of matrices costs on a GPU: tiles, occupancy, waves, waiting, each memory level.

A multiprocessor works on as many blocks at once as fit (``occupancy``), its schedulers each on a part of
their warps. In each step along the sums a block reads a slice of both operands, which caches serve, copies it
to shared memory, and multiplies. Whatever takes longest decides: the instructions that a scheduler starts,
shared memory, the second cache level; or, where few warps are there, what one warp does one after the other,
with all that it waits for (after Volkov, Better Performance at Lower Occupancy, 2010; roofline of levels).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

from tilewright.cost.occupancy import SCHEDULERS, occupancy
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
#: Instructions of a copied element besides the copy, where a window says which it is and whether it is there
#: (NVRTC, sm_90: 29 for 3x3 with borders, as divisions by 3 and 9 and four comparisons).
WINDOW_INSTRUCTIONS: Final = 28
#: Instructions of another access that copies (NVRTC, sm_90: 18 for four, most of them to add addresses).
COPY_INSTRUCTIONS: Final = 4.5
#: Copies that a thread has under way at once, where it stores them itself.
COPIES_UNDER_WAY: Final = 4
#: The feature of devices whose copies to shared memory are not waited for, and bytes of the smallest.
LATE_COPIES: Final = "cp_async"
LATE_BYTES: Final = 4
#: Threads that read one address together get it at once: the part of their reads that is left.
BROADCAST: Final = 0.5
#: Seconds from one kernel to the next in a captured graph (NVIDIA, Constant Time Launch for Straight-Line
#: CUDA Graphs, 2024: 1.5 to 2.5 us a node).
LAUNCH_SECONDS: Final = 2e-6


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a block does in a step along the sums.

    Each of its ``warps`` starts ``instructions`` and waits for ``waits`` cycles between them. Matrix units
    work for ``units`` cycles of a multiprocessor, ``read_bytes`` come from shared memory, and a thread copies
    ``copies`` times.
    """

    warps: int
    instructions: float
    waits: float
    read_bytes: float
    copies: float
    units: float = 0.0


@dataclass(frozen=True, slots=True)
class ProductSize:
    """``batch`` products of ``rows`` x ``columns`` results and ``sums`` terms, of ``element`` bytes.

    ``operand_bytes`` are those that both operands really take in memory, where windows overlap fewer than
    matrices would. ``windows``: of which operands windows say which elements they are.
    """

    batch: int
    rows: int
    columns: int
    sums: int
    element: int
    operand_bytes: int
    windows: tuple[bool, bool] = (False, False)

    def copy_instructions(self, rows: float, columns: float, accesses: tuple[int, int]) -> float:
        """Instructions to copy so many elements of both operands, ``accesses`` elements at once."""
        both = zip((rows, columns), accesses, self.windows, strict=True)
        return sum(
            n * (1 + WINDOW_INSTRUCTIONS) if window else n / width * COPY_INSTRUCTIONS
            for n, width, window in both
        )


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

    def work(self, size: ProductSize, target: GpuTarget) -> StepWork:
        """What a block does in a step of a product."""


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

    def work(self, size: ProductSize, target: GpuTarget) -> StepWork:
        """What a block does in a step: multiply-adds, reads of shared memory, copies."""
        products = self.thread_rows * self.thread_columns
        down, across = self.conflicts
        read = self.thread_rows * down + self.thread_columns * across
        # the first operand lies along the sums, mostly, and is stored across: element by element
        each = self.depth / self.threads
        copies = size.copy_instructions(self.rows * each, self.columns * each, (1, ACCESS_ELEMENTS))
        # of a tile that is larger than the matrix each product has a condition, and reads its own factors
        inside = self.rows <= size.rows and self.columns <= size.columns
        reads = self.reads if inside else 2 * products
        return StepWork(
            ceil(self.threads / target.warp),
            self.depth * (products + reads) + copies + STEP_OVERHEAD,
            self.depth * target.level("shared").latency,
            self.depth * self.threads * read * size.element * BROADCAST,
            self.copied / ACCESS_ELEMENTS,
        )


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
    work = tiles.work(size, target)
    shared = work.read_bytes / target.level("shared").bandwidth
    slices = (tiles.rows + tiles.columns) * tiles.depth * size.element
    caches = [level for level in target.memory if level.name in ("l2", "l3")]
    far = caches[-1] if caches else target.memory[-1]
    busy = max(shared, slices / far.bandwidth, work.units)
    # cycles between two instructions that a scheduler starts
    slot = SCHEDULERS / issued(target)
    arrival = target.memory[-1].latency
    late = LATE_COPIES in target.features and (size.element >= LATE_BYTES or not any(size.windows))
    of_block = ceil(work.warps / SCHEDULERS) * work.instructions * slot
    # the warps of a block wait for each other
    alone = max(of_block, work.instructions * slot + work.waits) + target.level("shared").latency
    if not late:
        alone += arrival * ceil(work.copies / COPIES_UNDER_WAY)
    elif tiles.stages == 1:
        alone += arrival

    def step(resident: int) -> float:
        if not resident:
            return 0.0
        started = ceil(resident * work.warps / SCHEDULERS) * work.instructions * slot
        # what is copied ahead arrives before the next step
        return max(started, resident * busy, alone, arrival)

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
