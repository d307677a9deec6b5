"""inline: put the definition of a stage into the stages that read it, in a loop function."""

from __future__ import annotations

from tilewright.ir import LoopFunction, buffers_of
from tilewright.schedule.common import find_block, refusal
from tilewright.schedule.producer.definition import definition_of, inlined
from tilewright.schedule.producer.nest import allocation, check_unrolled, sites, without, without_alloc
from tilewright.schedule.registry import primitive


@primitive("inline", phase="loop")
def inline(func: LoopFunction, block: str) -> LoopFunction:
    """Replace every load of what ``block`` computes by its definition; the block and its buffer disappear.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X, Y = lang.placeholder((8,), name="X"), lang.placeholder((4,), name="Y")
    >>> T = lang.compute((8,), lambda i: X[i] * 2, name="T")
    >>> k = lang.reduce_axis(4, "k")
    >>> C = lang.compute((8,), lambda i: lang.sum(T[i] * Y[k], axis=k), name="C")
    >>> s = Schedule(lang.program([X, Y], [C]))
    >>> print(s)
    func main:
        alloc T: f32[8] global
        for i in 0:8:
            block T(par i=i):
                T[i] = (X[i] * f32(2.0))
        for C_i in 0:8:
            for k in 0:4:
                block C(par i=C_i, red k=k):
                    init:
                        C[i] = f32(0.0)
                    C[i] = (C[i] + (T[i] * Y[k]))
    >>> print(s.inline("T"))
    func main:
        for C_i in 0:8:
            for k in 0:4:
                block C(par i=C_i, red k=k):
                    init:
                        C[i] = f32(0.0)
                    C[i] = (C[i] + ((X[i] * f32(2.0)) * Y[k]))

    Legal for a stage with parallel iterators only that assigns one element of an allocated buffer, each of
    its iterators told by one index of that element. Raises ScheduleError otherwise, and where something that
    the definition reads has changed, or is not allocated, where it would be used.
    """
    _, node = find_block(func, block)
    all_sites = sites(func)
    group = [s for s in all_sites if s.block.stage == node.stage]
    mine = frozenset(s.block.name for s in group)
    found = definition_of(node.iters, node.body, node.init)
    if any(s.block.is_reduction for s in group):
        found = "it is a reduction"
    if isinstance(found, str) or any(s.block.body != node.body for s in group):
        why = found if isinstance(found, str) else "its blocks have different bodies"
        raise refusal(func, f"{block!r} cannot be inlined: {why}", at=[block])
    name = found.buffer
    if name not in buffers_of(func) or any(b.name == name for b in func.buffers):
        raise refusal(
            func,
            f"{block!r} defines {name!r}, an argument of the function, which must be stored",
            at=[block],
        )
    start = min(s.path for s in group)
    readers = [s for s in all_sites if name in s.reads and s.block.name not in mine]
    if not readers:
        raise refusal(func, f"nothing reads what {block!r} computes", at=[block])
    inputs = frozenset(n for s in group for n in s.reads)
    last = max(s.path for s in readers)
    check_unrolled(func, inputs, (block,))
    for s in all_sites:
        if s.block.name in mine:
            continue
        if name in s.writes:
            raise refusal(func, f"{s.block.name!r} writes {name!r} too", at=[block, s.block.name])
        changed = sorted(s.writes & inputs)
        if changed and start < s.path <= last:
            raise refusal(
                func,
                f"{s.block.name!r} changes {changed[0]!r}, which {block!r} reads, before the last use",
                at=[block, s.block.name],
            )
    for n in sorted(inputs):
        place = allocation(func, n)
        for s in readers:
            if place is not None and s.path[: len(place.path)] != place.path:
                raise refusal(
                    func,
                    f"{n!r}, which {block!r} reads, is not allocated around {s.block.name!r}",
                    hint="move its storage out with hoist_alloc first",
                    at=[block, s.block.name],
                    buffers=[n],
                )
    body = without_alloc(without(func.body, mine), name)
    return func.with_body(inlined(body, found))
