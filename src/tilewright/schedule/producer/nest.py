"""What the primitives of this package share: taking nests out, building nests over boxes, placing storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.ir import (
    NOTHING,
    ZERO,
    Alloc,
    Block,
    Buffer,
    Condition,
    Env,
    FloorDiv,
    For,
    If,
    Index,
    Iter,
    Located,
    Location,
    LoopFunction,
    Mod,
    Path,
    Seq,
    Span,
    Stmt,
    blocks,
    find_alloc,
    floordiv,
    fresh_name,
    ge0,
    iter_env,
    loop_env,
    lower,
    prove_ge0,
    replace_at,
    seq,
    simplify,
    span,
    stmt_children,
    substitute_index,
    union_span,
    upper,
    var,
    with_stmt_children,
)
from tilewright.schedule.carried import folded
from tilewright.schedule.common import refusal
from tilewright.schedule.copies import fresh_inside
from tilewright.schedule.footprint import Box, Mode, Touch, control_loads, footprint, touches


@dataclass(frozen=True, slots=True)
class Site:
    """A block with the buffers it reads and writes and its place in the function."""

    place: Location
    block: Block
    reads: frozenset[str]
    writes: frozenset[str]

    @property
    def path(self) -> Path:
        """Child positions from the root: comparing paths compares positions in the text."""
        return self.place.path

    def under(self, place: Location) -> bool:
        """Whether the block lies inside the loop at ``place``."""
        return self.path[: len(place.path)] == place.path


def sites(func: LoopFunction) -> list[Site]:
    """All blocks in program order with what they touch (their conditions and bindings included)."""
    out: list[Site] = []

    control: dict[int, frozenset[str]] = {}  # buffers read by what is around a block, by identity

    def above(place: Location) -> frozenset[str]:
        out: set[str] = set()
        for a in place.ancestors:
            if isinstance(a, For | If):
                found = control.get(id(a))
                if found is None:
                    found = control[id(a)] = frozenset(ld.buffer for ld in control_loads(a))
                out |= found
        return frozenset(out)

    for place in blocks(func.body):
        block = place.node
        reads = {ld.buffer for ld in control_loads(block)} | above(place)
        writes: set[str] = set()
        for t in touches(block):
            (writes if t.write else reads).add(t.buffer)
        out.append(Site(place, block, frozenset(reads), frozenset(writes)))
    return out


def kinds_of(func: LoopFunction, group: Sequence[Site]) -> list[Block]:
    """The blocks from which a stage can be rebuilt as a whole, in order: one, or start and update.

    Tails and copies differ in their bindings only, later parts of a split reduction lack its init too.
    Refuses a stage whose blocks compute different things.
    """
    updates = [s.block for s in group if any(it.kind != "par" for it in s.block.iters)]
    others = [s.block for s in group if all(it.kind == "par" for it in s.block.iters)]
    if not updates:
        updates, others = others, []
    base = next((b for b in updates if b.init is not None), updates[0])
    starts = others[:1] if base.init is None else []
    known = {(b.iters, b.body) for b in (base, *starts)}
    for b in (*updates, *others):
        starting = base.init is not None and b.body == base.init
        if (b.iters, b.body) not in known and not starting:
            raise refusal(
                func,
                f"stage {b.stage!r} has blocks that compute different things: {base.name!r} and {b.name!r}",
                at=[base.name, b.name],
            )
    return [*starts, base]


def allocation(func: LoopFunction, buffer: str) -> Located[Alloc] | None:
    """Where ``buffer`` is allocated; ``None`` for an argument."""
    return find_alloc(func.body, buffer)


def buffer_at(func: LoopFunction, buffer: str) -> tuple[Buffer, Located[Alloc] | None]:
    """A buffer's declaration and its allocation; ScheduleError where there is none of that name."""
    place = allocation(func, buffer)
    if place is not None:
        return place.node.buffer, place
    for b in func.buffers:
        if b.name == buffer:
            return b, None
    raise refusal(func, f"there is no buffer {buffer!r}", hint="name an argument or an allocated buffer")


