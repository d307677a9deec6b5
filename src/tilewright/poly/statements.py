"""Listed instances: the statements of a function with all their executions and the cells they touch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.ir import Load, LoopFunction, Stmt
from tilewright.poly.values import Ints


@dataclass(frozen=True, slots=True)
class Reads:
    """One load of a statement: ``cells[n]`` is read by the instance ``rows[n]``.

    ``spread``: the exact cell is not known, and an instance is listed with every cell that it may read.
    """

    load: Load | None
    buffer: str
    rows: Ints
    cells: Ints
    spread: bool


@dataclass(frozen=True, slots=True)
class Writes:
    """One written access of a statement; with ``spread`` (as in :class:`Reads`) it may write each cell.

    Where it may not happen, ``kept`` is the statement's read of what then stays, cell by cell.
    """

    buffer: str
    rows: Ints
    cells: Ints
    spread: bool
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class ParallelLoop:
    """A loop whose iterations run in any order, seen from a statement inside of it.

    Per instance: which execution of the loop, which iteration, and how many barriers were passed. The threads
    of a block count as one loop over all their coordinates, whichever loops spread over the hardware axes.
    Where ``others`` is not 0, threads with numbers so much larger run the instance too, each into memory of
    its own.
    """

    var: str
    kind: str
    execution: Ints
    iteration: Ints
    phase: Ints
    others: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """One store (or instruction) of a block, or a black box as a whole, with all its instances.

    ``coords[k]`` holds the values of ``names[k]``: the block's iterators, then loops inside its body.
    ``kinds`` are the iterators' kinds, ``loop`` for inner loops. ``part`` is ``init`` or ``body``;
    ``position`` counts the stores of that part. ``time`` orders instances across all statements of the
    function. A block without reduction iterators in a stage that has some is that stage's ``init``.
    """

    stage: str
    block: str
    part: str
    position: int
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    node: Stmt
    coords: tuple[Ints, ...]
    time: Ints
    reads: tuple[Reads, ...]
    writes: tuple[Writes, ...]
    parallel: tuple[ParallelLoop, ...]
    env: Mapping[str, Ints | int] = field(repr=False)

    @property
    def count(self) -> int:
        """Number of instances."""
        return len(self.time)

    def describe(self, row: int) -> str:
        """The instance as ``stage[i=0, j=3]``."""
        values = ", ".join(f"{n}={int(c[row])}" for n, c in zip(self.names, self.coords, strict=True))
        return f"{self.stage}{'.init' if self.part == 'init' else ''}[{values}]"


@dataclass(frozen=True, slots=True)
class Instances:
    """The statements of a function for concrete parameters, and the numbering of memory cells.

    Cells of a buffer are ``base + execution of its Alloc * size + position`` in its physical box, whose
    dimensions are ``boxes[buffer]``: first position and extent, halo included. Every position outside of the
    box counts as one more cell; ``outside`` lists the buffers and blocks of such accesses (no block: of reads
    that may not happen). ``span`` is above all times.
    """

    function: LoopFunction
    params: Mapping[str, int]
    statements: tuple[Statement, ...]
    base: Mapping[str, int]
    size: Mapping[str, int]
    executions: Mapping[str, int]
    boxes: Mapping[str, tuple[tuple[int, int], ...]]
    cells: int
    span: int
    outside: tuple[tuple[str, str], ...]
    owned: frozenset[str] = frozenset()  # storage of which every thread of a block has its own
