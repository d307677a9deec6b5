"""Storage: declaring buffers, allocating them in workspace, scratch, registers or from the runtime."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.llvm.values import BYTE, PTR, Val
from tilewright.codegen.memory import ROW_GAP, MemoryBuffer, RegisterBuffer
from tilewright.codegen.state import State
from tilewright.codegen.tiles import Tiles
from tilewright.codegen.vectors import VectorLoops
from tilewright.ir import I64, REGISTER, TILE, Alloc, Buffer, Index, Stmt, prove_ge0
from tilewright.support import InternalError, ScheduleError

_ALIGN = 64
_NULL = Val("null", PTR)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes a kernel needs besides its arguments: once a call (workspace) and once a worker (scratch)."""

    workspace: int
    scratch: int


@dataclass(slots=True)
class _Arena:
    """Memory given to the kernel, handed out as a stack. ``kept``: nothing is handed out twice for now."""

    offset: int = 0
    high: int = 0
    kept: bool = False


class Storage(VectorLoops, Tiles):
    """Emits allocations."""

    _ctx: Val
    _workspace: Val
    _scratch: Val

    def __init__(self, builder: Builder, state: State, vector_bits: int) -> None:
        super().__init__(builder, state, vector_bits)
        self.parallel = False
        self._arenas = {True: _Arena(), False: _Arena()}  # scratch of a parallel loop, or workspace

    @abstractmethod
    def branch(self, cond: Val, written: frozenset[str], then: Callable[[], None]) -> None:
        """Emit something where a condition holds."""

    @abstractmethod
    def written(self, s: Stmt) -> frozenset[str]:
        """Names of the buffers that a statement writes."""

    def needs(self) -> Memory:
        """What has been handed out at most."""
        return Memory(self._arenas[False].high, self._arenas[True].high)

    @contextmanager
    def in_parallel(self, scratch: Val) -> Iterator[None]:
        """The body of a parallel loop, with the scratch of its thread."""
        outer, self._scratch = self._scratch, Val(scratch.text, PTR, 1, scratch.depth, "%scratch")
        self.parallel = True
        yield
        self.parallel = False
        self._scratch = outer

    @contextmanager
    def keeping_storage(self) -> Iterator[None]:
        """An outlined function: its pointers are declared not to alias, so no two share memory in turns."""
        arena = self._arenas[self.parallel]
        outer, offset = arena.kept, arena.offset
        arena.kept = True
        yield
        arena.kept = outer
        if not outer:
            arena.offset = offset

    def declare(self, buf: Buffer, pointer: Val) -> None:
        """Make a buffer in memory known under its name."""
        strides: list[int | Val] = []
        shift = 0
        stride: int | Val = 1
        block = Index(1)
        for extent, (before, after) in zip(reversed(buf.physical_shape), reversed(_halo(buf)), strict=True):
            strides.append(stride)
            if before and not isinstance(stride, int):
                raise InternalError(f"halo of {buf.name} on a dimension with a symbolic stride")
            if isinstance(stride, int):
                shift += before * stride
            size = self.resolve(extent + (before + after))
            block = size * stride if isinstance(stride, int) else block
            if size.is_const and isinstance(stride, int):
                stride = stride * size.const
            else:
                left = self.b.const(stride, I64) if isinstance(stride, int) else stride
                stride = self.b.op("mul nsw", left, self.index_value(size))
        self.state.buffers[buf.name] = MemoryBuffer(buf, pointer, tuple(reversed(strides)), shift, block)

    def alloc(self, s: Alloc) -> None:
        """Emit the body of an allocation with its buffer."""
        buf = s.buffer
        if buf.scope == TILE:
            self.alloc_tiles(s, self.stmt)
            return
        buffers = self.state.buffers
        hidden = buffers.get(buf.name)
        if buf.scope == REGISTER:
            buffers[buf.name] = self._register(buf)
            self.stmt(s.body)
        else:
            self._memory(s)
        del buffers[buf.name]
        if hidden is not None:
            buffers[buf.name] = hidden

    def _register(self, buf: Buffer) -> RegisterBuffer:
        shape = [self.resolve(e) for e in buf.physical_shape]
        if not all(e.is_const for e in shape):
            raise ScheduleError(
                f"register buffer {buf.name} has a symbolic shape",
                hint="split the loops around its allocation",
            )
        strides: list[int] = []
        stride = 1
        for e in reversed(shape):
            strides.append(stride)
            stride *= e.const + ROW_GAP
        return RegisterBuffer(buf, tuple(reversed(strides)), self.b.depth)

    def _memory(self, s: Alloc) -> None:
        b, buf = self.b, s.buffer
        elements = 1
        dynamic: Val | None = None
        for extent, (before, after) in zip(buf.physical_shape, _halo(buf), strict=True):
            e = self.resolve(extent + (before + after))
            if e.is_const:
                elements *= e.const
            else:
                v = self.index_value(e)
                if not prove_ge0(e, self.state.ranges):
                    v = b.intrinsic("smax", I64, (v, b.const(0, I64)))
                dynamic = v if dynamic is None else self._product(dynamic, v)
        nbytes = elements * buf.dtype.bytes
        root = buf.alias or buf.name
        if dynamic is not None:
            self._dynamic(s, self._product(dynamic, b.const(nbytes, I64)), root)
            return
        arena = self._arenas[self.parallel]
        at = arena.offset
        arena.offset = at + -(-nbytes // _ALIGN) * _ALIGN
        arena.high = max(arena.high, arena.offset)
        p = b.gep(self._scratch if self.parallel else self._workspace, at, BYTE)
        self.declare(buf, Val(p.text, PTR, 1, p.depth, root))
        self.stmt(s.body)
        if not arena.kept:
            arena.offset = at

    def _product(self, x: Val, y: Val) -> Val:
        """The product of two sizes; the largest integer where it does not fit: no memory is as large."""
        return self.b.intrinsic("smul.fix.sat", I64, (x, y), extra="i32 0")

    def _dynamic(self, s: Alloc, nbytes: Val, root: str) -> None:
        """Memory of a size known at run time, from the context's allocator.

        Where there is none the statement is left out: the context then knows that the run has failed.
        """
        b, ctx = self.b, self._ctx
        fn = b.load_pointer(b.gep(ctx, 1, PTR, local=True))
        p = b.impure(PTR, 1, [fn, ctx, nbytes], lambda o: f"call ptr {o[0].text}({o[1].typed}, {o[2].typed})")

        def use() -> None:
            self.declare(s.buffer, Val(p.text, PTR, 1, p.depth, root))
            self.stmt(s.body)
            release = b.load_pointer(b.gep(ctx, 2, PTR, local=True))
            b.effect(lambda o: f"call void {o[0].text}({o[1].typed}, {o[2].typed})", [release, ctx, p])

        self.branch(b.compare("icmp ne", p, _NULL), self.written(s.body), use)


def _halo(buf: Buffer) -> tuple[tuple[int, int], ...]:
    return buf.halo or ((0, 0),) * len(buf.physical_shape)
