"""Loops whose copies another team of the block makes: the hint ``teams`` of a loop, while blocks are there.

What fills the tiles that the loop allocates becomes a team of its own, which runs ahead as far as a ring of
slots allows; all else that the block does is the other team's. Where a tile's elements are those of a box of
an argument, one instruction may copy them (the hint ``box``, which back ends read).

    for k: alloc T; fill T; use T     ->    alloc T[slots]
                                            teams: for k: acquire; fill T[k % slots]; put
                                                   for k: get; use T[k % slots]; release
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tilewright.analysis import padded_read
from tilewright.ir import (
    BOX,
    CONST,
    GLOBAL,
    NOTHING,
    ONE,
    SHARED,
    ZERO,
    Access,
    Alloc,
    Block,
    Buffer,
    Channel,
    Env,
    Exec,
    For,
    If,
    Index,
    IndexMap,
    Iter,
    Load,
    LoopFunction,
    Seq,
    Stmt,
    Store,
    Sync,
    Team,
    Teams,
    TeamsHint,
    Window,
    blocks,
    fresh_name,
    ge0,
    identity_map,
    int_range,
    is_thread,
    locate,
    loop_env,
    map_loads,
    map_stmt,
    mod,
    rename_loops,
    replace_at,
    seq,
    simplify,
    stmt_children,
    stmt_loads,
    stmt_writes,
    substitute_index,
    teams_hint,
    var,
    with_stmt_children,
)
from tilewright.support import ScheduleError
from tilewright.target import BUILT_IN

#: Threads that change the number of their registers together: a warpgroup (PTX ISA, ``setmaxnreg``).
GROUP: Final = 128
WARP: Final = 32
#: Bytes at multiples of which tiles begin: swizzles of boxes are of 8 rows of 128 bytes.
ALIGNMENT: Final = 1024
CHANNEL: Final = "ring"


def form_teams(func: LoopFunction) -> LoopFunction:
    """Put the copies of loops with the hint ``teams`` into a team of their own.

    Raises ScheduleError where something else in the block writes what is copied, or the tiles.
    """
    for place in list(locate(func.body, For)):
        hint = teams_hint(place.node)
        if hint is not None:
            depth = max((n for n, a in enumerate(place.ancestors) if _over_blocks(a)), default=-1)
            if depth < 0:
                raise _refused(place.node.var, "is not below a loop over blocks")
            around = place.ancestors[: depth + 1]
            block = place.ancestors[depth]
            assert isinstance(block, For)
            spine = place.ancestors[depth + 1 :]
            made = _Forming(func, around, block, spine, place.node, hint).made()
            path = place.path[:depth]
            return form_teams(func.with_body(replace_at(func.body, path, made)))
    return func


def _over_blocks(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind.axis.startswith("block")


def _refused(loop: str, why: str) -> ScheduleError:
    return ScheduleError(
        f"the loop {loop!r} {why}: it cannot be one that a team of its own copies for",
        hint="leave out the hint 'teams'",
    )


@dataclass(frozen=True, slots=True)
class _Ring:
    """A tile in slots: what its buffer becomes, and where the tile of an iteration begins in the old one."""

    old: Buffer
    new: Buffer
    starts: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class _Forming:
    func: LoopFunction
    around: tuple[Stmt, ...]
    block: For
    spine: tuple[Stmt, ...]
    loop: For
    hint: TeamsHint

    def made(self) -> Stmt:
        """The body of the block in teams."""
        serial = [f for f in self.spine if isinstance(f, For)]
        for f in (*serial, self.loop):
            if f.kind.name not in ("serial", "unroll") or f.lo != ZERO or f.step != 1 or not f.hi.is_const:
                raise _refused(self.loop.var, f"is in {f.var!r}, whose iterations are not counted from 0")
        if any(isinstance(s, If | Block) for s in self.spine):
            raise _refused(self.loop.var, "is under a condition")
        item = ZERO
        for f in (*serial, self.loop):
            item = item * f.hi.const + var(f.var)
        tiles, fills, rest = self._parts()
        names = {b.name for b in tiles}
        self._check(names, fills, rest)
        env = loop_env(tuple(a for a in (*self.around, *self.spine) if isinstance(a, For)))
        env = {**env, self.loop.var: (self.loop.lo, self.loop.hi - 1)}
        counted = [*serial, self.loop]
        loops = {f.var: f for f in (*self.around, *counted) if isinstance(f, For)}
        slot = mod(item, self.hint.slots)
        rings = {b.name: _ring(b, fills, loops, env, self.hint.slots, self.loop.var) for b in tiles}

        def ringed(s: Stmt) -> Stmt:
            return map_stmt(s, lambda n: _in_slots(n, rings, loops, slot) if isinstance(n, Block) else n)

        taken = {*self.func.body.names, *(p.name for p in self.func.params)}
        copies = [_boxed(ringed(s), self.func) for s in fills]
        fill: Stmt = self._around(seq(Sync("acquire", CHANNEL, item), *copies, Sync("put", CHANNEL, item)))
        use = [ringed(s) for s in rest]
        late = self.hint.slots > 1 and any(_waits_later(s) for s in rest)
        total = prod(f.hi.const for f in counted)
        if late:
            # units that work while the next item is waited for are done with this one a step later
            release: Stmt = Sync("release", CHANNEL, item - 1)
            release = If((ge0(item - 1),), release) if total > 1 else NOTHING
        else:
            release = Sync("release", CHANNEL, item)
        used = replace(self.loop, hints=self._hints(), body=seq(Sync("get", CHANNEL, item), *use, release))
        body = self._rebuilt(self.block.body, used)
        if late:
            body = self._after(body, Sync("release", CHANNEL, Index(total - 1)))
        threads = _threads(body)
        ahead = rename_loops(fill, set(taken))
        copying = max(1, _threads(ahead))
        size = GROUP if self.hint.copying else WARP
        teams = (
            Team("copy", -(-copying // size) * size, ahead, self.hint.copying),
            Team("compute", max(1, threads), body, self.hint.computing),
        )
        out: Stmt = Teams((Channel(CHANNEL, self.hint.slots),), teams)
        for ring in rings.values():
            out = Alloc(ring.new, out)
        return replace(self.block, body=out)

    def _hints(self) -> tuple[tuple[str, str], ...]:
        return tuple(h for h in self.loop.hints if h[0] != "teams")

    def _parts(self) -> tuple[list[Buffer], list[Stmt], list[Stmt]]:
        """The tiles that the loop allocates, what fills them at its beginning, and the rest."""
        body, tiles = self.loop.body, list[Buffer]()
        while isinstance(body, Alloc) and body.buffer.scope == SHARED:
            tiles.append(body.buffer)
            body = body.body
        names, items = {b.name for b in tiles}, list(body.stmts if isinstance(body, Seq) else (body,))
        count = next(
            (n for n, s in enumerate(items) if not {x for x, _ in stmt_writes(s)} <= names), len(items)
        )
        if not tiles or not count:
            raise _refused(self.loop.var, "does not begin with copies into shared memory that it allocates")
        return tiles, items[:count], items[count:]

    def _check(self, tiles: set[str], fills: list[Stmt], rest: list[Stmt]) -> None:
        read = {ld.buffer for s in fills for ld in stmt_loads(s)}
        written = {name for name, _ in stmt_writes(self.block.body)}
        for name in sorted(read & written):
            raise _refused(self.loop.var, f"copies from {name!r}, which the block writes")
        for name in sorted(tiles & {name for s in rest for name, _ in stmt_writes(s)}):
            raise _refused(self.loop.var, f"writes {name!r} where it uses it")

    def _around(self, inner: Stmt) -> Stmt:
        """Something in the loops that are around, and in the loop itself."""
        inner = replace(self.loop, hints=self._hints(), body=inner)
        for s in reversed(self.spine):
            if isinstance(s, For):
                inner = replace(s, body=inner)
        return inner

    def _rebuilt(self, body: Stmt, used: For) -> Stmt:
        return map_stmt(body, lambda n: used if isinstance(n, For) and n.var == self.loop.var else n)

    def _after(self, body: Stmt, last: Stmt) -> Stmt:
        """A statement after the outermost serial loop."""
        first = next((f.var for f in self.spine if isinstance(f, For)), self.loop.var)
        return map_stmt(body, lambda n: seq(n, last) if isinstance(n, For) and n.var == first else n)


def _waits_later(s: Stmt) -> bool:
    """Whether units of several warps read what a statement names."""
    if isinstance(s, Exec):
        row = BUILT_IN.get(s.instr)
        return row is not None and row.gathers and row.threads > WARP
    return any(map(_waits_later, (s.body,) if isinstance(s, Block) else stmt_children(s)))


def _threads(s: Stmt) -> int:
    """Threads that a statement's loops name; 0 where there are none."""
    most: dict[str, int] = {}
    for place in locate(s, For):
        if is_thread(place.node.kind):
            extent = place.node.extent.const
            most[place.node.kind.axis] = max(most.get(place.node.kind.axis, 1), extent)
    return prod(most.values()) if most else 0


