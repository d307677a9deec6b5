"""Measuring on many machines: workers build side by side; on each machine one at a time runs what it built.

What carries requests to workers and answers back is a :class:`Pool`: Ray's actors (``ray_pool.py``), or
anything else that can be asked and waited for. Nothing that a worker says is believed: one that ends, is
late, answers nonsense or is another machine than it said is dropped, and others measure what it had.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import TracebackType
from typing import Any, Final, Protocol, Self

from tilewright.driver.cluster_worker import candidate_data, limits_data, task_data
from tilewright.driver.measuring import trial_from
from tilewright.strategies import AnyTask, Candidate, Trial
from tilewright.support import TargetError, get_logger
from tilewright.tune import LIMITS, TrialLimits

_log = get_logger(__name__)

#: Seconds beyond the limits of its candidates after which a worker is late.
GRACE: Final = 30.0
#: Seconds beyond that in which a worker says what it is: it has to start, and to load this package.
START: Final = 120.0
#: Workers that may be lost with one candidate; then it is a trial that crashed.
MOST_LOST: Final = 2
#: Candidates a worker that keep it busy while the next ones are chosen.
PER_WORKER: Final = 4
#: Candidates that a worker holds built, at most, before it runs them.
MOST_BUILT: Final = 32


class WorkerLostError(Exception):
    """A worker ended, or what carries its answers did."""


class Pool(Protocol):
    """Workers that are asked by number, and answer later."""

    @property
    def size(self) -> int:
        """How many workers there were at the beginning."""

    def send(self, worker: int, request: Mapping[str, Any]) -> Hashable:
        """Give a worker something to do: a ticket for its answer. A worker does one thing at a time."""

    def ready(self, tickets: Sequence[Hashable], seconds: float) -> Sequence[Hashable]:
        """The tickets whose answers, or losses, are there; waits for the first one at most so long."""

    def answer(self, ticket: Hashable) -> object:
        """The answer of a ticket that is ready. Raises WorkerLostError."""

    def drop(self, worker: int) -> None:
        """End a worker: nothing more is asked of it."""

    def close(self) -> None:
        """End all workers."""


@dataclass(slots=True)
class _Worker:
    """A worker that is there: its machine's name, what that machine is, the task that it was told."""

    host: str
    fingerprint: str
    told: str = ""


@dataclass(slots=True)
class _Job:
    """The candidates of one task on their way through a cluster."""

    key: str
    fingerprint: str
    task: AnyTask
    candidates: Sequence[Candidate]
    waiting: deque[int]
    trials: list[Trial | None]
    lost: list[int]
    left: int


@dataclass(slots=True)
class _Asked:
    """What a worker is doing: candidates of a job that it builds or runs, and when its answer is late."""

    ticket: Hashable
    job: _Job
    which: list[int]
    run: bool
    late: float


