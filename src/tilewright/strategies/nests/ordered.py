"""Nests in the order in which they are written: loops on threads and in lanes where dependences allow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tilewright.cost import Machine
from tilewright.ir import (
    F32,
    GLOBAL,
    NOTHING,
    PARALLEL,
    REGISTER,
    VECTOR,
    Alloc,
    Block,
    Condition,
    For,
    If,
    Index,
    LoopFunction,
    LoopKind,
    Seq,
    Stmt,
    Store,
    Var,
    buffers_of,
    index,
    int_upper,
    locate,
    loop_env,
    map_stmt,
    stmt_children,
    stmt_loads,
    stmt_writes,
    substitute_pred,
)
from tilewright.poly import LoopFacts, infer_kinds, is_black_box, loop_facts
from tilewright.schedule import Schedule
from tilewright.strategies.nests.jammed import jam_recurrences
from tilewright.strategies.nests.joined import join_loops
from tilewright.strategies.nests.sums import sum_in_lanes
from tilewright.support import ScheduleError
from tilewright.target import CpuTarget

#: Cycles in which vector code runs a statement for one vector of f32: loads, some operations, a store.
STATEMENT_CYCLES: Final = 4.0
#: Vectors that a sum must have to be one in lanes: lanes are joined at its end.
SHORT_SUM: Final = 4


def ordered_nest(func: LoopFunction, machine: Machine) -> LoopFunction:
    """A nest, its outermost independent loops parallel, its innermost ones vectors."""
    func = infer_kinds(func)
    facts = loop_facts(func)
    return on_machine(join_loops(func, facts), facts, machine)


def on_machine(func: LoopFunction, facts: LoopFacts, machine: Machine) -> LoopFunction:
    """Loops of a function on threads and in lanes, as far as ``facts`` allow."""
    target = machine.on
    least = _least_work(machine)
    chosen = set(_parallel_loops(func.body, facts.free, [], least))
    for name in sorted(chosen) if isinstance(target, CpuTarget) else ():
        jammed = jam_recurrences(func, name, facts)
        if jammed is not None:
            func, chosen = jammed, chosen - {name} | {f"{name}_o"}
    if machine.threads > 1:
        func = _marked(func, chosen, PARALLEL)
    if isinstance(target, CpuTarget):
        for name in [loop.var for loop in _innermost(func.body)]:
            # by its name: what was done to one loop may have rebuilt the others
            loop, around = next((p.node, p.loops) for p in locate(func.body, For) if p.node.var == name)
            if name in facts.free or (name in facts.sums and _one_sum(loop)):
                func = _in_lanes(func, loop, around, name in facts.sums, target)
        func = func.with_body(map_stmt(func.body, _in_register))
    return func


def _in_register(s: Stmt) -> Stmt:
    """A scalar that one thread uses alone is in a register: steps of a recurrence would wait for memory."""
    if not isinstance(s, Alloc) or s.buffer.shape or s.buffer.scope != GLOBAL:
        return s
    loops = (p.node for p in locate(s.body, For) if p.node.kind.name != "serial")
    if any(_uses(f, s.buffer.name) for f in loops) or not _set_first(s.body, s.buffer.name):
        return s
    return replace(s, buffer=s.buffer.with_(scope=REGISTER))


def _uses(s: Stmt, name: str) -> bool:
    return any(ld.buffer == name for ld in stmt_loads(s)) or any(b == name for b, _ in stmt_writes(s))


def _set_first(s: Stmt, name: str, after: frozenset[Condition] | None = None) -> bool:
    """Whether each run of a statement sets a scalar before anything in it uses that: none waits in it before.

    Registers hold nothing from one turn of a loop to the next unless they hold it before the loop. ``after``
    are the conditions of all uses after the statement, ``None`` where there are none.
    """
    match s:
        case Block(init=None):
            held = after is None or _conditions(s, name) <= after
            return held and _set_first(s.body, name, after)
        case Store():
            return all(ld.buffer != name for ld in stmt_loads(s))
        case For():
            runs = after is None or (s.extent.is_const and s.extent.const > 0)
            return runs and not _uses(replace(s, body=NOTHING), name) and _set_first(s.body, name, after)
        case If(orelse=None):
            return after is None and not _uses(replace(s, then=NOTHING), name) and _set_first(s.then, name)
        case Alloc():
            return _set_first(s.body, name, after)
        case Seq():
            uses = [part for part in s.stmts if _uses(part, name)]
            if not uses:
                return True  # a variable whose uses were left out
            first, *later = uses
            for part in later:
                after = _conditions(part, name) if after is None else after & _conditions(part, name)
            return _set_first(first, name, after)
    return False


def _conditions(s: Stmt, name: str) -> frozenset[Condition]:
    """The conditions under which alone a statement uses a buffer."""
    out: frozenset[Condition] | None = None
    for b in (place.node for place in locate(s, Block)):
        if _uses(b, name):
            bound = dict(zip((it.name for it in b.iters), b.bind, strict=True))
            where = frozenset(substitute_pred(b.where, bound))
            out = where if out is None else out & where
    return out or frozenset()


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
        if work(s, around) < least:
            return
        if s.var in free:
            yield s.var
            return
        around = [*around, s]
    for child in stmt_children(s):
        yield from _parallel_loops(child, free, around, least)


def work(s: Stmt, around: Sequence[For] = ()) -> int:
    """The most statement instances that one execution may have."""
    if isinstance(s, Block):
        return 1
    if isinstance(s, For):
        extent = int_upper(s.extent, loop_env(around)) or 0
        return extent * work(s.body, [*around, s])
    return sum(work(c, around) for c in stmt_children(s))


def _innermost(s: Stmt) -> Iterator[For]:
    below = [f for c in stmt_children(s) for f in _innermost(c)]
    if isinstance(s, For) and not below and s.kind.name == "serial":
        yield s
    yield from below


def _one_sum(loop: For) -> bool:
    """Whether a loop holds one statement alone, which stays on one element in it."""
    b = loop.body
    if not isinstance(b, Block) or len(b.writes) != 1:
        return False
    moving = {it.name for it, x in zip(b.iters, b.bind, strict=True) if loop.var in x.vars}
    return not any(moving & x.vars for _, indices in b.writes for x in indices)


def _in_lanes(
    func: LoopFunction, loop: For, around: Sequence[For], sums: bool, target: CpuTarget
) -> LoopFunction:
    """The loop in vector lanes, where its statements move along rows; each lane has a sum of its own."""
    blocks = loop.body.stmts if isinstance(loop.body, Seq) else (loop.body,)
    known = buffers_of(func)
    writes = [known[name] for b in blocks if isinstance(b, Block) for name, _ in b.writes]
    if not writes or not all(isinstance(b, Block) and along_rows(b, loop.var) for b in blocks):
        return func
    if _waits_for_masks([b for b in blocks if isinstance(b, Block)], loop.var):
        return func
    lanes = target.preferred_vector_bits // (8 * max(b.dtype.bytes for b in writes))
    longest = int_upper(loop.extent, loop_env(around))
    if around and longest is not None and longest < lanes * (SHORT_SUM if sums else 1):
        return func  # LLVM writes it out, and puts the loop around it in lanes
    if sums:
        made = sum_in_lanes(func, loop, around, lanes, target.fma_latency)
        if made is not None:
            return made
    try:
        split = Schedule(func).split(loop.var, lanes, tail="peel", names=()).func
        inner = f"{loop.var}_i"
    except ScheduleError:
        return func
    if sums:
        return _marked(_summing(split, inner), {inner}, VECTOR)
    # what is left over is one vector, of which some lanes are off
    return _marked(split, {inner, f"{loop.var}_t"} if loop.extent.is_const else {inner}, VECTOR)


def _waits_for_masks(blocks: Sequence[Block], loop: str) -> bool:
    """Whether lanes would store under masks what other lanes or statements read or store soon after.

    What was stored under a mask is read from the cache, and not before it is there.
    """
    for n, b in enumerate(blocks):
        moving = {it.name for it, x in zip(b.iters, b.bind, strict=True) if loop in x.vars}
        if not any(moving & condition.vars for condition in b.where):
            continue
        others = {
            name for k, other in enumerate(blocks) if k != n for name, _ in (*other.writes, *_read(other))
        }
        for name, indices in b.writes:
            if name in others or any(r == name and at != indices for r, at in _read(b)):
                return True
    return False


def _read(b: Block) -> Iterator[tuple[str, tuple[Index, ...]]]:
    return ((ld.buffer, ld.indices) for ld in b.reads)


def _summing(func: LoopFunction, loop: str) -> LoopFunction:
    """The iterators that a loop moves as those of sums."""

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, Block):
            return s
        iters = (
            replace(it, kind="red") if loop in x.vars else it for it, x in zip(s.iters, s.bind, strict=True)
        )
        return replace(s, iters=tuple(iters))

    return func.with_body(map_stmt(func.body, visit))


def along_rows(b: Block, loop: str) -> bool:
    """Whether a block's accesses move by one element or none from one iteration to the next, reads also back.

    A black box is none that lanes could run.
    """
    if is_black_box(b):
        return False
    moving = {it.name for it, x in zip(b.iters, b.bind, strict=True) if loop in x.vars}
    accesses = [(w, (1,)) for _, w in b.writes] + [(r.indices, (1, -1)) for r in b.reads]
    for indices, allowed in accesses:
        for n, x in enumerate(indices):
            if not moving & x.vars:
                continue
            steps = [(type(atom), c) for atom, c in x.terms if index(atom).vars & moving]
            if n != len(indices) - 1 or steps not in [[(Var, step)] for step in allowed]:
                return False
    return True
