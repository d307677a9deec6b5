"""hoist_alloc: allocate a buffer at an outer loop, without moving its computation."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import PRIVATE, TILE, For, LoopFunction, Path, Stmt, find, loop_env, replace_at, seq
from tilewright.schedule.common import find_loop, refusal
from tilewright.schedule.footprint import footprint
from tilewright.schedule.producer.nest import (
    around,
    as_tile,
    below_allocs,
    buffer_at,
    is_tile,
    sites,
    without_alloc,
)
from tilewright.schedule.regions import disjoint
from tilewright.schedule.registry import primitive
from tilewright.schedule.scopes import check_private, check_tiles
from tilewright.target import BUILT_IN, Operations


@primitive("hoist_alloc", phase="loop")
def hoist_alloc(
    func: LoopFunction, buffer: str, loop: str | None = None, *, operations: Operations = BUILT_IN
) -> LoopFunction:
    """Allocate ``buffer`` just inside ``loop`` (``None``: around everything), further out than it is now.

    It then stores the box that one iteration of ``loop`` touches, and keeps its contents over the iterations
    of the loops that the allocation leaves. Computation stays where it is.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((8, 8), name="X")
    >>> T = lang.compute((8, 8), lambda y, x: X[y, x] + 1, name="T")
    >>> C = lang.compute((8, 8), lambda y, x: T[y, x] * 2, name="C")
    >>> s = Schedule(lang.program([X], [C])).compute_at("T", "C_x")
    >>> print(s)
    func main:
        for C_y in 0:8:
            for C_x in 0:8:
                alloc T: f32[1, 1] global
                for T_y in 0:1:
                    for T_x in 0:1:
                        block T(par y=C_y + T_y, par x=C_x + T_x):
                            T[y, x] = (X[y, x] + f32(1.0))
                block C(par y=C_y, par x=C_x):
                    C[y, x] = (T[y, x] * f32(2.0))
    >>> print(s.hoist_alloc("T", "C_y"))
    func main:
        for C_y in 0:8:
            alloc T: f32[1, 8] global
            for C_x in 0:8:
                for T_y in 0:1:
                    for T_x in 0:1:
                        block T(par y=C_y + T_y, par x=C_x + T_x):
                            T[y, x] = (X[y, x] + f32(1.0))
                block C(par y=C_y, par x=C_x):
                    C[y, x] = (T[y, x] * f32(2.0))

    Refused where a loop that the allocation leaves is parallel, or the buffer holds running values of a
    reduction, and different iterations of that loop touch the same elements; where memory of one thread would
    be written by several; where tile registers would be more than there are, beside others, or chosen by
    loops that are not unrolled. Raises ScheduleError.
    """
    buf, place = buffer_at(func, buffer)
    if place is None:
        raise refusal(
            func,
            f"{buffer!r} is an argument; its memory is the caller's",
            hint="cache a copy of it",
            buffers=[buffer],
        )
    if not is_tile(buf):
        raise refusal(
            func,
            f"buffer {buffer!r} has a layout of its own",
            hint="cache it at the outer loop",
            buffers=[buffer],
        )
    inside: Stmt = func.body
    path: Path = ()
    outer: tuple[For, ...] = ()
    if loop is not None:
        at, target = find_loop(func, loop)
        if place.path[: len(at.path)] != at.path:
            raise refusal(
                func, f"{buffer!r} is not allocated inside of loop {loop!r}", at=[loop], buffers=[buffer]
            )
        inside, path, outer = target.body, at.path, (*at.loops, target)
    left = place.loops[len(outer) :]
    parallel = [f.var for f in left if f.kind.name in ("parallel", "thread", "vector")]
    reducing = any(buffer in s.writes and any(it.kind != "par" for it in s.block.iters) for s in sites(func))
    env = loop_env(outer)
    if parallel or reducing:
        box = footprint(place.node, {**env, **loop_env(left)}, buf)
        bad = disjoint(box.spans, left) if box is not None else ()
        if bad:
            raise refusal(
                func,
                f"iterations of {', '.join(map(repr, bad))} would share elements of {buffer!r}, "
                + (
                    f"and {parallel[0]!r} is no serial loop"
                    if parallel
                    else "which holds running values of a reduction"
                ),
                hint=None if parallel else "slide computes only what is new in each iteration",
                at=bad,
                buffers=[buffer],
            )
    box = footprint(inside, env, buf)
    assert box is not None
    buffers, items = below_allocs(without_alloc(inside, buffer))
    new = around([*(b for b in buffers if b.name != buffer), as_tile(buf, box)], seq(*items))
    if loop is None:
        out = func.with_body(new)
    else:
        found = find(func.body, loop)
        assert found is not None and isinstance(found.node, For)
        out = func.with_body(replace_at(func.body, path, replace(found.node, body=new)))
    if buf.scope in PRIVATE:
        check_private(out, buffer, buf.scope, shown=func)
    if buf.scope == TILE:
        check_tiles(out, buffer, operations, shown=func)
    return out
