"""Kernels of devices: what OpenCL C and CUDA C have in common.

A loop over blocks or threads is the number of this block or thread, guarded where another loop on its axis
is longer. Statements that no loop spreads over an axis are its first thread's, unless what they write is
every thread's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import gcd
from typing import Final

from tilewright.codegen.clike.dialect import Dialect
from tilewright.codegen.clike.helpers import Helpers
from tilewright.codegen.clike.late_copies import SIZES
from tilewright.codegen.clike.launches import (
    AXES,
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
    Statements,
    constant_extent,
    is_unrolled,
    needs_wide,
)
from tilewright.codegen.clike.writer import Writer, entry_name
from tilewright.ir import (
    ASYNCHRONOUS,
    PRIVATE,
    Alloc,
    Along,
    Barrier,
    Buffer,
    Condition,
    Exec,
    Expr,
    For,
    If,
    Index,
    Load,
    LoopFunction,
    Select,
    Seq,
    Stmt,
    Store,
    Window,
    children,
    loads,
    locate,
    simplify,
    stmt_exprs,
    stmt_writes,
    substitute,
    substitute_index,
    var,
)
from tilewright.support import ScheduleError, TargetError

WARP: Final = 32
"""Threads that the instructions of whole warps are done by."""
VECTOR_BYTES: Final = 16
"""Bytes of the widest access to memory by one thread."""
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
    return [line for name, line in dialect.extensions.items() if name in names]


class _Kernel(Statements):
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
        super().__init__(dialect, helpers, Writer(), wide=wide)
        self._symbol = symbol
        self._grid = grid
        self._covered: frozenset[str] = frozenset()
        self._private: set[str] = set()
        self._block_shared: list[tuple[str, Buffer, int]] = []
        self._declarations: list[str] = []
        self._nest = nest
        self._late = any(ASYNCHRONOUS in dict(p.node.hints) for p in locate(nest.body, For))
        every = (*func.buffers, *workspace)
        used = _names(nest.body)
        self._buffers = tuple(b for b in every if b.name in used)
        self._written = {name for name, _ in stmt_writes(nest.body)}
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
        total = sum(size for _, _, size in self._block_shared)
        dynamic = total if total > STATIC_SHARED and dialect.dynamic_shared else 0
        self.entry = KernelEntry(
            symbol,
            grid,
            tuple(b.name for b in self._buffers),
            self._scalars,
            8 if wide else 4,
            total,
            dynamic,
        )

    def text(self) -> str:
        """The whole function."""
        dialect = self.dialect
        arguments = []
        for b, name in zip(self._buffers, self._declarations, strict=True):
            const = "" if b.name in self._written else "const "
            alone = f"{dialect.restrict} " if b.alias is None else ""
            space = f"{dialect.global_space} " if dialect.global_space else ""
            arguments.append(f"{space}{const}{dialect.storage_type(b.dtype)} *{alone}{name}")
        arguments += [f"const {self.index_type} {self.names[name]}" for name in self._scalars]
        head = dialect.kernel.format(name=self._symbol, bounds=self._bounds())
        lines = [f"{head}({', '.join(arguments)})", "{"]
        dynamic = self.entry.dynamic_bytes
        if dynamic:
            lines.append(f"    {dialect.dynamic_shared}")
        offset = 0
        for name, b, size in self._block_shared:
            kind = dialect.storage_type(b.dtype)
            if dynamic:
                lines.append(f"    {kind} *const {name} = ({kind} *)(tw_shared + {offset});")
            else:
                count = size // b.dtype.bytes
                lines.append(f"    {dialect.shared_space.format(type=kind, name=name, count=count)}")
            offset += size
        return "\n".join([*lines, *self.writer.lines, "}", ""])

    def _bounds(self) -> str:
        if not all(extent.is_const for extent in self._grid.threads):
            return ""
        x, y, z = (extent.const for extent in self._grid.threads)
        return self.dialect.bounds.format(x=x, y=y, z=z, threads=x * y * z)

    # -- who runs a statement -------------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> None:
        if isinstance(s, Exec) and s.instr in self.dialect.warp_instructions:
            self._execute_by_warp(s)
            return
        missing = self._grid.used - self._covered
        if (
            not missing
            or isinstance(s, Seq | Barrier | Alloc)
            or has_hardware(s)
            or waits(s)
            or self._has_warps(s)
        ):
            super().stmt(s)
            return
        own = [self._writes_own(leaf) for leaf in leaves(s)]
        if all(own) or (any(own) and not isinstance(s, Store | Exec)):
            super().stmt(s)
        else:
            with self.writer.block(
                f"if ({' && '.join(f'{self._id(axis)} == 0' for axis in sorted(missing))})"
            ):
                outer, self._covered = self._covered, self._grid.used
                super().stmt(s)
                self._covered = outer

    def _has_warps(self, s: Stmt) -> bool:
        """Whether an instruction of whole warps stands in a statement."""
        names = self.dialect.warp_instructions
        return bool(names) and any(isinstance(leaf, Exec) and leaf.instr in names for leaf in leaves(s))

    def _execute_by_warp(self, s: Exec) -> None:
        """An instruction of all threads of a warp, which are those along ``thread.x``."""
        width = self._grid.extent("thread.x")
        if "thread.x" in self._covered or not width.is_const or width.const % WARP or not width.const:
            raise ScheduleError(
                f"{self._symbol}: {s.instr} is done by a whole warp: it stands outside of loops over "
                f"thread.x, and these have {WARP} iterations or a multiple",
                hint="bind loops of 32 iterations beside it, such as those of copies, to thread.x",
            )
        pieces = []
        for w in s.windows:
            place = self.place(w.buffer)
            total, products = self.offset(place, w.offsets)
            axes = w.axes or tuple(Along(d, n) for d, n in enumerate(w.extents) if n > 1)
            if products or w.buffer in self._private:
                raise ScheduleError(
                    f"{self._symbol}: {s.instr} takes {w.buffer!r} from shared or global memory, with "
                    "constant strides"
                )
            strides = [str(self._stride(w, along, total)) for along in axes]
            pieces += [f"&{place.text}[{self.index_text(total)}]", *strides]
        function = self.dialect.warp_instructions[s.instr](self.helpers, s.instr)
        call = f"{function}({', '.join(pieces)});"
        missing = self._grid.used - self._covered - {"thread.x"}
        first = [f"{self._id(axis)} == 0" for axis in sorted(missing)]
        if width != Index(WARP):
            first.append(f"{self._id('thread.x')} < {WARP}")
        if first:
            call = f"if ({' && '.join(first)}) {call}"
        self.writer.line(call)

    def _stride(self, w: Window, along: Along, total: Index) -> int:
        """Elements between neighbours along an axis of an operand."""
        moved = tuple(i + (along.step if d == along.dim else 0) for d, i in enumerate(w.offsets))
        distance = simplify(self.offset(self.place(w.buffer), moved)[0] - total, self.env)
        if not distance.is_const:
            raise ScheduleError(
                f"{self._symbol}: elements of {w.buffer!r} do not lie evenly for the instruction"
            )
        return distance.const

    def _writes_own(self, s: Store | Exec) -> bool:
        """Whether all that a statement writes is every thread's own."""
        if isinstance(s, Store):
            return all(w.buffer in self._private for w in s.writes)
        return all(w.buffer in self._private for w in s.windows if w.mode != "r")

    def _id(self, axis: str) -> str:
        kind, _, letter = axis.partition(".")
        template = self.dialect.group_id if kind == "block" else self.dialect.local_id
        return f"({self.index_type}){template.format(axis=letter, n=AXES.index(letter))}"

    # -- loops ----------------------------------------------------------------------------------------------

    def loop(self, s: For) -> None:
        if s.kind.name == "thread":
            self._spread(s)
        elif s.kind.name != "vector" or not self._vector(s):
            super().loop(s)

    def _spread(self, s: For) -> None:
        axis = s.kind.axis
        if axis in self._covered:
            raise ScheduleError(f"{self._symbol}: {s.var!r} is a loop on {axis} inside of another one")
        full = s.step == 1 and self._grid.extent(axis) == s.hi - s.lo
        if not full and waits(s.body) and axis.startswith("thread"):
            raise ScheduleError(
                f"{self._symbol}: a barrier inside of {s.var!r}, which not all threads of {axis} run"
            )
        lo, hi = s.lo, self.index(s.hi)
        number = self._id(axis) if s.step == 1 else f"{self._id(axis)} * {s.step}"
        text = number if lo == Index(0) else f"{self.index(lo)} + {number}"
        outer, self._covered = self._covered, self._covered | {axis}
        with self.variable(s) as name:
            self.writer.line(f"const {self.index_type} {name} = {text};")
            guard = nullcontext() if full else self.writer.block(f"if ({name} < {hi})")
            with guard:
                self.stmt(s.body)
        self._covered = outer

    def pragmas(self, s: For) -> list[str]:
        factor = is_unrolled(s)
        if s.kind.name == "serial" and factor == 1:
            return []
        return [f"#pragma unroll {factor}"] if factor > 1 else []

    # -- accesses of many elements --------------------------------------------------------------------------

    def _vector(self, s: For) -> bool:
        """Write a vector loop as wide accesses, if it is stores of elements that lie together."""
        lanes = constant_extent(s)
        if isinstance(s.body, If) and s.body.orelse is None and all(_alike(c, s) for c in s.body.cond):
            first = {s.var: s.lo}
            text = self.conditions(tuple(_where(c, first) for c in s.body.cond))
            inner = replace(s, body=s.body.then)
            with self.writer.block(f"if ({text})") if text else nullcontext():
                if not self._vector(inner):
                    super().loop(inner)
            return True
        parts = s.body.stmts if isinstance(s.body, Seq) else (s.body,)
        if lanes is None or not s.lo.is_const or s.step != 1 or not 1 < lanes <= 64:
            return False
        stores = [part for part in parts if isinstance(part, Store) and len(part.writes) == 1]
        if len(stores) != len(parts):
            return False
        if not all(self._together(st, s, lanes) or self._reads_together(st, s, lanes) for st in stores):
            return False
        for part in stores:
            self._by_cases(part, s, lanes)
        return True

    def _by_cases(self, part: Store, s: For, lanes: int) -> None:
        """Write a store of many elements; conditions that all of them share become branches."""
        (w,) = part.writes
        cond = w.value.cond if isinstance(w.value, Select) else None
        if cond is None or s.var in cond.vars:
            self._wide(part, s, lanes)
            return
        assert isinstance(w.value, Select)  # it has a condition
        yes, no = (Store((replace(w, value=value),)) for value in (w.value.a, w.value.b))
        with self.statement([cond]):
            text = self.value(cond)
        with self.writer.block(f"if ({text})"):
            self._by_cases(yes, s, lanes)
        with self.writer.block("else"):
            self._by_cases(no, s, lanes)

    def _pieces(self, lanes: int, nbytes: int) -> list[int]:
        """Widths of the accesses that ``lanes`` elements take."""
        width = min(lanes, VECTOR_BYTES // nbytes)
        return [width] * (lanes // width) if lanes % width == 0 and width & (width - 1) == 0 else []

    def _aligned(self, buffer: str, indices: tuple[Index, ...], s: For, lanes: int) -> bool:
        """Whether the elements of all lanes lie side by side at a place that a wide access may begin at."""
        place = self.place(buffer)
        pieces = self._pieces(lanes, place.buffer.dtype.bytes)
        if buffer in self._private or not pieces:
            return False
        total, products = self.offset(place, indices)
        if products:
            return False
        rest = total - var(s.var)
        first = rest + s.lo.const
        return s.var not in rest.vars and all(
            number % pieces[0] == 0 for number in (first.const, *(c for _, c in rest.terms))
        )

    def _together(self, part: Store, s: For, lanes: int) -> bool:
        (w,) = part.writes
        return self._aligned(w.buffer, w.indices, s, lanes)

    def _reads_together(self, part: Store, s: For, lanes: int) -> bool:
        """Whether what is read lies together, if only what is written does not."""
        (w,) = part.writes
        value = w.value
        while isinstance(value, Select) and s.var not in value.cond.vars:
            value = value.a
        return any(
            s.var in ld.vars and self._aligned(ld.buffer, ld.indices, s, lanes) for ld in _certain(value)
        )

    def _later(self, part: Store, s: For, lanes: int) -> bool:
        """Write a copy to shared memory that arrives at the next barrier, where the hint allows that."""
        (w,) = part.writes
        copy, value, dtype = self.dialect.copy_later, w.value, self.place(w.buffer).buffer.dtype
        if copy is None or ASYNCHRONOUS not in dict(s.hints) or not isinstance(value, Load):
            return False
        pieces = self._pieces(lanes, dtype.bytes)
        if not pieces or pieces[0] * dtype.bytes not in SIZES or value.dtype != dtype:
            return False
        if not (self._together(part, s, lanes) and self._aligned(value.buffer, value.indices, s, lanes)):
            return False
        function = copy(self.helpers, pieces[0] * dtype.bytes)
        for n in range(len(pieces)):
            at = s.lo.const + n * pieces[0]
            target = self.element(w.buffer, _at(w.indices, s.var, at))
            source = self.element(value.buffer, _at(value.indices, s.var, at))
            self.writer.line(f"{function}(&{target}, &{source});")
        return True

    def _wide(self, part: Store, s: For, lanes: int) -> None:
        if self._later(part, s, lanes):
            return
        (w,) = part.writes
        place = self.place(w.buffer)
        known: dict[Load, str] = {}
        # what only one side of a selection reads may not be there
        for load in dict.fromkeys(_certain(w.value)):
            if s.var in load.vars and self._aligned(load.buffer, load.indices, s, lanes):
                self._wide_load(load, s, lanes, known)
        outer, self.known = self.known, {**self.known, **known}
        together = self._together(part, s, lanes)
        values: list[str] = []
        for lane in range(s.lo.const, s.lo.const + lanes):
            one = substitute(part, {s.var: Index(lane)})
            assert isinstance(one, Store)
            if not together:
                self.store(one)
                continue
            with self.statement(stmt_exprs(one)):
                values.append(self.stored(self.value(one.writes[0].value), place.buffer.dtype))
        self.known = outer
        at = 0
        for width in self._pieces(lanes, place.buffer.dtype.bytes) if together else ():
            indices = _at(w.indices, s.var, s.lo.const + at)
            pointer = f"&{self.element(w.buffer, indices)}"
            space = self._space(w.buffer)
            line = self.helpers.wide_store(place.buffer.dtype, width, pointer, values[at : at + width], space)
            self.writer.line(line)
            at += width

    def _wide_load(self, load: Load, s: For, lanes: int, known: dict[Load, str]) -> None:
        place = self.place(load.buffer)
        at = 0
        for width in self._pieces(lanes, place.buffer.dtype.bytes):
            name = self.writer.name("v")
            indices = _at(load.indices, s.var, s.lo.const + at)
            pointer = f"&{self.element(load.buffer, indices)}"
            kind = self.helpers.vector(place.buffer.dtype, width)
            text = self.helpers.wide_load(place.buffer.dtype, width, pointer, self._space(load.buffer))
            self.writer.line(f"const {kind} {name} = {text};")
            for lane in range(width):
                one = load.substitute({s.var: Index(s.lo.const + at + lane)})
                assert isinstance(one, Load)
                known[one] = self.loaded(f"{name}.s{lane:X}", place.buffer.dtype)
            at += width

    def _space(self, buffer: str) -> str:
        if not self.dialect.global_space:
            return ""
        shared = any(b.name == buffer for _, b, _ in self._block_shared)
        return "__local " if shared else f"{self.dialect.global_space} "

    # -- memory ---------------------------------------------------------------------------------------------

    def alloc(self, s: Alloc) -> None:
        buffer = s.buffer
        count = self.element_count(buffer)
        if not isinstance(count, int):
            raise ScheduleError(
                f"{self._symbol}: the size of {buffer.name!r} is not known when compiling",
                hint="allocate it outside of the kernel, or split the loops around it",
            )
        name = self.writer.name(buffer.name)
        threads = {axis for axis in self._grid.used if axis.startswith("thread")}
        alone = threads <= self._covered
        nbytes = max(1, count) * buffer.dtype.bytes
        if buffer.scope in PRIVATE or (alone and buffer.scope != "shared"):
            if nbytes > MOST_PRIVATE:
                raise ScheduleError(
                    f"{self._symbol}: {buffer.name!r} takes {nbytes} bytes of every thread; the limit is "
                    f"{MOST_PRIVATE}",
                    hint="make its tile smaller, or allocate it outside of the kernel, in global memory",
                )
            self.writer.line(f"{self.dialect.storage_type(buffer.dtype)} {name}[{max(1, count)}];")
            own = {buffer.name}
        else:
            self._block_shared.append((name, buffer, -(-nbytes // VECTOR_BYTES) * VECTOR_BYTES))
            own = set()
        hidden = self._private & {buffer.name}
        self._private = (self._private - {buffer.name}) | own
        with self.declared(buffer, name):
            self.stmt(s.body)
        self._private = (self._private - own) | hidden

    def wait(self, s: Barrier) -> None:
        if self._late and self.dialect.copies_arrive is not None:
            self.writer.line(f"{self.dialect.copies_arrive(self.helpers)}();")
        self.writer.line(self.dialect.barrier[s.scope == "global"])

    def execute(self, s: Exec) -> None:
        raise TargetError(f"{self.dialect.name} has no instruction {s.instr}")


def _alike(c: Condition, s: For) -> bool:
    """Whether a condition holds in all iterations of a loop or in none, whatever is around it."""
    if s.var not in c.vars:
        return True
    if c.op != "ge" or c.index is None or not (s.lo.is_const and s.hi.is_const):
        return False
    step = c.index.coefficient(s.var)
    rest = c.index - var(s.var) * step
    if s.var in rest.vars:
        return False
    # values are a constant plus multiples of what all other coefficients are multiples of
    unit = gcd(*(n for _, n in rest.terms))
    ends = (s.lo.const, s.hi.const - 1)
    return unit > 0 and len({(rest.const + step * at) // unit for at in ends}) == 1


def _where(c: Condition, values: dict[str, Index]) -> Condition:
    return c if c.index is None else replace(c, index=substitute_index(c.index, values))


def _certain(e: Expr) -> Iterator[Load]:
    """The loads of an expression that are made whatever its selections choose."""
    if isinstance(e, Load):
        yield e
    for child in (e.cond,) if isinstance(e, Select) else children(e):
        yield from _certain(child)


def _at(indices: tuple[Index, ...], name: str, value: int) -> tuple[Index, ...]:
    return tuple(substitute_index(i, {name: Index(value)}) for i in indices)


def _names(s: Stmt) -> set[str]:
    """Names of the buffers that a statement touches."""
    found = {ld.buffer for e in stmt_exprs(s) for ld in loads(e)}
    for leaf in leaves(s):
        if isinstance(leaf, Store):
            found |= {w.buffer for w in leaf.writes}
        else:
            found |= {w.buffer for w in leaf.windows}
    return found
