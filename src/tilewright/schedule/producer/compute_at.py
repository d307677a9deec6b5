"""compute_at: compute a producer where it is used, tile by tile."""

from __future__ import annotations

from tilewright.ir import (
    Block,
    Buffer,
    Env,
    For,
    If,
    Location,
    LoopFunction,
    Span,
    Stmt,
    find,
    loop_env,
    replace_at,
    seq,
)
from tilewright.schedule.common import find_block, find_loop, refusal, taken_names
from tilewright.schedule.footprint import Box, Touch, footprint, touches
from tilewright.schedule.producer.groups import cut, group_of
from tilewright.schedule.producer.nest import (
    Site,
    Unsolvable,
    around,
    as_tile,
    below_allocs,
    buffer_at,
    build_nest,
    check_available,
    check_visible,
    is_tile,
    is_whole,
    kinds_of,
    sites,
    solve,
    touching,
    union_ranges,
    without,
    without_alloc,
)
from tilewright.schedule.regions import disjoint
from tilewright.schedule.registry import primitive


@primitive("compute_at", phase="loop")
def compute_at(func: LoopFunction, block: str, loop: str, *, keep_storage: bool = False) -> LoopFunction:
    """Compute the stage of ``block`` inside ``loop``: in each iteration just the box that is read there.

    The stage's nests are rebuilt as serial loops ``<block>_<iterator>`` at the start of the loop's body,
    before the first statement that reads the result, and guarded where the box reaches past the stage's
    domain; earlier loop primitives on the stage are forgotten. Its buffers are allocated just inside ``loop``
    and store only the box, logical indices unchanged: in a layout of their own they keep that, if each
    iteration needs all of them. With ``keep_storage`` the allocation stays.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((12,), name="X")
    >>> T = lang.compute((11,), lambda i: X[i] + X[i + 1], name="T")
    >>> C = lang.compute((10,), lambda i: T[i] * T[i + 1], name="C")
    >>> s = Schedule(lang.program([X], [C])).split("C_i", 4)
    >>> print(s)
    func main:
        alloc T: f32[11] global
        for i in 0:11:
            block T(par i=i):
                T[i] = (X[i] + X[i + 1])
        for C_i_o in 0:3:
            for C_i_i in 0:4:
                block C(par i=C_i_i + 4*C_i_o) where -C_i_i - 4*C_i_o + 9 >= 0:
                    C[i] = (T[i] * T[i + 1])
    >>> print(s.compute_at("T", "C_i_o"))
    func main:
        for C_i_o in 0:3:
            alloc T: f32[5] global
            for T_i in 0:5:
                block T(par i=4*C_i_o + T_i) where -4*C_i_o - T_i + 10 >= 0:
                    T[i] = (X[i] + X[i + 1])
            for C_i_i in 0:4:
                block C(par i=C_i_i + 4*C_i_o) where -C_i_i - 4*C_i_o + 9 >= 0:
                    C[i] = (T[i] * T[i + 1])

    Stages that write the same buffer (an update and what it starts from) move together.

    Legal where no buffer of theirs is an argument and every reader is inside ``loop``; each dimension of the
    writes must be one iterator times a constant plus a constant, or its quotient or remainder. A buffer that
    changes in order (``ord`` iterators, several stages) is computed in parts only of dimensions in which all
    accesses of these stages stand at the same parallel iterator, and not with ``keep_storage``. With that, a
    reduction (or any stage, where a loop between storage and computation is parallel) needs boxes that do
    not overlap.

    Raises ScheduleError where that does not hold.
    """
    _, node = find_block(func, block)
    at, target = find_loop(func, loop)
    all_sites = sites(func)
    group, made = group_of(all_sites, node.stage)
    _check(func, block, loop, at, target, all_sites, group, made, keep_storage)

    env = loop_env((*at.loops, target))
    boxes: dict[str, Box] = {}
    declared: dict[str, Buffer] = {}
    for name in sorted(made):
        declared[name], _ = buffer_at(func, name)
        box = footprint(target.body, env, declared[name], "r")
        if box is not None:
            boxes[name] = box
    body = without(func.body, frozenset(s.block.name for s in group))
    taken = taken_names(func.with_body(body))
    nests: list[Stmt] = []
    stages = tuple(dict.fromkeys(s.block.stage for s in group))
    for b in [b for stage in stages for b in kinds_of(func, [s for s in group if s.block.stage == stage])]:
        try:
            if len(stages) > 1 or any(it.kind == "ord" for it in b.iters):
                ranges = cut(b, boxes, declared)
            else:
                ranges = required(b, boxes, env)
        except Unsolvable as why:
            raise refusal(
                func,
                f"cannot tell which instances of {block!r} the loop {loop!r} needs: {why}",
                hint="compute it at an outer loop, or change the layout of its buffer first",
                at=[block, loop],
            ) from None
        nests.append(build_nest(b, ranges, env, taken, b.name))

    mine = frozenset(s.block.name for s in group)
    check_available(func, all_sites, mine, seq(*nests), (*at.loops, target), (block, loop))
    if keep_storage:
        _check_kept(func, block, at, target, group, nests, declared, env)
    buffers, inside = below_allocs(target.body)
    first = next(n for n, s in enumerate(inside) if touching(s, made, "r"))
    inner = seq(*inside[:first], *nests, *inside[first:])
    if not keep_storage:
        tiles = []
        for name in sorted(made):
            body = without_alloc(body, name)
            box = footprint(inner, env, declared[name])
            assert box is not None
            if not is_tile(declared[name]) and not is_whole(declared[name], box):
                raise refusal(
                    func,
                    f"buffer {name!r} has a layout of its own, which a tile cannot keep",
                    hint=f"compute all of it in each iteration of a loop around {loop!r}",
                    at=[block, loop],
                    buffers=[name],
                )
            tiles.append(as_tile(declared[name], box))
        inner = around(tiles, inner)
    place = find(body, loop)
    assert place is not None and isinstance(place.node, For)
    new = For(
        target.var, target.lo, target.hi, around(buffers, inner), target.kind, target.step, target.hints
    )
    return func.with_body(replace_at(body, place.path, new))


