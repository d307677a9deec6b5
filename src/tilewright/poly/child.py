"""Questions in a process of their own, which can be ended: no count of operations stops isl everywhere.

The process is a fork of this one. A question holds models and relations of isl, which a fork has as they are
and a fresh process would have to read and analyse again; all that a fork runs is isl, Python and ``malloc``,
and a lock that another thread of the parent held when it was made costs it the answer, no more.
"""

from __future__ import annotations

import gc
import os
import resource
import selectors
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tilewright.support import ResourceError

BYTES: Final = 2 << 30
"""Memory that a question may take beside what the process has."""
WAITING: Final = 4
"""Seconds to wait for each of a processor: a machine may be busy."""
_ANSWERED: Final = b"answered"
_SPENT: Final = b"spent"


class SpentError(Exception):
    """The operations that a question may take are spent."""


class EndedError(Exception):
    """The process of a question was ended, by a limit of time or of memory."""


def asked_apart(question: Callable[[], str], seconds: int) -> str:
    """The answer of a process of its own, or nothing where the question has ended in another error.

    Raises SpentError where the question does, EndedError where it takes more than ``seconds`` of a processor
    or too much memory, ResourceError where there can be no such process.
    """
    try:
        out, into = os.pipe()
        with warnings.catch_warnings():
            # of Python 3.12 and later, about locks of other threads: a child that waits for one is ended
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError as error:
        raise ResourceError(f"cannot start a process: {error.strerror}") from None
    if not child:
        os.close(out)
        _answer(question, into, seconds)
    os.close(into)
    deadline = time.monotonic() + WAITING * seconds
    try:
        pieces = list(iter(lambda: _piece(out, deadline), b""))
    finally:
        os.close(out)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    answer, _, outcome = b"".join(pieces).rpartition(b"\n")
    if outcome == _SPENT:
        raise SpentError
    if outcome != _ANSWERED:
        raise EndedError
    return answer.decode()


def _piece(out: int, deadline: float) -> bytes:
    with selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        return os.read(out, 1 << 16) if selector.select(max(0.0, deadline - time.monotonic())) else b""


def _answer(question: Callable[[], str], into: int, seconds: int) -> None:
    """The child's part, which never returns: what it says ends with a line about the outcome."""
    try:
        os.setsid()  # Ctrl-C is the parent's to handle
        gc.disable()  # objects of the parent own processes and memory that are not the child's to end
        _limit(resource.RLIMIT_CPU, seconds)
        _limit(resource.RLIMIT_CORE, 0)
        if (size := _size()) is not None:
            _limit(resource.RLIMIT_AS, size + BYTES)
        answer, outcome = b"", _ANSWERED
        try:
            answer = question().encode()
        except SpentError:
            outcome = _SPENT
        except MemoryError:
            outcome = b""
        finally:
            # other errors are found again by the parent
            _write(into, answer + b"\n" + outcome)
    finally:
        os._exit(0)


def _write(into: int, data: bytes) -> None:
    while data:
        data = data[os.write(into, data) :]


def _limit(what: int, most: int) -> None:
    """A limit of the kernel's, which holds also where the parent is gone."""
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, hard))


def _size() -> int | None:
    """The address space of this process in bytes, where the system tells it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return None
    return pages * resource.getpagesize()
