"""Kernels of devices: what OpenCL C and CUDA C have in common.

A loop over blocks or threads is the number of this block or thread, guarded where another loop on its axis
is longer. Statements that no loop spreads over an axis are its first thread's, unless what they write is
every thread's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from tilewright.codegen.clike.dialect import Dialect
from tilewright.codegen.clike.helpers import Helpers
from tilewright.codegen.clike.launches import (
    Grid,
    HostPlan,
    Nest,
    grid_of,
    has_hardware,
    host_plan,
    leaves,
    waits,
)
from tilewright.codegen.clike.statements import (
    ALIGNMENT,
    needs_wide,
    updated_at_once,
)
from tilewright.codegen.clike.teams import TeamCalls
from tilewright.codegen.clike.wide import VECTOR_BYTES
from tilewright.codegen.clike.writer import Writer, entry_name
from tilewright.ir import (
    ASYNCHRONOUS,
    PRIVATE,
    Alloc,
    AtomicUpdate,
    Barrier,
    Buffer,
    Exec,
    For,
    Index,
    LoopFunction,
    Seq,
    Stmt,
    Store,
    Sync,
    Teams,
    buffers_of,
    locate,
    stmt_exprs,
    stmt_loads,
    stmt_writes,
    substitute,
)
from tilewright.support import ScheduleError
from tilewright.target import TensorMap

STATIC_SHARED: Final = 48 << 10
"""Shared memory that a kernel may declare; more is given with its launch (CUDA C++ Programming Guide, 3.2.4).
"""
MOST_PRIVATE: Final = 64 << 10
"""Bytes of a buffer that every thread has to itself: beyond, memory for all threads would not be there."""


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """An entry function: its grid, what it takes, and the shared memory it uses.

    ``buffers`` are names of arguments and of workspace, passed in this order; then come ``scalars``: the
    function's sizes and the variables of the host's loops, integers of ``scalar_bytes``. Of ``shared_bytes``
    those given with the launch are ``dynamic_bytes``.
    """

    symbol: str
    grid: Grid
    buffers: tuple[str, ...]
    scalars: tuple[str, ...]
    scalar_bytes: int
    shared_bytes: int
    dynamic_bytes: int
    maps: tuple[TensorMap, ...] = ()
    """What comes after the scalars: tensor maps of some of the buffers."""


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """The text of a function's kernels in one language, and how to run them: launches in order.

    Each launch is the number of its kernel and the values of the host's loops.
    """

    text: str
    kernels: tuple[KernelEntry, ...]
    launches: tuple[tuple[int, tuple[int, ...]], ...]
    workspace: tuple[Buffer, ...]


def emit_device(func: LoopFunction, dialect: Dialect) -> DeviceSource:
    """A lowered function as kernels. Raises ScheduleError and TargetError for what a device cannot do."""
    plan: HostPlan = host_plan(func)
    helpers = Helpers(dialect)
    base = entry_name(func.name)
    texts: list[str] = []
    entries: list[KernelEntry] = []
    for number, nest in enumerate(plan.nests):
        symbol = base if len(plan.nests) == 1 else f"{base}_{number}"
        made = _Kernel(func, dialect, helpers, nest, plan.workspace, symbol)
        texts.append(made.text())
        entries.append(made.entry)
    lines = [dialect.prelude, *_extensions(func, plan.workspace, dialect), *helpers.text(), "", *texts]
    steps = tuple((step.nest, step.values) for step in plan.steps)
    return DeviceSource("\n".join(line for line in lines), tuple(entries), steps, plan.workspace)


def _extensions(func: LoopFunction, workspace: Sequence[Buffer], dialect: Dialect) -> list[str]:
    names = {b.dtype.name for b in (*func.buffers, *workspace)}
    names |= {e.dtype.name for e in stmt_exprs(func.body)}
    types = {b.name: b.dtype for b in (*buffers_of(func).values(), *workspace)}
    names |= {f"atomic{types[name].bits}" for name in updated_at_once(func.body)}
    return [line for name, line in dialect.extensions.items() if name in names]


class _Kernel(TeamCalls):
    """One entry function."""

    def __init__(
        self,
        func: LoopFunction,
        dialect: Dialect,
        helpers: Helpers,
        nest: Nest,
        workspace: Sequence[Buffer],
        symbol: str,
    ) -> None:
        grid = grid_of(nest, symbol)
        wide = needs_wide(func, nest.body)
        super().__init__(dialect, helpers, Writer(), wide=wide, grid=grid, symbol=symbol)
        self._block_shared: list[tuple[str, Buffer, int]] = []
        self._declarations: list[str] = []
        self._nest = nest
        self._late = any(ASYNCHRONOUS in dict(p.node.hints) for p in locate(nest.body, For))
        every = (*func.buffers, *workspace)
        used = _names(nest.body)
        self._buffers = tuple(b for b in every if b.name in used)
        self.arguments = tuple(b.name for b in self._buffers)
        self.atomic = updated_at_once(nest.body)
        self._written = {name for name, _ in stmt_writes(nest.body)}
        read = {ld.buffer for ld in stmt_loads(nest.body)}
        self._read_back = any(b.name in self._written & read for b in self._buffers)
        self._scalars = (*(p.name for p in func.params), *(name for name, _, _ in nest.host))
        for b in self._buffers:
            self._declarations.append(self.writer.name(b.name))
        for name in self._scalars:
            self.names[name] = self.writer.name(name)
        for name, lo, hi in nest.host:
            self.env[name] = (lo, hi - 1)
        for b, text in zip(self._buffers, self._declarations, strict=True):
            self.declare(b, text)
        self.stmt(nest.body)
        places = self._shared_places()
        total = max(
            (at + size for (_, _, size), at in zip(self._block_shared, places, strict=True)), default=0
        )
        dynamic = total if total > STATIC_SHARED and dialect.dynamic_shared else 0
        self.entry = KernelEntry(
            symbol,
            grid,
            tuple(b.name for b in self._buffers),
            self._scalars,
            8 if wide else 4,
            total,
            dynamic,
            tuple(self.maps),
        )

    def add_shared(self, name: str, b: Buffer, nbytes: int) -> None:
        self._block_shared.append((name, b, -(-nbytes // VECTOR_BYTES) * VECTOR_BYTES))

    def _shared_places(self) -> list[int]:
        """Where buffers that a block shares begin in its memory."""
        places, end = [], 0
        for _, b, size in self._block_shared:
            places.append(-(-end // _alignment(b)) * _alignment(b))
            end = places[-1] + size
        return places

    def text(self) -> str:
        """The whole function."""
        dialect = self.dialect
        arguments = []
        for b, name in zip(self._buffers, self._declarations, strict=True):
            const = "" if b.name in self._written else "const "
            # NVRTC makes one load of a choice between an element that is only read and one that this kernel
            # wrote, and one through the cache that is not told of writes where the first pointer is alone
            alone = f"{dialect.restrict} " if b.alias is None and not self._read_back else ""
            space = f"{dialect.global_space} " if dialect.global_space else ""
            arguments.append(f"{space}{const}{dialect.storage_type(b.dtype)} *{alone}{name}")
        arguments += [f"const {self.index_type} {self.names[name]}" for name in self._scalars]
        arguments += [f"const __grid_constant__ TwTensorMap tw_map_{n}" for n in range(len(self.maps))]
        head = dialect.kernel.format(name=self.symbol, bounds=self._bounds())
        lines = [f"{head}({', '.join(arguments)})", "{"]
        dynamic = self.entry.dynamic_bytes
        if dynamic:
            align = max(_alignment(b) for _, b, _ in self._block_shared)
            lines.append(f"    {dialect.dynamic_shared.format(align=align)}")
        for (name, b, size), offset in zip(self._block_shared, self._shared_places(), strict=True):
            kind = dialect.storage_type(b.dtype)
            if dynamic:
                lines.append(f"    {kind} *const {name} = ({kind} *)(tw_shared + {offset});")
            else:
                count = size // b.dtype.bytes
                declared = dialect.shared_space.format(type=kind, name=name, count=count, align=_alignment(b))
                lines.append(f"    {declared}")
        return "\n".join([*lines, *self.writer.lines, "}", ""])

    def _bounds(self) -> str:
        if not all(extent.is_const for extent in self.grid.threads):
            return ""
        x, y, z = (extent.const for extent in self.grid.threads)
        # with the least number of blocks compilers know how many registers threads begin with
        threads = f"{x * y * z}, 1" if self.has_teams else str(x * y * z)
        return self.dialect.bounds.format(x=x, y=y, z=z, threads=threads)

    # -- who runs a statement -------------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> None:
        if isinstance(s, Exec) and s.instr in self.dialect.warp_instructions:
            self.execute(s)
            return
        missing = self.grid.used - self.covered
        if (
            not missing
            or isinstance(s, Seq | Barrier | Alloc | Teams | Sync)
            or has_hardware(s)
            or waits(s)
            or self.has_warps(s)
        ):
            super().stmt(s)
            return
        own = [self._writes_own(leaf) for leaf in leaves(s)]
        if all(own) or (any(own) and not isinstance(s, Store | Exec)):
            super().stmt(s)
        else:
            with self.writer.block(
                f"if ({' && '.join(f'{self.id(axis)} == 0' for axis in sorted(missing))})"
            ):
                outer, self.covered = self.covered, self.grid.used
                super().stmt(s)
                self.covered = outer

    def _writes_own(self, s: Store | Exec) -> bool:
        """Whether all that a statement writes is every thread's own."""
        if isinstance(s, Store):
            return all(w.buffer in self.private for w in s.writes)
        return all(w.buffer in self.private for w in s.windows if w.mode != "r")

    # -- loops ----------------------------------------------------------------------------------------------

    def loop(self, s: For) -> None:
        outer, self.late = self.late, ASYNCHRONOUS in dict(s.hints)
        if s.kind.name == "thread":
            self._spread(s)
        elif s.kind.name != "vector" or not self.vector(s):
            super().loop(s)
        self.late = outer

    def _spread(self, s: For) -> None:
        axis = s.kind.axis
        if axis in self.covered:
            raise ScheduleError(f"{self.symbol}: {s.var!r} is a loop on {axis} inside of another one")
        full = s.step == 1 and self.grid.extent(axis) == s.hi - s.lo
        if not full and waits(s.body) and axis.startswith("thread"):
            raise ScheduleError(
                f"{self.symbol}: a barrier inside of {s.var!r}, which not all threads of {axis} run"
            )
        lo, hi = s.lo, self.index(s.hi)
        number = self.id(axis) if s.step == 1 else f"{self.id(axis)} * {s.step}"
        text = number if lo == Index(0) else f"{self.index(lo)} + {number}"
        outer, self.covered = self.covered, self.covered | {axis}
        lanes = self.lanes(s, full=full)
        if self.dialect.single_blocks_are_constants and full and s.hi - s.lo == Index(1):
            # a number that compilers do not know is none of a register: private arrays would lie in memory
            self.stmt(substitute(s.body, {s.var: s.lo}))
        else:
            with self.variable(s) as name:
                self.writer.line(f"const {self.index_type} {name} = {text};")
                guard = nullcontext() if full else self.writer.block(f"if ({name} < {hi})")
                with guard:
                    self.stmt(s.body)
        self.covered = outer
        self.lanes_again(lanes)

    # -- memory ---------------------------------------------------------------------------------------------

    def alloc(self, s: Alloc) -> None:
        buffer = s.buffer
        count = self.element_count(buffer)
        if not isinstance(count, int):
            raise ScheduleError(
                f"{self.symbol}: the size of {buffer.name!r} is not known when compiling",
                hint="allocate it outside of the kernel, or split the loops around it",
            )
        name = self.writer.name(buffer.name)
        threads = {axis for axis in self.grid.used if axis.startswith("thread")}
        alone = threads <= self.covered
        nbytes = max(1, count) * buffer.dtype.bytes
        if buffer.scope in PRIVATE or (alone and buffer.scope != "shared"):
            if nbytes > MOST_PRIVATE:
                raise ScheduleError(
                    f"{self.symbol}: {buffer.name!r} takes {nbytes} bytes of every thread; the limit is "
                    f"{MOST_PRIVATE}",
                    hint="make its tile smaller, or allocate it outside of the kernel, in global memory",
                )
            self.writer.line(f"{self.dialect.storage_type(buffer.dtype)} {name}[{max(1, count)}];")
            own = {buffer.name}
        else:
            self.add_shared(name, buffer, nbytes)
            self.shared.add(buffer.name)
            own = set()
        hidden = self.private & {buffer.name}
        self.private = (self.private - {buffer.name}) | own
        with self.declared(buffer, name):
            self.stmt(s.body)
        self.private = (self.private - own) | hidden

    def update(self, s: AtomicUpdate, at: str, value: str) -> None:
        dtype = self.place(s.buffer).buffer.dtype
        self.writer.line(self.dialect.atomics[s.op, dtype.bits].format(at=at, value=value))

    def wait(self, s: Barrier) -> None:
        if self._late and self.dialect.copies_arrive is not None:
            self.writer.line(f"{self.dialect.copies_arrive(self.helpers)}();")
        if self.in_team:
            super().wait(s)
        else:
            self.writer.line(self.dialect.barrier[s.scope == "global"])


def _alignment(b: Buffer) -> int:
    """Bytes at multiples of which a buffer that a block shares begins: those of wide accesses, or more."""
    return b.align if b.align > ALIGNMENT else VECTOR_BYTES


def _names(s: Stmt) -> set[str]:
    """Names of the buffers that a statement touches."""
    found = {ld.buffer for ld in stmt_loads(s)}
    for leaf in leaves(s):
        if isinstance(leaf, Store):
            found |= {w.buffer for w in leaf.writes}
        else:
            found |= {w.buffer for w in leaf.windows}
    return found
