"""Methods of a schedule for the program phase: layouts and rewrites of the program."""

from __future__ import annotations

from tilewright.schedule.methods import Methods


class ProgramMethods(Methods):
    """Primitives that change the program before its loops exist."""

    __slots__ = ()
