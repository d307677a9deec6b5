"""reverse_compute_at: compute a consumer, such as an epilogue, where its operand is produced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.ir import (
    ZERO,
    Block,
    Buffer,
    Env,
    For,
    If,
    Index,
    Location,
    LoopFunction,
    Span,
    Stmt,
    find,
    loop_env,
    replace_at,
    seq,
    span,
    union_span,
    var,
)
from tilewright.schedule.common import find_block, find_loop, refusal, taken_names
from tilewright.schedule.footprint import Box, footprint, touches
from tilewright.schedule.nests import settle
from tilewright.schedule.producer.groups import cut, group_of
from tilewright.schedule.producer.nest import (
    Site,
    Unsolvable,
    around,
    as_tile,
    below_allocs,
    buffer_at,
    build_nest,
    check_unrolled,
    check_visible,
    is_tile,
    kinds_of,
    sites,
    solve,
    without,
    without_alloc,
)
from tilewright.schedule.regions import disjoint, uncovered
from tilewright.schedule.registry import primitive


@primitive("reverse_compute_at", phase="loop")
def reverse_compute_at(
    func: LoopFunction, block: str, loop: str, *, keep_storage: bool = False
) -> LoopFunction:
    """Compute the stage of ``block`` inside ``loop``, over the box of its operand that is produced there.

    The stage's nest is rebuilt as serial loops ``<block>_<iterator>`` at the end of the loop's body, guarded
    where the box reaches past the stage's domain; earlier loop primitives on the stage are forgotten. An
    operand that is produced inside ``loop`` only and that nothing outside reads is then allocated there and
    stores just the box, unless ``keep_storage``, or what produces it reads what earlier iterations stored.
    Stages between ``loop`` and ``block`` that write the same buffer (what an update starts from, earlier
    updates) move along, in their order.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> T = lang.compute((10,), lambda i: X[i] + 1, name="T")
    >>> C = lang.compute((10,), lambda i: T[i] * T[i], name="C")
    >>> s = Schedule(lang.program([X], [C])).split("i", 4)
    >>> print(s)
    func main:
        alloc T: f32[10] global
        for i_o in 0:3:
            for i_i in 0:4:
                block T(par i=i_i + 4*i_o) where -i_i - 4*i_o + 9 >= 0:
                    T[i] = (X[i] + f32(1.0))
        for C_i in 0:10:
            block C(par i=C_i):
                C[i] = (T[i] * T[i])
    >>> print(s.reverse_compute_at("C", "i_o"))
    func main:
        for i_o in 0:3:
            alloc T: f32[4] global
            for i_i in 0:4:
                block T(par i=i_i + 4*i_o) where -i_i - 4*i_o + 9 >= 0:
                    T[i] = (X[i] + f32(1.0))
            for C_i in 0:4:
                block C(par i=C_i + 4*i_o) where -C_i - 4*i_o + 9 >= 0:
                    C[i] = (T[i] * T[i])

    Counts that are added to the first elements of each row, with these:

    >>> X = lang.placeholder((6, 9), "i32", name="X")
    >>> T = lang.compute((6, 9), lambda y, x: X[y, x] + 1, name="T")
    >>> H = lang.compute((6, 4), lambda y, b: T[y, b], name="H")
    >>> def count(t, y, x):
    ...     return lang.write((y, T[y, x] % 4), t[y, T[y, x] % 4] + 1)
    >>> H = lang.update(H, [lang.axis(6, "y"), lang.reduce_axis(9, "x")], count, name="count")
    >>> print(Schedule(lang.program([X], [H])).reverse_compute_at("count_update", "y"))
    func main:
        for y in 0:6:
            alloc T: i32[1, 9] global
            for x in 0:9:
                block T(par y=y, par x=x):
                    T[y, x] = (X[y, x] + i32(1))
            for count_y in 0:1:
                for count_b in 0:4:
                    block count(par y=count_y + y, par b=count_b):
                        count[y, b] = T[y, b]
            for count_update_y in 0:1:
                for count_update_x in 0:9:
                    block count_update(par y=count_update_y + y, red x=count_update_x):
                        count[y, int(mod(T[y, x], i32(4)))] = (count[y, int(mod(T[y, x], i32(4)))] + i32(1))

    Legal where the operand's values are final: all loops of its reduction are inside ``loop``, and different
    iterations produce boxes that do not overlap; where these boxes lead to every instance of the stage; and
    where everything else that the stage reads is there before. Each dimension of the access to the operand
    must be one iterator times a constant plus a constant, or its quotient and remainder. Several stages, and
    those with an ``ord`` iterator, are cut along ``par`` iterators only, at which all their accesses to the
    buffer stand in one dimension (as for :func:`compute_at`).

    Raises ScheduleError where that does not hold.
    """
    _, node = find_block(func, block)
    at, target = find_loop(func, loop)
    all_sites = sites(func)
    mine = _moved_sites(func, block, loop, node, at, target, all_sites)
    by_stage = {stage: [s for s in mine if s.block.stage == stage] for stage in _stages(mine)}
    kinds = {stage: kinds_of(func, own) for stage, own in by_stage.items()}
    shared = min(_shared_depth(s.place, at) for s in mine)
    made = frozenset(name for s in mine for name in s.writes)
    inputs = frozenset(name for s in mine for name in s.reads) - made
    job = _Job(
        func,
        block,
        loop,
        at,
        target,
        all_sites,
        frozenset(s.block.name for s in mine),
        (*at.loops, target)[shared:],
        loop_env((*at.loops, target)),
        shared,
    )
    check_unrolled(func, inputs | made, (block, loop))
    operands = [name for name in sorted(inputs) if job.writers(name, under=True)]
    if not operands:
        raise refusal(
            func, f"nothing that {block!r} reads is produced inside loop {loop!r}", at=[block, loop]
        )
    _check_order(job, mine, inputs, made)
    boxes = {name: box for name in sorted(inputs) if (box := _final_box(job, name)) is not None}
    ranges = _ranges(job, by_stage, kinds, operands, boxes, made)
    body = without(func.body, job.own)
    taken = taken_names(func.with_body(body))
    nests = []
    for b, own in ranges:
        sites_of = by_stage[b.stage]
        # conditions on the loops around both places, as masked tiles have them, still hold
        around_both = frozenset(f.var for f in sites_of[0].place.loops[:shared])
        kept = [tuple(c for c in s.block.where if c.vars and c.vars <= around_both) for s in sites_of]
        if any(k != kept[0] for k in kept):
            raise refusal(func, f"the parts of {b.stage!r} run under different conditions", at=[block])
        nests.append(settle(build_nest(b, own, job.env, taken, b.name), job.env, kept[0]))
    nest = seq(*nests)
    for name, box in boxes.items():
        read = footprint(nest, job.env, buffer_at(func, name)[0], "r")
        if read is not None and not box.holds(read, job.env):
            raise refusal(
                func,
                f"{block!r} reads {name!r} beyond what an iteration of {loop!r} produces ({box})",
                at=[block, loop],
            )
    check_visible(func, inputs | made, at, (block, loop))
    return _place(job, body, nest, operands, keep_storage)


@dataclass(frozen=True, slots=True)
class _Job:
    """What is moved where: ``moving`` are the loops around the new place that are not around the old one.

    ``shared`` is the number of loops around both, ``own`` are the blocks that move.
    """

    func: LoopFunction
    block: str
    loop: str
    at: Location
    target: For
    sites: list[Site]
    own: frozenset[str]
    moving: tuple[For, ...]
    env: Env
    shared: int

    def writers(self, name: str, *, under: bool) -> list[Site]:
        """Other blocks that write a buffer inside the target loop (or outside of it)."""
        return [
            s
            for s in self.sites
            if name in s.writes and s.block.name not in self.own and s.under(self.at) == under
        ]

    @property
    def root(self) -> tuple[int, ...]:
        """Path of the outermost moving loop."""
        depth = len(self.at.loops) + 1 - len(self.moving)
        loops = [n for n, a in enumerate(self.at.ancestors) if isinstance(a, For)]
        return self.at.path[: loops[depth]] if depth < len(loops) else self.at.path


def _stages(moved: list[Site]) -> list[str]:
    return list(dict.fromkeys(s.block.stage for s in moved))


def _moved_sites(
    func: LoopFunction, block: str, loop: str, node: Block, at: Location, target: For, all_sites: list[Site]
) -> list[Site]:
    """The blocks of the stage, and of those that change its buffer between the loop and it."""
    mine = [s for s in all_sites if s.block.stage == node.stage]
    last = max(s.path for s in mine)
    group, _ = group_of(all_sites, node.stage)
    along = {s.block.stage for s in group if at.path < s.path < last and not s.under(at)}
    mine = [s for s in group if s.block.stage in along | {node.stage}]
    for s in mine:
        name = block if s.block.stage == node.stage else s.block.name
        if s.under(at):
            raise refusal(func, f"{name!r} is computed inside loop {loop!r} already", at=[block, loop])
        if s.path < at.path:
            raise refusal(func, f"{name!r} is computed before loop {loop!r}", at=[block, loop])
        for n, a in enumerate(s.place.ancestors):
            if isinstance(a, If) and at.path[: n + 1] != s.path[: n + 1]:
                raise refusal(func, f"{name!r} is computed under a condition", at=[block])
        for n, a in enumerate(at.ancestors):
            if isinstance(a, If) and s.path[: n + 1] != at.path[: n + 1]:
                raise refusal(
                    func,
                    f"loop {loop!r} runs under a condition, {name!r} does not",
                    hint="name a loop around the condition",
                    at=[block, loop],
                )
    if target.kind.name == "vector":
        raise refusal(
            func,
            f"loop {loop!r} is a vector loop: no nest can be put into it",
            hint="name a loop around it",
            at=[loop],
        )
    return mine


def _shared_depth(here: Location, at: Location) -> int:
    """Number of loops around both places."""
    depth = 0
    for a, b in zip(here.ancestors, (*at.ancestors, at.node), strict=False):
        if a is not b:
            break
        depth += isinstance(a, For)
    return depth


def _check_order(job: _Job, mine: list[Site], inputs: frozenset[str], made: frozenset[str]) -> None:
    """Refuse where moving to an earlier place changes what is read or overwritten."""
    func, block, loop = job.func, job.block, job.loop
    root = job.root
    last = max(s.path for s in mine)
    for s in job.sites:
        if s.block.name in job.own or s.path > last:
            continue
        if s.path[: len(root)] < root:
            continue
        clash = sorted(s.writes & made | s.reads & made)
        if clash:
            raise refusal(
                func,
                f"{s.block.name!r} uses {clash[0]!r}, which {block!r} would then have defined earlier",
                at=[block, s.block.name],
            )
        late = sorted(s.writes & inputs)
        if late and s.path[: len(job.at.path)] > job.at.path:
            raise refusal(
                func,
                f"{s.block.name!r} writes {late[0]!r}, which {block!r} reads, only after loop {loop!r}",
                hint="move that one first" if s.path[: len(root)] > root else "name a loop around both",
                at=[block, s.block.name, loop],
            )


def _final_box(job: _Job, name: str) -> Box | None:
    """What is there of an input that is written inside the moving loops, at the target loop's end.

    ``None`` where nothing inside the moving loops writes it. Refuses where that is not final.
    """
    func, block, loop = job.func, job.block, job.loop
    inside = [s for s in job.sites if name in s.writes and s.path[: len(job.root)] == job.root]
    if not inside:
        return None
    buf, _ = buffer_at(func, name)
    fixed = len(job.at.loops) + 1 - len(job.moving)
    best: Box | None = None
    for common in sorted({_shared_depth(s.place, job.at) - fixed for s in inside}):
        # common moving loops around the writers and the target; all of their iterations must differ
        level = job.moving[common - 1]
        around_it = (*job.at.loops, job.target)[: fixed + common]
        box = footprint(level.body, loop_env(around_it), buf, "w")
        assert box is not None
        bad = disjoint(box.spans, job.moving[:common])
        if bad:
            over = {
                v
                for s in inside
                for it, b in zip(s.block.iters, s.block.bind, strict=True)
                if it.kind != "par"
                for v in b.vars & set(bad)
            }
            shown = ", ".join(map(repr, bad))
            raise refusal(
                func,
                f"the reduction into {name!r} also runs over {shown}, outside of {loop!r}: not final there"
                if over
                else f"iterations of {shown} produce overlapping parts of {name!r}, so none is final",
                hint="name a loop outside of the reduction" if over else None,
                at=[block, loop, *bad],
            )
        best = box
    return best


def _ranges(
    job: _Job,
    by_stage: dict[str, list[Site]],
    kinds: dict[str, list[Block]],
    operands: list[str],
    boxes: dict[str, Box],
    made: frozenset[str],
) -> list[tuple[Block, dict[str, Span]]]:
    """The instances of each block to run per iteration, each exactly once over all iterations."""
    func, block, loop = job.func, job.block, job.loop
    found: dict[str, Span] | None = None
    why = ""
    every = [(b, by_stage[stage]) for stage, own in kinds.items() for b in own]
    for b, own in every:
        for t in touches(b, "r"):
            if found is None and t.buffer in operands:
                try:
                    found = _with_outer(job, b, own, solve(b, t, boxes[t.buffer], job.env))
                except Unsolvable as reason:
                    why = why or str(reason)
                else:
                    first = b
    out = []
    try:
        if found is None:
            raise Unsolvable(why)
        if len(every) == 1 and all(it.kind != "ord" for it in first.iters):
            out.append((first, found))
        else:
            declared = {name: buffer_at(func, name)[0] for name in sorted(made)}
            parts = _parts(first, found, declared)
            out += [(b, _with_outer(job, b, own, cut(b, parts, declared))) for b, own in every]
    except Unsolvable as reason:
        raise refusal(
            func, f"cannot tell which instances of {block!r} loop {loop!r} serves: {reason}", at=[block]
        ) from None
    for b, each in out:
        _check_once(job, b, by_stage[b.stage], each)
    return out


def _parts(block: Block, ranges: Mapping[str, Span], declared: Mapping[str, Buffer]) -> dict[str, Box]:
    """Of the buffers that change in order the boxes at which instances in these ranges stand.

    Whole dimensions but those where all accesses stand at one parallel iterator of the ranges.
    """
    par = {it.name for it in block.iters if it.kind == "par"}
    for name, s in ranges.items():
        if name not in par and not s.lo.is_const:
            raise Unsolvable(f"{block.name!r} changes {', '.join(declared)} in order, along {name!r}")
    out: dict[str, Box] = {}
    for name, buf in declared.items():
        mine = [t.indices for t in touches(block) if t.buffer == name]
        spans = [Span(ZERO, size) for size in buf.shape]
        for d in range(len(spans)):
            places = {indices[d] for indices in mine}
            x = next(iter(places)) if len(places) == 1 else ZERO
            it = next(iter(x.vars & par & ranges.keys()), None)
            if it is not None and x == var(it) + x.const:
                spans[d] = Span(ranges[it].lo + x.const, ranges[it].extent)
        out[name] = Box(tuple(spans))
    return out


def _outer(job: _Job, bounds: Sequence[Index], places: Sequence[Location]) -> Span | None:
    """The values of an iterator per iteration of the loops around both places, ``None``: in its domain."""
    loops = {f.var for f in job.at.loops[: job.shared]}
    if all(x.vars.isdisjoint(loops) for x in bounds):
        return None
    spans = [
        span(x, loop_env(p.loops), [f.var for f in p.loops[job.shared :]])
        for x, p in zip(bounds, places, strict=True)
    ]
    known = [s for s in spans if s is not None]
    whole = union_span(known, loop_env(job.at.loops[: job.shared])) if len(known) == len(spans) else None
    if whole is None:
        raise Unsolvable(f"it runs at {', '.join(map(str, bounds))}")
    return None if whole.lo.is_const else whole


def _with_outer(job: _Job, block: Block, own: list[Site], ranges: dict[str, Span]) -> dict[str, Span]:
    """Ranges, and for other iterators those per iteration of the loops around both places."""
    out = dict(ranges)
    for n, it in enumerate(block.iters):
        if it.name not in out:
            was = _was(job, own, it.name, n)
            if was is not None:
                out[it.name] = was
    return out


def _was(job: _Job, own: list[Site], name: str, n: int) -> Span | None:
    mine = [s for s in own if n < len(s.block.iters) and s.block.iters[n].name == name]
    return _outer(job, [s.block.bind[n] for s in mine], [s.place for s in mine])


def _check_once(job: _Job, block: Block, own: list[Site], ranges: dict[str, Span]) -> None:
    """Refuse ranges that miss instances of a block or run some more than once."""
    func, name, loop = job.func, job.block, job.loop
    here_env = loop_env(job.at.loops[: job.shared])
    solved: list[tuple[str, Span, tuple[Index, Index]]] = []
    for n, it in enumerate(block.iters):
        if it.name in ranges:
            was = _was(job, own, it.name, n)
            domain = (it.lo, it.hi) if was is None else (was.lo, was.lo + was.extent)
            if was is None or ranges[it.name] != was:
                solved.append((it.name, ranges[it.name], domain))
    missing = uncovered([s for _, s, _ in solved], [d for _, _, d in solved], job.moving, here_env)
    if missing is not None:
        raise refusal(
            func,
            f"the iterations of {loop!r} are not shown to reach every {solved[missing][0]!r} of"
            f" {block.name!r}",
            hint="the operand must be produced completely, in one nest",
            at=[name, loop],
        )
    spans = [ranges.get(it.name, Span(it.lo, it.extent)) for it in block.iters]
    used = frozenset().union(*(s.lo.vars for s in spans))
    again = disjoint(spans, [f for f in (*job.at.loops, job.target) if f in job.moving or f.var in used])
    if again:
        raise refusal(
            func,
            f"{block.name!r} would run more than once for different {', '.join(map(repr, again))}",
            at=[name, loop, *again],
        )
    for it in block.iters:
        s = ranges.get(it.name)
        if it.kind == "red" and s is not None:
            unordered = [f.var for f in job.moving if f.var in s.lo.vars and f.kind.name != "serial"]
            if unordered:
                raise refusal(
                    func,
                    f"{block.name!r} reduces over {unordered[0]!r}, which is no serial loop",
                    at=[name, *unordered],
                )


def _place(job: _Job, body: Stmt, nest: Stmt, operands: list[str], keep_storage: bool) -> LoopFunction:
    """Put the nest at the end of the loop's body and shrink what is used there only."""
    func = job.func
    place = find(body, job.loop)
    assert place is not None and isinstance(place.node, For)
    buffers, inside = below_allocs(place.node.body)
    inner = seq(*inside, nest)
    arguments = {b.name for b in func.buffers}
    tiles: list[Buffer] = []
    for name in [] if keep_storage else operands:
        buf, _ = buffer_at(func, name)
        users = [s for s in job.sites if name in s.reads | s.writes and s.block.name not in job.own]
        if name in arguments or not is_tile(buf) or not all(s.under(job.at) for s in users):
            continue
        written, read = (footprint(seq(*inside), job.env, buf, way) for way in ("w", "r"))
        if read is not None and (written is None or not written.holds(read, job.env)):
            # a scan reads what earlier iterations have stored
            continue
        box = footprint(inner, job.env, buf)
        assert box is not None
        tiles.append(as_tile(buf, box))
    body = replace_at(body, place.path, replace(place.node, body=around([*buffers, *tiles], inner)))
    for tile in tiles:
        body = without_alloc(body, tile.name)  # the outer one, which comes first
    return func.with_body(body)
