"""Whether others use the CPUs of this process while it measures something."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

#: From this part of the CPUs' time on, what others use is worth a word beside a measurement.
WORTH_SAYING: Final = 0.1
#: The kernel counts in hundredths of a second: nothing is said of a shorter time than this.
_LEAST_SECONDS: Final = 0.1
#: Columns of a line of /proc/stat that are time in which nothing ran: idle, and waiting for a disk.
_IDLE: Final = (3, 4)


class OtherLoad:
    """The part of the time of this process's CPUs that other processes use, summed over `with` blocks.

    The time of this process is left out; that of its children counts as others' unless they wait meanwhile.
    """

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._seconds = 0.0
        self._others = 0.0
        self._begin: tuple[float, float, float] | None = None

    def __enter__(self) -> OtherLoad:
        self._begin = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        end, begin = self._now(), self._begin
        if end is not None and begin is not None:
            self._seconds += end[0] - begin[0]
            self._others += max(end[1] - begin[1] - (end[2] - begin[2]), 0.0)

    @property
    def share(self) -> float | None:
        """Others' part of the CPUs' time; None where that cannot be told."""
        if self._seconds < _LEAST_SECONDS:
            return None
        return min(self._others / (self._seconds * len(os.sched_getaffinity(0))), 1.0)

    @property
    def warning(self) -> str:
        """What to say beside the figures; nothing where there is nothing to say."""
        share = self.share
        if share is None or share < WORTH_SAYING:
            return ""
        return f"other processes used {share:.0%} of the CPUs meanwhile: these figures say little"

    def _now(self) -> tuple[float, float, float] | None:
        """Seconds on the clock, seconds in which the CPUs were busy, and this process's own."""
        try:
            lines = self._stat.read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            return None
        names = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
        ticks = 0
        for name, *fields in map(str.split, lines):
            if name in names:
                # guests' time is part of users'
                ticks += sum(int(field) for at, field in enumerate(fields[:8]) if at not in _IDLE)
        return time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time()
