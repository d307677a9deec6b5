"""Progress of a compilation: what a caller can watch, and how it can stop one."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called in the compiling thread as work gets done; an exception it raises ends the compilation.

    ``phase`` is what is being done ("import", "schedule", "compile", ...), ``done`` of ``total`` steps of it
    are finished, ``what`` names the step in the words of the user's model.
    """

    def __call__(self, phase: str, done: int, total: int, what: str = "") -> None:
        """Take notice."""


def no_progress(phase: str, done: int, total: int, what: str = "") -> None:
    """The progress of a caller that does not watch."""
