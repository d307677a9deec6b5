"""What a running tuning shows: a live table on a terminal, a line a minute elsewhere, events for programs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from types import MappingProxyType
from typing import Final, TypeAlias

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tilewright.cli.state import State
from tilewright.support import counted, quoted
from tilewright.tune import EVENTS_VERSION, Event

Watch: TypeAlias = Callable[[Event], None]

#: Pictures of the table a second.
_A_SECOND: Final = 4
#: Lines of a terminal that are not for rows of the table.
_AROUND: Final = 7
#: What a session does where no task is at work.
_PHASES: Final = MappingProxyType(
    {
        "graph": "which stages one kernel computes",
        "layouts": "layouts of values",
        "network": "timing winners inside of the network",
    }
)
#: Seconds between two lines where there is no terminal.
MINUTE: Final = 60.0


@contextmanager
def watched(state: State) -> Iterator[Watch]:
    """Whom a tuning tells what happens, while it runs."""
    if state.json:
        yield lambda event: state.print_json(event_data(event))
    elif state.log.is_terminal:
        table = LiveTable()
        with Live(table, console=state.log, refresh_per_second=_A_SECOND, transient=True):
            yield table.tell
    else:
        lines = MinuteLines()
        with lines.each(MINUTE, state.note):
            yield lines.tell


def event_data(event: Event) -> dict[str, object]:
    """An event as the command prints it."""
    return {"events": EVENTS_VERSION, "command": "tune", **event.to_data()}


class LiveTable:
    """The tasks of a session, those that take most of a run first, and what is being done with each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin = self._at = clock()
        self._last: Event | None = None
        self._tasks: dict[str, Event] = {}
        self._doing: dict[str, str] = {}
        self._phase = "compiling the default"

    def tell(self, event: Event) -> None:
        """Take in what happened."""
        self._at = self._clock()
        self._last = event
        if event.what in _PHASES:
            self._phase = _PHASES[event.what]
            return
        self._phase = ""
        self._tasks[event.key] = event
        # another picture may be drawn at the same time: nothing is changed in place that it walks over
        self._doing = {**self._doing, event.key: _doing(event)}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One picture: the state of the session, and as many tasks as the terminal has room for."""
        most = max(1, (options.height or console.height) - _AROUND)
        tasks = sorted(dict(self._tasks).values(), key=lambda event: -_share(event))
        table = Table(box=None, pad_edge=False, expand=False)
        table.add_column("task", no_wrap=True, overflow="ellipsis", ratio=1, min_width=12)
        for name in ("default us", "best us", "gain", "trials"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("now", no_wrap=True, overflow="ellipsis", min_width=8)
        for event in tasks[:most]:
            table.add_row(
                Text(_plain(event.label)),
                _microseconds(event.untuned),
                _microseconds(event.best),
                Text(f"{event.gain:.2f}x", style="bold green" if event.gain > 1 else ""),
                str(event.trials),
                Text(self._doing.get(event.key, "")),
            )
        hidden = len(tasks) - most
        more = [Text(f"and {counted(hidden, 'task')} that take less", style="dim")] if hidden > 0 else []
        yield Group(self._head(), table, *more)

    def _head(self) -> Text:
        now = self._clock()
        parts = [f"{now - self._begin:.0f} s"]
        last = self._last
        if last is not None:
            if last.what != "network":
                parts.append(f"{max(0.0, last.left - (now - self._at)):.0f} s of the budget left")
            whole = sum(_share(event) for event in self._tasks.values())
            if whole > 0:
                parts.append(f"a run {whole * 1e3:.3f} ms -> {(whole - last.saved) * 1e3:.3f}")
        if self._phase:
            parts.append(self._phase)
        parts.append("Ctrl-C ends it and keeps what was found")
        return Text(" · ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")


class MinuteLines:
    """Where a session stands, in one line: said each minute where nobody looks at a terminal."""

    def __init__(self) -> None:
        self._last: Event | None = None
        self._trials: dict[str, int] = {}

    def tell(self, event: Event) -> None:
        """Take in what happened."""
        if event.key:
            # replaced, not changed: another thread may be adding them up
            self._trials = {**self._trials, event.key: event.trials}
        self._last = event

    @property
    def line(self) -> str:
        """The line; empty before anything happened."""
        event = self._last
        if event is None:
            return ""
        said = f"{_plain(event.label)}: {_doing(event)}" if event.key else event.what
        trials = counted(sum(self._trials.values()), "trial")
        saved = f"{event.saved * 1e3:.3f} ms of a run saved"
        return f"{event.elapsed:.0f} s, {event.left:.0f} s left, {trials}, {saved}; {said}"

    @contextmanager
    def each(self, seconds: float, say: Callable[[str], None]) -> Iterator[None]:
        """Say the line each time that so many seconds have gone by."""
        over = threading.Event()

        def speak() -> None:
            while not over.wait(seconds):
                if self.line:
                    say(self.line)

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _doing(event: Event) -> str:
    """What is being done with a task, in a few words."""
    if event.what == "trying":
        return _list(event.counts)
    if event.what == "measured":
        failed = {status: n for status, n in event.counts.items() if status != "ok"}
        return _list(failed) if failed else ""
    if event.what == "deciding":
        return "deciding"
    if event.result is None:
        return ""
    if event.result.reason:
        return "not measured"
    if not event.result.sure:
        return "not surely"
    return "known" if event.result.known else "done"


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items())


def _share(event: Event) -> float:
    return event.weight * event.untuned if isfinite(event.untuned) else 0.0


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if isfinite(seconds) else "-"


def _plain(label: str) -> str:
    """A label whose control characters reach no terminal."""
    return quoted(label, 200)[1:-1]
