"""What becomes of a rule that gives way because a primitive refused a step: a note, which `explain` shows."""

from __future__ import annotations

from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, get_logger

_log = get_logger(__name__)


def fell_back(s: Schedule, what: str, error: ScheduleError) -> Schedule:
    """The schedule that goes on from where the rule began; ``what`` is done instead, or left out."""
    _log.info("%s: %s: %s", s.source.name, what, error.what)
    return s.with_note(f"{what}: {error.what}")
