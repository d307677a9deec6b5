"""Measuring on many machines: workers build side by side; on each machine one at a time runs what it built.

What carries requests to workers and answers back is a :class:`Pool`: Ray's actors (``ray_pool.py``), or
anything else that can be asked and waited for. Nothing that a worker says is believed: one that ends, is
late, answers nonsense or is another machine than it said is dropped, and others measure what it had.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Protocol, Self

from tilewright.cost import Machine
from tilewright.driver.measuring import LocalMeasurer, trial_from
from tilewright.ir import parse_program, print_program
from tilewright.plan import UnitPlan, plan_from_json
from tilewright.schedule import load_trace
from tilewright.strategies import Candidate, Task, Trial
from tilewright.support import TargetError, get_logger
from tilewright.target import detect
from tilewright.tune import LIMITS, TrialLimits

_log = get_logger(__name__)

#: Seconds beyond the limits of its candidates after which a worker is late.
GRACE: Final = 30.0
#: Workers that may be lost with one candidate; then it is a trial that crashed.
MOST_LOST: Final = 2


class WorkerLostError(Exception):
    """A worker ended, or what carries its answers did."""


class Pool(Protocol):
    """Workers that are asked by number, and answer later."""

    @property
    def size(self) -> int:
        """How many workers there were at the beginning."""

    def send(self, worker: int, request: Mapping[str, Any]) -> object:
        """Give a worker something to do: a ticket for its answer. A worker does one thing at a time."""

    def ready(self, tickets: Sequence[object], seconds: float) -> Sequence[object]:
        """The tickets whose answers, or losses, are there; waits for the first one at most so long."""

    def answer(self, ticket: object) -> object:
        """The answer of a ticket that is ready. Raises WorkerLostError."""

    def drop(self, worker: int) -> None:
        """End a worker: nothing more is asked of it."""

    def close(self) -> None:
        """End all workers."""


class ClusterWorker:
    """What runs on a machine of a cluster: it builds, checks and times candidates when asked."""

    def __init__(self) -> None:
        self._measurer = LocalMeasurer(workers=1)
        self._task: tuple[Mapping[str, Any], Task] | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request: who it is, or trials of candidates that it is to build or to measure."""
        if request["do"] == "describe":
            return {"fingerprint": detect().fingerprint, "target": detect().name}
        told = request["task"]
        if self._task is None or self._task[0] != told:
            self._task = told, _task_of(told)
        limits = TrialLimits(**request["limits"])
        candidates = [_candidate_of(each) for each in request["candidates"]]
        if told["fingerprint"] != detect().fingerprint:
            return {"other": detect().fingerprint}
        if request["do"] == "build":
            made = self._measurer.prepare(self._task[1], candidates, limits)
            return {"trials": [None if trial is None else _told(trial) for trial in made]}
        return {"trials": [_told(t) for t in self._measurer.measure(self._task[1], candidates, limits)]}

    def close(self) -> None:
        """End its processes."""
        self._measurer.close()


@dataclass(slots=True)
class _Worker:
    """A worker that is there: the machine that it says it is on, and what that machine is."""

    host: str
    fingerprint: str


@dataclass(slots=True)
class _Batch:
    """Candidates of one task on their way through a cluster."""

    request: Mapping[str, Any]
    candidates: Sequence[Candidate]
    limits: TrialLimits
    trials: list[Trial | None]
    lost: list[int]
    waiting: deque[int]
    #: What each worker has built and not run yet.
    built: dict[int, list[int]] = field(default_factory=dict)
    #: What is asked of whom: candidates, whether they are to run, and when the answer is late.
    asked: dict[int, tuple[object, list[int], bool, float]] = field(default_factory=dict)


