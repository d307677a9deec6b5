"""A compiled model as tasks to tune, and as the network that they make up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.cost import Machine
from tilewright.driver.explained import GroupInfo
from tilewright.driver.model import CompiledModel
from tilewright.ir import structural_hash
from tilewright.strategies import Task
from tilewright.support import TargetError
from tilewright.target import CpuTarget
from tilewright.tune import Link, Network, Step, TaskUse


def tasks_of(model: CompiledModel) -> tuple[TaskUse, ...]:
    """The tasks of a compiled model, each kernel's program once. Raises TargetError for a device."""
    found: dict[str, TaskUse] = {}
    for group, task in zip(model.groups(), _tasks(model), strict=True):
        if task is None:
            continue
        calls = _calls(model, group, task.machine.threads)
        if task.key in found:
            found[task.key] = replace(found[task.key], weight=found[task.key].weight + calls)
        else:
            found[task.key] = TaskUse(task, f"{group.operators} {group.label}", calls)
    return tuple(found.values())


def network_of(model: CompiledModel, keys: Sequence[str] | None = None) -> Network:
    """The steps of a compiled model and their links; steps are named by ``keys``, else by their tasks' keys.

    Raises TargetError for a device without ``keys``.
    """
    groups, described = model.groups(), model.descriptions()
    if keys is None:
        keys = ["" if task is None else task.key for task in _tasks(model)]
    plan = model.plan().graph
    joins = () if plan is None else plan.joins
    steps: list[Step] = []
    made: dict[str, tuple[int, str]] = {}
    links: list[Link] = []
    views = model.views
    for at, (group, kernel, key) in enumerate(zip(groups, described, keys, strict=True)):
        decided = group.kernel.decided()
        calls = float(group.parts) if decided is None else _calls(model, group, decided[0])
        joined = next((run for run in joins if run[-1] in group.outputs), ())
        reads, writes = (tuple(dict.fromkeys(each.values())) for each in (kernel.inputs, kernel.outputs))
        schedule = group.kernel.schedule
        first = all(key != step.task for step in steps)
        steps.append(
            Step(
                key,
                group.label,
                group.operators,
                group.nodes,
                calls,
                kernel.algorithm,
                joined,
                reads,
                writes,
                structural_hash(schedule.func) if first else "",
                schedule.trace.to_python() if first else "",
            )
        )
        for value in dict.fromkeys(views.get(read, read) for read in group.inputs):
            if value in made:
                source, layout = made[value]
                links.append(Link(source, at, value, layout))
        outputs = [kernel.outputs.get(b.name, "") for b in group.kernel.program.outputs]
        made |= {value: (at, lies) for value, lies in zip(group.outputs, outputs, strict=True)}
    return Network(model.name, tuple(steps), tuple(links))


def _tasks(model: CompiledModel) -> list[Task | None]:
    """The task of each step, ``None`` where nothing was decided. Raises TargetError for a device."""
    target = model.target
    if not isinstance(target, CpuTarget):
        raise TargetError(f"kernels for {target.name!r} cannot be tuned yet")
    made = [(group.kernel.program, group.kernel.decided()) for group in model.groups()]
    return [None if found is None else Task(program, Machine(target, found[0])) for program, found in made]


def _calls(model: CompiledModel, group: GroupInfo, threads: int) -> float:
    # threads take different parts of a batch at the same time
    return group.parts / (model.threads if threads < model.threads else 1)
