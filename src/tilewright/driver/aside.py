"""Work that is done aside: one task after another, on a thread that lives while there are any."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from tilewright.support import TilewrightError, get_logger

_log = get_logger(__name__)


class Aside:
    """Tasks by key, each done once, in the order in which they came.

    A task that fails is logged and given up: it is what a program can do without. The thread is no daemon, so
    that no native code runs while the process ends; tasks ask :meth:`is_over` where they can stop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: OrderedDict[Hashable, Callable[[], None]] = OrderedDict()
        self._seen: set[Hashable] = set()
        self._thread: threading.Thread | None = None

    def want(self, key: Hashable, task: Callable[[], None]) -> None:
        """Have a task done, unless it is waiting or at work already."""
        with self._lock:
            if key in self._seen:
                return
            self._seen.add(key)
            self._tasks[key] = task
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tilewright-aside")
                self._thread.start()

    def wait(self) -> None:
        """Return when no task is left."""
        while (thread := self._thread) is not None and thread is not threading.current_thread():
            thread.join()

    def is_over(self) -> bool:
        """Whether the process is ending: its main thread has ended, and waits for this one."""
        return not threading.main_thread().is_alive()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._tasks or self.is_over():
                    self._thread = None
                    return
                key, task = self._tasks.popitem(last=False)
            try:
                task()
            except (TilewrightError, MemoryError, RuntimeError) as error:
                # RuntimeError: no thread starts in a process that ends, and nobody needs the task there
                level = logging.INFO if self.is_over() else logging.WARNING
                _log.log(level, "work ahead of time is given up, runs go on without it: %s", error)
            finally:
                with self._lock:
                    self._seen.discard(key)
