"""Places in a loop tree as columns of values, and memory cells as numbers: the ground of the listing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.ir import (
    PRIVATE,
    SHARED,
    Buffer,
    For,
    Index,
    Load,
    LoopFunction,
    Window,
    fresh_name,
    int_upper,
    is_opaque,
    locate,
    loop_env,
)
from tilewright.poly.values import Bools, Ints, evaluate
from tilewright.support import ResourceError

MAX_ELEMENTS = 20_000_000
"""Limit on the listed accesses of one function: beyond it the symbolic mode is the tool."""

MAX_CELLS = 1 << 27
"""Limit on the memory cells of all executions of all allocations: tables have a few numbers for each."""

AXIS_BITS = 12
"""A hardware axis has fewer threads than this many bits count."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Columns of values for the executions of one place in the tree: a matrix with named rows."""

    matrix: Ints
    loops: Mapping[str, int]  # loop variables
    scope: Mapping[str, int]  # variables that expressions see: loops, or a block's iterators
    fresh: Mapping[str, tuple[int, str, Mapping[str, int]]]  # buffer -> execution of its Alloc, name, threads
    outer: Mapping[str, tuple[int, str]]  # parallel loop -> row with the number of its execution, kind
    team: tuple[int, str] | None = None  # row with the number of a block of threads, the loop that makes it
    threads: Mapping[str, int] = field(default_factory=dict)  # hardware axis -> row with the coordinate
    unsure: bool = False  # under a data-dependent condition
    tested: tuple[tuple[Load, Mapping[str, int]], ...] = ()  # what such conditions read, in which scope

    @property
    def n(self) -> int:
        """Number of executions."""
        return int(self.matrix.shape[1])

    def env(self, params: Mapping[str, int]) -> dict[str, Ints | int]:
        """Values of everything that expressions see."""
        out: dict[str, Ints | int] = dict(params)
        for name, row in self.scope.items():
            out[name] = self.matrix[row]
        return out

    def storage(self, buffer: str) -> str:
        """The name under which the storage of a buffer is numbered."""
        return self.fresh[buffer][1] if buffer in self.fresh else buffer

    def take(self, rows: Ints | Bools) -> Frame:
        """Some of the executions."""
        return replace(self, matrix=self.matrix[:, rows])

    def added(self, columns: list[Ints]) -> tuple[Ints, int]:
        """The matrix with further rows, and the position of the first of them."""
        at = self.matrix.shape[0]
        return (np.concatenate([self.matrix, np.stack(columns)]) if columns else self.matrix), at


