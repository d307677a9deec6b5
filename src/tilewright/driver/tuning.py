"""Tuning a model: a task a kernel, the costliest first, all within one budget, one plan at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.cost import Machine
from tilewright.driver.measuring import LocalMeasurer
from tilewright.driver.model import CompiledModel
from tilewright.driver.plans import ModelPlan, unit_key
from tilewright.plan import UnitPlan
from tilewright.strategies import Task, find_strategy
from tilewright.support import InputError, TargetError
from tilewright.target import CpuTarget
from tilewright.tune import Budget, Database, TaskResult, tune_task

#: Trials of one task, at most.
TRIALS: Final = 64
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class ModelTask:
    """A task of a model, what it is called there, and how many kernels it stands for."""

    task: Task
    label: str
    uses: int


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning a model came to: a result a task, and the plan that ``compile(…, plan=)`` takes."""

    results: tuple[TaskResult, ...]
    plan: ModelPlan


def seconds_of(budget: str | float) -> float:
    """A budget such as ``90s``, ``5m``, ``1h``, or a number of seconds. Raises InputError for others."""
    if isinstance(budget, int | float) and budget > 0:
        return float(budget)
    text = str(budget)
    if text[-1:] in _UNITS and text[:-1].replace(".", "", 1).isdigit() and float(text[:-1]) > 0:
        return float(text[:-1]) * _UNITS[text[-1]]
    raise InputError(f"{budget!r} is no budget", hint="give seconds, or a number with s, m or h: 90s, 5m")


def tasks_of(model: CompiledModel) -> tuple[ModelTask, ...]:
    """The tasks of a compiled model, each kernel's program once. Raises TargetError for a device."""
    target = model.target
    if not isinstance(target, CpuTarget):
        raise TargetError(f"kernels for {target.name!r} cannot be tuned yet")
    found: dict[str, ModelTask] = {}
    for group in model.groups():
        made = group.kernel.decided()
        if made is None:
            continue
        threads, _ = made
        task = Task(group.kernel.program, Machine(target, threads))
        uses = found[task.key].uses if task.key in found else 0
        label = f"{group.operators} {group.label}"
        found[task.key] = ModelTask(task, label, uses + 1)
    return tuple(found.values())


def tune_model(
    model: CompiledModel,
    *,
    budget: str | float = "5m",
    trials: int = TRIALS,
    strategy: str = "random",
    database: Path | str = ":memory:",
    seed: int = 0,
    watch: Callable[[TaskResult], None] = lambda _: None,
) -> Tuned:
    """Tune the kernels of a compiled model, and give the plan of all of them.

    Each task gets a share of the ``budget`` as large as what its kernels still have to do, the costliest by
    the default plan first, and at most so many ``trials``. ``database`` keeps all trials; tasks that it has
    winners of are not tuned again. ``watch`` is told each result. Ctrl-C ends the search: what was found by
    then is kept, and in the plan. Raises InputError for an unknown strategy or budget, ArtefactError for a
    file that is no database.
    """
    chosen = find_strategy(strategy)
    if chosen is None:
        raise InputError(f"the strategy {strategy!r} searches nothing", hint="choose one that does: random")
    until = time.monotonic() + seconds_of(budget)
    todo = sorted(tasks_of(model), key=lambda each: -each.uses * _work(each.task))
    results: list[TaskResult] = []
    with Database(database) as records, LocalMeasurer() as measurer:
        for n, each in enumerate(todo):
            now = time.monotonic()
            if now >= until:
                break
            share = now + max(0.0, until - now) / (len(todo) - n) * 2
            limit = Budget(trials, min(until, share))
            try:
                done = tune_task(each.task, each.label, chosen, measurer, records, limit, seed)
            except KeyboardInterrupt:
                break
            results.append(done)
            watch(done)
    return Tuned(tuple(results), _plan(model, results))


def _plan(model: CompiledModel, results: Iterable[TaskResult]) -> ModelPlan:
    base = model.plan()
    units: dict[str, UnitPlan] = dict(base.units)
    for done in results:
        if done.plan is not None:
            units[unit_key(done.task.program, done.task.machine.threads)] = done.plan
    return ModelPlan(base.target, units, base.graph)


def _work(task: Task) -> int:
    """Instances of all stages: what a kernel costs, roughly."""
    total = 0
    for stage in task.program.stages:
        count = 1
        for it in stage.iters:
            count *= it.extent.as_int() if it.extent.is_const else 1
        total += count
    return total
