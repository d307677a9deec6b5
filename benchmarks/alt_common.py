"""What the benchmarks of the joint search share: operators as tasks, layouts of baselines, tuning."""

import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from types import MappingProxyType
from typing import Any

import onnx

import tilewright
from tilewright.analysis import find_operator
from tilewright.driver import LocalMeasurer, tasks_of
from tilewright.ir import Program
from tilewright.schedule import Schedule, Step, Trace
from tilewright.strategies import QUICK, Candidate, JointStrategy, Strategy, Task
from tilewright.tune import Budget, Database, TaskResult, TrialLimits, tune_task

#: Part of the trials that choose layouts: 300 of 1000 in the paper.
JOINT_SHARE = 0.3
#: Rounds in which the plans that were found are compared in the end.
ROUNDS = 13


def strategies(trials: int, levels: int = 1) -> Mapping[str, JointStrategy]:
    """The joint search and what it is compared with, each for so many trials."""
    joint = int(JOINT_SHARE * trials)
    settings = replace(QUICK, joint=joint, loops=trials - joint, levels=levels)
    return MappingProxyType(
        {
            "joint": JointStrategy("joint", settings),
            "loop-only": JointStrategy("loop-only", settings, layouts=False),
            "template": JointStrategy("template", settings, actors=False),
        }
    )


def single_task(model: onnx.ModelProto, threads: int) -> Task:
    """The task of a model's costliest kernel, as the compiler plans it."""
    compiled = tilewright.compile(model.SerializeToString(), threads=threads, records="off")
    return max((each.task for each in tasks_of(compiled)), key=lambda task: _work(task.program))


def freed(task: Task) -> Task:
    """The task with all its arguments free to be laid out: what is around it converts."""
    program = task.program
    return replace(task, free=frozenset(b.name for b in (*program.inputs, *program.outputs)))


def channels_last(task: Task) -> tuple[Step, ...]:
    """The steps that put data and results into the order NHWO (NWO, NDHWO), which baselines get as well."""
    found = find_operator(task.program)
    if found is None or not found.windowed:
        return ()
    names = {found.data.tensor, found.source, *found.results}
    arguments = {b.name for b in (*task.program.inputs, *task.program.outputs)}
    steps = []
    for name in sorted(n for n in names if n in arguments):
        rank = len(task.program.buffer(name).shape)
        steps.append(Step("layout_place", (name, ("d0", *(f"d{n}" for n in range(2, rank)), "d1"))))
    return tuple(steps)


def tuned_in_both_orders(
    task: Task, strategy: Strategy, trials: int, measurer: LocalMeasurer
) -> tuple[TaskResult, bool]:
    """Tune a task as it is and channels last, for so many trials each: the faster, and whether it is that.

    The plan of that puts the arguments into the order first.
    """
    plain = tuned(task, strategy, trials, measurer)
    steps = channels_last(task)
    if not steps:
        return plain, False
    placed = replace(task, program=Schedule(task.program).replay(steps).require_program())
    last = tuned(placed, strategy, trials, measurer)
    if last.best >= plain.best:
        return plain, False
    plan = last.plan or placed.default().plan
    rewrites = Trace((*steps, *plan.rewrites.steps), plan.rewrites.instructions)
    return replace(last, plan=replace(plan, rewrites=rewrites)), True


def tuned(
    task: Task,
    strategy: Strategy,
    trials: int,
    measurer: LocalMeasurer,
    seed: int = 0,
    seconds: float = 600.0,
) -> TaskResult:
    """Tune a task for so many trials, nothing remembered."""
    with Database(":memory:") as records:
        limit = Budget(trials, time.monotonic() + seconds)
        return tune_task(task, strategy.name, strategy, measurer, records, limit, seed)


def gains(task: Task, found: Mapping[str, TaskResult], measurer: LocalMeasurer) -> dict[str, float]:
    """How many times faster each search's plan is than the default: medians over rounds taken in turns."""
    plans = [result.plan for result in found.values() if result.plan is not None]
    if not plans:
        return dict.fromkeys(found, 1.0)
    default = Candidate("default", task.default().plan)
    candidates = [default, *(Candidate("tuned", plan) for plan in plans)]
    first, *others = measurer.measure(task, candidates, TrialLimits(rounds=ROUNDS))
    ratios = {
        trial.candidate.plan: median(a / b for a, b in zip(first.seconds, trial.seconds, strict=True))
        for trial in others
        if trial.status == first.status == "ok"
    }
    return {
        name: 1.0 if result.plan is None else ratios[result.plan]
        for name, result in found.items()
        if result.plan is None or result.plan in ratios
    }


def as_data(result: TaskResult) -> dict[str, Any]:
    """A result for a line of JSON."""
    plan = result.plan
    layouts = (
        [] if plan is None else [str(x) for x in plan.rewrites.steps if x.primitive.startswith("layout_")]
    )
    return {
        "untuned_us": result.untuned * 1e6,
        "best_us": result.best * 1e6,
        "trials": result.trials,
        "layouts": layouts,
        **({"reason": result.reason} if result.reason else {}),
    }


def _work(program: Program) -> int:
    total = 0
    for stage in program.stages:
        count = 1
        for it in stage.iters:
            count *= it.extent.as_int() if it.extent.is_const else 1
        total += count if stage.is_reduction else 0
    return total