class Memory:
    """The numbering of memory cells while the instances of one function are listed (it grows on the way)."""

    def __init__(self, func: LoopFunction, params: Mapping[str, int]) -> None:
        self.params = params
        self.buffers: dict[str, Buffer] = {b.name: b for b in func.buffers}
        self.boxes: dict[str, tuple[tuple[int, int], ...]] = {}
        self.executions: dict[str, int] = {b.name: 1 for b in func.buffers}
        self.axes = _axis_extents(func, params)
        self.outside: dict[tuple[str, str], None] = {}
        self.owned: set[str] = set()  # storage that every thread has of its own
        self.elements = 0

    def spend(self, count: int, what: str) -> None:
        """Count listed values; ResourceError beyond the limit."""
        self.elements += count
        if self.elements > MAX_ELEMENTS:
            raise ResourceError(
                f"more than {MAX_ELEMENTS} values to list, at {what}",
                hint="check smaller sizes, or use the symbolic mode",
            )

    def check_cells(self) -> None:
        """ResourceError where there are too many cells for a table of them."""
        largest, total = "", 0
        for name, buffer in self.buffers.items():
            cells = self.size(buffer) * self.executions.get(name, 1)
            total += cells
            if not largest or cells > self.size(self.buffers[largest]) * self.executions.get(largest, 1):
                largest = name
        if total > MAX_CELLS:
            raise ResourceError(
                f"{total} cells of memory to follow, at most {MAX_CELLS} are; {largest!r} has the most",
                hint="check smaller sizes, or use the symbolic mode",
            )

    def alloc(self, buffer: Buffer, f: Frame) -> Frame:
        """The frame inside of an allocation, each of whose executions gives storage of its own.

        Memory that the threads of a block have in common is one storage, wherever in the block it is.
        """
        # copies of a subtree (peeled tails) may declare one name several times: each is storage of its own
        name = fresh_name(buffer.name, self.buffers)
        self.buffers[name] = buffer.with_(name=name)
        strides: dict[str, int] = {}
        count = 1
        # every thread has its own registers and local memory, wherever they are declared, and all but
        # shared memory that it declares itself
        if f.team is not None and buffer.scope != SHARED and (buffer.scope in PRIVATE or f.threads):
            for axis, extent in sorted(self.axes.items()):
                if axis not in f.threads:
                    self.owned.add(name)
                    strides[axis] = count
                    count *= extent
        common = buffer.scope == SHARED or (buffer.scope not in PRIVATE and not f.threads)
        if common and f.team is not None:
            # one for all threads of a block, and the same memory in every iteration of the block's loops
            number = f.matrix[f.team[0]]
            self.executions[name] = int(number.max()) + 1
        else:
            number = np.arange(f.n, dtype=np.int64) * count
            self.executions[name] = f.n * count
        matrix, at = f.added([number])
        return replace(f, matrix=matrix, fresh={**f.fresh, buffer.name: (at, name, strides)})

    def run_by_everyone(self, written: Sequence[str], f: Frame) -> str:
        """An axis all of whose threads run what writes these buffers, as each thread has its own; or none."""
        if f.team is None or not written or not all(name in f.fresh for name in written):
            return ""
        for axis, extent in sorted(self.axes.items()):
            if extent > 1 and axis not in f.threads and all(axis in f.fresh[name][2] for name in written):
                return axis
        return ""

    def cells(
        self,
        buffer: str,
        indices: tuple[Index | None, ...],
        mask: Bools | None,
        f: Frame,
        env: Mapping[str, Ints | int],
        block: str = "",
    ) -> tuple[Ints, Ints, bool]:
        """Instances and cells of an access; the flag says that an unknown one of several cells is meant.

        An index that is ``None`` may have any value.
        """
        rows = np.arange(f.n, dtype=np.int64) if mask is None else np.flatnonzero(mask).astype(np.int64)
        logical: list[Ints | int] = []
        shape = self.buffers[f.storage(buffer)].shape
        spread = False
        for d, x in enumerate(indices):
            if x is not None and not is_opaque(x):
                v = evaluate(x, env)
                logical.append(v[rows] if isinstance(v, np.ndarray) else v)
                continue
            extent = int(evaluate(shape[d], self.params))
            m = len(rows)
            self.spend(m * extent, f"a data-dependent access of {buffer}")
            rows = np.repeat(rows, extent)
            logical = [np.repeat(v, extent) if isinstance(v, np.ndarray) else v for v in logical]
            logical.append(np.tile(np.arange(extent, dtype=np.int64), m))
            spread = True
        return rows, self.number(buffer, logical, rows, f, block), spread

    def window(self, w: Window, f: Frame, env: Mapping[str, Ints | int], block: str) -> tuple[Ints, Ints]:
        """Instances and cells of a window: every instance with each element of its box."""
        rows = np.arange(f.n, dtype=np.int64)
        logical: list[Ints] = []
        for x, extent in zip(w.offsets, w.extents, strict=True):
            base = np.broadcast_to(np.asarray(evaluate(x, env), np.int64), (f.n,))[rows]
            m = len(rows)
            self.spend(m * extent, f"a window of {w.buffer}")
            rows = np.repeat(rows, extent)
            logical = [np.repeat(v, extent) for v in logical]
            logical.append(np.repeat(base, extent) + np.tile(np.arange(extent, dtype=np.int64), m))
        return rows, self.number(w.buffer, list(logical), rows, f, block)

    def box(self, buffer: Buffer) -> tuple[tuple[int, int], ...]:
        """Per physical dimension the first valid position and the number of positions, halo included."""
        if buffer.name not in self.boxes:
            halo = buffer.halo or tuple((0, 0) for _ in buffer.physical_shape)
            self.boxes[buffer.name] = tuple(
                (-before, int(evaluate(x, self.params)) + before + after)
                for x, (before, after) in zip(buffer.physical_shape, halo, strict=True)
            )
        return self.boxes[buffer.name]

    def size(self, buffer: Buffer) -> int:
        """Cells of one execution of a buffer's allocation."""
        n = 1
        for _, extent in self.box(buffer):
            n *= extent
        return n + 1  # the last position stands for everything outside

    def number(self, name: str, logical: list[Ints | int], rows: Ints, f: Frame, block: str) -> Ints:
        """The cells of logical indices (a column or a number a dimension) in the executions ``rows``."""
        buffer = self.buffers[f.storage(name)]
        physical: list[Ints | int] = logical
        if buffer.layout is not None:
            lenv: dict[str, Ints | int] = dict(self.params)
            for loop in buffer.layout.vars:
                if loop in f.loops:
                    lenv[loop] = f.matrix[f.loops[loop]][rows]
            lenv.update(zip(buffer.layout.dims, logical, strict=True))
            physical = [evaluate(x, lenv) for x in buffer.layout.exprs]
        out: Ints = np.zeros(len(rows), np.int64)
        inside: Bools = np.ones(len(rows), np.bool_)
        for v, (first, extent) in zip(physical, self.box(buffer), strict=True):
            at = v - first
            inside &= (at >= 0) & (at < extent)
            out = out * extent + at
        size = self.size(buffer)
        if not inside.all():
            self.outside[(name, block)] = None
            out = np.where(inside, out, size - 1)
        if name in f.fresh:
            at_row, _, strides = f.fresh[name]
            execution = f.matrix[at_row][rows]
            for axis, stride in strides.items():
                if axis in f.threads:
                    execution = execution + f.matrix[f.threads[axis]][rows] * stride
            out = out + execution * size
        return out


def _axis_extents(func: LoopFunction, params: Mapping[str, int]) -> dict[str, int]:
    """Upper bounds of the coordinates on the threads' hardware axes, plus one."""
    out: dict[str, int] = {}
    for place in locate(func.body, For):
        loop = place.node
        if loop.kind.name == "thread" and not loop.kind.axis.startswith("block"):
            bound = int_upper(loop.extent, loop_env(place.loops))
            if loop.extent.is_const or not loop.extent.vars:
                bound = int(evaluate(loop.extent, params))
            out[loop.kind.axis] = max(out.get(loop.kind.axis, 1), bound or 1 << AXIS_BITS)
    return out
