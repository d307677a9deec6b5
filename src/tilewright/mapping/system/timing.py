"""The timed simulator: when each item of the streams starts and ends, in clock cycles.

A stream issues an item a few cycles after the one before, to the queue of its unit or mover; a full queue
holds the stream up. A queue runs in order; an item starts when its operands are there and nobody needs what
it overwrites. Streams that use one channel get equal parts of its bandwidth. Loops are not run to their end:
once everything that can matter later repeats itself, from one iteration to one a few later, up to a shift in
time, the rest of the iterations take that shift each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tilewright.ir import evaluate_index
from tilewright.mapping.system.execute import check_machine, check_places
from tilewright.mapping.system.graph import SystemGraph
from tilewright.mapping.system.stream import (
    Call,
    Item,
    Move,
    Post,
    Ref,
    Region,
    Repeat,
    StreamProgram,
    Wait,
    walk,
)
from tilewright.support import ResourceError, TargetError, quoted

PERIOD: Final = 8
"""Longest period, in iterations, after which a loop is seen to repeat itself."""
MAX_TIMED: Final = 20_000_000
"""Items that are timed one by one before the simulation gives up."""

Place: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]  # memory or tensor, lows, extents


@dataclass(frozen=True, slots=True)
class Span:
    """An item on a unit or mover: ``what`` it is, and its first and last cycle (exclusive)."""

    node: str
    what: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Timing:
    """What a run takes. ``busy``: cycles in which each unit or mover works; ``bytes``: what movers moved.

    ``spans`` are the first items that were timed, for timelines; iterations that were skipped as repetitions
    are in all sums but not here.
    """

    cycles: int
    streams: Mapping[str, int]
    busy: Mapping[str, int]
    bytes: Mapping[str, int]
    items: int
    spans: tuple[Span, ...]

    def use(self, node: str) -> float:
        """The part of all cycles in which a node works."""
        return self.busy.get(node, 0) / self.cycles if self.cycles else 0.0


def time_streams(
    program: StreamProgram,
    machine: SystemGraph,
    params: Mapping[str, int] | None = None,
    *,
    spans: int = 0,
    exact: bool = False,
    limit: int = MAX_TIMED,
) -> Timing:
    """Time a stream program; the first ``spans`` items are kept. ``exact``: every iteration is run.

    Raises TargetError for deadlock and for items that the machine lacks, ResourceError beyond ``limit``
    items.
    """
    check_machine(program, machine)
    shares = _shares(program, machine)
    posted: dict[str, list[int]] = {}
    timers = {
        name: _Timer(machine, name, shares, dict(params or {}), posted, spans, exact, limit)
        for name in program.streams
    }
    running = {name: timers[name].run(items, {}) for name, items in program.streams.items()}
    while running:
        before = sum(t.steps for t in timers.values())
        waiting = []
        for name in list(running):
            for event in running[name]:
                waiting.append(f"stream {quoted(name)} waits for {quoted(event)}")
                break
            else:
                del running[name]
        if running and sum(t.steps for t in timers.values()) == before:
            raise TargetError(f"deadlock: {', '.join(waiting)}")
    busy: dict[str, int] = {}
    moved: dict[str, int] = {}
    for t in timers.values():
        for into, of in ((busy, t.busy), (moved, t.moved)):
            for node, n in of.items():
                into[node] = into.get(node, 0) + n
    return Timing(
        max((t.end for t in timers.values()), default=0),
        {n: t.end for n, t in timers.items()},
        busy,
        moved,
        sum(t.items for t in timers.values()),
        tuple(sorted((s for t in timers.values() for s in t.spans), key=lambda s: (s.start, s.node))[:spans]),
    )


def _shares(program: StreamProgram, machine: SystemGraph) -> Mapping[str, int]:
    """How many streams use each channel."""
    users: dict[str, set[str]] = {}
    for name, items in program.streams.items():
        for mover in {i.mover for i in walk(items) if isinstance(i, Move)}:
            if mover not in machine.movers:
                raise TargetError(f"machine {quoted(machine.name)} has no move {quoted(mover)}")
            for c in machine.movers[mover].channels:
                users.setdefault(c, set()).add(name)
    return {c: len(u) for c, u in users.items()}


@dataclass(slots=True)
class _Record:
    """The last accesses of bytes: when they are written, when read, and when a chain may go on."""

    written: int = 0
    read: int = 0
    chain: int = 0
    unit: str = ""


class _Timer:
    """One stream's time."""

    def __init__(
        self,
        machine: SystemGraph,
        stream: str,
        shares: Mapping[str, int],
        params: dict[str, int],
        posted: dict[str, list[int]],
        keep: int,
        exact: bool,
        limit: int,
    ) -> None:
        self.limit = limit
        self.machine, self.stream, self.shares, self.params = machine, stream, shares, params
        self.posted, self.keep, self.exact = posted, keep, exact
        self.now = 0  # when the next item can be issued
        self.end = 0
        self.steps = 0
        self.free: dict[str, int] = {}
        self.queues: dict[str, deque[int]] = {}
        self.channels: dict[str, list[tuple[int, int]]] = {}
        self.records: dict[str, dict[tuple[tuple[int, ...], tuple[int, ...]], _Record]] = {}
        self.busy: dict[str, int] = {}
        self.moved: dict[str, int] = {}
        self.items = 0
        self.spans: list[Span] = []

    def run(self, items: Sequence[Item], env: dict[str, int]) -> Iterator[str]:
        for item in items:
            self.step()
            match item:
                case Move():
                    self.move(item, env)
                case Call():
                    self.call(item, env)
                case Repeat():
                    yield from self.repeat(item, env)
                case Post():
                    self.posted.setdefault(item.event, []).append(max(self.now, self.end))
                case Wait():
                    while not self.posted.get(item.event):
                        yield item.event
                    self.steps += 1
                    self.now = max(self.now, self.posted[item.event].pop(0))

    def step(self) -> None:
        self.steps += 1
        if self.steps > self.limit:
            raise ResourceError(f"more than {self.limit} items would have to be timed one by one")

    # ---- items ----

    def move(self, item: Move, env: Mapping[str, int]) -> None:
        mover = self.machine.movers[item.mover]
        bytes_ = _bytes(item)
        taken = -(-bytes_ // mover.bytes_per_cycle)
        windows = []
        for c in mover.channels:
            share = max(1, self.machine.channels[c].bytes_per_cycle // self.shares[c])
            windows.append((c, -(-bytes_ // share)))
            taken = max(taken, windows[-1][1])
        source, target = self.place(item.source, env), self.place(item.target, env)
        ready = max(self.read_ready(source), self.write_ready(target))
        start = self.issue(item.mover, mover.queue, ready)
        for _ in range(2):  # a later window of one channel may not suit the other
            for c, n in windows:
                start = self.window(c, start, n)
        for c, n in windows:
            self.occupy(c, start, n)
        end = start + taken + mover.latency
        self.finish(item.mover, start, taken, end, f"{_label(item.source)} -> {_label(item.target)}")
        self.moved[item.mover] = self.moved.get(item.mover, 0) + bytes_
        self.record(source).read = max(self.record(source).read, start + taken)
        self.put(target, _Record(end))

    def call(self, item: Call, env: Mapping[str, int]) -> None:
        unit = self.machine.units.get(item.unit)
        where = f"stream {quoted(self.stream)}, {quoted(item.instruction)} at {quoted(item.unit)}"
        if unit is None or item.instruction not in unit.places:
            raise TargetError(f"{where}: there is no such unit, or the unit has no such instruction")
        check_places(self.machine, item, where)
        instruction = self.machine.instructions[item.instruction]
        sizes = dict(item.sizes)
        taken, latency = instruction.cycles.at(sizes), instruction.latency.at(sizes)
        ready, reads, writes = 0, [], []
        for name, ref in item.operands:
            mode, at = instruction.mode(name), self.place(ref, env)
            chained = name in instruction.chained
            if "r" in mode:
                ready = max(ready, self.read_ready(at, item.unit if chained else ""))
                reads.append(at)
            if "w" in mode:
                ready = max(ready, self.write_ready(at, item.unit if chained else ""))
                writes.append((at, chained))
        start = self.issue(item.unit, unit.queue, ready)
        end = start + max(taken, latency)
        self.finish(item.unit, start, taken, end, item.instruction)
        for at in reads:
            self.record(at).read = max(self.record(at).read, start + taken)
        for at, chained in writes:
            going_on = (start + taken, item.unit) if chained else (end, "")
            self.put(at, _Record(end, 0, *going_on))

    def issue(self, node: str, depth: int, ready: int) -> int:
        """When an item starts at a node, whose operands are ready at ``ready``."""
        queue = self.queues.setdefault(node, deque())
        if len(queue) >= depth:
            self.now = max(self.now, queue.popleft())
        start = max(self.now, self.free.get(node, 0), ready)
        self.now += self.machine.issue
        return start

    def finish(self, node: str, start: int, taken: int, end: int, what: str) -> None:
        self.queues[node].append(start)
        self.free[node] = start + taken
        self.end = max(self.end, end)
        self.busy[node] = self.busy.get(node, 0) + taken
        self.items += 1
        if len(self.spans) < self.keep:
            self.spans.append(Span(node, what, start, start + taken))

    # ---- channels ----

    def window(self, channel: str, start: int, n: int) -> int:
        """The first time from ``start`` on at which a channel is free for ``n`` cycles."""
        for lo, hi in self.channels.get(channel, ()):
            if hi <= start:
                continue
            if start + n <= lo:
                break
            start = hi
        return start

    def occupy(self, channel: str, start: int, n: int) -> None:
        taken = [t for t in self.channels.get(channel, ()) if t[1] > self.now]
        taken.append((start, start + n))
        taken.sort()
        merged: list[tuple[int, int]] = []
        for lo, hi in taken:
            if merged and lo <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
            else:
                merged.append((lo, hi))
        self.channels[channel] = merged

    # ---- hazards ----

    def place(self, ref: Ref, env: Mapping[str, int]) -> Place:
        values = {**self.params, **env} if self.params else env
        if isinstance(ref, Region):
            return ref.memory, (evaluate_index(ref.offset, values),), (ref.bytes,)
        return (
            f"{self.machine.home}:{ref.tensor}",
            tuple(evaluate_index(x, values) for x in ref.lows),
            ref.spans,
        )

    def record(self, at: Place) -> _Record:
        return self.records.setdefault(at[0], {}).setdefault((at[1], at[2]), _Record())

    def put(self, at: Place, record: _Record) -> None:
        self.records.setdefault(at[0], {})[at[1], at[2]] = record

    def overlapping(self, at: Place) -> Iterator[tuple[bool, _Record]]:
        """Records of bytes that a place shares, and whether they are exactly the place."""
        _, lows, extents = at
        for (lo, n), r in self.records.get(at[0], {}).items():
            if lo == lows and n == extents:
                yield True, r
            elif all(a < b + m and b < a + k for a, k, b, m in zip(lows, extents, lo, n, strict=True)):
                yield False, r

    def read_ready(self, at: Place, unit: str = "") -> int:
        ready = 0
        for same, r in self.overlapping(at):
            ready = max(ready, r.chain if same and unit and r.unit == unit else r.written)
        return ready

    def write_ready(self, at: Place, unit: str = "") -> int:
        ready = 0
        for same, r in self.overlapping(at):
            ready = max(ready, r.read, r.chain if same and unit and r.unit == unit else r.written)
        return ready

    # ---- loops ----

    def repeat(self, loop: Repeat, env: dict[str, int]) -> Iterator[str]:
        values = {**self.params, **env}
        v, hi = evaluate_index(loop.lo, values), evaluate_index(loop.hi, values)
        alone = not self.exact and not any(isinstance(i, Post | Wait) for i in walk(loop.body))
        seen: list[tuple[object, int, dict[str, int], dict[str, int], int]] = []
        while v < hi:
            self.step()
            yield from self.run(loop.body, {**env, loop.var: v})
            v += 1
            self.prune()
            if not alone:
                continue
            seen.append((self.signature(), self.now, dict(self.busy), dict(self.moved), self.items))
            period = next(
                (p for p in range(1, PERIOD + 1) if len(seen) > p and seen[-1 - p][0] == seen[-1][0]), None
            )
            if period is not None and hi - v >= period:
                times = (hi - v) // period
                self.skip(seen[-1 - period], times)
                v += times * period
                alone = False
            del seen[: -PERIOD - 1]

    def prune(self) -> None:
        """Forget what can no longer make anything wait."""
        for memory, records in self.records.items():
            self.records[memory] = {
                k: r for k, r in records.items() if max(r.written, r.read, r.chain) > self.now
            }

    def signature(self) -> object:
        """All that decides later times, relative to now. Places in the home memory count by their times."""
        now, home = self.now, f"{self.machine.home}:"
        hazards: list[tuple[object, ...]] = []
        for memory, records in self.records.items():
            for (lo, n), r in records.items():
                times = (max(0, r.written - now), max(0, r.read - now), max(0, r.chain - now), r.unit)
                hazards.append((memory, n, *times) if memory.startswith(home) else (memory, lo, n, *times))
        return (
            tuple(sorted(hazards, key=repr)),
            tuple(sorted((k, t - now) for k, t in self.free.items() if t > now)),
            tuple(sorted((k, tuple(max(0, t - now) for t in q)) for k, q in self.queues.items())),
            tuple(
                sorted(
                    (k, tuple((max(0, a - now), b - now) for a, b in w if b > now))
                    for k, w in self.channels.items()
                )
            ),
            max(0, self.end - now),
        )

    def skip(self, then: tuple[object, int, dict[str, int], dict[str, int], int], times: int) -> None:
        """Let ``times`` periods pass: everything since ``then`` happens again that often."""
        _, now, busy, moved, items = then
        shift = (self.now - now) * times
        self.now += shift
        self.end += shift
        self.free = {k: t + shift for k, t in self.free.items()}
        self.queues = {k: deque(t + shift for t in q) for k, q in self.queues.items()}
        self.channels = {k: [(a + shift, b + shift) for a, b in w] for k, w in self.channels.items()}
        for records in self.records.values():
            for r in records.values():
                r.written, r.read, r.chain = r.written + shift, r.read + shift, r.chain + shift
        for into, before in ((self.busy, busy), (self.moved, moved)):
            for node, n in into.items():
                into[node] = n + (n - before.get(node, 0)) * times
        self.items += (self.items - items) * times


def _bytes(item: Move) -> int:
    ref = item.source if isinstance(item.source, Region) else item.target
    if not isinstance(ref, Region):
        raise TargetError(f"move {quoted(item.mover)} has both ends in the home memory")
    return ref.bytes


def _label(ref: Ref) -> str:
    return ref.memory if isinstance(ref, Region) else ref.tensor
