"""The half of `construct.py` about GPUs: what a device would be held to, and results on one that is here.

Without a GPU: registers and spilled bytes of each kernel by NVRTC, occupancy and waves, seconds by the model,
and the results of OpenCL on this CPU (PoCL) held against torch, of a smaller problem with the same plans,
where the whole one would take long there. With ``--device cuda`` the kernels of the card that is here: the
default's, each variant's and torch's milliseconds, interleaved, and the largest error against torch.
"""

from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import torch
from construct_shapes import Shape
from gpu import bound_ms, interleaved, modelled, torch_seconds

from tilewright.build import DeviceFunction
from tilewright.cost import Machine
from tilewright.devices import open_device
from tilewright.ir import Program
from tilewright.plan import RULES, UnitPlan, Variants, build_unit, rewritten
from tilewright.strategies import STRATEGIES, History, Task, best_by_model
from tilewright.strategies.construct.blocks import BlockConstruction, exact_blocks
from tilewright.strategies.construct.emit import construction
from tilewright.strategies.construct.walk import best_states
from tilewright.strategies.pricing import Prices
from tilewright.support import ArtefactError, ScheduleError, read_settings
from tilewright.target import POCL, GpuTarget


def products(task: Task, plan: UnitPlan) -> list[tuple[int, BlockConstruction]]:
    """The constructions of a plan's nests, with their places."""
    _, context = rewritten(task.program, plan, task.machine)
    found = []
    for at, nest in enumerate(plan.nests):
        rule = RULES[nest.rule]
        problem = rule.match(context, nest.root, nest.stages)
        made = construction(problem, rule.space(problem), task.machine)
        if isinstance(made, BlockConstruction):
            found.append((at, made))
    return found


def with_product(task: Task, plan: UnitPlan, at: int, tiles: Any) -> UnitPlan:
    """A plan with other tiles in one nest."""
    return Variants(task.program, plan, task.machine).chosen({at: tiles})


def variants(task: Task) -> dict[str, UnitPlan]:
    """The constructed plan, the tree's, and the best one without virtual threads (Table VI)."""
    full = best_by_model(STRATEGIES["construct"], task).plan
    out = {"construct": full}
    tree = STRATEGIES["construct-tree"].start(task, History(), Random(0)).propose(2)
    if len(tree) > 1:
        # the first is the default
        out["construct-tree"] = tree[1].plan
    for at, made in products(task, full)[:1]:
        space = made.tilings
        plain = [s for s in space.planned_states() if all(n == 1 for n in s.virtual)]
        least = min(plain, key=lambda s: (space.model.price(space, s), s.tiles, s.buffers))
        out["without virtual threads"] = with_product(task, full, at, made.plan_of(least))
    return out


def regret(task: Task) -> float | None:
    """Seconds of the best state of twenty walks over the least."""
    for _, made in products(task, task.default().plan):
        return best_states(made.tilings, Random(0))[0][0][0] / exact_blocks(made.tilings)[0][0][0]
    return None


def on_pocl(shape: Shape, plan: UnitPlan, target: GpuTarget) -> dict[str, Any]:
    """The largest error of a small problem of the shape's kind, by the same plans where they fit."""
    small = shape.small()
    program = small.make()
    task = Task(program, Machine(target, 1))
    own = task.default().plan
    same = [n.rule for n in own.nests] == [n.rule for n in plan.nests]
    choices = {n: nest.choice for n, nest in enumerate(plan.nests)} if same else {}
    try:
        s = build_unit(program, Variants(program, own, task.machine).chosen(choices), task.machine)
    except (ArtefactError, ScheduleError):
        s, same = task.default().schedule, False
    arrays = _arrays(program)
    found = DeviceFunction(s.func, open_device("opencl"), read_settings())(arrays)
    (got,) = found.values()
    tensors = [torch.from_numpy(a) for a in arrays.values()]
    want = small.torch(*tensors).numpy()
    error = float(np.abs(got - want).max() / np.abs(want).max())
    return {"pocl_of": small.flops / 1e9, "same_plan": same, "pocl_error": error}


def on_card(shape: Shape, task: Task, plans: dict[str, UnitPlan]) -> dict[str, Any]:
    """Milliseconds of the default, of each plan and of torch on the card here, and errors against torch."""
    device, arrays = open_device("cuda"), _arrays(task.program)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    tensors = [torch.from_numpy(a).cuda() for a in arrays.values()]
    want = shape.torch(*tensors).cpu().numpy()
    runs, errors = {"torch": torch_seconds(lambda: shape.torch(*tensors))}, {}
    for name, plan in {"default": task.default().plan, **plans}.items():
        s = build_unit(task.program, plan, task.machine)
        made, inputs, outputs = DeviceFunction(s.func, device, read_settings()).plan(arrays, {})
        made.run(inputs, list(outputs.values()))
        (got,) = outputs.values()
        errors[name] = float(np.abs(got - want).max() / np.abs(want).max())
        runs[name] = made.seconds
    return {"ms": interleaved(runs), "errors": errors}


def _arrays(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {b.name: rng.standard_normal([e.as_int() for e in b.shape], np.float32) for b in program.inputs}


def device_row(shape: Shape, target: GpuTarget, clock: Callable[[], float], every: bool) -> dict[str, Any]:
    """One shape on a device that is not here; with ``every`` also the kernels of the other variants."""
    task = Task(shape.make(), Machine(target, 1))
    start = clock()
    list(islice(STRATEGIES["construct"].start(task, History(), Random(0)).propose(8), 8))
    seconds = clock() - start
    prices, plans = Prices(task), variants(task)
    bound = bound_ms(target, shape.flops, shape.nbytes)
    row: dict[str, Any] = {
        "shape": shape.name, "source": shape.source, "device": target.name, "gflop": shape.flops / 1e9,
        "nests": [nest.rule for nest in plans["construct"].nests], "construct_s": seconds,
        "bound_ms": bound, "walks_regret": regret(task),
        "modelled_ms": {name: prices.seconds(plan) for name, plan in plans.items()},
    }  # fmt: skip
    row["modelled_ms"] = {n: None if s is None else s * 1e3 for n, s in row["modelled_ms"].items()}
    row["kernels"] = {
        name: modelled(build_unit(task.program, plan, task.machine), target)
        for name, plan in plans.items()
        if every or name == "construct"
    }
    if target.name == "cuda":
        return row | on_card(shape, task, plans)
    return row | on_pocl(shape, plans["construct"], POCL)