class ClusterMeasurer:
    """Measures on the workers of a pool. Use as a context manager, or close it: it ends the workers.

    A task is measured only by workers whose machine has its target's fingerprint. Candidates that are to take
    turns go to one worker, which stays the same for a task while it lives.
    """

    def __init__(self, pool: Pool, hosts: Sequence[str], limits: TrialLimits = LIMITS) -> None:
        """``hosts`` name the machine of each worker: those of one name never run two candidates at once.

        Raises TargetError where no worker says what it is.
        """
        self._pool = pool
        self._limits = limits
        self._leaders: dict[str, int] = {}
        self._workers: dict[int, _Worker] = {}
        asked = {worker: pool.send(worker, {"do": "describe"}) for worker in range(pool.size)}
        until = time.monotonic() + limits.build_seconds + GRACE
        while asked and time.monotonic() < until:
            ready = pool.ready(list(asked.values()), until - time.monotonic())
            for worker in [w for w, ticket in asked.items() if ticket in ready]:
                told = self._answer(worker, asked.pop(worker))
                if told is not None and isinstance(told.get("fingerprint"), str):
                    self._workers[worker] = _Worker(hosts[worker], told["fingerprint"])
        for worker in asked:
            pool.drop(worker)
        if not self._workers:
            raise TargetError("no worker of the cluster answers", hint="is Tilewright installed there?")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    @property
    def workers(self) -> int:
        """How many workers are left."""
        return len(self._workers)

    def measure(
        self, task: Task, candidates: Sequence[Candidate], limits: TrialLimits | None = None
    ) -> list[Trial]:
        """One trial a candidate, in order. Raises TargetError where no worker is the task's machine."""
        limits = self._limits if limits is None else limits
        count = len(candidates)
        request = {"task": _task_data(task), "limits": _limits_data(limits)}
        batch = _Batch(request, candidates, limits, [None] * count, [0] * count, deque(range(count)))
        while any(trial is None for trial in batch.trials):
            able = [w for w, each in self._workers.items() if each.fingerprint == _fingerprint(task)]
            if not able:
                raise TargetError(
                    f"no worker of the cluster is a {task.machine.target.name!r} as the task is for",
                    hint="workers measure only for the machine that they are on",
                )
            if limits.rounds > 1:
                self._in_turns(batch, self._leader(task, able))
            else:
                self._ask(batch, able)
                self._hear(batch)
        return [trial for trial in batch.trials if trial is not None]

    def _leader(self, task: Task, able: Sequence[int]) -> int:
        found = self._leaders.get(task.key)
        if found is None or found not in able:
            found = self._leaders[task.key] = able[len(self._leaders) % len(able)]
        return found

    def _in_turns(self, batch: _Batch, worker: int) -> None:
        self._send(batch, worker, list(range(len(batch.candidates))), run=True)
        while worker in batch.asked:
            self._hear(batch)
        batch.waiting.clear()

    def _ask(self, batch: _Batch, able: Sequence[int]) -> None:
        """Give everyone who is free something to build; where all is built, let one a machine run its own."""
        free = [worker for worker in able if worker not in batch.asked]
        for worker in free:
            if batch.waiting:
                self._send(batch, worker, [batch.waiting.popleft()], run=False)
        building = any(not run for _, _, run, _ in batch.asked.values())
        if batch.waiting or building:
            return
        busy = {self._workers[worker].host for worker in batch.asked}
        for worker in able:
            if batch.built.get(worker) and self._workers[worker].host not in busy:
                busy.add(self._workers[worker].host)
                self._send(batch, worker, batch.built.pop(worker), run=True)

    def _send(self, batch: _Batch, worker: int, which: list[int], *, run: bool) -> None:
        limits = batch.limits
        each = limits.build_seconds + (limits.run_seconds * limits.rounds if run else 0.0)
        request = {
            **batch.request,
            "do": "measure" if run else "build",
            "candidates": [_candidate_data(batch.candidates[n]) for n in which],
        }
        late = time.monotonic() + each * len(which) + GRACE
        batch.asked[worker] = (self._pool.send(worker, request), which, run, late)

    def _hear(self, batch: _Batch) -> None:
        """Wait for an answer, or for someone to be late."""
        if not batch.asked:
            return
        first = min(late for *_, late in batch.asked.values())
        tickets = [ticket for ticket, *_ in batch.asked.values()]
        ready = self._pool.ready(tickets, max(0.0, first - time.monotonic()))
        for worker in list(batch.asked):
            ticket, which, run, late = batch.asked[worker]
            if ticket in ready:
                del batch.asked[worker]
                self._take(batch, worker, which, self._answer(worker, ticket), run=run)
            elif time.monotonic() > late:
                del batch.asked[worker]
                self._lose(worker, "it is late")
                self._take(batch, worker, which, None, run=run)

    def _take(
        self, batch: _Batch, worker: int, which: list[int], told: Mapping[str, Any] | None, *, run: bool
    ) -> None:
        """What a worker says of some candidates; where it says nothing, they go to others."""
        try:
            if told is None:
                raise ValueError
            found = told.get("trials")
            if not isinstance(found, list) or len(found) != len(which):
                raise ValueError(f"it is another machine: {told['other']}" if "other" in told else "nonsense")
            if not all(isinstance(each, Mapping) for each in found if run or each is not None):
                raise ValueError("nonsense")
            host = self._workers[worker].host
            made = [
                None if each is None and not run else trial_from(batch.candidates[n], each, timed=run)
                for n, each in zip(which, found, strict=True)
            ]
        except (ValueError, TypeError) as error:
            if worker in self._workers:
                self._lose(worker, str(error))
            for n in (*which, *batch.built.pop(worker, [])):
                batch.lost[n] += 1
                if batch.lost[n] >= MOST_LOST:
                    batch.trials[n] = Trial(batch.candidates[n], "crashed", reason="workers ended with it")
                else:
                    batch.waiting.append(n)
            return
        for n, trial in zip(which, made, strict=True):
            if trial is None:
                batch.built.setdefault(worker, []).append(n)
            else:
                batch.trials[n] = replace(trial, host=host)

    def _answer(self, worker: int, ticket: object) -> Mapping[str, Any] | None:
        """A worker's answer; ``None`` where it is lost, or says nothing."""
        try:
            told = self._pool.answer(ticket)
        except WorkerLostError as error:
            self._lose(worker, str(error))
            return None
        return told if isinstance(told, Mapping) else None

    def _lose(self, worker: int, why: str) -> None:
        gone = self._workers.pop(worker, None)
        self._pool.drop(worker)
        _log.warning("worker %d%s is lost: %s", worker, f" on {gone.host}" if gone else "", why)


