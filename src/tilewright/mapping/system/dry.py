"""The dry run: one stream's program executed on placements instead of data, and recorded.

A placement says at which address of which memory a valid copy of a tile is. A call needs its operands in
memories that its unit reads: a copy that is there is used, else one is brought along a path, and every hop
leaves a copy that later calls may use. Writing a tile makes all other copies of it invalid. Room is made by
dropping copies, written back first where they are the only ones. (ISA Mapper, Sec. 3.5.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from tilewright.ir import Index
from tilewright.mapping.system.approach import Approach
from tilewright.mapping.system.bound import Tile
from tilewright.mapping.system.graph import Mover
from tilewright.mapping.system.nest import Op
from tilewright.mapping.system.seats import Seats, passable
from tilewright.mapping.system.stream import (
    Call,
    Item,
    Move,
    Post,
    Ref,
    Region,
    Repeat,
    Wait,
    substitute_item,
)
from tilewright.support import InternalError, ResourceError, quoted

FAR: Final = 1 << 40
"""Position of a next use that is not in sight."""


@dataclass(frozen=True, slots=True)
class Start:
    """A call that starts a sum where all of ``loops`` are in their first iterations, else continues it.

    It stands among recorded items until the loops around it are taken apart.
    """

    loops: tuple[str, ...]
    starting: Call
    going_on: Call


Recorded: TypeAlias = "Item | Start | Again"


@dataclass(frozen=True, slots=True)
class Again:
    """A loop over recorded items."""

    var: str
    lo: Index
    hi: Index
    body: tuple[Recorded, ...]


def settle(items: Sequence[Recorded], loop: str, first: bool) -> tuple[Recorded, ...]:
    """Items of a loop's first iteration, or of the others: which sums start there is known."""
    out: list[Recorded] = []
    for item in items:
        if isinstance(item, Start) and loop in item.loops:
            left = tuple(x for x in item.loops if x != loop)
            out.append(item.going_on if not first else (replace(item, loops=left) if left else item.starting))
        elif isinstance(item, Again):
            out.append(replace(item, body=settle(item.body, loop, first)))
        else:
            out.append(item)
    return tuple(out)


def substituted(items: Sequence[Recorded], values: Mapping[str, Index]) -> tuple[Recorded, ...]:
    """Recorded items with loop variables replaced."""
    out: list[Recorded] = []
    for item in items:
        match item:
            case Start():
                a, b = substitute_item(item.starting, values), substitute_item(item.going_on, values)
                assert isinstance(a, Call) and isinstance(b, Call)
                out.append(Start(item.loops, a, b))
            case Again():
                bounds = substitute_item(Repeat(item.var, item.lo, item.hi, ()), values)
                assert isinstance(bounds, Repeat)
                out.append(Again(item.var, bounds.lo, bounds.hi, substituted(item.body, values)))
            case _:
                out.append(substitute_item(item, values))
    return tuple(out)


def starts_in(items: Sequence[Recorded], loop: str) -> bool:
    """Whether what is recorded differs in a loop's first iteration."""
    return any(
        (isinstance(i, Start) and loop in i.loops) or (isinstance(i, Again) and starts_in(i.body, loop))
        for i in items
    )


def loop_of(v: str, count: Index, body: tuple[Recorded, ...]) -> Iterator[Recorded]:
    """A loop over recorded items, its first iteration by itself where sums start there."""
    lo = 0
    if starts_in(body, v):
        yield from substituted(settle(body, v, True), {v: Index(0)})
        body, lo = settle(body, v, False), 1
    if count != Index(lo):
        yield Again(v, Index(lo), count, body)


def meeting(event: str, stream: str, others: Sequence[str]) -> Iterator[Item]:
    """A stream and others wait for each other."""
    for x in others:
        yield Post(f"{event}.{stream}.{x}")
    for x in others:
        yield Wait(f"{event}.{x}.{stream}")


