"""slide: compute only what is new in each iteration of a loop, and keep the rest from the one before."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    Block,
    Buffer,
    Index,
    LoopFunction,
    Span,
    Stmt,
    loop_env,
    prove_ge0,
    replace_at,
    seq,
    substitute_index,
    var,
)
from tilewright.schedule.common import find_block, find_loop, refusal, taken_names
from tilewright.schedule.footprint import Box, Touch, footprint, touches
from tilewright.schedule.producer.nest import (
    Unsolvable,
    around,
    as_tile,
    below_allocs,
    build_nest,
    check_available,
    is_tile,
    sites,
    solve,
    without,
)
from tilewright.schedule.registry import primitive


@primitive("slide", phase="loop")
def slide(func: LoopFunction, block: str, loop: str) -> LoopFunction:
    """Compute the stage of ``block``, which ``compute_at`` put into ``loop``, without repeating itself.

    Iterations of ``loop`` need overlapping boxes. Now each computes only the part that the one before did not
    need, and a nest ``<block>_first`` ahead of the loop the overlap of the first iteration. The buffer is
    allocated around the loop, for all iterations; ``roll`` then shrinks it to the window.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> T = lang.compute((10,), lambda y: X[y] * 2, name="T")
    >>> C = lang.compute((8,), lambda y: T[y] + T[y + 1] + T[y + 2], name="C")
    >>> s = Schedule(lang.program([X], [C])).compute_at("T", "C_y")
    >>> print(s)
    func main:
        for C_y in 0:8:
            alloc T: f32[3] global
            for T_y in 0:3:
                block T(par y=C_y + T_y):
                    T[y] = (X[y] * f32(2.0))
            block C(par y=C_y):
                C[y] = ((T[y] + T[y + 1]) + T[y + 2])
    >>> print(s.slide("T", "C_y"))
    func main:
        alloc T: f32[10] global
        for T_first_y in 0:2:
            block T_first(par y=T_first_y):
                T[y] = (X[y] * f32(2.0))
        for C_y in 0:8:
            for T_y in 0:1:
                block T(par y=C_y + T_y + 2):
                    T[y] = (X[y] * f32(2.0))
            block C(par y=C_y):
                C[y] = ((T[y] + T[y + 1]) + T[y + 2])

    Legal where ``loop`` is serial and its boxes move by a constant in one dimension, by less than their
    extent; the stage writes one buffer, at indices that are one iterator plus a constant; and nothing that it
    reads is computed inside ``loop``. Raises ScheduleError otherwise.
    """
    _, node = find_block(func, block)
    at, target = find_loop(func, loop)
    all_sites = sites(func)
    group = [s for s in all_sites if s.block.stage == node.stage]
    buffers, _ = below_allocs(target.body)
    written = sorted({n for s in group for n in s.writes})
    if len(group) != 1 or len(written) != 1 or written[0] not in {b.name for b in buffers}:
        raise refusal(
            func,
            f"{block!r} is not one block computed, and its buffer allocated, just inside loop {loop!r}",
            hint=f"compute_at({block!r}, {loop!r}) first",
            at=[block, loop],
        )
    (site,) = group
    name = written[0]
    buf = next(b for b in buffers if b.name == name)
    if target.kind.name != "serial" or target.step != 1:
        raise refusal(
            func,
            f"loop {loop!r} does not run one by one in order: nothing is left to reuse",
            hint="slide before the loop gets a kind, along a loop of step 1",
            at=[loop],
        )
    if not is_tile(buf):
        raise refusal(
            func,
            f"buffer {name!r} has a layout of its own",
            hint="slide it before set_layout",
            at=[block],
            buffers=[name],
        )
    for s in all_sites:
        shared = sorted(s.writes & (site.reads - site.writes))
        if s.under(at) and shared:
            raise refusal(
                func,
                f"{block!r} reads {shared[0]!r}, which {s.block.name!r} computes inside loop {loop!r}",
                at=[block, s.block.name, loop],
            )
    mine = frozenset((node.name,))
    outside = loop_env(at.loops)
    env = {**outside, **loop_env([target])}
    rest = without(target.body, mine)
    box = footprint(rest, env, buf, "r")
    assert box is not None
    dim, step = _advance(func, block, loop, name, box)
    moved = box.spans[dim]
    overlap = moved.extent - step
    start = substitute_index(moved.lo, {loop: target.lo})
    taken = taken_names(func.with_body(without(func.body, mine)))
    fresh = _nest(func, node, name, _with(box, dim, Span(moved.lo + overlap, Index(step))), env, taken, block)
    first_block = replace(node, name=f"{block}_first")
    taken.add(first_block.name)
    head = _nest(
        func, first_block, name, _with(box, dim, Span(start, overlap)), outside, taken, first_block.name
    )
    check_available(func, all_sites, mine, fresh, (*at.loops, target), (block, loop))
    check_available(func, all_sites, mine, head, at.loops, (block, loop))
    _, items = below_allocs(rest)
    at_item = next(n for n, item in enumerate(items) if footprint(item, env, buf, "r") is not None)
    kept: list[Buffer] = [b for b in buffers if b.name != name]
    body = around(kept, seq(*items[:at_item], fresh, *items[at_item:]))
    sliding = seq(head, replace(target, body=body))
    whole = footprint(sliding, outside, buf)
    assert whole is not None
    return func.with_body(replace_at(func.body, at.path, around([as_tile(buf, whole)], sliding)))


def _advance(func: LoopFunction, block: str, loop: str, name: str, box: Box) -> tuple[int, int]:
    """The dimension in which the box moves with the loop, and by how much."""
    moving = [d for d, s in enumerate(box.spans) if loop in s.lo.vars]
    if len(moving) == 1:
        s = box.spans[moving[0]]
        step = s.lo.coefficient(loop)
        even = loop not in (s.lo - var(loop) * step).vars
        if even and step > 0 and prove_ge0(s.extent - step - 1, {}):
            return moving[0], step
    raise refusal(
        func,
        f"the boxes of {name!r} that iterations of {loop!r} read ({box}) do not move by a constant,"
        " with an overlap, in one dimension",
        at=[block, loop],
    )


def _with(box: Box, dim: int, s: Span) -> Box:
    return Box((*box.spans[:dim], s, *box.spans[dim + 1 :]))


def _nest(
    func: LoopFunction,
    node: Block,
    name: str,
    box: Box,
    env: dict[str, tuple[Index, Index]],
    taken: set[str],
    prefix: str,
) -> Stmt:
    """The stage's nest over exactly the instances that write ``box``."""
    touch: Touch = next(t for t in touches(node, "w") if t.buffer == name)
    plain = all(len(x.vars) == 1 and x.coefficient(next(iter(x.vars))) == 1 for x in touch.indices if x.vars)
    if not plain:
        raise refusal(func, f"{node.name!r} does not write {name!r} at single iterators", at=[node.name])
    try:
        ranges = solve(node, touch, box, env, whole=False)
    except Unsolvable as why:
        raise refusal(func, f"cannot slide {node.name!r}: {why}", at=[node.name]) from None
    return build_nest(node, ranges, env, taken, prefix)