def _fingerprint(task: Task) -> str:
    return task.machine.target.fingerprint


def _task_data(task: Task) -> dict[str, Any]:
    return {
        "program": print_program(task.program),
        "fingerprint": _fingerprint(task),
        "threads": task.machine.threads,
        "constants": sorted(task.constants),
        "winograd": task.winograd,
        "sizes": list(task.sizes),
        "free": sorted(task.free),
    }


def _task_of(data: Mapping[str, Any]) -> Task:
    return Task(
        parse_program(data["program"]),
        Machine(detect(), int(data["threads"])),
        frozenset(data["constants"]),
        data["winograd"],
        tuple(data["sizes"]),
        frozenset(data["free"]),
    )


def _limits_data(limits: TrialLimits) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in limits.__slots__}


def _candidate_data(candidate: Candidate) -> dict[str, str]:
    form = "plan" if isinstance(candidate.plan, UnitPlan) else "trace"
    return {"origin": candidate.origin, "form": form, "plan": candidate.plan.to_json()}


def _candidate_of(data: Mapping[str, str]) -> Candidate:
    read = plan_from_json if data["form"] == "plan" else load_trace
    return Candidate(data["origin"], read(data["plan"]))


def _told(trial: Trial) -> dict[str, Any]:
    return {
        "status": trial.status,
        "seconds": list(trial.seconds),
        "reason": trial.reason,
        "func": trial.func,
        "build_seconds": trial.build_seconds,
        "load": trial.load,
    }
