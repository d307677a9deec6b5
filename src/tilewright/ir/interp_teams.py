"""Teams of a block in the interpreter: all at work at once, in a random order that channels alone restrict.

Each thread of each team is a coroutine. Who goes on is drawn again and again, at times one team alone as far
as it gets, so that wrong rings are met by the orders that they are wrong for. What conflicts is found
whatever order is drawn: a thread knows by vector clocks what the others have done before it (Lamport 1978,
Mattern 1989), and an access that it does not know to be before its own is a race.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from tilewright.ir.interp_memory import DeadlockError, DivergenceError, ExecutionError, Fork, Task
from tilewright.ir.interp_scope import TASK, Env
from tilewright.ir.stmt import Barrier, Channel, SyncOp

Clock: TypeAlias = tuple[int, ...]
"""For each team the phases that are known to be over; a phase of a thread ends where it speaks or waits."""

#: What must be said of an item before: a slot is acquired before it is put, an item taken before released.
_BEFORE: Mapping[SyncOp, SyncOp] = {"put": "acquire", "release": "get"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a thread says to a channel, or waits for."""

    op: SyncOp
    channel: str
    item: int


Steps: TypeAlias = Generator[Barrier | Asked, None, None]


class TeamTask(Task):
    """What a thread of a team does from one stop to the next."""

    __slots__ = ("clock", "phase", "thread")

    def __init__(self, fork: Fork, parent: Task | None, thread: Thread) -> None:
        super().__init__(fork, parent, thread.label, thread.team)
        self.thread, self.phase, self.clock = thread, thread.phase, thread.clock

    def knows(self, other: Task) -> bool:
        """Whether what the other task does is over."""
        assert isinstance(other, TeamTask)  # of one fork
        return other.thread is self.thread or self.clock[other.team] >= other.phase


@dataclass(slots=True, eq=False)
class Thread:
    """A thread of team number ``team``."""

    team: int
    label: str
    steps: Steps
    env: Env
    clock: Clock
    phase: int = 1
    said: dict[tuple[str, SyncOp], int] = field(default_factory=dict)
    at: Barrier | Asked | None = None
    done: bool = False


@dataclass(slots=True)
class _Ring:
    """A channel while teams run: by operation and item how many of each team came, and what they knew."""

    slots: int
    takers: tuple[int, ...]
    filler: int
    came: dict[tuple[SyncOp, int], dict[int, int]] = field(default_factory=dict)
    clocks: dict[tuple[SyncOp, int], Clock] = field(default_factory=dict)


