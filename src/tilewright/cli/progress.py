"""A progress bar on stderr, where that is a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tilewright.cli.state import State
from tilewright.support import quoted

_WIDTH = 40


class ProgressBar:
    """The progress of a compilation, one line a phase; silent where stderr is no terminal.

    Use it in a ``with`` statement.
    """

    def __init__(self, state: State) -> None:
        shown = state.log.is_terminal and not state.json
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description:>10}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}", markup=False),
            console=state.log,
            disable=not shown,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, phase: str, done: int, total: int, what: str = "") -> None:
        """Show that ``done`` of ``total`` steps of a phase are finished."""
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=total, what="")
        shown = quoted(what, _WIDTH) if what else ""
        self._progress.update(self._tasks[phase], completed=done, total=total, what=shown)
