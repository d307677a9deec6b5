"""Measuring candidates on this machine: a process that can be killed builds, checks and times them."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from tilewright.ir import print_program
from tilewright.plan import UnitPlan
from tilewright.strategies import Candidate, Task, Trial
from tilewright.support import TargetError
from tilewright.target import detect

#: Seconds that one candidate may take, building included.
TIMEOUT: Final = 60.0


class LocalMeasurer:
    """Measures on this machine. Use as a context manager, or close it: it ends its process.

    ``command`` starts the process (by default this package's own): a test may give one that fails.
    """

    def __init__(self, timeout: float = TIMEOUT, command: Sequence[str] | None = None) -> None:
        self._timeout = timeout
        self._command = command or (sys.executable, "-P", "-m", "tilewright.driver.measure_worker")
        self._process: subprocess.Popen[bytes] | None = None
        self._references: dict[Task, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def measure(self, task: Task, candidates: Sequence[Candidate]) -> list[Trial]:
        """One trial a candidate, in order. Raises TargetError for a task of another machine."""
        if task.machine.target.fingerprint != detect().fingerprint:
            raise TargetError(f"tasks for {task.machine.target.name!r} cannot be timed on this machine")
        if task not in self._references:
            self._references[task] = task.default().plan.to_json()
        reference = self._references[task]
        program = print_program(task.program)
        return [self._measure(task, program, reference, candidate) for candidate in candidates]

    def _measure(self, task: Task, program: str, reference: str, candidate: Candidate) -> Trial:
        request = {
            "program": program,
            "reference": reference,
            "threads": task.machine.threads,
            "form": "plan" if isinstance(candidate.plan, UnitPlan) else "trace",
            "candidate": candidate.plan.to_json(),
        }
        try:
            answer = self._ask(request)
        except TimeoutError:
            self.close()
            return Trial(candidate, "hung", reason=f"no answer within {self._timeout:g} s")
        except (OSError, ValueError) as error:
            code = None if self._process is None else self._process.poll()
            self.close()
            return Trial(candidate, "crashed", reason=f"the process ended ({code}): {error}"[:300])
        return Trial(candidate, answer["status"], tuple(answer.get("seconds", ())), answer["reason"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        deadline = time.monotonic() + self._timeout
        pieces: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not pieces or not pieces[-1].endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    process.wait()
                    raise ValueError("it said nothing")
                pieces.append(piece)
        answer = json.loads(b"".join(pieces))
        if not isinstance(answer, dict) or not {"status", "reason"} <= set(answer):
            raise ValueError("its answer is none")
        return answer