def _ring(
    tile: Buffer, fills: list[Stmt], loops: Mapping[str, For], env: Env, slots: int, loop: str
) -> _Ring:
    """The buffer with a slot in front, its indices counted from where the tile of an iteration begins."""
    starts: list[Index] | None = None
    extents: list[int] = []
    for fill in fills:
        for place in blocks(fill):
            b, inner = place.node, loop_env(place.loops)
            for name, indices in b.writes:
                if name != tile.name:
                    continue
                at = [simplify(substitute_index(i, b.binding()), {**env, **inner}) for i in indices]
                first = [substitute_index(i, dict.fromkeys(inner, ZERO)) for i in at]
                span = [int_range(simplify(i - f, inner), inner) for i, f in zip(at, first, strict=True)]
                if starts not in (None, first) or any(low != 0 or high is None for low, high in span):
                    raise _refused(loop, f"fills {tile.name!r} by parts")
                starts, extents = first, [(high or 0) + 1 for _, high in span]
    assert starts is not None  # it is filled
    layout = tile.layout or identity_map(tile.shape)
    local = {name: var(name) + start for name, start in zip(layout.dims, starts, strict=True)}
    ranges: Env = {
        **env,
        **{name: (ZERO, Index(n - 1)) for name, n in zip(layout.dims, extents, strict=True)},
    }
    exprs = tuple(simplify(substitute_index(x, local), ranges) for x in layout.exprs)
    if any(x.vars - set(layout.dims) for x in (*exprs, *layout.shape)):
        raise _refused(loop, f"moves {tile.name!r} so that its tiles lie differently")
    front = fresh_name("slot", set(layout.dims))
    placed = IndexMap((front, *layout.dims), (var(front), *exprs), (Index(slots), *layout.shape))
    shape = (Index(slots), *map(Index, extents))
    return _Ring(tile, replace(tile, shape=shape, layout=placed, align=ALIGNMENT, halo=None), tuple(starts))