@dataclass(slots=True)
class TeamRun:
    """One execution of a block's teams; ``roles`` say of each channel which team fills it, and which take."""

    threads: list[Thread]
    parent: Task | None
    rng: Random
    rings: dict[str, _Ring]
    names: Sequence[str]
    fork: Fork = field(default_factory=lambda: Fork("teams of one block, which nothing orders"))

    def run(self) -> None:
        """Let all threads come to their end. Raises ExecutionError for what teams must not do."""
        for t in self.threads:
            self._new_phase(t, t.clock)
        alive = list(self.threads)
        while alive:
            self.rng.shuffle(alive)
            favoured = self.rng.choice(alive).team
            alone = self.rng.random() < 0.5
            moved = sum(self._advance(t) for t in alive if not alone or t.team == favoured) > 0
            if not moved and alone:
                moved = sum(self._advance(t) for t in alive if t.team != favoured) > 0
            alive = [t for t in alive if not t.done]
            if not moved:
                waiting = {t.team: t for t in alive}
                reasons = [f"{t.label}: {self._reason(t)}" for _, t in sorted(waiting.items())]
                raise DeadlockError(f"teams wait for ever: {'; '.join(reasons)}")
        self._check_ends()

    def _advance(self, t: Thread) -> bool:
        """Go on with a thread to its next stop, if it may."""
        at = t.at
        if t.done:
            return False
        if isinstance(at, Barrier):
            for other in self._team(t):
                if other.done or (isinstance(other.at, Barrier) and other.at is not at):
                    raise DivergenceError(
                        f"{other.label} does not reach the barrier at which {t.label} waits"
                    )
            if any(other.at is not at for other in self._team(t)):
                return False
            for other in self._team(t):
                # what all of the team did before is known to all of them
                other.at = None
                clock = list(other.clock)
                clock[t.team] = other.phase
                self._new_phase(other, tuple(clock))
        elif at is not None and not self._said(t, at):
            return False
        t.at = next(t.steps, None)
        t.done = t.at is None
        return True

    # barriers

    def _team(self, t: Thread) -> list[Thread]:
        return [x for x in self.threads if x.team == t.team]

    # channels

    def _said(self, t: Thread, at: Asked) -> bool:
        """Whether a thread may go on from what it says or waits for."""
        ring, op, item = self.rings[at.channel], at.op, at.item
        count = t.said.get((at.channel, op), 0)
        before = _BEFORE.get(op)
        if item != count or (before is not None and t.said.get((at.channel, before), 0) <= item):
            due = f"item {count} is due" if item != count else f"there was no {before} of it"
            raise ExecutionError(f"{t.label}: {op} of item {item} of {at.channel}, but {due}")
        clock = t.clock
        if op in ("acquire", "get"):
            source: tuple[SyncOp, int] = ("put", item) if op == "get" else ("release", item - ring.slots)
            if self._missing(ring, source):
                return False
            clock = _joined([clock, *([ring.clocks[source]] if source in ring.clocks else [])])
        else:
            came = ring.came.setdefault((op, item), {})
            came[t.team] = came.get(t.team, 0) + 1
            mine = list(clock)
            mine[t.team] = t.phase
            known = ring.clocks.get((op, item))
            ring.clocks[op, item] = tuple(mine) if known is None else _joined([known, mine])
        t.said[at.channel, op] = count + 1
        self._new_phase(t, clock)
        return True

    def _missing(self, ring: _Ring, source: tuple[SyncOp, int]) -> list[int]:
        """The teams of which not all threads have said something."""
        op, item = source
        if item < 0:
            return []
        came = ring.came.get(source, {})
        teams = (ring.filler,) if op == "put" else ring.takers
        return [n for n in teams if came.get(n, 0) < sum(t.team == n for t in self.threads)]

    def _new_phase(self, t: Thread, clock: Clock) -> None:
        t.phase += 1
        t.clock = clock
        t.env[TASK] = TeamTask(self.fork, self.parent, t)

    def _reason(self, t: Thread) -> str:
        if not isinstance(t.at, Asked):
            return "at a barrier"
        ring = self.rings[t.at.channel]
        get = t.at.op == "get"
        missing = self._missing(ring, ("put", t.at.item) if get else ("release", t.at.item - ring.slots))
        whom = ", ".join(self.names[n] for n in missing)
        item = t.at.item if get else t.at.item - ring.slots
        return f"{whom} does not {'put' if get else 'release'} item {item} of {t.at.channel}"

    def _check_ends(self) -> None:
        for name, ring in self.rings.items():
            for t in self.threads:
                ops: tuple[SyncOp, ...] = ("acquire", "put") if t.team == ring.filler else ("get",)
                if t.team != ring.filler and t.team not in ring.takers:
                    continue
                filled = max(x.said.get((name, "acquire"), 0) for x in self.threads if x.team == ring.filler)
                for op in ops:
                    if t.said.get((name, op), 0) != filled:
                        raise DivergenceError(
                            f"{t.label} ends after {t.said.get((name, op), 0)} times {op} of {name}, "
                            f"of which {filled} items are filled"
                        )


def _joined(clocks: Iterable[Sequence[int]]) -> Clock:
    return tuple(map(max, zip(*clocks, strict=True)))


def rings_of(channels: Sequence[Channel], said: Mapping[str, Mapping[SyncOp, set[int]]]) -> dict[str, _Ring]:
    """The state of channels at the start; ``said`` are the teams that say something, by what they say."""
    out: dict[str, _Ring] = {}
    for c in channels:
        ops = said.get(c.name, {})
        fillers, takers = ops.get("put", set()), ops.get("get", set())
        if len(fillers) != 1 or not takers:
            raise ExecutionError(f"channel {c.name} is not filled by one team and taken from by others")
        out[c.name] = _Ring(c.slots, tuple(sorted(takers)), min(fillers))
    return out
