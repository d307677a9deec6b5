"""Which inputs of a kernel its output may overwrite: each element is read before it is written."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir import (
    CONST,
    Block,
    Exec,
    For,
    Index,
    Iter,
    Load,
    Stmt,
    Store,
    Window,
    in_place_hints,
    loads,
    stmt_children,
    stmt_loads,
    substitute_index,
)
from tilewright.schedule import Schedule


def overwritable(schedule: Schedule) -> tuple[str, ...]:
    """The argument buffers that the one output of a scheduled function may lie upon.

    Such a buffer has the output's shape, layout and element size, and is read only by the statements that
    write the output, at the element that they write; each element is written once. Several statements may
    share the elements among them (interior and border).
    """
    func = schedule.func
    if len(func.outputs) != 1 or func.inouts:
        return ()
    out = func.buffer(func.outputs[0])
    like = [
        b.name
        for b in func.buffers
        if b.name != out.name
        and b.scope != CONST
        and (b.shape, b.layout, b.halo, b.dtype.bytes) == (out.shape, out.layout, out.halo, out.dtype.bytes)
    ]
    # an intermediate tensor may be kept where the output goes
    if any(in_place_hints(loop) for loop in _loops(func.body)):
        return ()
    # a tile that is shifted back computes some elements again, from inputs that are then overwritten
    if not like or any("shift" in (*step.args, *dict(step.kwargs).values()) for step in schedule.trace.steps):
        return ()
    allowed: list[Load] = []
    for stmt in _leaves(func.body):
        if isinstance(stmt, Exec):
            return ()
        if isinstance(stmt, Block) and any(buffer == out.name for buffer, _ in stmt.writes):
            body = stmt.body
            if not isinstance(body, Store) or len(body.writes) != 1 or stmt.init is not None:
                return ()
            if any(it.kind != "par" for it in stmt.iters) or not _distinct(stmt):
                return ()
            here = _settled(stmt, body.writes[0].indices)
            allowed += [ld for ld in loads(body.writes[0].value) if _settled(stmt, ld.indices) == here]
    every = stmt_loads(func.body)
    if any(load.buffer == out.name for load in every):
        return ()
    taken = {w.buffer for w in _windows(func.body)}
    return tuple(
        name
        for name in like
        if name not in taken
        and sum(load.buffer == name for load in every) == sum(load.buffer == name for load in allowed)
    )


def _windows(stmt: Stmt) -> Iterator[Window]:
    """The windows of instructions, those in blocks too."""
    if isinstance(stmt, Exec):
        yield from stmt.windows
    parts = (stmt.body,) if isinstance(stmt, Block) else stmt_children(stmt)
    for part in parts:
        yield from _windows(part)


def _loops(stmt: Stmt) -> Iterator[For]:
    if isinstance(stmt, For):
        yield stmt
    for child in stmt_children(stmt):
        yield from _loops(child)


def _leaves(stmt: Stmt) -> Iterator[Stmt]:
    """The statements without children; blocks are."""
    children = stmt_children(stmt)
    if not children:
        yield stmt
    for child in children:
        yield from _leaves(child)


def _settled(block: Block, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    """Indices with the iterators replaced that have one value only."""
    single = {it.name: it.lo for it in block.iters if _is_single(it)}
    return tuple(substitute_index(index, single) for index in indices)


def _distinct(block: Block) -> bool:
    """Whether every iterator moves the element that is written."""
    assert isinstance(block.body, Store)
    moving = frozenset[str]().union(*(index.vars for index in block.body.writes[0].indices))
    return all(it.name in moving or _is_single(it) for it in block.iters)


def _is_single(it: Iter) -> bool:
    return it.extent.is_const and it.extent.as_int() == 1
