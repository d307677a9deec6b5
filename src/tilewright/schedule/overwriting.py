"""Which arguments a result may lie upon: each element is read before it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import (
    CONST,
    ONE,
    Block,
    Exec,
    For,
    Index,
    Load,
    Stmt,
    Store,
    Window,
    in_place_hints,
    loads,
    outermost,
    stmt_children,
    stmt_loads,
    substitute_index,
)
from tilewright.schedule.schedule import Schedule


def overwritable(schedule: Schedule) -> tuple[str, ...]:
    """The argument buffers that the one output of a scheduled function may lie upon.

    See :func:`may_overwrite`.
    """
    func = schedule.func
    if len(func.outputs) != 1:
        return ()
    return tuple(b.name for b in func.buffers if may_overwrite(schedule, func.outputs[0], b.name))


def may_overwrite(schedule: Schedule, result: str, argument: str) -> bool:
    """Whether an output of a scheduled function may have the memory of an argument that is not written.

    Both have one shape, layout and element size, and no element of the argument is read once its result is
    there. Parts of the function before the first that writes the result read what they like; from then on
    the argument is read only by statements that write the result, at the element that they write, and each
    element is written once. Several statements may share the elements among them (interior and border).
    """
    func = schedule.func
    out, given = func.buffer(result), func.buffer(argument)
    if argument in func.outputs or result in func.inouts or given.scope == CONST:
        return False
    if (given.shape, given.layout, given.halo, given.dtype.bytes) != (
        out.shape,
        out.layout,
        out.halo,
        out.dtype.bytes,
    ):
        return False
    # an intermediate tensor may be kept where the output goes
    if any(in_place_hints(s) for s in _statements(func.body) if isinstance(s, For)):
        return False
    parts = list(outermost(func.body))
    first = next((n for n, part in enumerate(parts) if _writes(part, result)), len(parts))
    last = max((n for n, part in enumerate(parts) if _reads(part, argument)), default=-1)
    if last < first:
        return True
    # a tile that is shifted back computes some elements again, from inputs that are then overwritten
    if any("shift" in (*step.args, *dict(step.kwargs).values()) for step in schedule.trace.steps):
        return False
    return _each_read_first(parts[first : last + 1], result, argument)


def _each_read_first(parts: list[Stmt], result: str, argument: str) -> bool:
    """Whether parts read of the argument only what they write in the same instance, each element once."""
    allowed: list[Load] = []
    every: list[Load] = []
    for part in parts:
        every += stmt_loads(part)
        for leaf in _statements(part):
            if isinstance(leaf, Exec):
                return False
            if not isinstance(leaf, Block) or result not in {buffer for buffer, _ in leaf.writes}:
                continue
            body = leaf.body
            if not isinstance(body, Store) or len(body.writes) != 1 or leaf.init is not None:
                return False
            if any(it.kind != "par" for it in leaf.iters) or not _distinct(leaf, body):
                return False
            here = _settled(leaf, body.writes[0].indices)
            allowed += [ld for ld in loads(body.writes[0].value) if _settled(leaf, ld.indices) == here]
    if any(load.buffer == result for load in every):
        return False
    if any(w.buffer == argument for part in parts for w in _windows(part)):
        return False
    return sum(ld.buffer == argument for ld in every) == sum(ld.buffer == argument for ld in allowed)


def _statements(s: Stmt) -> Iterator[Stmt]:
    """A statement and those below; blocks are leaves."""
    yield s
    for child in stmt_children(s):
        yield from _statements(child)


def _windows(s: Stmt) -> Iterator[Window]:
    """The windows of instructions, those in blocks too."""
    if isinstance(s, Exec):
        yield from s.windows
    for part in (s.body,) if isinstance(s, Block) else stmt_children(s):
        yield from _windows(part)


def _writes(s: Stmt, buffer: str) -> bool:
    if any(w.buffer == buffer and "w" in w.mode for w in _windows(s)):
        return True
    return any(
        name == buffer for leaf in _statements(s) if isinstance(leaf, Block) for name, _ in leaf.writes
    )


def _reads(s: Stmt, buffer: str) -> bool:
    return any(w.buffer == buffer for w in _windows(s)) or any(ld.buffer == buffer for ld in stmt_loads(s))


def _settled(block: Block, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    """Indices with the iterators replaced that have one value only."""
    single: Mapping[str, Index] = {it.name: it.lo for it in block.iters if it.extent == ONE}
    return tuple(substitute_index(index, single) for index in indices)


def _distinct(block: Block, body: Store) -> bool:
    """Whether every iterator moves the element that is written."""
    moving = frozenset[str]().union(*(index.vars for index in body.writes[0].indices))
    return all(it.name in moving or it.extent == ONE for it in block.iters)