def without(s: Stmt, names: frozenset[str]) -> Stmt:
    """``s`` without the blocks ``names`` and the loops, branches and allocations left around nothing."""
    if s.names.isdisjoint(names):
        return s
    match s:
        case Block():
            return NOTHING
        case Seq():
            kept = [k for k in (without(k, names) for k in s.stmts) if k != NOTHING]
            return seq(*kept)
        case If() if s.orelse is not None:
            then, orelse = without(s.then, names), without(s.orelse, names)
            return If(s.cond, then, None if orelse == NOTHING else orelse)
        case For() | Alloc() | If():
            child = s.then if isinstance(s, If) else s.body
            new = without(child, names)
            return NOTHING if new == NOTHING else with_stmt_children(s, (new,))
        case _:
            return s


def without_alloc(s: Stmt, buffer: str) -> Stmt:
    """``s`` with the allocation of ``buffer`` replaced by its body."""
    place = find_alloc(s, buffer)
    if place is None:
        return s
    return flat(replace_at(s, place.path, place.node.body), place.path)


def flat(s: Stmt, path: Path) -> Stmt:
    """``s`` with the sequence above ``path`` flattened where a sequence was put into it."""
    if not path:
        return s
    parent = s
    for step in path[:-1]:
        parent = stmt_children(parent)[step]
    if not isinstance(parent, Seq):
        return s
    return replace_at(s, path[:-1], seq(*parent.stmts))


class Unsolvable(Exception):  # noqa: N818 - a signal between the helpers, turned into a ScheduleError
    """An access cannot be solved for the iterators; ``args[0]`` says why."""


def solve(block: Block, touch: Touch, box: Box, env: Env, *, whole: bool = True) -> dict[str, Span]:
    """Ranges of the block's iterators in which ``touch`` may hit ``box``.

    An iterator without an entry takes its whole domain. Each dimension of the access must be a constant, one
    iterator times a constant plus a constant, or a quotient ``it // n`` or remainder ``it % n`` of one;
    others are admitted only where the box holds all that the block touches in the dimension. Raises
    :class:`Unsolvable`. Without ``whole``, no range is widened to the whole domain for being as large.
    """
    iters = {it.name: it for it in block.iters}
    local = dict(touch.local)
    out: dict[str, Span] = {}
    for d, (x, s) in enumerate(zip(touch.indices, box.spans, strict=True)):
        names = [n for n in x.vars if n in iters]
        if not names:
            continue
        name = names[0]
        slack = 0 if touch.extents is None else touch.extents[d] - 1
        new = _preimage(x, name, s, slack, local) if len(names) == 1 else None
        if new is None:
            if _holds_all(x, s, iters, local):
                continue
            raise Unsolvable(f"dimension {d} of {touch.buffer!r} is accessed at {x}, not at one iterator")
        extent = new.extent
        if extent == Index(_ANY):
            continue
        size = iters[name].extent
        if whole and size.is_const == extent.is_const and not size.vars and prove_ge0(extent - size, {}):
            continue
        old = out.get(name)
        if old is None or (
            extent.is_const and not (old.extent.is_const and old.extent.const <= extent.const)
        ):
            out[name] = Span(simplify(new.lo, env), extent)
    return out


def _preimage(x: Index, name: str, s: Span, slack: int, local: Env) -> Span | None:
    """The values of the iterator for which ``[x, x + slack]`` may meet the span; ``None`` if not solvable."""
    c = x.coefficient(name)
    if not c:
        return _quotient_preimage(x, name, s) if not slack else None
    rest = x - var(name) * c
    low, high = lower(rest, local), upper(rest, local)
    if low is None or high is None or not (high - low).is_const or rest.vars - local.keys():
        return None
    slack += (high - low).const
    first = s.lo - low - slack if c > 0 else low - (s.lo + s.extent - 1)
    extent = floordiv(s.extent - 1 + slack, abs(c)) + 1
    return Span(floordiv(first + (abs(c) - 1), abs(c)), extent)