def finished(items: Sequence[Recorded]) -> tuple[Item, ...]:
    """The items of a stream, when all loops are taken apart."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, Start):
            raise InternalError(f"it is open whether {item.going_on.instruction} starts a sum")
        out.append(
            Repeat(item.var, item.lo, item.hi, finished(item.body)) if isinstance(item, Again) else item
        )
    return tuple(out)


@dataclass(slots=True)
class Slot:
    """Where a copy lies. ``planned`` slots belong to a loop and are not given away; ``touched`` is when the
    copy was last used.
    """

    offset: Index
    base: int
    bytes: int
    planned: bool = False
    touched: int = 0


class Room:
    """The free bytes of a memory, as intervals.

    Copies that come and go take room behind the last one taken, so that what was just freed, and may still be
    on its way out when the streams run, is taken again last; what is kept takes the first that fits.
    """

    def __init__(self, at: int, size: int, align: int) -> None:
        self.size, self.align = size, align
        self.free: list[tuple[int, int]] = [(at, size)] if size else []
        self.last = 0

    def padded(self, n: int) -> int:
        """Bytes that ``n`` bytes occupy."""
        return -(-n // self.align) * self.align

    def take(self, n: int, *, behind: bool = False) -> int | None:
        """The address of ``n`` bytes, or ``None`` where no interval has them."""
        n = self.padded(n)
        fitting = [i for i, (_, size) in enumerate(self.free) if size >= n]
        if not fitting:
            return None
        i = next((i for i in fitting if self.free[i][0] >= self.last), fitting[0]) if behind else fitting[0]
        lo, size = self.free[i]
        self.free[i : i + 1] = [(lo + n, size - n)] if size > n else []
        if behind:
            self.last = lo + n
        return lo

    def give(self, lo: int, n: int) -> None:
        """Free an interval again."""
        merged: list[tuple[int, int]] = []
        for at, size in sorted([*self.free, (lo, self.padded(n))]):
            if merged and merged[-1][0] + merged[-1][1] == at:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((at, size))
        self.free = merged

    @property
    def largest(self) -> int:
        """Bytes of the largest free interval."""
        return max((size for _, size in self.free), default=0)


@dataclass(frozen=True, slots=True)
class PathOption:
    """A way to bring a copy: from a memory along movers."""

    source: str
    movers: tuple[Mover, ...]
    cost: float


@dataclass(frozen=True, slots=True)
class UnitOption:
    """A unit for a call. ``cost``: the calls given to it so far, one less where it has the sum; its order."""

    unit: str
    cost: tuple[int, int]


@dataclass(frozen=True, slots=True)
class PlaceOption:
    """Memories for a call's operands. ``cost``: copies that have to be made for them."""

    memories: Mapping[str, str]
    cost: int


@dataclass(frozen=True, slots=True)
class EvictOption:
    """A copy that could make room. ``cost``: nearer next uses cost more, then later last uses."""

    tile: Tile
    cost: tuple[int, int, int]


