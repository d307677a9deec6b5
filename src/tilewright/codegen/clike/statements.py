"""Statements as text: loops, branches, allocations and stores of one entry function."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tilewright.codegen.clike.expressions import Expressions, Place
from tilewright.codegen.clike.indices import fits_in_32_bits
from tilewright.ir import (
    Alloc,
    AtomicUpdate,
    Barrier,
    Block,
    Buffer,
    Exec,
    For,
    If,
    Index,
    LoopFunction,
    Pred,
    Seq,
    Stmt,
    Store,
    Sync,
    Team,
    Teams,
    atomically,
    locate,
    stmt_children,
    stmt_exprs,
    unroll_factor,
    update_at_once,
)
from tilewright.support import InternalError

ALIGNMENT: Final = 64
"""Bytes at multiples of which arguments and allocations begin."""
MOST_UNROLLED: Final = 256
"""Iterations of an unrolled loop beyond which it stays a loop: compilers take time for each."""


class Statements(Expressions):
    """Statements in one language; what is special to one is in its subclass.

    The elements of ``atomic`` buffers are updated by several threads at once.
    """

    atomic: frozenset[str] = frozenset()

    def stmt(self, s: Stmt) -> None:
        """Write a statement."""
        match s:
            case Seq():
                for part in s.stmts:
                    self.stmt(part)
            case If():
                self.branch(s)
            case Alloc():
                self.alloc(s)
            case For():
                self.loop(s)
            case Store():
                self.store(s)
            case Barrier():
                self.wait(s)
            case Exec():
                self.execute(s)
            case Teams() | Team() | Sync():
                raise InternalError("teams reach a language that has none")
            case Block():
                raise InternalError(f"block {s.name} reaches code generation")

    # -- what languages do differently ----------------------------------------------------------------------

    @abstractmethod
    def alloc(self, s: Alloc) -> None:
        """Write the body of an allocation with its buffer."""

    @abstractmethod
    def wait(self, s: Barrier) -> None:
        """Write a barrier."""

    @abstractmethod
    def execute(self, s: Exec) -> None:
        """Write a call of an instruction."""

    @abstractmethod
    def update(self, s: AtomicUpdate, at: str, value: str) -> None:
        """Write an update of the element ``at`` that other threads may update at the same time."""

    @abstractmethod
    def pragmas(self, s: For) -> list[str]:
        """Lines before a loop."""

    # -- common ---------------------------------------------------------------------------------------------

    @contextmanager
    def variable(self, s: For) -> Iterator[str]:
        """The name of a loop's variable, whose range is known inside."""
        hidden = self.names.get(s.var), self.env.get(s.var)
        name = self.names[s.var] = self.writer.name(s.var)
        self.env[s.var] = (s.lo, s.hi - 1)
        yield name
        for table, old in zip((self.names, self.env), hidden, strict=True):
            if old is None:
                del table[s.var]  # type: ignore[attr-defined]  # one dictionary each
            else:
                table[s.var] = old  # type: ignore[index]  # as above

    def loop(self, s: For) -> None:
        """Write a loop that runs in order, or as its pragmas say."""
        lo, hi = self.index_text(s.lo), self.index(s.hi)
        lines = self.pragmas(s)
        with self.variable(s) as name:
            for line in lines:
                self.writer.line(line)
            step = f"++{name}" if s.step == 1 else f"{name} += {s.step}"
            with self.writer.block(f"for ({self.index_type} {name} = {lo}; {name} < {hi}; {step})"):
                self.body(s)

    def body(self, s: For) -> None:
        """Write what a loop repeats."""
        self.stmt(s.body)

    def conditions(self, cond: Pred) -> str:
        """A conjunction as text; empty where it always holds."""
        parts = [text for text in map(self.condition, cond) if text != "1"]
        return " && ".join(parts)

    def branch(self, s: If) -> None:
        """Write an ``if``; conditions on loaded values are evaluated where those before them hold."""
        cond, last = list(s.cond), next((n for n, c in enumerate(s.cond) if c.expr is not None), None)
        if last and s.orelse is None:
            self.branch(If(tuple(cond[:last]), If(tuple(cond[last:]), s.then)))
            return
        text = self.conditions(s.cond)
        if not text:
            self.stmt(s.then)
            return
        with self.writer.block(f"if ({text})"):
            self.stmt(s.then)
        if s.orelse is not None:
            with self.writer.block("else"):
                self.stmt(s.orelse)

    def store(self, s: Store) -> None:
        """Write simultaneous assignments: of several, all values come first."""
        update = update_at_once(s)
        if update is not None and update.buffer in self.atomic:
            (w,) = s.writes
            with self.statement([update.value]):
                value = _bare(self.value(update.value))
                self.update(update, self.element(w.buffer, w.indices), value)
            return
        with self.statement(stmt_exprs(s)):
            values = []
            for w in s.writes:
                dtype = self.place(w.buffer).buffer.dtype
                alone = self.kept(w.value, dtype) if len(s.writes) == 1 else None
                if alone is not None:
                    values.append(_bare(alone))
                    continue
                text = self.value(w.value)
                if len(s.writes) > 1 and not text.isidentifier():
                    text = self.temporary(w.value.dtype, text)
                values.append(self.stored(_bare(text), dtype))
            for w, text in zip(s.writes, values, strict=True):
                self.writer.line(f"{self.element(w.buffer, w.indices)} = {text};")

    # -- buffers --------------------------------------------------------------------------------------------

    def declare(self, buffer: Buffer, text: str) -> Place:
        """Make a buffer known under its name; ``text`` points at the first element of its memory."""
        strides: list[int | str] = []
        shift = 0
        stride: int | str = 1
        for extent, (before, after) in zip(
            reversed(buffer.physical_shape), reversed(halo_of(buffer)), strict=True
        ):
            strides.append(stride)
            size = extent + (before + after)
            if isinstance(stride, int):
                shift += before * stride
            elif before:
                raise InternalError(f"halo of {buffer.name} on a dimension with a symbolic stride")
            if size.is_const and isinstance(stride, int):
                stride = stride * size.const
            elif stride == 1:
                stride = self.index(size)
            else:
                stride = f"{stride} * {self.index(size)}"
        place = Place(text, buffer, tuple(reversed(strides)), shift)
        self.places[buffer.name] = place
        return place

    @contextmanager
    def declared(self, buffer: Buffer, text: str) -> Iterator[Place]:
        """:meth:`declare`, for the lines inside."""
        hidden = self.places.get(buffer.name)
        yield self.declare(buffer, text)
        del self.places[buffer.name]
        if hidden is not None:
            self.places[buffer.name] = hidden

    def element_count(self, buffer: Buffer) -> int | str:
        """Elements of a buffer's memory: a number, or text where its size is known when running only."""
        constant = 1
        texts: list[str] = []
        for extent, (before, after) in zip(buffer.physical_shape, halo_of(buffer), strict=True):
            size = extent + (before + after)
            if size.is_const:
                constant *= size.const
            else:
                texts.append(self.index(size))
        return constant if not texts else " * ".join([str(constant), *texts])


