"""The user's source line, the nearest outside this package, and errors that point at it."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from tilewright.ir import SourceLocation
from tilewright.support import ProgramError, SourceLocation as ErrorLocation

_HERE = str(Path(__file__).parent)

#: File and line; the line's text is read only when someone looks at it.
Place: TypeAlias = tuple[str, int]


def here() -> Place:
    """File and line of the nearest caller outside the language (its operator library included)."""
    frame: FrameType | None = sys._getframe(1)
    last = frame
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        last, frame = frame, frame.f_back
    if frame is None:
        frame = last
    assert frame is not None
    return frame.f_code.co_filename, frame.f_lineno


def location(place: Place) -> SourceLocation:
    """A place with the text of its line (empty where the source is not at hand)."""
    return SourceLocation(place[0], place[1], linecache.getline(*place).strip())


def problem(what: str, hint: str | None = None, at: Place | None = None) -> ProgramError:
    """The error to raise about what the user wrote at ``at`` (default: the user's current line)."""
    file, line = at or here()
    return ProgramError(what, where=ErrorLocation(file, line, linecache.getline(file, line)), hint=hint)