@dataclass(slots=True)
class _Batch:
    """Jobs that are measured together."""

    jobs: Sequence[_Job]
    limits: TrialLimits
    #: What each worker has built and not run yet; all of one job.
    built: dict[int, tuple[_Job, list[int]]] = field(default_factory=dict)
    asked: dict[int, _Asked] = field(default_factory=dict)

    def over(self) -> bool:
        """Whether the time is over, and nobody is asked any more: nothing else is built or run then."""
        if time.monotonic() < self.limits.until:
            return False
        for job in self.jobs:
            job.waiting.clear()
        self.built.clear()
        return not self.asked

    def settle(self, job: _Job, n: int, trial: Trial) -> None:
        """Let a candidate have its trial."""
        job.trials[n] = trial
        job.left -= 1


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
        self._hosts: dict[str, list[int]] = {}
        #: What workers still do that were asked before an interruption.
        self._owed: dict[int, Hashable] = {}
        asked = {pool.send(worker, {"do": "describe"}): worker for worker in range(pool.size)}
        until = time.monotonic() + limits.build_seconds + START
        while asked and time.monotonic() < until:
            for ticket in pool.ready(list(asked), until - time.monotonic()):
                worker = asked.pop(ticket)
                told = self._answer(worker, ticket)
                if told is not None and isinstance(told.get("fingerprint"), str):
                    self._workers[worker] = _Worker(hosts[worker], told["fingerprint"])
                    self._hosts.setdefault(hosts[worker], []).append(worker)
        for worker in asked.values():
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

    @property
    def width(self) -> int:
        """How many candidates keep all workers busy."""
        return PER_WORKER * len(self._workers)

    def measure(
        self, task: AnyTask, candidates: Sequence[Candidate], limits: TrialLimits | None = None
    ) -> list[Trial]:
        """One trial a candidate, in order; none of those that limits leave no time for.

        Raises TargetError where no worker is the task's machine.
        """
        (trials,) = self.measure_all([(task, candidates)], self._limits if limits is None else limits)
        return trials

    def measure_all(
        self, jobs: Sequence[tuple[AnyTask, Sequence[Candidate]]], limits: TrialLimits | None = None
    ) -> list[list[Trial]]:
        """The trials of each task's candidates, in order: all tasks at once, but for those taking turns.

        Raises TargetError where no worker is the machine of a task.
        """
        limits = self._limits if limits is None else limits
        if limits.until < inf:
            # clocks of other machines tell other times: what is left
            left = max(0.0, limits.until - time.monotonic())
            build, run = min(limits.build_seconds, left), min(limits.run_seconds, left)
            limits = replace(limits, build_seconds=build, run_seconds=run)
        made = [
            _Job(
                task.key,
                task.machine.target.fingerprint,
                task,
                candidates,
                deque(range(len(candidates))),
                [None] * len(candidates),
                [0] * len(candidates),
                len(candidates),
            )
            for task, candidates in jobs
        ]
        batch = _Batch(made, limits)
        try:
            if limits.rounds > 1:
                for job in made:
                    self._in_turns(batch, job)
            else:
                self._side_by_side(batch)
        except BaseException:
            # it is interrupted: who was asked is not asked again before it has answered
            self._owed.update({worker: asked.ticket for worker, asked in batch.asked.items()})
            raise
        over = time.monotonic() >= limits.until
        return [
            [t for t in job.trials if t is not None and not (over and t.status == "hung")] for job in made
        ]

    def _side_by_side(self, batch: _Batch) -> None:
        changed, workers = set(self._hosts), 0
        while any(job.left for job in batch.jobs):
            if batch.over():
                break
            if workers != len(self._workers):
                workers = len(self._workers)
                for job in batch.jobs:
                    if job.left:
                        self._able(job)
            for host in changed:
                self._ask(batch, host)
            changed = self._hear(batch)

    def _in_turns(self, batch: _Batch, job: _Job) -> None:
        while job.left and not batch.over():
            worker = self._leader(job)
            mates = self._hosts[self._workers[worker].host]
            if worker not in batch.asked and not any(mate in self._owed for mate in mates):
                job.waiting.clear()
                self._send(batch, worker, job, list(range(len(job.candidates))), run=True)
            self._hear(batch)

    def _able(self, job: _Job) -> list[int]:
        """Who can measure a task. Raises TargetError where nobody can."""
        able = [w for w, each in self._workers.items() if each.fingerprint == job.fingerprint]
        if not able:
            raise TargetError(
                f"no worker of the cluster is a {job.task.machine.target.name!r} as the task is for",
                hint="workers measure only for the machine that they are on",
            )
        return able

    def _leader(self, job: _Job) -> int:
        able = self._able(job)
        found = self._leaders.get(job.key)
        if found is None or found not in able:
            found = self._leaders[job.key] = able[len(self._leaders) % len(able)]
        return found

    def _ask(self, batch: _Batch, host: str) -> None:
        """Give everyone on a machine who is free something to build, or let one run what it has built."""
        members = self._hosts[host]
        if any(w in self._owed or (w in batch.asked and batch.asked[w].run) for w in members):
            return  # what is timed there is timed alone
        for worker in members:
            if worker not in batch.asked:
                job = self._next(batch, worker)
                if job is not None:
                    self._send(batch, worker, job, [job.waiting.popleft()], run=False)
        if any(worker in batch.asked for worker in members):
            return
        for worker in members:
            if worker in batch.built:
                job, which = batch.built.pop(worker)
                self._send(batch, worker, job, which, run=True)
                return

    def _next(self, batch: _Batch, worker: int) -> _Job | None:
        """What a worker builds next: more of what it has built, up to a limit; else of what waits most."""
        if worker in batch.built:
            job, which = batch.built[worker]
            return job if job.waiting and len(which) < MOST_BUILT else None
        fingerprint = self._workers[worker].fingerprint
        fitting = [job for job in batch.jobs if job.waiting and job.fingerprint == fingerprint]
        return max(fitting, key=lambda job: len(job.waiting), default=None)

    def _send(self, batch: _Batch, worker: int, job: _Job, which: list[int], *, run: bool) -> None:
        limits = batch.limits
        each = limits.build_seconds + (limits.run_seconds * limits.rounds if run else 0.0)
        request = {
            "do": "measure" if run else "build",
            "key": job.key,
            "fingerprint": job.fingerprint,
            "limits": limits_data(limits),
            "candidates": [candidate_data(job.candidates[n]) for n in which],
        }
        if self._workers[worker].told != job.key:
            request["task"] = task_data(job.task)
            self._workers[worker].told = job.key
        late = time.monotonic() + each * len(which) + GRACE
        batch.asked[worker] = _Asked(self._pool.send(worker, request), job, which, run, late)

    def _hear(self, batch: _Batch) -> set[str]:
        """Wait for answers, or for someone to be late; the machines where something may begin now."""
        by_ticket = {asked.ticket: worker for worker, asked in batch.asked.items()}
        owing = {ticket: worker for worker, ticket in self._owed.items()}
        if not by_ticket and not owing:
            return set(self._hosts)
        now = time.monotonic()
        first = min((asked.late for asked in batch.asked.values()), default=now + GRACE)
        ready = self._pool.ready([*by_ticket, *owing], max(0.0, first - now))
        changed: set[str] = set()
        for ticket in ready:
            worker = owing.get(ticket, by_ticket.get(ticket, -1))
            changed.add(self._workers[worker].host)
            told = self._answer(worker, ticket)
            if ticket in owing:
                self._owed.pop(worker, None)  # whom it was for has gone
            elif not self._take(batch, worker, told):
                changed.update(self._hosts)
        now = time.monotonic()
        if not ready and not by_ticket:
            for worker in [*self._owed]:
                self._lose(worker, "it is late")
            changed.update(self._hosts)
        for worker in [w for w, asked in batch.asked.items() if now > asked.late]:
            self._lose(worker, "it is late")
            self._take(batch, worker, None)
            changed.update(self._hosts)
        return changed & self._hosts.keys()

    def _take(self, batch: _Batch, worker: int, told: Mapping[str, Any] | None) -> bool:
        """What a worker says of what it was asked; where it says nothing, that goes to others: False."""
        asked = batch.asked.pop(worker)
        job, which, run = asked.job, asked.which, asked.run
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
                None if each is None and not run else trial_from(job.candidates[n], each, timed=run)
                for n, each in zip(which, found, strict=True)
            ]
        except (ValueError, TypeError) as error:
            if worker in self._workers:
                self._lose(worker, str(error))
            _, had = batch.built.pop(worker, (job, []))
            for n in (*which, *had):
                job.lost[n] += 1
                if job.lost[n] >= MOST_LOST:
                    batch.settle(job, n, Trial(job.candidates[n], "crashed", reason="workers ended with it"))
                else:
                    job.waiting.append(n)
            return False
        for n, trial in zip(which, made, strict=True):
            if trial is None:
                batch.built.setdefault(worker, (job, []))[1].append(n)
            else:
                batch.settle(job, n, replace(trial, host=host))
        return True

    def _answer(self, worker: int, ticket: Hashable) -> Mapping[str, Any] | None:
        """A worker's answer; ``None`` where it is lost, or says nothing."""
        try:
            told = self._pool.answer(ticket)
        except WorkerLostError as error:
            self._lose(worker, str(error))
            return None
        return told if isinstance(told, Mapping) else None

    def _lose(self, worker: int, why: str) -> None:
        gone = self._workers.pop(worker, None)
        self._owed.pop(worker, None)
        if gone is not None and worker in self._hosts[gone.host]:
            self._hosts[gone.host].remove(worker)
            if not self._hosts[gone.host]:
                del self._hosts[gone.host]
        self._pool.drop(worker)
        _log.warning("worker %d%s is lost: %s", worker, f" on {gone.host}" if gone else "", why)
