"""What travels between a tuner and the workers of a cluster, and what runs on a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.cost import Machine
from tilewright.driver.measuring import LocalMeasurer
from tilewright.ir import Program, parse_source, print_source
from tilewright.plan import Accuracy, UnitPlan, plan_from_json
from tilewright.schedule import load_trace
from tilewright.strategies import AnyTask, Candidate, NestTask, Task, Trial
from tilewright.target import detect
from tilewright.tune import TrialLimits


class ClusterWorker:
    """What runs on a machine of a cluster: it builds, checks and times candidates when asked.

    What it has built stays there until it is told to run it; a task is told once, and named then.
    """

    def __init__(self) -> None:
        self._measurer = LocalMeasurer(workers=1)
        self._task: tuple[str, AnyTask] | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request: who it is, or trials of candidates that it is to build or to measure."""
        own = detect()
        if request["do"] == "describe":
            return {"fingerprint": own.fingerprint, "target": own.name}
        if request["fingerprint"] != own.fingerprint:
            return {"other": own.fingerprint}
        if "task" in request:
            self._task = request["key"], task_from(request["task"])
        if self._task is None or self._task[0] != request["key"]:
            return {"unknown": request["key"]}
        task, limits = self._task[1], TrialLimits(**request["limits"])
        candidates = [candidate_from(each) for each in request["candidates"]]
        if request["do"] == "build":
            made = self._measurer.prepare(task, candidates, limits)
            return {"trials": [None if trial is None else trial_data(trial) for trial in made]}
        return {"trials": [trial_data(trial) for trial in self._measurer.measure(task, candidates, limits)]}

    def close(self) -> None:
        """End its processes."""
        self._measurer.close()


def task_data(task: AnyTask) -> dict[str, Any]:
    """A task as plain data; its target is told apart."""
    both = {"program": print_source(task.program), "threads": task.machine.threads}
    if isinstance(task, NestTask):
        return both
    return {
        **both,
        "constants": sorted(task.constants),
        "accuracy": task.accuracy.mode,
        "most_error": task.accuracy.most_error,
        "without": sorted(task.accuracy.without),
        "free": sorted(task.free),
    }


def task_from(data: Mapping[str, Any]) -> AnyTask:
    """A task of this machine from plain data."""
    program, machine = parse_source(data["program"]), Machine(detect(), int(data["threads"]))
    if not isinstance(program, Program):
        return NestTask(program, machine)
    return Task(
        program,
        machine,
        frozenset(data["constants"]),
        Accuracy(data["accuracy"], float(data["most_error"]), frozenset(data["without"])),
        frozenset(data["free"]),
    )


def limits_data(limits: TrialLimits) -> dict[str, Any]:
    """Limits as plain data."""
    # whoever asks keeps the time; infinity is none in JSON
    return {name: getattr(limits, name) for name in limits.__slots__ if name != "until"}


def candidate_data(candidate: Candidate) -> dict[str, str]:
    """A candidate as plain data."""
    form = "plan" if isinstance(candidate.plan, UnitPlan) else "trace"
    return {"origin": candidate.origin, "form": form, "plan": candidate.plan.to_json()}


def candidate_from(data: Mapping[str, str]) -> Candidate:
    """A candidate from plain data. Raises ArtefactError."""
    read = plan_from_json if data["form"] == "plan" else load_trace
    return Candidate(data["origin"], read(data["plan"]))


def trial_data(trial: Trial) -> dict[str, Any]:
    """What became of a candidate, as plain data."""
    return {
        "status": trial.status,
        "seconds": list(trial.seconds),
        "reason": trial.reason,
        "func": trial.func,
        "build_seconds": trial.build_seconds,
        "load": trial.load,
    }
