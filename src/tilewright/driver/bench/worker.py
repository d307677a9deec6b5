"""The process of one engine: loads a model, and runs it when told to.

Requests and answers are lines of JSON on standard input and output. Whatever libraries print goes to stderr.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import sys
import time
import traceback
from typing import IO, Any, Final

import numpy as np

from tilewright.driver.bench.engines import ENGINES, Engine, Tilewright
from tilewright.runtime import aligned_copy

_M_MMAP_MAX: Final = -4
_M_TRIM_THRESHOLD: Final = -1
"""Of glibc's ``malloc.h``."""


class Worker:
    """One engine with its model."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._engine: Engine | None = None

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load the model of a request; answers with the engine's version and the seconds that took."""
        # The last model's arrays and weights go first: two large ones may not fit into memory.
        self._engine = None
        if request["keep_memory"]:
            _keep_memory()
        with np.load(request["feeds"], allow_pickle=False) as archive:
            names = enumerate(request["names"])
            feeds = {name: aligned_copy(archive[f"arr_{at}"]) for at, name in names}
        start = time.perf_counter()
        model, threads, precision = request["model"], request["threads"], request["precision"]
        if ENGINES[self._name] is Tilewright:
            ours = {key: request[key] for key in ("target", "accuracy")}
            self._engine = Tilewright(model, feeds, threads, precision, **ours)
        else:
            self._engine = ENGINES[self._name](model, feeds, threads, precision)
        return {"version": self._engine.version, "seconds": time.perf_counter() - start}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run for so many seconds and at least so many times; answers with the seconds of each run."""
        assert self._engine is not None
        times: list[float] = []
        gc.collect()
        gc.disable()
        for _ in range(request["uncounted"]):
            self._engine.run()
        begin = now = time.perf_counter()
        while now - begin < request["seconds"] or len(times) < request["least"]:
            self._engine.run()
            before, now = now, time.perf_counter()
            times.append(now - before)
        gc.enable()
        return {"times": times}

    def outputs(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write the outputs of a run to a file."""
        assert self._engine is not None
        made = self._engine.outputs()
        np.savez(request["path"], *made)
        return {"count": len(made)}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request says."""
        match request["do"]:
            case "load":
                return self.load(request)
            case "run":
                return self.run(request)
            case _:
                return self.outputs(request)


class _Failures:
    """Turns an error into an answer: engines raise what they like."""

    def __init__(self, answers: IO[str]) -> None:
        self._answers = answers

    def __enter__(self) -> _Failures:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        lines = traceback.format_exception_only(error)
        send(self._answers, {"error": "".join(lines).strip()[:2000]})
        return True


def _keep_memory() -> None:
    """Have the C library keep freed memory instead of returning it to the system (glibc)."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def send(stream: IO[str], message: dict[str, Any]) -> None:
    """Write one line."""
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def main(name: str) -> None:
    """Serve requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(name)
    for line in sys.stdin:
        with _Failures(answers):
            send(answers, {"ok": worker.answer(json.loads(line))})


if __name__ == "__main__":
    main(sys.argv[1])