def required(block: Block, boxes: dict[str, Box], env: Env) -> dict[str, Span]:
    """Ranges of the iterators whose instances write the given boxes; raises :class:`Unsolvable`."""
    found = [solve(block, t, boxes[t.buffer], env) for t in _writes(block) if t.buffer in boxes]
    return union_ranges(block, found, env) if found else {}


def _writes(block: Block) -> list[Touch]:
    return list(dict.fromkeys(touches(block, "w")))


def _check(
    func: LoopFunction,
    block: str,
    loop: str,
    at: Location,
    target: For,
    all_sites: list[Site],
    group: list[Site],
    made: frozenset[str],
    keep_storage: bool,
) -> None:
    """Refuse what :func:`compute_at` cannot do."""
    mine = {s.block.name for s in group}
    if not mine.isdisjoint(target.names):
        raise refusal(func, f"{block!r} is computed inside loop {loop!r} already", at=[block, loop])
    if target.kind.name == "vector":
        raise refusal(
            func,
            f"loop {loop!r} is a vector loop: no nest can be put into it",
            hint="name a loop around it",
            at=[loop],
        )
    arguments = {b.name for b in func.buffers}
    for name in sorted(made):
        if name in arguments:
            raise refusal(
                func,
                f"{block!r} defines {name!r}, an argument of the function, which must be computed in full",
                hint="move its consumer instead, with reverse_compute_at",
                at=[block, loop],
            )
    several = len({s.block.stage for s in group}) > 1
    if keep_storage and (several or any(it.kind == "ord" for s in group for it in s.block.iters)):
        raise refusal(
            func,
            f"{', '.join(sorted(made))} changes in order, and would change again in each iteration of"
            f" {loop!r}",
            hint="leave out keep_storage=True",
            at=[block, loop],
        )
    readers = [s for s in all_sites if s.block.name not in mine and not made.isdisjoint(s.reads)]
    outside = [s.block.name for s in readers if not s.under(at)]
    if outside or not readers:
        raise refusal(
            func,
            f"{block!r} is also read outside of loop {loop!r}: by {', '.join(map(repr, outside))}"
            if outside
            else f"nothing inside loop {loop!r} reads what {block!r} computes",
            hint="name a loop around all its readers" if outside else None,
            at=[block, loop, *outside],
        )
    end = (*at.path, 1 << 30)
    for s in group:
        if s.path > at.path:
            raise refusal(func, f"{block!r} is computed after loop {loop!r}", at=[block, loop])
        for n, a in enumerate(s.place.ancestors):
            if isinstance(a, If) and at.path[: n + 1] != s.path[: n + 1]:
                raise refusal(func, f"{block!r} is computed under a condition", at=[block])
        inputs = s.reads - made
        for other in all_sites:
            if s.path < other.path < end and not inputs.isdisjoint(other.writes):
                raise refusal(
                    func,
                    f"{other.block.name!r} changes {', '.join(sorted(inputs & other.writes))}, which"
                    f" {block!r} reads, before loop {loop!r} is done",
                    at=[block, other.block.name, loop],
                )
        check_visible(func, inputs, at, (block, loop))
    check_visible(func, made, at, (block, loop))


def _check_kept(
    func: LoopFunction,
    block: str,
    at: Location,
    target: For,
    group: list[Site],
    nests: list[Stmt],
    declared: dict[str, Buffer],
    env: Env,
) -> None:
    """Refuse repeated computation into storage that outlives an iteration, where that matters."""
    for name, buf in declared.items():
        place = buffer_at(func, name)[1]
        depth = 0 if place is None else len(place.loops)
        between = (*at.loops, target)[depth:]
        parallel = [f.var for f in between if f.kind.name in ("parallel", "thread")]
        reduction = any(s.block.is_reduction for s in group)
        if not parallel and not reduction:
            continue
        for nest in nests:
            box = footprint(nest, env, buf, "w")
            bad = disjoint(box.spans, between) if box is not None else ()
            if bad:
                what = f"parallel loop {parallel[0]!r}" if parallel else "a reduction"
                raise refusal(
                    func,
                    f"the iterations of {', '.join(map(repr, bad))} compute overlapping parts of {name!r}"
                    f" into storage that they share, which {what} must not",
                    hint="leave out keep_storage=True",
                    at=[block, *bad],
                )