def _quotient_preimage(x: Index, name: str, s: Span) -> Span | None:
    """:func:`_preimage` of ``it // n`` and ``it % n``; a part of the remainders does not narrow the range."""
    if len(x.terms) != 1 or x.terms[0][1] != 1:
        return None
    atom = x.terms[0][0]
    if not isinstance(atom, FloorDiv | Mod) or (atom.arg - var(name)).vars or atom.arg.coefficient(name) != 1:
        return None
    shift = atom.arg - var(name)
    if isinstance(atom, Mod):
        return Span(ZERO, Index(_ANY))
    return Span((s.lo - x.const) * atom.divisor - shift, s.extent * atom.divisor)


_ANY: Final = 1 << 60
"""An extent larger than any domain."""


def _holds_all(x: Index, s: Span, iters: Mapping[str, Iter], local: Env) -> bool:
    """Whether the span holds all values of ``x`` over the iterators' domains."""
    env = {**iter_env(iters.values()), **local}
    whole = span(x, env, list(env))
    return whole is not None and Box((s,)).holds(Box((whole,)), {})


def union_ranges(block: Block, ranges: Sequence[Mapping[str, Span]], env: Env) -> dict[str, Span]:
    """Per iterator the union of its ranges; an iterator missing in one of them takes its whole domain."""
    out: dict[str, Span] = {}
    for it in block.iters:
        if all(it.name in r for r in ranges):
            s = union_span([r[it.name] for r in ranges], env)
            if s is not None:
                out[it.name] = s
    return out


def build_nest(
    block: Block,
    ranges: Mapping[str, Span],
    env: Env,
    taken: set[str],
    prefix: str,
    guard: Sequence[Condition] = (),
) -> Stmt:
    """Serial loops ``<prefix>_<iterator>`` around ``block``, over ``ranges`` or else over whole domains.

    Where a range may leave the iterator's domain the block is guarded, and by ``guard``: conditions on its
    iterators, each an index that is at least 0. ``taken`` grows by the new names.
    """
    bind: dict[str, Index] = {}
    inner = dict(env)
    loops: list[tuple[str, Index, Index]] = []
    where: list[Condition] = []
    for it in block.iters:
        name = fresh_name(f"{prefix}_{it.name}", taken)
        taken.add(name)
        dom_lo, dom_hi = substitute_index(it.lo, bind), substitute_index(it.hi, bind)
        r = ranges.get(it.name)
        if r is None:
            lo, hi, x = dom_lo, dom_hi, var(name)
        elif r.lo.is_const:
            lo, hi, x = r.lo, r.lo + r.extent, var(name)
        else:
            lo, hi, x = ZERO, r.extent, r.lo + var(name)
        loops.append((name, lo, hi))
        inner[name] = (lo, hi - 1)
        bind[it.name] = x
        if r is not None:
            where += [ge0(c) for c in (x - dom_lo, dom_hi - 1 - x) if not prove_ge0(c, inner)]
    more = [substitute_index(c.index, bind) for c in guard if c.index is not None]
    # what the guard implies need not be asked
    where = [c for c in where if not any(c.index and prove_ge0(c.index - x, inner) for x in more)]
    where += [ge0(x) for x in more]
    bound = tuple(bind[it.name] for it in block.iters)
    nest: Stmt = replace(block, bind=bound, where=tuple(where), body=fresh_inside(block.body, taken))
    for name, lo, hi in reversed(loops):
        nest = For(name, lo, hi, nest)
    return nest


def below_allocs(body: Stmt) -> tuple[list[Buffer], list[Stmt]]:
    """The buffers allocated directly around a loop's body and the statements inside, in order."""
    buffers: list[Buffer] = []
    while isinstance(body, Alloc):
        buffers.append(body.buffer)
        body = body.body
    return buffers, list(body.stmts) if isinstance(body, Seq) else [body]


def around(buffers: Iterable[Buffer], body: Stmt) -> Stmt:
    """``body`` with the buffers allocated around it, the first outermost."""
    for b in reversed(list(buffers)):
        body = Alloc(b, body)
    return body


def touching(s: Stmt, buffers: frozenset[str], mode: Mode = "rw") -> bool:
    """Whether a statement touches one of the buffers."""
    if isinstance(s, Block) and any(t.buffer in buffers for t in touches(s, mode)):
        return True
    if "r" in mode and any(ld.buffer in buffers for ld in control_loads(s)):
        return True
    return any(touching(k, buffers, mode) for k in stmt_children(s))