def _named(s: Stmt) -> set[str]:
    """The buffers that instructions name."""
    own = {w.buffer for w in s.windows} if isinstance(s, Exec) else set[str]()
    return own.union(*map(_named, stmt_children(s)))


def _in_slots(b: Block, rings: Mapping[str, _Ring], loops: Mapping[str, For], slot: Index) -> Block:
    """A block that touches tiles in their slots: it knows the loops around that say which."""
    touched = {ld.buffer for ld in b.reads} | {name for name, _ in b.writes} | _named(b.body)
    used = [r for name, r in rings.items() if name in touched]
    if not used:
        return b
    known = {i.as_var(): it.name for it, i in zip(b.iters, b.bind, strict=True)}
    wanted = slot.vars.union(*(s.vars for r in used for s in r.starts))
    iters, bind, names = list(b.iters), list(b.bind), {}
    for name in sorted(wanted):
        own = known.get(name)
        if own is None:
            own = fresh_name(name, {it.name for it in iters})
            lo, hi = (loops[name].lo, loops[name].hi) if name in loops else (ZERO, ONE)
            iters.append(Iter(own, lo, hi, "par"))
            bind.append(var(name))
        names[name] = var(own)

    def at(name: str, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        starts = rings[name].starts
        local = (i - substitute_index(s, names) for i, s in zip(indices, starts, strict=True))
        return (substitute_index(slot, names), *local)

    def window(w: Window) -> Window:
        if w.buffer not in rings:
            return w
        axes = tuple(replace(a, dim=a.dim + 1) for a in w.axes)
        return replace(w, offsets=at(w.buffer, w.offsets), extents=(1, *w.extents), axes=axes)

    def visit(s: Stmt) -> Stmt:
        match s:
            case Store():
                return Store(
                    tuple(
                        Access(w.buffer, at(w.buffer, w.indices), w.value) if w.buffer in rings else w
                        for w in s.writes
                    )
                )
            case Exec():
                return replace(s, windows=tuple(map(window, s.windows)))
            case _:
                return with_stmt_children(s, tuple(map(visit, stmt_children(s))))

    def load(ld: Load) -> Load:
        return replace(ld, indices=at(ld.buffer, ld.indices)) if ld.buffer in rings else ld

    body = visit(map_loads(b.body, load))
    init = None if b.init is None else visit(map_loads(b.init, load))
    return replace(b, iters=tuple(iters), bind=tuple(bind), body=body, init=init)


def _boxed(s: Stmt, func: LoopFunction) -> Stmt:
    """A copy with the hint that one instruction may do it, where it is of a box of an argument, or zeros."""
    inside: Stmt = s
    loops: list[For] = []
    while isinstance(inside, For) and inside.kind.name == "serial" and inside.lo == ZERO:
        loops.append(inside)
        inside = inside.body
    if not loops or not isinstance(inside, Block) or inside.init is not None or inside.where:
        return s
    if not isinstance(inside.body, Store) or len(inside.body.writes) != 1:
        return s
    found = padded_read(inside.body.writes[0].value)
    scopes = {b.name: b.scope for b in func.buffers}
    if found is None or scopes.get(found[0].buffer) not in (GLOBAL, CONST):
        return s
    # loops of one iteration go
    first = next((f.var for f in loops if f.extent != ONE), loops[0].var)
    return map_stmt(
        s, lambda n: replace(n, hints=(*n.hints, (BOX, ""))) if isinstance(n, For) and n.var == first else n
    )
