"""slide: compute only what is new in each iteration of a loop, and keep the rest from the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import (
    NOTHING,
    Alloc,
    Block,
    Buffer,
    Index,
    Location,
    LoopFunction,
    Seq,
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
    Site,
    Unsolvable,
    around,
    as_tile,
    below_allocs,
    buffer_at,
    build_nest,
    check_available,
    check_unrolled,
    is_tile,
    sites,
    solve,
    without,
)
from tilewright.schedule.producer.windows import window
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

    Reads clamped to the stage's borders slide like those that are not. A stage that reads what another
    computes inside the loop slides after it: then the first part of both is computed ahead of the loop, in
    their order.

    Legal where ``loop`` is serial and its boxes move by a constant in one dimension, by less than their
    extent; the stage writes one buffer, at indices that are one iterator plus a constant; and what it reads
    that is computed inside ``loop`` slides there already. Raises ScheduleError otherwise.
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
    others = [s.block.name for s in all_sites if s is not site and name in s.writes]
    if others or any(it.kind == "ord" for it in node.iters):
        raise refusal(
            func,
            f"{name!r} changes in order: what an iteration leaves of it is not what the next one starts from",
            hint="slide what is defined once",
            at=[block, *others],
            buffers=[name],
        )
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
    mine = frozenset((node.name,))
    outside = loop_env(at.loops)
    sliding_in = _sliding_inputs(func, all_sites, site, at, block, loop)
    env = {**outside, **loop_env([target])}
    rest = without(target.body, mine)
    box = window(rest, env, buf, "r", loop)
    if box is None:
        raise refusal(func, f"nothing inside loop {loop!r} reads what {block!r} computes", at=[block, loop])
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
    check_available(func, all_sites, mine, fresh, (*at.loops, target), (block, loop), sliding_in)
    check_available(func, all_sites, mine, head, at.loops, (block, loop), sliding_in)
    _check_sliding(func, at, site, sliding_in, head, (block, loop))
    _, items = below_allocs(rest)
    at_item = next(n for n, item in enumerate(items) if footprint(item, env, buf, "r") is not None)
    kept: list[Buffer] = [b for b in buffers if b.name != name]
    body = around(kept, seq(*items[:at_item], fresh, *items[at_item:]))
    path, sliding = at.path, [head, replace(target, body=body)]
    if at.ancestors and isinstance(at.ancestors[-1], Seq):
        # beside what slides already, so that each buffer is allocated right around all that uses it
        path, there = path[:-1], at.ancestors[-1].stmts
        sliding = [*there[: at.path[-1]], *sliding, *there[at.path[-1] + 1 :]]
    whole = footprint(seq(*sliding), outside, buf)
    assert whole is not None
    return func.with_body(replace_at(func.body, path, around([as_tile(buf, whole)], seq(*sliding))))


def _sliding_inputs(
    func: LoopFunction, all_sites: Sequence[Site], site: Site, at: Location, block: str, loop: str
) -> frozenset[str]:
    """What the stage reads of that is computed inside the loop, and allocated outside: it has to slide."""
    out: set[str] = set()
    for s in all_sites:
        for name in sorted(s.writes & (site.reads - site.writes)) if s.under(at) else ():
            _, place = buffer_at(func, name)
            if place is not None and place.path[: len(at.path)] == at.path:
                raise refusal(
                    func,
                    f"{block!r} reads {name!r}, which {s.block.name!r} computes in each iteration of {loop!r}"
                    " anew",
                    hint=f"slide producers first: slide({s.block.name!r}, {loop!r})",
                    at=[block, s.block.name, loop],
                )
            out.add(name)
    return frozenset(out)


def _check_sliding(
    func: LoopFunction,
    at: Location,
    site: Site,
    inputs: frozenset[str],
    head: Stmt,
    names: tuple[str, str],
) -> None:
    """Refuse where the first instances, ahead of the loop, would read what the loop computes only later.

    Inside the loop the stage reads, in each iteration, a part of what it read there before.
    """
    if not inputs:
        return
    before: Stmt = NOTHING
    for a, step in reversed(list(zip(at.ancestors, at.path, strict=True))):
        if isinstance(a, Seq):
            before = seq(*a.stmts[:step], before)
        elif not isinstance(a, Alloc):
            break
    outside = loop_env(at.loops)
    check_unrolled(func, inputs, names)
    for name in sorted(inputs):
        buf, _ = buffer_at(func, name)
        made = footprint(before, outside, buf, "w")
        read = footprint(head, outside, buf, "r")
        if read is not None and (made is None or not made.holds(read, outside, buf.shape)):
            raise refusal(
                func,
                f"the first {names[0]!r} would read {read} of {name!r} ahead of loop {names[1]!r}, of which"
                f" {made or 'nothing'} is computed there",
                hint="slide its producer along the same loop first",
                at=[*names, site.block.name],
                buffers=[name],
            )


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
