"""Loop trees: what a cost model sees of a scheduled function, or of a plan before it is scheduled.

A tree has loops and, as leaves, works: blocks of a function with what each instance reads, writes and
computes. Iterators of a work are indices over the loops around it, so that footprints at any depth follow
from the extents of the loops inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.analysis import footprint, run_length, span
from tilewright.ir import (
    REGISTER,
    TILE,
    Alloc,
    Binary,
    Block,
    Call,
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
    Unary,
    buffers_of,
    stmt_loads,
)
from tilewright.target import Operations

#: Scalar operations that an elementary function counts as: about the terms of its polynomial.
CALL_OPERATIONS = 20


@dataclass(frozen=True, slots=True)
class Access:
    """An access of a work: where it lies in memory, by the work's iterators.

    ``kept`` says that its buffer is in registers.
    """

    load: Load
    writes: bool
    kept: bool = False

    @property
    def buffer(self) -> str:
        """The name of the buffer."""
        return self.load.buffer

    def moves(self, names: frozenset[str]) -> bool:
        """Whether it moves with one of some iterators."""
        return any(names & i.vars for i in self.load.indices)

    def is_contiguous(self, name: str) -> bool:
        """Whether steps of an iterator move it by single elements, in runs at least."""
        return run_length(self.load, name) != 0


@dataclass(frozen=True, slots=True)
class Work:
    """A block: its iterators over the loops around it, what it accesses, operations an instance.

    ``products`` are multiply-adds of an instruction that does several at once (0: plain operations).
    """

    name: str
    binding: Mapping[str, Index] = field(compare=True)
    accesses: tuple[Access, ...]
    operations: int
    element: int
    instruction: str = ""

    def __hash__(self) -> int:
        return hash((self.name, self.accesses, self.operations))

    def spans(self, inner: Mapping[str, int]) -> dict[str, int]:
        """Values that each iterator takes while the loops ``inner`` run."""
        return {
            name: 1 + sum(abs(c) * span(atom, inner) for atom, c in at.terms)
            for name, at in self.binding.items()
        }

    def footprint(self, access: Access, inner: Mapping[str, int]) -> int:
        """Bytes that an access touches while the loops ``inner`` run."""
        return footprint(access.load, self.spans(inner))


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, its kind, and what is inside."""

    name: str
    extent: int
    kind: str
    body: tuple[Node, ...]


Node: TypeAlias = Loop | Work


@dataclass(frozen=True, slots=True)
class LoopTree:
    """The nests of a function, in order."""

    nests: tuple[Node, ...]

    def works(self) -> Iterator[tuple[tuple[Loop, ...], Work]]:
        """Each work with the loops around it, outermost first."""
        return _works(self.nests, ())


def _works(nodes: tuple[Node, ...], around: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Work]]:
    for node in nodes:
        if isinstance(node, Work):
            yield around, node
        else:
            yield from _works(node.body, (*around, node))


#: Iterations that a loop of an extent known only at run time counts as.
UNKNOWN_EXTENT = 64


def tree_of(func: LoopFunction, operations: Operations | None = None) -> LoopTree:
    """The tree of a scheduled function.

    ``operations`` are the instructions that its blocks name, by default none.
    """
    found = buffers_of(func)
    kept = {name for name, b in found.items() if b.scope in (REGISTER, TILE)}

    def visit(s: Stmt) -> tuple[Node, ...]:
        if isinstance(s, Seq):
            return tuple(node for each in s.stmts for node in visit(each))
        if isinstance(s, Alloc):
            return visit(s.body)
        if isinstance(s, If):
            return (*visit(s.then), *(visit(s.orelse) if s.orelse is not None else ()))
        if isinstance(s, For):
            extent = s.extent.as_int() if s.extent.is_const else UNKNOWN_EXTENT
            return (Loop(s.var, max(1, extent), s.kind.name, visit(s.body)),)
        return (work(s),) if isinstance(s, Block) else ()

    def physical(load: Load) -> Load:
        b = found.get(load.buffer)
        if b is None:
            return load
        places = zip(b.physical(load.indices), b.physical_shape, strict=True)
        return Load(load.buffer, tuple(i for i, n in places if n != Index(1)), load.dtype)

    def work(s: Block) -> Work:
        accesses: dict[Access, None] = {}
        count, element, instruction = 0, 4, ""
        body = s.body
        if isinstance(body, Exec):
            instruction = body.instr
            known = operations.get(instruction) if operations is not None else None
            count = 0 if known is None else known.products
            for w in body.windows:
                load = Load(w.buffer, w.offsets, found[w.buffer].dtype)
                accesses[Access(physical(load), w.mode != "r", w.buffer in kept)] = None
        else:
            for store in _stores(body):
                for a in store.writes:
                    count += _operations(a.value)
                    element = a.value.dtype.bytes
                    load = Load(a.buffer, a.indices, found[a.buffer].dtype)
                    accesses[Access(physical(load), True, a.buffer in kept)] = None
            for ld in stmt_loads(body):
                accesses[Access(physical(ld), False, ld.buffer in kept)] = None
        return Work(s.name, s.binding(), tuple(accesses), max(1, count), element, instruction)

    return LoopTree(visit(func.body))


def _stores(s: Stmt) -> Iterator[Store]:
    if isinstance(s, Store):
        yield s
    elif isinstance(s, If):
        yield from _stores(s.then)
        if s.orelse is not None:
            yield from _stores(s.orelse)
    elif isinstance(s, Seq):
        for each in s.stmts:
            yield from _stores(each)


def _operations(e: Expr) -> int:
    """Scalar operations of an expression; a product that is added is one."""
    if isinstance(e, Binary):
        fused = e.op == "add" and any(isinstance(x, Binary) and x.op == "mul" for x in (e.a, e.b))
        return _operations(e.a) + _operations(e.b) + (0 if fused and e.dtype.is_float else 1)
    if isinstance(e, Unary):
        return _operations(e.a) + 1
    if isinstance(e, Select):
        return _operations(e.a) + _operations(e.b) + 2
    if isinstance(e, Call):
        return sum(map(_operations, e.args)) + CALL_OPERATIONS
    return 0
