"""Measuring candidates on this machine: processes that can be killed build side by side, then run in turns.

Each process builds candidates of its own and keeps them; while all build, none is timed, and while one runs,
the others wait. A candidate that crashes or hangs takes its process with it, and what that had built is
built again by another one.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from types import TracebackType
from typing import Any, Final, Self

from tilewright.driver.choices import physical_memory
from tilewright.ir import print_source
from tilewright.plan import UnitPlan
from tilewright.strategies import AnyTask, Candidate, Status, Trial
from tilewright.support import TargetError, available_cpus, digest_text
from tilewright.target import detect
from tilewright.tune import LIMITS, STATUSES, TrialLimits

#: Part of the machine's memory that one candidate may take where limits do not say.
MEMORY_SHARE: Final = 0.5
#: Part of the limit of memory that a process may hold between candidates: above, it leaks, and is replaced.
HELD_SHARE: Final = 0.5
#: Processes that build; each takes 150 MB.
MOST_WORKERS: Final = 16
#: Functions of one task whose times are remembered: equal functions of other plans are not timed again.
MOST_KNOWN: Final = 1 << 14


class _EndedError(Exception):
    """A process ended; the text says how."""


class _Worker:
    """One process, and the pipes to it."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [*command, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        self._pieces: list[bytes] = []

    @property
    def out(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, request: dict[str, Any]) -> None:
        """Give it something to do. Raises _EndedError where it is gone."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise _EndedError(self._how()) from None

    def read(self) -> dict[str, Any] | None:
        """Its answer, where it is complete now. Raises _EndedError where it ended, or says nonsense."""
        piece = os.read(self.out, 1 << 16)
        if not piece:
            raise _EndedError(self._how())
        self._pieces.append(piece)
        if not piece.endswith(b"\n"):
            return None
        text, self._pieces = b"".join(self._pieces), []
        try:
            answer = json.loads(text)
        except ValueError:
            raise _EndedError("its answer is none") from None
        if not isinstance(answer, dict):
            raise _EndedError("its answer is none")
        return answer

    def wait(self, seconds: float) -> dict[str, Any]:
        """Its answer. Raises TimeoutError after so many seconds, _EndedError where it ended."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.out, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                answer = self.read()
                if answer is not None:
                    return answer

    def _how(self) -> str:
        code = self.process.wait()
        return f"the process ended ({code})"

    def killed_for_memory(self) -> bool:
        """Whether someone else killed it: the kernel does where memory is short."""
        return self.process.poll() == -signal.SIGKILL

    def close(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was to be written has no reader
                    continue


@dataclass(slots=True)
class _Known:
    """What is known of the task at hand."""

    program: str
    reference: str
    functions: dict[str, Trial] = field(default_factory=dict)
    #: The process that has built a candidate, the digest of its function, and the seconds that it took.
    built: dict[str, tuple[int, str, float]] = field(default_factory=dict)

    def with_build(self, trial: Trial, key: str) -> Trial:
        """A trial that ran, with the seconds that building took: the answer to a run does not tell them."""
        found = self.built.get(key)
        return trial if found is None else replace(trial, build_seconds=found[2])


class LocalMeasurer:
    """Measures on this machine. Use as a context manager, or close it: it ends its processes.

    ``workers`` build at once (default: one for each CPU this process may use). ``command`` starts one (by
    default this package's own): a test may give one that fails.
    """

    def __init__(
        self, limits: TrialLimits = LIMITS, workers: int | None = None, command: Sequence[str] | None = None
    ) -> None:
        self._limits = limits
        self._command = command or (sys.executable, "-P", "-m", "tilewright.driver.measure_worker")
        count = min(available_cpus(), MOST_WORKERS) if workers is None else workers
        self._workers: list[_Worker | None] = [None] * max(1, count)
        self._task: AnyTask | None = None
        self._known = _Known("", "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for at in range(len(self._workers)):
            self._end(at)

    @property
    def processes(self) -> tuple[int, ...]:
        """The numbers of the processes that live."""
        return tuple(worker.process.pid for worker in self._workers if worker is not None)

    def measure(
        self, task: AnyTask, candidates: Sequence[Candidate], limits: TrialLimits | None = None
    ) -> list[Trial]:
        """One trial a candidate, in order; none of those that limits leave no time for.

        Raises TargetError for a task of another machine.
        """
        limits = self._limits if limits is None else limits
        try:
            requests, trials, places = self._prepared(task, candidates, limits)
            if limits.rounds > 1 and time.monotonic() < limits.until:
                self._take_turns(requests, trials, candidates, places, limits)
            elif limits.rounds == 1:
                for n, candidate in enumerate(candidates):
                    if trials[n] is None and time.monotonic() < limits.until:
                        trials[n] = self._run(requests[n], candidate, places[n], limits)
        except KeyboardInterrupt:
            # their answers would be taken for those of what is asked next
            self.close()
            raise
        return [trial for trial in trials if trial is not None]

    def prepare(
        self, task: AnyTask, candidates: Sequence[Candidate], limits: TrialLimits | None = None
    ) -> list[Trial | None]:
        """Only build, for :meth:`measure` to run soon: a trial for each that will not be run.

        Raises TargetError for a task of another machine.
        """
        return self._prepared(task, candidates, self._limits if limits is None else limits)[1]

    def _prepared(
        self, task: AnyTask, candidates: Sequence[Candidate], limits: TrialLimits
    ) -> tuple[list[dict[str, Any]], list[Trial | None], list[int]]:
        """What is asked of each candidate, trials of those that will not be run, where each was built."""
        if task != self._task:
            if task.machine.target.fingerprint != detect().fingerprint:
                raise TargetError(f"tasks for {task.machine.target.name!r} cannot be timed on this machine")
            self._task = task
            self._known = _Known(print_source(task.program), task.default().plan.to_json())
        requests = [self._request(task, candidate, limits) for candidate in candidates]
        trials: list[Trial | None] = [None] * len(candidates)
        return requests, trials, self._build(requests, trials, candidates, limits)

    def _request(self, task: AnyTask, candidate: Candidate, limits: TrialLimits) -> dict[str, Any]:
        memory = limits.memory_bytes or int(physical_memory() * MEMORY_SHARE)
        return {
            "program": self._known.program,
            "reference": self._known.reference,
            "threads": task.machine.threads,
            "form": "plan" if isinstance(candidate.plan, UnitPlan) else "trace",
            "candidate": candidate.plan.to_json(),
            "memory": memory,
            "slow": limits.slow,
        }

    def _build(
        self,
        requests: Sequence[dict[str, Any]],
        trials: list[Trial | None],
        candidates: Sequence[Candidate],
        limits: TrialLimits,
    ) -> list[int]:
        """Have all candidates built, several at once; where each was. Those that fail are trials then."""
        places = [0] * len(requests)
        todo: list[int] = []
        for n, request in enumerate(requests):
            known = self._known.built.get(digest_text(request["candidate"]))
            if known is not None and limits.rounds == 1:
                places[n] = known[0]
            else:
                todo.append(n)
        todo.reverse()
        # in turns, all are in one process
        free = [0] if limits.rounds > 1 else list(range(len(self._workers)))
        running: dict[int, tuple[int, float]] = {}
        while todo or running:
            if time.monotonic() >= limits.until:
                todo.clear()
            while todo and free:
                n, at = todo.pop(), free.pop(0)
                try:
                    self._worker(at).send({"do": "build", **requests[n]})
                except _EndedError as error:
                    trials[n] = self._failed(candidates[n], at, error)
                    free.append(at)
                    continue
                running[at] = (n, min(time.monotonic() + limits.build_seconds, limits.until))
            for at in self._ready({at: until for at, (_, until) in running.items()}):
                n, until = running[at]
                try:
                    if time.monotonic() > until:
                        raise TimeoutError
                    answer = self._worker(at).read()
                except (TimeoutError, _EndedError) as error:
                    trials[n] = self._given_up(candidates[n], at, error, limits.build_seconds, limits)
                else:
                    if answer is None:
                        continue
                    trials[n] = self._built(candidates[n], at, requests[n], answer, limits)
                    places[n] = at
                del running[at]
                free.append(at)
        return places

    def _ready(self, until: dict[int, float]) -> list[int]:
        """The processes that said something, or whose time is up."""
        if not until:
            return []
        with selectors.DefaultSelector() as selector:
            for at in until:
                selector.register(self._worker(at).out, selectors.EVENT_READ, at)
            ready = selector.select(max(0.0, min(until.values()) - time.monotonic()))
        found = [int(key.data) for key, _ in ready]
        return found or [at for at, end in until.items() if time.monotonic() >= end]

    def _built(
        self,
        candidate: Candidate,
        at: int,
        request: dict[str, Any],
        answer: dict[str, Any],
        limits: TrialLimits,
    ) -> Trial | None:
        """The trial of a candidate that will not be run; ``None`` for one that will."""
        try:
            trial = trial_from(candidate, answer)
        except ValueError as error:
            return self._failed(candidate, at, error)
        if trial.status != "ok":
            return trial
        known = self._known
        known.built[digest_text(request["candidate"])] = (at, trial.func, trial.build_seconds)
        if limits.rounds > 1 or trial.func not in known.functions:
            return None
        return replace(known.functions[trial.func], candidate=candidate, build_seconds=trial.build_seconds)

    def _run(
        self, request: dict[str, Any], candidate: Candidate, at: int, limits: TrialLimits
    ) -> Trial | None:
        """Run one candidate where it was built; where that process is gone, it is built again."""
        key = digest_text(request["candidate"])
        if key in self._known.built:
            func = self._known.built[key][1]
            if func in self._known.functions:
                return self._known.with_build(replace(self._known.functions[func], candidate=candidate), key)
        try:
            worker = self._worker(at)
            worker.send({"do": "run", "candidates": [request], "rounds": 1})
            answer = worker.wait(_within(limits.run_seconds + limits.build_seconds, limits))
            (told,) = _answers(answer, 1)
            trial = self._known.with_build(trial_from(candidate, told, timed=True), key)
        except (TimeoutError, _EndedError, ValueError) as error:
            return self._given_up(candidate, at, error, limits.run_seconds, limits)
        if trial.status == "ok":
            if len(self._known.functions) >= MOST_KNOWN:
                self._known.functions.clear()
            self._known.functions[trial.func] = trial
        if float(answer.get("held", 0.0)) > HELD_SHARE * request["memory"]:
            self._end(at)  # it leaks
        return trial

    def _take_turns(
        self,
        requests: Sequence[dict[str, Any]],
        trials: list[Trial | None],
        candidates: Sequence[Candidate],
        places: Sequence[int],
        limits: TrialLimits,
    ) -> None:
        """Run those that are left in one process, taking turns."""
        left = [n for n, trial in enumerate(trials) if trial is None]
        if not left:
            return
        at = places[left[0]]
        try:
            worker = self._worker(at)
            within = _within(limits.run_seconds * limits.rounds, limits)
            asked = {"do": "run", "candidates": [requests[n] for n in left], "rounds": limits.rounds}
            worker.send(asked | {"seconds": within})
            told = _answers(worker.wait(within), len(left))
            for n, each in zip(left, told, strict=True):
                trial = trial_from(candidates[n], each, timed=True)
                trials[n] = self._known.with_build(trial, digest_text(requests[n]["candidate"]))
        except (TimeoutError, _EndedError, ValueError) as error:
            for n in left:
                trials[n] = self._given_up(candidates[n], at, error, limits.run_seconds, limits)

    def _worker(self, at: int) -> _Worker:
        worker = self._workers[at]
        if worker is None:
            worker = self._workers[at] = _Worker(self._command)
        return worker

    def _given_up(
        self, candidate: Candidate, at: int, error: Exception, seconds: float, limits: TrialLimits
    ) -> Trial | None:
        """The trial of a candidate that failed; ``None`` where it was the budget that ended."""
        failed = self._failed(candidate, at, error, seconds)
        return None if failed.status == "hung" and time.monotonic() >= limits.until else failed

    def _failed(self, candidate: Candidate, at: int, error: Exception, seconds: float | None = None) -> Trial:
        """The trial of a candidate whose process ended or went on for too long; it is replaced."""
        worker = self._workers[at]
        memory = worker is not None and worker.killed_for_memory()
        self._end(at)
        if isinstance(error, TimeoutError):
            return Trial(candidate, "hung", reason=f"no answer within {seconds:g} s")
        status: Status = "memory" if memory else "crashed"
        return Trial(candidate, status, reason=str(error)[:300])

    def _end(self, at: int) -> None:
        worker, self._workers[at] = self._workers[at], None
        built = self._known.built
        for key in [key for key, (where, *_) in built.items() if where == at]:
            del built[key]
        if worker is not None:
            worker.close()


def _within(seconds: float, limits: TrialLimits) -> float:
    """So many seconds, or those until the limits' end."""
    return max(0.0, min(seconds, limits.until - time.monotonic()))


def _answers(answer: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The answers to a run. Raises ValueError where there are others than asked for."""
    found = answer.get("trials")
    if not isinstance(found, list) or len(found) != count or not all(isinstance(x, dict) for x in found):
        raise ValueError("its answer is none")
    return found


def trial_from(candidate: Candidate, told: Mapping[str, Any], *, timed: bool = False) -> Trial:
    """The trial that an answer tells of. Raises ValueError where it cannot be true."""
    status, seconds, load = told.get("status"), told.get("seconds", []), told.get("load")
    if status not in STATUSES or not isinstance(seconds, list) or not isinstance(told.get("reason"), str):
        raise ValueError("its answer is none")
    if not all(isinstance(t, float) and isfinite(t) and t > 0 for t in seconds):
        raise ValueError("its answer has times that are none")
    if timed and status == "ok" and not seconds:
        raise ValueError("its answer has no times")
    return Trial(
        candidate,
        status,
        tuple(seconds),
        told["reason"],
        str(told.get("func", "")),
        float(told.get("build_seconds", 0.0)),
        float(load) if isinstance(load, float) else None,
    )
