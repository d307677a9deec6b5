"""Nests in the order in which they are written: loops on threads and in lanes where dependences allow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from tilewright.cost import Machine
from tilewright.ir import (
    F32,
    PARALLEL,
    VECTOR,
    Block,
    For,
    LoopFunction,
    LoopKind,
    Seq,
    Stmt,
    buffers_of,
    index,
    int_upper,
    loop_env,
    map_stmt,
    stmt_children,
)
from tilewright.poly import allocations_inside, independent_loops, infer_kinds
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import CpuTarget, Target

#: Cycles in which vector code runs a statement for one vector of f32: loads, some operations, a store.
STATEMENT_CYCLES: Final = 4.0


def ordered_nest(func: LoopFunction, target: Target, threads: int) -> LoopFunction:
    """A nest with private storage, its outermost independent loops parallel, its innermost ones vectors."""
    func = infer_kinds(allocations_inside(func))
    return on_machine(func, independent_loops(func), target, threads)


def on_machine(func: LoopFunction, free: Collection[str], target: Target, threads: int) -> LoopFunction:
    """Loops of a function on threads and in lanes; ``free`` are those whose iterations are independent."""
    if threads > 1:
        chosen = set(_parallel_loops(func.body, free, [], _least_work(Machine(target, threads))))
        func = _marked(func, chosen, PARALLEL)
    if isinstance(target, CpuTarget):
        for loop in list(_innermost(func.body)):
            func = _in_lanes(func, loop, loop.var in free, target)
    return func


def _marked(func: LoopFunction, names: Collection[str], kind: LoopKind) -> LoopFunction:
    def mark(s: Stmt) -> Stmt:
        return replace(s, kind=kind) if isinstance(s, For) and s.var in names else s

    return func.with_body(map_stmt(func.body, mark))


def _least_work(machine: Machine) -> float:
    """Fewest statement instances for which threads are called: as many as run while a call takes."""
    lanes = machine.target.lanes(F32) if isinstance(machine.on, CpuTarget) else 1
    return machine.fork_cycles * lanes / STATEMENT_CYCLES


def _parallel_loops(s: Stmt, free: Collection[str], around: list[For], least: float) -> Iterator[str]:
    """The outermost free loops in which enough happens."""
    if isinstance(s, For):
        if _work(s, around) < least:
            return
        if s.var in free:
            yield s.var
            return
        around = [*around, s]
    for child in stmt_children(s):
        yield from _parallel_loops(child, free, around, least)


def _work(s: Stmt, around: list[For]) -> int:
    """The most statement instances that one execution may have."""
    if isinstance(s, Block):
        return 1
    if isinstance(s, For):
        extent = int_upper(s.extent, loop_env(around)) or 0
        return extent * _work(s.body, [*around, s])
    return sum(_work(c, around) for c in stmt_children(s))


def _innermost(s: Stmt) -> Iterator[For]:
    below = [f for c in stmt_children(s) for f in _innermost(c)]
    if isinstance(s, For) and not below and s.kind.name == "serial":
        yield s
    yield from below


def _in_lanes(func: LoopFunction, loop: For, free: bool, target: CpuTarget) -> LoopFunction:
    """The loop in vector lanes, where it is free or accumulates, and its statements move along rows."""
    blocks = loop.body.stmts if isinstance(loop.body, Seq) else (loop.body,)
    known = buffers_of(func)
    writes = [known[name] for b in blocks if isinstance(b, Block) for name, _ in b.writes]
    if not writes or not all(isinstance(b, Block) and _along_rows(b, loop.var) for b in blocks):
        return func
    lanes = target.preferred_vector_bits // (8 * max(b.dtype.bytes for b in writes))
    try:
        made = Schedule(func).split(loop.var, lanes, tail="peel", names=())
        inner = f"{loop.var}_i"
        return _marked(made.func, {inner}, VECTOR) if free else made.vectorize(inner).func
    except ScheduleError:
        return func


def _along_rows(b: Block, loop: str) -> bool:
    """Whether a block's accesses move by one element or none from one iteration to the next."""
    moving = {it.name for it, x in zip(b.iters, b.bind, strict=True) if loop in x.vars}
    for indices in (*(w for _, w in b.writes), *(r.indices for r in b.reads)):
        for n, x in enumerate(indices):
            if not moving & x.vars:
                continue
            steps = [c for atom, c in x.terms if index(atom).vars & moving]
            if n != len(indices) - 1 or steps != [1]:
                return False
    return True
