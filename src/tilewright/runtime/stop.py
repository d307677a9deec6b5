"""Ending runs before they are done: after a time, or when another thread says so."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from types import TracebackType
from typing import Self

from tilewright.runtime.native import library
from tilewright.support import InputError


class _Native(ctypes.Structure):
    """tw_stop: what the steps of a run look at."""

    _fields_ = (("outer", ctypes.c_void_p), ("deadline_ns", ctypes.c_int64), ("stopped", ctypes.c_int32))


class Stop:
    """Ends runs on CPUs between two of their kernels, with a StoppedError.

        with tilewright.Stop(timeout=0.5) as stop:  # seconds, from here on; without: as long as it takes
            results = model.run(None, feeds)  # another thread may call stop.now()

    It is for all runs that the thread calls inside of the ``with``, of whatever model; those of other threads
    that enter it too are ended by the same :meth:`now`. The arrays of a run that was ended hold anything, the
    model runs as before. Raises InputError for a timeout that is no positive number of seconds.
    """

    def __init__(self, timeout: float | None = None) -> None:
        if timeout is not None and not (_is_number(timeout) and 0 < timeout < math.inf):
            raise InputError(
                f"timeout={timeout!r} must be a positive number of seconds", hint="or leave it out"
            )
        self._timeout = timeout
        self._stopped = False
        self._entered: list[tuple[int, _Native]] = []

    def now(self) -> None:
        """End all runs inside; from any thread, and for those to come as well."""
        self._stopped = True
        for _, entered in tuple(self._entered):
            entered.stopped = 1

    def __enter__(self) -> Self:
        """Begin to look after this thread's runs; the time begins."""
        end = 0 if self._timeout is None else time.monotonic_ns() + math.ceil(self._timeout * 1e9)
        made = _Native(None, end, 0)
        self._entered.append((threading.get_ident(), made))
        made.stopped = int(self._stopped)
        made.outer = library().tw_stop_by(ctypes.addressof(made))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave this thread's runs alone again."""
        own = threading.get_ident()
        at = max(n for n, (thread, _) in enumerate(self._entered) if thread == own)
        _, made = self._entered.pop(at)
        library().tw_stop_by(made.outer)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
