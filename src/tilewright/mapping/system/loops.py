"""Loops of the dry run: a body is recorded once, in a placement in which it also ends, one iteration on.

What a body's calls touch comes in families, told apart by the loop's variable ``v``. Tiles that do not move
with ``v`` are *held*: brought before the loop, and at their place in all its iterations. Tiles that move with
it have a *ring* of slots, ``(v + s) mod R``, so that one iteration's copies become the next one's by moving
on in the ring; the newest is fetched an iteration ahead. Tiles that move with loops inside only are *panels*,
held as well where they fit. Everything else comes and goes within the body. So the placement at the start of
iteration ``v + 1`` is that of ``v`` with ``v + 1`` for ``v``, and the loop is

    prime: bring what is held, and iteration 0's part of the rings
    for v in range(n - 1): fetch for v + 1; body(v)
    finish: body(n - 1)

for any n from 1, also one known only at run time. (ISA Mapper, Sec. 3.6; there the placements are found by
scheduling the body three times.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.ir import Index, mod, var
from tilewright.mapping.system.bound import Tile
from tilewright.mapping.system.demand import Demand
from tilewright.mapping.system.dry import (
    Again,
    DryRun,
    Recorded,
    Slot,
    loop_of,
    meeting,
    settle,
    starts_in,
    substituted,
)
from tilewright.mapping.system.nest import Loop, Node, Op, operations
from tilewright.support import ResourceError

DEEP: Final = 8
"""Slots of the longest ring, of two or more iterations; a power of two, as timing looks for short periods."""
OFFERED: Final = 16
"""Families among which one is chosen at a time, the cheapest ones."""
PANEL_TILES: Final = 4096
"""Tiles of the largest panel that is considered."""


@dataclass(frozen=True, slots=True)
class Family:
    """What a loop keeps in a memory. ``tiles``: by shift along ``v`` (0 alone where they do not move).

    ``slots`` copies of ``size`` bytes each; ``fetch``: the newest is read before it is written. ``cost``
    orders what is taken first: sums, rings, held tiles by use, panels.
    """

    kind: str
    memory: str
    tiles: tuple[tuple[int, Tile], ...]
    slots: int
    size: int
    fetch: bool
    cost: tuple[int, int]
    strides: tuple[tuple[str, int, int], ...] = ()
    """Of a panel: the inner loops with their counts and how many slots apart their iterations are."""

    @property
    def bytes(self) -> int:
        """Bytes of all slots."""
        return self.slots * self.size

    @property
    def key(self) -> tuple[str, Tile]:
        """The memory, and the tile by which alternatives for it are known."""
        return self.memory, self.tiles[0][1]


@dataclass(frozen=True, slots=True)
class Enough:
    """The option to hold nothing more."""

    cost: tuple[int, int] = (9, 0)


@dataclass(slots=True)
class _Touch:
    """How a body touches a tile: where, how often, whether first by reading, and whether it is written."""

    memory: str
    inner: frozenset[str]
    reads_first: bool
    written: bool = False
    count: int = 0
    allowed: tuple[str, ...] = ()


def run_nodes(run: DryRun, nodes: Sequence[Node], *, starved: bool) -> None:
    """Record calls and loops in order. ``starved``: moves, not units, are expected to decide the time."""
    positions: dict[Tile, list[int]] = {}
    for n, node in enumerate(nodes):
        for op, _ in operations([node]):
            for _, tile in (*op.operands, op.result):
                positions.setdefault(tile, []).append(n)
    with run.ahead(positions) as ahead:
        for n, node in enumerate(nodes):
            ahead.at(n)
            if isinstance(node, Op):
                run.call(node)
            else:
                _LoopRun(run, node, starved).record()


class _LoopRun:
    def __init__(self, run: DryRun, loop: Loop, starved: bool) -> None:
        self.run, self.loop, self.starved = run, loop, starved
        self.touches: dict[Tile, _Touch] = {}
        self.counts = dict(_counts(loop.body))
        self.sums: set[Tile] = set()  # what an iteration continues
        for op, inner in operations(loop.body):
            for name, tile in op.operands:
                self.touch(tile, op, name, inner, reads=True, writes=False)
            name, tile = op.result
            starts = op.starting
            if op.starts and loop.var in op.starts:
                self.sums.add(tile)
            self.touch(tile, op, name, inner, reads=not starts, writes=True)
        for tile, t in self.touches.items():
            if t.written and not t.reads_first:  # made where it is read, in this iteration or a later one
                near = [x.memory for r, x in self.touches.items() if r.tensor == tile.tensor and r != tile]
                t.memory = next((m for m in near if m in t.allowed), t.memory)

    def touch(
        self, tile: Tile, op: Op, name: str, inner: frozenset[str], *, reads: bool, writes: bool
    ) -> None:
        memory = self.run.memory_of(op, name)
        t = self.touches.get(tile)
        if t is None:
            t = self.touches[tile] = _Touch(memory, inner & tile.vars, reads)
        t.written |= writes
        if writes:
            t.allowed = self.run.allowed(op, name)
        t.count += 1

    # ---- what is kept ----

    def families(self) -> list[Family]:
        """All that could be kept during the loop."""
        v = self.loop.var
        writers: dict[str, list[Tile]] = {}
        for tile, t in self.touches.items():
            if t.written:
                writers.setdefault(tile.tensor, []).append(tile)
        found: list[Family] = []
        moving: dict[object, list[tuple[int, Tile]]] = {}
        for tile, t in self.touches.items():
            if any(s.planned for s in self.run.where.get(tile, {}).values()):
                if t.memory in self.run.where[tile]:
                    continue
            others = any(w != tile and not w.apart(tile) for w in writers.get(tile.tensor, ()))
            if v not in tile.vars and not others:
                found += self.still(tile, t)
            elif v in tile.vars and not t.inner:
                step = _step(tile, v)
                for key, members in moving.items():
                    first = members[0][1]
                    s = _shift(first, tile, step)
                    if isinstance(key, tuple) and key[1] == step and s is not None:
                        if self.touches[first].memory == t.memory:
                            members.append((s, tile))
                            break
                else:
                    moving[tile, step] = [(0, tile)]
        for members in moving.values():
            found += self.ring(sorted(members, key=lambda m: m[0]), writers)
        return found + self.deeper(found)

    def deeper(self, found: Sequence[Family]) -> list[Family]:
        """Longer rings for what is fetched, where all those of a memory have room: they hide latencies."""
        fetched = [f for f in found if f.kind == "ring" and f.fetch and f.memory in self.run.rooms]
        sharing: dict[str, int] = {}
        for f in fetched:
            sharing[f.memory] = sharing.get(f.memory, 0) + 1
        out: list[Family] = []
        for f in fetched:
            share = self.run.rooms[f.memory].size * 3 // (4 * sharing[f.memory])
            slots = DEEP
            while slots * f.size > share:
                slots //= 2
            if slots > f.slots:
                out.append(replace(f, slots=slots, cost=(f.cost[0], f.cost[1] - 1000)))
        return out

    def still(self, tile: Tile, t: _Touch) -> list[Family]:
        """Ways to hold a tile, or a panel of tiles, that does not move with the loop."""
        memories = [t.memory]
        if t.reads_first and not t.written:
            memories += self.on_the_way(t.memory, tile)
        there = self.run.where.get(tile, {})
        memories = [m for m in memories if m not in there]
        strides, slots = [], 1
        for name in sorted(t.inner, reverse=True):
            count = self.counts[name]
            if not count.is_const:
                return []
            strides.append((name, count.as_int(), slots))
            slots *= count.as_int()
        if strides and (t.written or not self.starved or slots > PANEL_TILES):
            return []
        kind = "panel" if strides else "held"
        rank = 0 if t.written else (3 if strides else 2)
        return [
            Family(
                kind, m, ((0, tile),), slots, self.padded(tile, m), t.reads_first,
                (rank, n * 1000 - t.count), tuple(strides),
            )
            for n, m in enumerate(memories)
        ]  # fmt: skip

    def ring(self, members: list[tuple[int, Tile]], writers: Mapping[str, list[Tile]]) -> list[Family]:
        """A ring for tiles that move with the loop, by their shifts."""
        low, (high, lead) = members[0][0], members[-1]
        tiles = [tile for _, tile in members]
        t = self.touches[lead]
        other_writes = [w for w in writers.get(lead.tensor, ()) if w not in tiles]
        if any(not _always_apart(w, x, self.loop.var) for w in other_writes for x in tiles):
            return []  # what is fetched for an iteration could be written in the one before
        if any(self.touches[x].written for x in tiles[:-1]):
            return []
        if len(members) > 1 and high - low > 64:
            return []
        fetch = t.reads_first
        if (t.written or lead.tensor in self.run.shared) and fetch:
            return []
        window = high - low + 1
        slots = window + 1 if fetch or window == 1 else window
        rank = 0 if t.written else 1
        out = [
            Family(
                "ring", t.memory, tuple((s - low, x) for s, x in members), slots,
                self.padded(lead, t.memory), fetch, (rank, -t.count),
            )
        ]  # fmt: skip
        if t.written and window == 1:  # one slot at least, so that the sum stays
            out.append(
                Family("ring", t.memory, ((0, lead),), 1, self.padded(lead, t.memory), fetch, (rank, 1))
            )
        return out

    def padded(self, tile: Tile, memory: str) -> int:
        return self.run.rooms[memory].padded(tile.bytes) if memory != self.run.machine.home else 0

    def on_the_way(self, memory: str, tile: Tile) -> list[str]:
        """Memories between home and this one, from which copies are cheaper."""
        home = self.run.machine.home
        found: list[str] = []
        for path in self.run.paths(home, memory, tile):
            for m in path[:-1]:
                if m.target not in found and len(self.run.paths(m.target, memory, tile)[0]) == 1:
                    found.append(m.target)
        return found

    def choose(self) -> list[tuple[Family, int]]:
        """The families that are kept, with the addresses of their slots."""
        home = self.run.machine.home
        left = [f for f in self.families() if f.memory != home]
        rooms, demand = self.run.rooms, self.demand
        least: dict[tuple[str, Tile], tuple[int, int]] = {}  # what sums and rings not placed yet will need
        for f in left:
            if f.cost[0] <= 1:
                _, known = least.get(f.key, (0, f.bytes))
                least[f.key] = f.cost[0], min(known, f.bytes)

        def fits(f: Family) -> bool:
            free = rooms[f.memory].largest - f.bytes
            rank, own = least.get(f.key, (2, 0))
            owed = sum(n for (m, _), (r, n) in least.items() if m == f.memory and r <= rank)
            spare = 0
            if f.cost[0] > 1 or f.bytes > own:  # what comes and goes needs room to come early
                spare = 2 * demand.worst(f.memory)
                if f.cost[0] > 1 and spare:
                    spare = max(spare, rooms[f.memory].size // 2)
            if free < owed - own + spare:
                return False
            return free >= demand.worst(f.memory) or free >= demand.beside(f.memory, [t for _, t in f.tiles])

        taken: list[tuple[Family, int]] = []
        settled: set[Tile] = set()
        left.sort(key=lambda f: f.cost)
        while left:
            options: list[Family | Enough] = []
            passed = 0
            for f in left:
                if len(options) == OFFERED:
                    break
                passed += 1
                if f.tiles[0][1] not in settled and fits(f):
                    options.append(f)
            rest = left[passed:]
            if not options:
                break
            if not any(
                f.kind == "held" and f.tiles[0][1] in self.sums for f in options if isinstance(f, Family)
            ):
                options.append(Enough())
            chosen = options[self.run.approach.choose("resident", options, self)]
            if isinstance(chosen, Enough):
                break
            room, names = rooms[chosen.memory], {t for _, t in chosen.tiles}
            demand.keep(chosen.memory, names)
            # the last sums may still be on their way out
            at = room.take(chosen.bytes, behind=chosen.kind == "held" and chosen.cost[0] == 0)
            if at is not None and room.largest < demand.beside(chosen.memory):
                room.give(at, chosen.bytes)
                at = room.take(chosen.bytes)
            assert at is not None
            taken.append((chosen, at))
            settled |= names
            for key in [k for k in least if k[1] in names]:
                del least[key]
            # what does not fit now never will: room only gets less
            left = [f for f in options if isinstance(f, Family) and f is not chosen] + rest
        for tile in self.sums:
            if self.touches[tile].memory == home:
                continue
            if not self.run.where.get(tile) and all(tile != f.tiles[0][1] for f, _ in taken):
                # blocks are chosen so that their sums fit
                raise ResourceError(
                    f"loop {self.loop.var} holds no sum of {tile.tensor} in {self.touches[tile].memory}"
                )
        return taken

    # ---- recording ----

    def record(self) -> None:
        run, v = self.run, self.loop.var
        outside = run.out
        entered = self.clear_before()
        self.demand = Demand((op for op, _ in operations(self.loop.body)), run.seats)
        for tile, slots in run.where.items():
            for m in slots:
                self.demand.keep(m, [tile])
        taken = self.choose()
        prime: list[Recorded] = []
        fetch: list[Recorded] = []
        for family, at in taken:
            if family.kind != "ring":
                self.hold(family, at)
        rings: list[tuple[Family, int]] = [(f, at) for f, at in taken if f.kind == "ring"]
        for family, at in rings:
            items = self.fill_ring(family, at)
            last = family.tiles[-1][0]
            reads = [s for s, x in family.tiles if self.touches[x].reads_first]
            for s in range(last + (1 if family.fetch else 0)):
                if reads and s >= reads[0]:
                    prime += substituted(items, {v: Index(s - last)})
            if family.fetch:
                fetch += items
        for tile, t in self.touches.items():
            if t.written and v not in tile.vars and not t.inner and tile in run.where:
                run.dirty.add(tile)
        run.out = []
        planned = [
            (t, m, slot) for t, slots in run.where.items() for m, slot in slots.items() if slot.planned
        ]
        run_nodes(run, self.loop.body, starved=self.starved)
        for tile, memory, slot in planned:
            if memory not in run.where.get(tile, {}):
                touched = self.touches.get(tile)
                needed = touched is None or touched.reads_first or tile in self.sums
                run.put_back(tile, memory, slot, needed=needed)
        for family, _ in rings:
            for _, tile in family.tiles:
                if tile in run.dirty:
                    run.write_back(tile)
        run.release()
        run.out += meeting(v, run.stream, self.loop.others)
        body = tuple(run.out)
        run.out = outside
        run.out += self.pieces(tuple(prime), tuple(fetch), body)
        self.leave(taken, entered)

    def clear_before(self) -> list[Slot]:
        """Drop what the loop has no use for; what it needs and is there stays where it is."""
        run, v = self.run, self.loop.var
        for tile in self.touches:
            run.settle_others(tile)
        kept: list[Slot] = []
        for tile in list(run.where):
            t = self.touches.get(tile)
            useful = t is not None and v not in tile.vars and not t.inner
            others = any(x.written and w != tile and not w.apart(tile) for w, x in self.touches.items())
            for memory, slot in list(run.where.get(tile, {}).items()):
                if slot.planned:
                    continue
                if useful and not others and t is not None and memory == t.memory:
                    slot.planned = True
                    kept.append(slot)
                elif tile in run.dirty and len(run.where[tile]) == 1:
                    run.write_back(tile)
                    run.forget(tile, memory)
                else:
                    run.forget(tile, memory)
        return kept

    def hold(self, family: Family, at: int) -> None:
        """Bring a held tile, or the tiles of a panel, before the loop."""
        run = self.run
        ((_, tile),) = family.tiles
        offset = Index(at)
        for name, _, apart in family.strides:
            offset = offset + var(name) * (apart * family.size)
        sources = run.sources(tile, family.memory)
        run.where.setdefault(tile, {})[family.memory] = Slot(offset, at, family.bytes, planned=True)
        if not family.fetch:
            return
        outside, run.out = run.out, []
        run.carry(tile, sources, family.memory)
        items: tuple[Recorded, ...] = tuple(run.out)
        run.out = outside
        for name, count, _ in family.strides:
            items = (Again(name, Index(0), Index(count), items),)
        run.out += items
        self.forget_others(tile, family.memory)

    def forget_others(self, tile: Tile, memory: str) -> None:
        """Copies left by hops on the way are not part of the placement."""
        for m in [m for m, s in self.run.where[tile].items() if m != memory and not s.planned]:
            self.run.forget(tile, m)

    def fill_ring(self, family: Family, at: int) -> tuple[Recorded, ...]:
        """Note the ring's tiles as present; returns the moves that fetch the newest, for iteration ``v``."""
        run, v = self.run, self.loop.var
        lead = family.tiles[-1][1]
        sources = run.sources(lead, family.memory)
        for s, tile in family.tiles:
            offset = mod(var(v) + s, family.slots) * family.size + at
            run.where.setdefault(tile, {})[family.memory] = Slot(offset, at, family.bytes, planned=True)
        if not any(self.touches[x].reads_first for _, x in family.tiles):
            return ()
        outside, run.out = run.out, []
        run.carry(lead, sources, family.memory)
        self.forget_others(lead, family.memory)
        items, run.out = tuple(run.out), outside
        return items

    def pieces(
        self, prime: tuple[Recorded, ...], fetch: tuple[Recorded, ...], body: tuple[Recorded, ...]
    ) -> Iterable[Recorded]:
        """The loop taken apart into its first, its repeated and its last iterations."""
        v, n = self.loop.var, self.loop.count
        if not fetch:
            return [*prime, *loop_of(v, n, body)]
        out: list[Recorded] = list(prime)
        lo = 0
        if starts_in(body, v):
            first = settle(body, v, True)
            body = settle(body, v, False)
            if n != Index(1):
                out += substituted(fetch, {v: Index(1)})
            out += substituted(first, {v: Index(0)})
            lo = 1
            if n == Index(1):
                return out
        repeated = (*substituted(fetch, {v: var(v) + 1}), *body)
        if not (n.is_const and n.as_int() - 1 <= lo):
            out.append(Again(v, Index(lo), n - 1, repeated))
        out += substituted(body, {v: n - 1})
        return out

    def leave(self, taken: Sequence[tuple[Family, int]], entered: Sequence[Slot]) -> None:
        """After the loop: rings and panels are gone, what was held may stay or go."""
        run = self.run
        for family, at in taken:
            if family.kind == "held":
                tile = family.tiles[0][1]
                if tile in run.where and family.memory in run.where[tile]:
                    run.where[tile][family.memory].planned = False
                continue
            for _, tile in family.tiles:
                if tile in run.where and family.memory in run.where[tile]:
                    del run.where[tile][family.memory]
                    if not run.where[tile]:
                        del run.where[tile]
                        run.dirty.discard(tile)
            run.rooms[family.memory].give(at, family.bytes)
        for slot in entered:
            slot.planned = False


