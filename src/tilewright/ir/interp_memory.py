"""Memory of the reference interpreter: poisoned storage, concurrent tasks, the race detector."""

from __future__ import annotations

from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.support import InternalError


class ExecutionError(InternalError):
    """A loop function broke a rule of the IR while it ran; ``where`` is the block instance."""


class OutOfBoundsError(ExecutionError):
    """An access outside of a buffer's logical box, or of its physical box and halo."""


class PoisonError(ExecutionError):
    """A read of an element that nothing has written."""


class RaceError(ExecutionError):
    """Two iterations that may run at once touch one element, and at least one writes it."""


class DomainError(ExecutionError):
    """A block instance whose iterators lie outside of their declared domain."""


class RepeatedInstanceError(ExecutionError):
    """A ``red`` or ``ord`` instance that ran twice for one written location."""


class DivergenceError(ExecutionError):
    """Threads of one block do not meet at the same barrier."""


class DeadlockError(ExecutionError):
    """Teams of a block wait for each other for ever."""


class Fork:
    """One execution of a loop whose iterations may run at once, or the time between two barriers."""

    __slots__ = ("atomic", "what")

    def __init__(self, what: str, *, atomic: bool = False) -> None:
        self.what = what
        self.atomic = atomic  # whether tasks may update one element at once, each as a whole


class Task:
    """One iteration (or thread) of a fork; where a block has teams, of team number ``team``."""

    __slots__ = ("fork", "label", "parent", "team")

    def __init__(self, fork: Fork, parent: Task | None, label: object, team: int = 0) -> None:
        self.fork = fork
        self.parent = parent
        self.label = label
        self.team = team

    def knows(self, other: Task) -> bool:
        """Whether another task of the same fork is over before this one."""
        return self is other


def _clash(a: Task, b: Task) -> tuple[Task, Task] | None:
    """The tasks of one fork through which ``a`` and, later here, ``b`` may run at once, if any."""
    x: Task | None = a
    while x is not None:
        y: Task | None = b
        while y is not None:
            if x.fork is y.fork:
                return None if y.knows(x) else (x, y)
            y = y.parent
        x = x.parent
    return None


class Shadow:
    """What is remembered about the elements of one incarnation of a buffer, by flat position."""

    __slots__ = ("buffer", "other", "reader", "seen", "updated", "writer")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.writer: dict[int, Task] = {}
        self.reader: dict[int, Task] = {}
        self.other: dict[int, tuple[Task, ...]] = {}
        self.seen: dict[int, tuple[str, set[tuple[int, ...]]]] = {}
        self.updated: dict[int, tuple[str, Task, Task]] = {}

    def again(self) -> Shadow:
        """The next incarnation in the same memory: who touched it last is remembered, what ran is not."""
        out = Shadow(self.buffer)
        out.writer, out.reader, out.other = self.writer, self.reader, self.other
        out.updated = self.updated
        return out

    def note_read(self, at: int, task: Task | None) -> None:
        """Record a read; RaceError where a task that may run at the same time wrote the element."""
        if task is None or self.reader.get(at) is task:
            return
        if self.updated:
            self._check_updates(at, task)
        writer = self.writer.get(at)
        if writer is not None and writer is not task:
            self._check(writer, task, at, "is written and read")
        first = self.reader.get(at)
        if first is not None and _clash(first, task):
            # two that may run at once: no later writer can be both of them; one of each team, as a writer may
            # know of one team's reads alone
            others = self.other.get(at, ())
            self.other[at] = (*(o for o in others if o.team != task.team), task) if others else (task,)
            return
        self.reader[at] = task
        self.other.pop(at, None)

    def note_write(self, at: int, task: Task | None) -> None:
        """Record a write; RaceError where a task that may run at the same time touched the element."""
        if task is None:
            return
        if self.updated:
            self._check_updates(at, task)
        writer = self.writer.get(at)
        if writer is not None and writer is not task:
            self._check(writer, task, at, "is written twice")
        for reader in (self.reader.get(at), *self.other.get(at, ())):
            if reader is not None and reader is not task:
                self._check(reader, task, at, "is read and written")
        self.writer[at] = task

    def note_update(self, at: int, task: Task | None, op: str) -> None:
        """Record an update of an element as a whole, which others by the same operation may do at once."""
        if task is None:
            return
        for old in (self.writer.get(at), self.reader.get(at), *self.other.get(at, ())):
            if old is not None and old is not task:
                self._check(old, task, at, "is read or written, and updated")
        known = self.updated.get(at)
        if known is None:
            self.updated[at] = (op, task, task)
            return
        same, first, last = known
        for old in (first, last):
            pair = None if old is task else _clash(old, task)
            if pair is not None and not (same == op and pair[0].fork.atomic):
                self._check(old, task, at, "is updated")
        if task is not first and task is not last:
            # two that may run at once: nobody else can be both of them
            self.updated[at] = (op, last if _clash(first, task) is None else first, task)

    def _check_updates(self, at: int, task: Task) -> None:
        known = self.updated.get(at)
        for old in () if known is None else known[1:]:
            if old is not task:
                self._check(old, task, at, "is updated, and read or written")

    def _check(self, old: Task, new: Task, at: int, verb: str) -> None:
        pair = _clash(old, new)
        if pair is not None:
            raise RaceError(
                f"race on buffer {self.buffer.name}: its element {self.position(at)} {verb} by "
                f"{pair[0].label} and {pair[1].label} of {pair[0].fork.what}",
                hint="allocate the buffer inside the loop, or make the loop serial",
            )

    def note_instance(self, at: int, stage: str, key: tuple[int, ...]) -> None:
        """Record a reducing or ordered instance; RepeatedInstanceError where it ran before."""
        entry = self.seen.get(at)
        if entry is None or entry[0] != stage:
            self.seen[at] = (stage, {key})
        elif key in entry[1]:
            raise RepeatedInstanceError(
                f"the instance with reduction or ordered iterators {key} of stage {stage} ran twice for "
                f"{self.buffer.name}, element {self.position(at)}"
            )
        else:
            entry[1].add(key)

    def position(self, at: int) -> str:
        """The physical indices of a flat position, as text (logical ones where there is no layout)."""
        return str(physical_position(self.buffer, at))


def physical_position(buffer: Buffer, at: int) -> Any:
    """The physical indices of a flat position where the shape is constant, else the position itself."""
    shape = buffer.physical_shape
    if not all(s.is_const for s in shape):
        return at
    halo = buffer.halo or ((0, 0),) * len(shape)
    out: list[int] = []
    for extent, (before, after) in zip(reversed(shape), reversed(halo), strict=True):
        at, r = divmod(at, extent.as_int() + before + after)
        out.append(r - before)
    return out[::-1]