def updated_at_once(body: Stmt) -> frozenset[str]:
    """The buffers that threads update at once, by what lowering says at loops."""
    return frozenset(name for place in locate(body, For) for name in atomically(place.node))


def halo_of(buffer: Buffer) -> tuple[tuple[int, int], ...]:
    """Elements before and after the box, of each physical dimension."""
    return buffer.halo or ((0, 0),) * len(buffer.physical_shape)


def _bare(text: str) -> str:
    """Text without the parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for at, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and at < len(text) - 1:
            return text
    return text[1:-1]


def constant_extent(s: For) -> int | None:
    """Iterations of a loop where they are a constant."""
    extent = s.hi - s.lo
    return -(-extent.const // s.step) if extent.is_const else None


def is_unrolled(s: For) -> int:
    """How many iterations of a loop its text asks the compiler to write out; 1: none."""
    if s.kind.name in ("unroll", "vector"):
        extent = constant_extent(s)
        return extent if extent is not None and 1 < extent <= MOST_UNROLLED else 1
    return unroll_factor(s)


def needs_wide(func: LoopFunction, body: Stmt | None = None) -> bool:
    """Whether indices of a function may need 64 bits."""
    ranges: dict[str, tuple[Index, Index]] = {}
    buffers = list(func.buffers)

    def visit(s: Stmt) -> None:
        if isinstance(s, For):
            ranges[s.var] = (s.lo, s.hi)
        if isinstance(s, Alloc):
            buffers.append(s.buffer)
        for child in stmt_children(s):
            visit(child)

    visit(func.body if body is None else body)
    extents = [e for b in buffers for e in b.physical_shape]
    if not all(e.is_const for e in extents):
        return True
    sizes = []
    for b in buffers:
        size = 1
        for e, (before, after) in zip(b.physical_shape, halo_of(b), strict=True):
            size *= e.const + before + after
        sizes.append(Index(size))
    return not fits_in_32_bits(ranges, tuple(sizes), {})