class DryRun:
    """Placements and the record of one stream.

    ``needed`` tensors are read in the home memory afterwards, ``live`` ones also by what is recorded now.
    """

    shared: frozenset[str] = frozenset()
    """Tensors of which other streams write tiles while a loop runs: none may be fetched ahead."""

    def __init__(self, seats: Seats, approach: Approach, out: list[Recorded]) -> None:
        self.seats, self.approach, self.out = seats, approach, out
        self.needed: frozenset[str] = frozenset()
        self.live: frozenset[str] = frozenset()
        self.machine, self.stream = seats.machine, seats.stream
        memories = self.machine.memories
        self.rooms = {n: Room(at, size, memories[n].align) for n, (at, size) in seats.areas.items()}
        self.where: dict[Tile, dict[str, Slot]] = {}
        self.dirty: set[Tile] = set()
        self.held: set[tuple[Tile, str]] = set()
        self.uses: list[tuple[dict[Tile, list[int]], int]] = []
        self.tick = 0
        self.load: dict[str, int] = {}
        self.chains: dict[Tile, str] = {}
        self._paths: dict[tuple[str, str, bool, bool], tuple[tuple[Mover, ...], ...]] = {}

    def state(self) -> DryRun:
        """A copy to which what is recorded from now on does nothing."""
        other = copy(self)
        other.rooms = deepcopy(self.rooms)
        other.where = {t: {m: replace(s) for m, s in slots.items()} for t, slots in self.where.items()}
        other.dirty, other.load, other.chains = set(self.dirty), dict(self.load), dict(self.chains)
        other.out, other.uses = list(self.out), list(self.uses)
        return other

    def back_to(self, before: DryRun) -> None:
        """Forget what has been recorded since a state was copied."""
        vars(self).update(vars(before))

    # ---- questions ----

    def paths(self, source: str, target: str, tile: Tile) -> tuple[tuple[Mover, ...], ...]:
        """Ways of a tile from one memory to another, not through the home memory, shortest first."""
        key = source, target, tile.box.in_order, bool(tile.steps)
        if key not in self._paths:
            found = passable(self.machine, source, target, self.stream, tile)
            self._paths[key] = tuple(p for p in found if all(m.target != self.machine.home for m in p[:-1]))
        return self._paths[key]

    def next_use(self, tile: Tile) -> int:
        """When a tile is used next: the position in the calls ahead, of loops around after those inside."""
        far = 0
        for positions, at in reversed(self.uses):
            for p in positions.get(tile, ()):
                if p > at:
                    return far + p - at
            far += 1 << 20
        return FAR

    def memory_of(self, op: Op, name: str) -> str:
        """Where an operand goes if nothing else decides."""
        return self.seats.of(op.stage)[0].memories[name]

    def allowed(self, op: Op, name: str) -> tuple[str, ...]:
        """Where an operand may be."""
        first, *others = self.seats.of(op.stage)
        return tuple(s.memories[name] for s in (first, *others) if s.unit == first.unit)

    # ---- calls ----

    def call(self, op: Op) -> None:
        """Bring what a call needs, record it, and note what it wrote."""
        self.tick += 1
        seats = self.seats.of(op.stage)
        name, result = op.result
        if (
            op.starts and result in self.where
        ):  # later iterations go on with the sum where their loop holds it
            seats = tuple(s for s in seats if s.memories[name] in self.where[result]) or seats
        units = list(dict.fromkeys(s.unit.name for s in seats))
        last = self.chains.get(op.result[1])
        options = [UnitOption(u, (self.load.get(u, 0) + (u != last), n)) for n, u in enumerate(units)]
        unit = options[self.approach.choose("device", options, self)].unit
        self.chains[op.result[1]] = unit
        self.load[unit] = self.load.get(unit, 0) + 1
        starting = op.starting
        operands = [*op.operands, op.result]
        ways = [
            PlaceOption(s.memories, sum(s.memories[n] not in self.where.get(t, {}) for n, t in operands))
            for s in seats
            if s.unit.name == unit
        ]
        chosen = ways[self.approach.choose("operands", ways, self)].memories
        self.held = {(t, chosen[n]) for n, t in operands}
        refs: list[tuple[str, Ref]] = []
        for n, t in op.operands:
            refs.append((n, self.bring(t, chosen[n])))
        if starting:
            refs.append((name, self.fresh(result, chosen[name])))
        else:
            refs.append((name, self.bring(result, chosen[name])))
        self.held = set()
        call = Call(unit, op.stage.instruction, op.sizes, tuple(refs))
        if op.stage.initial is not None and op.starts is not None:
            first = replace(call, instruction=op.stage.initial)
            self.out.append(Start(op.starts, first, call) if op.starts else first)
        else:
            self.out.append(call)
        self.written(result, chosen[name])

    def written(self, tile: Tile, memory: str) -> None:
        """A tile has a new value, in this memory alone."""
        for other in list(self.where):
            if other == tile or not other.apart(tile):
                for m in list(self.where[other]):
                    if other != tile or m != memory:
                        self.forget(other, m)
                if other != tile:
                    self.dirty.discard(other)
        if memory != self.machine.home:
            self.dirty.add(tile)

    def ref(self, tile: Tile, memory: str) -> Ref:
        """A tile in a memory, as items name it."""
        if memory == self.machine.home:
            return tile.box
        return Region(memory, self.where[tile][memory].offset, tile.shape, tile.dtype)

    def bring(self, tile: Tile, memory: str) -> Ref:
        """A valid copy of a tile in a memory."""
        copies = self.where.get(tile, {})
        if memory in copies:
            copies[memory].touched = self.tick
            return self.ref(tile, memory)
        if tile not in self.dirty:
            self.settle_others(tile)
        if memory == self.machine.home:
            if tile in self.dirty:
                self.write_back(tile, needed=True)
            return self.ref(tile, memory)
        self.carry(tile, self.sources(tile, memory), memory)
        return self.ref(tile, memory)

    def sources(self, tile: Tile, memory: str) -> list[str]:
        """Where a tile can be copied from to a memory; it is written back first where it must be."""
        copies = [m for m in self.where.get(tile, {}) if m != memory]
        if tile in self.dirty and not any(self.paths(m, memory, tile) for m in copies):
            self.write_back(tile, needed=True)
        return [*copies, *([] if tile in self.dirty else [self.machine.home])]

    def put_back(self, tile: Tile, memory: str, slot: Slot, *, needed: bool) -> None:
        """Give a tile the slot back that a loop planned for it, with its value where that counts."""
        needed |= tile in self.where
        sources = self.sources(tile, memory)
        self.where.setdefault(tile, {})[memory] = slot
        if needed:
            self.carry(tile, sources, memory)

    def settle_others(self, tile: Tile) -> None:
        """Bring home what other tiles hold of the same elements."""
        for other in [d for d in self.dirty if d != tile and not d.apart(tile)]:
            self.write_back(other, needed=True)

    def fresh(self, tile: Tile, memory: str) -> Ref:
        """Room for a tile in a memory; what is there now does not count."""
        self.settle_others(tile)
        if memory != self.machine.home and memory not in self.where.get(tile, {}):
            self.place(tile, memory)
        return self.ref(tile, memory)

    def carry(self, tile: Tile, sources: Sequence[str], memory: str) -> None:
        """Copy a tile along a path, from one of the memories that have it."""
        home = self.machine.home
        ways = [(x, p) for x in sources for p in self.paths(x, memory, tile)]
        options = [
            PathOption(x, p, sum(m.latency + tile.bytes / m.bytes_per_cycle for m in p))
            for x, p in ways
            if all(m.target == home or tile.bytes <= self.rooms[m.target].size for m in p)
        ]
        if not options:
            found = "has room for it" if ways else f"that stream {quoted(self.stream)} issues is there"
            raise ResourceError(
                f"{tile.tensor} cannot get from {' or '.join(map(quoted, sources))} to {quoted(memory)}: no"
                f" path of moves {found}"
            )
        options.sort(key=lambda o: o.cost)
        chosen = options[self.approach.choose("path", options, self)]
        at = chosen.source
        held = self.held
        for mover in chosen.movers:
            self.held = {*held, (tile, at)}
            if mover.target != home and mover.target not in self.where.get(tile, {}):
                self.place(tile, mover.target)
            self.out.append(Move(mover.name, self.ref(tile, at), self.ref(tile, mover.target)))
            at = mover.target
        self.held = held

    # ---- room ----

    def place(self, tile: Tile, memory: str) -> None:
        """Give a tile room in a memory, making some where there is none."""
        room = self.rooms[memory]
        at = room.take(tile.bytes, behind=True)
        while at is None:
            options = [
                EvictOption(t, (-self.next_use(t), t in self.dirty, slots[memory].touched))
                for t, slots in self.where.items()
                if memory in slots and not slots[memory].planned and (t, memory) not in self.held
            ]
            if not options:
                raise ResourceError(
                    f"memory {quoted(memory)} of {room.size} bytes cannot hold all that has to be there with"
                    f" a tile of {tile.tensor} of {tile.bytes} bytes",
                    hint="smaller blocks, or a larger memory",
                )
            victim = options[self.approach.choose("evict", options, self)].tile
            if victim in self.dirty and len(self.where[victim]) == 1:
                self.write_back(victim)
            if memory in self.where.get(victim, {}):
                self.forget(victim, memory)
            at = room.take(tile.bytes, behind=True)
        self.where.setdefault(tile, {})[memory] = Slot(Index(at), at, tile.bytes, touched=self.tick)

    def forget(self, tile: Tile, memory: str) -> None:
        """A copy is of no use any more."""
        slot = self.where[tile].pop(memory)
        if not slot.planned:
            self.rooms[memory].give(slot.base, slot.bytes)
        if not self.where[tile]:
            del self.where[tile]

    def write_back(self, tile: Tile, *, needed: bool = False) -> None:
        """Bring the only value of a tile home, unless nobody reads it again."""
        if needed or tile.tensor in self.live or self.next_use(tile) < FAR:
            self.carry(tile, list(self.where[tile]), self.machine.home)
        self.dirty.discard(tile)

    def release(self) -> None:
        """Drop all copies that no loop planned, the only ones of their values written back first."""
        for tile in list(self.where):
            if tile in self.dirty and not any(s.planned for s in self.where.get(tile, {}).values()):
                self.write_back(tile)  # for whose way others may have to go
            for memory in [m for m, s in self.where.get(tile, {}).items() if not s.planned]:
                self.forget(tile, memory)

    @contextmanager
    def ahead(self, positions: dict[Tile, list[int]]) -> Iterator[_Ahead]:
        """Within: the calls ahead are known by their positions, which the caller counts."""
        self.uses.append((positions, -1))
        depth = len(self.uses) - 1
        try:
            yield _Ahead(self, depth)
        finally:
            self.uses.pop()


class _Ahead:
    def __init__(self, run: DryRun, depth: int) -> None:
        self.run, self.depth = run, depth

    def at(self, position: int) -> None:
        """The call at this position comes now."""
        positions, _ = self.run.uses[self.depth]
        self.run.uses[self.depth] = positions, position
