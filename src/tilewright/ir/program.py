"""Programs: ordered stages that define buffers, before any decision about order and storage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Load
from tilewright.ir.index import Param, var
from tilewright.ir.stmt import Alloc, Block, For, Iter, LoopFunction, Pred, Stmt, seq, stmt_loads, stmt_writes
from tilewright.ir.substitution import substitute_index


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """Where the user wrote something: file, line and the line's text."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class _Uses:
    """Buffers that a stage writes, those that it only reads, and how it reads them."""

    writes: tuple[str, ...]
    reads: tuple[str, ...]
    operands: tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One definition (or ordered update) of buffers: ``for iters: body``, with ``init`` before reductions.

    ``init`` and ``body`` are statements over the iterators, like those of a
    :class:`~tilewright.ir.stmt.Block`.
    """

    name: str
    iters: tuple[Iter, ...]
    body: Stmt
    init: Stmt | None = None
    source: SourceLocation | None = field(default=None, compare=False)
    _uses: _Uses | None = field(init=False, default=None, compare=False, repr=False)

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the buffers written, without duplicates."""
        return self._used().writes

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the buffers read other than those it writes."""
        return self._used().reads

    @property
    def operands(self) -> tuple[Load, ...]:
        """Loads of buffers that it does not write, each once, in the order in which they stand."""
        return self._used().operands

    def _used(self) -> _Uses:
        """What the body uses, found once: rules of schedules ask every stage for its neighbours."""
        if self._uses is None:
            writes = tuple(dict.fromkeys(b for b, _ in stmt_writes(self.body)))
            operands = tuple(ld for ld in dict.fromkeys(stmt_loads(self.body)) if ld.buffer not in writes)
            reads = tuple(dict.fromkeys(ld.buffer for ld in operands))
            object.__setattr__(self, "_uses", _Uses(writes, reads, operands))
        assert self._uses is not None
        return self._uses

    @property
    def is_reduction(self) -> bool:
        """Whether some iterator is a reduction."""
        return any(it.kind == "red" for it in self.iters)

    def extent(self, name: str) -> int:
        """Extent of an iterator; ``KeyError`` where there is none, ``ValueError`` where it is symbolic."""
        for it in self.iters:
            if it.name == name:
                return it.extent.as_int()
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Program:
    """Stages in an order in which running them one after another is correct.

    ``inputs`` are read-only argument buffers, ``outputs`` argument buffers that stages define, ``temps`` the
    intermediate ones. ``params`` are the symbolic sizes, ``assumes`` conditions on them checked at entry.
    """

    name: str
    params: tuple[Param, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    temps: tuple[Buffer, ...]
    stages: tuple[Stage, ...]
    assumes: Pred = ()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Inputs, outputs and intermediate buffers."""
        return (*self.inputs, *self.outputs, *self.temps)

    def stage(self, name: str) -> Stage:
        """The stage called ``name``; ``KeyError`` where there is none."""
        for s in self.stages:
            if s.name == name:
                return s
        raise KeyError(name)

    def buffer(self, name: str) -> Buffer:
        """The buffer called ``name``; ``KeyError`` where there is none."""
        for b in self.buffers:
            if b.name == name:
                return b
        raise KeyError(name)

    def producers(self, buffer: str) -> tuple[Stage, ...]:
        """Stages that write a buffer, in order."""
        return tuple(s for s in self.stages if buffer in s.writes)

    def consumers(self, buffer: str) -> tuple[Stage, ...]:
        """Stages that read a buffer without writing it, in order."""
        return tuple(s for s in self.stages if buffer in s.reads)

    def with_stages(self, stages: tuple[Stage, ...]) -> Program:
        """The same program with other stages."""
        return replace(self, stages=stages)


def block_of(stage: Stage, bind_names: dict[str, str]) -> Block:
    """The block of a stage whose iterators are bound to the loops named by ``bind_names``."""
    return Block(
        name=stage.name,
        stage=stage.name,
        iters=stage.iters,
        bind=tuple(var(bind_names[it.name]) for it in stage.iters),
        body=stage.body,
        init=stage.init,
    )


def to_function(program: Program) -> LoopFunction:
    """The unscheduled loop function: one serial nest a stage, intermediates allocated around everything.

    Loop names are the iterators' names, prefixed by the stage's name where that is needed for uniqueness
    (``i`` of the first stage that has it, ``C_i`` in the others).
    """
    taken: set[str] = {s.name for s in program.stages}
    nests: list[Stmt] = []
    for stage in program.stages:
        names: dict[str, str] = {}
        for it in stage.iters:
            name = it.name if it.name not in taken else f"{stage.name}_{it.name}"
            n = 1
            while name in taken:
                n += 1
                name = f"{stage.name}_{it.name}_{n}"
            taken.add(name)
            names[it.name] = name
        nest: Stmt = block_of(stage, names)
        mapping = {it.name: var(names[it.name]) for it in stage.iters}
        for it in reversed(stage.iters):
            lo, hi = it.lo, it.hi
            nest = For(names[it.name], substitute_index(lo, mapping), substitute_index(hi, mapping), nest)
        nests.append(nest)
    body = seq(*nests)
    for temp in reversed(program.temps):
        body = Alloc(temp, body)
    return LoopFunction(
        program.name,
        program.params,
        (*program.inputs, *program.outputs),
        tuple(b.name for b in program.outputs),
        body,
        program.assumes,
    )