def is_tile(buffer: Buffer) -> bool:
    """Whether the storage is the plain box or a shifted one: then it can be laid out anew."""
    m = buffer.layout
    if m is None:
        return True
    return all(
        e.coefficient(d) == 1 and not (e - var(d)).vars & set(m.dims)
        for d, e in zip(m.dims, m.exprs, strict=False)
    ) and len(m.dims) == len(m.exprs)


def is_whole(buffer: Buffer, box: Box) -> bool:
    """Whether the box is all of the buffer."""
    return all(s.lo == ZERO and s.extent == n for s, n in zip(box.spans, buffer.shape, strict=True))


def as_tile(buffer: Buffer, box: Box) -> Buffer:
    """``buffer`` storing just the box, its logical indices kept; all of it, in any layout it has."""
    if is_whole(buffer, box):
        return buffer.with_(layout=None, halo=None) if is_tile(buffer) else buffer
    return buffer.with_(layout=box.layout(), halo=None)


def check_visible(func: LoopFunction, buffers: Iterable[str], at: Location, names: Sequence[str]) -> None:
    """Refuse where a buffer's allocation does not enclose the inside of the loop at ``at``."""
    for name in sorted(buffers):
        place = allocation(func, name)
        if place is not None and at.path[: len(place.path)] != place.path:
            raise refusal(
                func,
                f"buffer {name!r}, which {names[0]!r} needs, is not allocated around loop {names[-1]!r}",
                hint="move its storage out with hoist_alloc first",
                at=names,
                buffers=[name],
            )


def check_available(
    func: LoopFunction,
    all_sites: Sequence[Site],
    own: frozenset[str],
    part: Stmt,
    around_it: Sequence[For],
    names: Sequence[str],
    sliding: frozenset[str] = frozenset(),
) -> None:
    """Refuse where ``part``, new inside ``around_it``, reads more of a tile than was computed there.

    Boxes err on the large side, so that a nest rebuilt for one may read more than before; what is computed
    for each iteration of an outer loop does not hold that. ``own`` are the blocks of the moved stage,
    ``sliding`` buffers that hold what earlier iterations computed.
    """
    env = loop_env(around_it)
    needed = {t.buffer for t in _reads(part)}
    depths: dict[str, int] = {}
    for s in all_sites:
        made = s.writes & needed if s.block.name not in own else frozenset()
        if made:
            depth = 0
            for a, b in zip(s.place.loops, around_it, strict=False):
                if a is not b:
                    break
                depth += 1
            for name in made:
                depths[name] = max(depths.get(name, 0), depth)
    check_unrolled(func, needed, names)
    for name, depth in depths.items():
        if depth == 0 or name in sliding:
            continue
        buf, _ = buffer_at(func, name)
        there = footprint(around_it[depth - 1].body, loop_env(around_it[:depth]), buf, "w")
        read = footprint(part, env, buf, "r")
        if there is None or (read is not None and not there.holds(read, env, buf.shape)):
            raise refusal(
                func,
                f"{names[0]!r} would read {read} of {name!r}, of which only {there} is computed inside"
                f" of {around_it[depth - 1].var!r}",
                hint=f"compute {name!r} further out, or move it again afterwards",
                at=[*names, around_it[depth - 1].var],
            )


def check_unrolled(func: LoopFunction, buffers: Iterable[str], names: Sequence[str]) -> None:
    """Refuse to move what touches a rolled buffer: its rows are there for a while only."""
    for name in sorted(buffers):
        if folded(buffer_at(func, name)[0]):
            raise refusal(
                func,
                f"{name!r} is a rolled buffer, whose rows {names[0]!r} may find overwritten elsewhere",
                hint="roll it last",
                at=names,
                buffers=[name],
            )


def _reads(s: Stmt) -> Iterator[Touch]:
    if isinstance(s, Block):
        yield from touches(s, "r")
    for k in stmt_children(s):
        yield from _reads(k)