def _counts(nodes: Sequence[Node]) -> Iterable[tuple[str, Index]]:
    for n in nodes:
        if isinstance(n, Loop):
            yield n.var, n.count
            yield from _counts(n.body)


def _always_apart(a: Tile, b: Tile, v: str) -> bool:
    """Whether two tiles of a tensor share no element, each in an iteration of its own."""
    for x, n, y, m in zip(a.lows, a.spans, b.lows, b.spans, strict=True):
        gap, step = y - x, abs(x.coefficient(v))
        if not gap.is_const:
            continue
        apart = gap.as_int()
        if step == 0 and v not in x.vars and (apart >= n or apart <= -m):
            return True
        if step and n <= apart % step <= step - m:
            return True
    return False


def _step(tile: Tile, v: str) -> tuple[int, ...]:
    return tuple(x.coefficient(v) for x in tile.lows)


def _shift(a: Tile, b: Tile, step: tuple[int, ...]) -> int | None:
    """How many iterations later ``a`` is where ``b`` is now; ``None`` where it never is."""
    if (a.tensor, a.extents, a.dims, a.steps) != (b.tensor, b.extents, b.dims, b.steps):
        return None
    found: int | None = None
    for x, y, c in zip(a.lows, b.lows, step, strict=True):
        gap = y - x
        if not gap.is_const:
            return None
        g = gap.as_int()
        if c == 0:
            if g:
                return None
        elif g % c or (found is not None and found != g // c):
            return None
        else:
            found = g // c
    return found
