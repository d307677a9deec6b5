"""Rounding a loop up: larger iterator domains and written allocations, for the ``roundup`` tail."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    Block,
    Buffer,
    Env,
    For,
    Index,
    Iter,
    Load,
    LoopFunction,
    Stmt,
    buffers_of,
    imax,
    iter_env,
    map_blocks,
    map_buffers,
    prove_ge0,
    prove_lt,
    upper,
    walk_index,
)
from tilewright.schedule.carried import folded
from tilewright.schedule.common import refusal
from tilewright.schedule.nests import blocks_below, fed
from tilewright.support import ScheduleError

_HINT = "use another tail policy"


def round_up(func: LoopFunction, node: For, extent: Index) -> tuple[dict[str, Buffer], Stmt]:
    """Grown buffers by name, and the loop's body with domains that reach ``node.lo + extent``.

    Raises ScheduleError unless the loop is bound as it is to parallel iterators only, everything written past
    the old end is an allocation that has room there or can be given it, where no other stage writes, and
    everything read there is in bounds.
    """
    for block, it, b in fed(node.body, node.var):
        if it.kind != "par" or b.as_var() != node.var:
            raise _refused(func, node, block, f"it feeds the {it.kind} iterator {it.name!r} as {b}")
    end = node.lo + extent
    known = buffers_of(func)
    grown: dict[str, Buffer] = {}
    domains: dict[str, tuple[Iter, ...]] = {}
    for block in blocks_below(node.body):
        bound = frozenset(
            it.name for it, b in zip(block.iters, block.bind, strict=True) if node.var in b.vars
        )
        if not bound:
            continue
        iters = tuple(replace(it, hi=_later(it.hi, end)) if it.name in bound else it for it in block.iters)
        # the domains of further iterators may follow (triangular reductions)
        moved = bound | {it.name for it in iters if (it.lo.vars | it.hi.vars) & bound}
        domains[block.name] = iters
        _check_reads(func, node, block, iters, moved, known)
        for name, indices in block.writes:
            old = grown.get(name, known[name])
            new = _grow(func, node, block, iters, moved, old, indices)
            if new is not old:
                if any(b.name == name for b in func.buffers):
                    raise _refused(func, node, block, f"the block writes the argument {name!r}")
                grown[name] = new
    body = map_blocks(node.body, lambda b: replace(b, iters=domains[b.name]) if b.name in domains else b)
    return grown, body


def with_buffers(s: Stmt, grown: dict[str, Buffer]) -> Stmt:
    """The statement with allocations replaced by those in ``grown``."""
    return map_buffers(s, lambda b: grown.get(b.name, b)) if grown else s


def _refused(func: LoopFunction, node: For, block: Block, why: str) -> ScheduleError:
    return refusal(
        func,
        f"{node.var!r} cannot be rounded up for block {block.name!r}: {why}",
        hint="roundup needs padded allocations and loops that are parallel iterators; " + _HINT,
        at=[node.var, block.name],
    )


def _later(a: Index, b: Index) -> Index:
    if prove_ge0(b - a, {}):
        return b
    return a if prove_ge0(a - b, {}) else imax(a, b)


def _check_reads(
    func: LoopFunction,
    node: For,
    block: Block,
    iters: tuple[Iter, ...],
    moved: frozenset[str],
    known: dict[str, Buffer],
) -> None:
    env = iter_env(iters)
    written = set(block.writes) if block.init is not None else set()
    for ld in block.reads:
        if (ld.buffer, ld.indices) in written:
            continue
        for i, size in zip(ld.indices, known[ld.buffer].shape, strict=True):
            if i.vars & moved and not (prove_ge0(i, env) and prove_lt(i, size, env)):
                raise _refused(func, node, block, f"the block would read {ld} out of bounds")


def _grow(
    func: LoopFunction,
    node: For,
    block: Block,
    iters: tuple[Iter, ...],
    moved: frozenset[str],
    buffer: Buffer,
    indices: tuple[Index, ...],
) -> Buffer:
    env = iter_env(iters)
    shape = list(buffer.shape)
    for d, (i, size) in enumerate(zip(indices, buffer.shape, strict=True)):
        if not i.vars & moved or prove_lt(i, size, env):
            continue
        last = upper(i, env)
        if last is None or last.vars or any(isinstance(e, Load) for e in walk_index(last)):
            raise _refused(func, node, block, f"the end of {buffer.name!r} in dimension {d} is not known")
        shape[d] = _later(size, last + 1)
    other = next((b for b in blocks_below(func.body) if b.stage != block.stage and _writes(b, buffer)), None)
    if other is not None and any(i.vars & moved for i in indices):
        raise _refused(func, node, block, f"{other.name!r} writes {buffer.name!r} too")
    if buffer.layout is not None:
        if folded(buffer):
            raise _refused(func, node, block, f"{buffer.name!r} is a rolled buffer, whose rows are in use")
        if tuple(shape) != buffer.shape or not _has_room(buffer, indices, moved, env):
            raise _refused(func, node, block, f"{buffer.name!r} has a layout of its own")
    return buffer if tuple(shape) == buffer.shape else replace(buffer, shape=tuple(shape))


def _writes(block: Block, buffer: Buffer) -> bool:
    return any(name == buffer.name for name, _ in block.writes)


def _has_room(buffer: Buffer, indices: tuple[Index, ...], moved: frozenset[str], env: Env) -> bool:
    """Whether the places that moved iterators tell lie in the physical box."""
    assert buffer.layout is not None
    places = zip(buffer.physical(indices), buffer.physical_shape, strict=True)
    return all(prove_ge0(x, env) and prove_lt(x, n, env) for x, n in places if x.vars & moved)
