"""Models on devices: the kernels of their units, and one plan over the device's memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tilewright.build import LoadedKernels, UnitKernel, flops, kernel_source, place_kernels
from tilewright.codegen import open_cache
from tilewright.cost import Machine
from tilewright.devices import DEVICE_ALIGNMENT, Device, DevicePlanBuilder
from tilewright.driver.assemble import Assembled, Steps, range_check, value_dtype, value_shape
from tilewright.driver.graph_plan import GraphUnits
from tilewright.driver.kernels import naming_unit
from tilewright.driver.plans import ModelPlan
from tilewright.driver.progress import Progress
from tilewright.driver.units import Precision, Unit, plain_units
from tilewright.graph import Graph, Step, WidenHalf, WriteOutLoops, fuse, plan_memory, simplify
from tilewright.ir import Program
from tilewright.plan import GraphPlan, Planned, build_unit, round_factors, written
from tilewright.runtime import BufferRef
from tilewright.strategies import Strategy, Task, best_by_model
from tilewright.support import Settings
from tilewright.target import GpuTarget

HOST_THREADS = 1
"""Threads of the host that a run of a device takes; they do not matter to its kernels."""
COMPILING_THREADS = 2
"""Modules compiled at the same time: drivers compile without holding Python's lock."""


def build_device_kernels(
    units: Sequence[Unit],
    target: GpuTarget,
    device: Device,
    settings: Settings,
    progress: Progress,
    strategy: Strategy | None = None,
    plans: ModelPlan | None = None,
) -> tuple[UnitKernel, ...]:
    """The kernel of each unit; units with equal programs share one. Errors name the unit.

    Kernels that ``plans`` has are made as it says, others by the best candidate of ``strategy``.
    """
    first: dict[Program, Unit] = {}
    for unit in units:
        first.setdefault(unit.program, unit)
    if plans is not None:
        plans.require((program, HOST_THREADS) for program in first)
    cache = open_cache(settings)
    made: dict[Program, UnitKernel] = {}
    with ThreadPoolExecutor(COMPILING_THREADS) as executor:
        running = []
        for at, (program, unit) in enumerate(first.items()):
            progress("schedule", at, len(first), unit.label)
            with naming_unit(unit):
                planned = planned_for_device(program, target, strategy, plans)
                func = planned.schedule.func
                source = kernel_source(func, device.language)
            running.append((planned, executor.submit(place_kernels, func, source, device, cache)))
        progress("schedule", len(first), len(first), "")
        for at, ((program, unit), (planned, future)) in enumerate(zip(first.items(), running, strict=True)):
            progress("compile", at, len(first), unit.label)
            with naming_unit(unit):
                loaded = future.result()
            made[program] = UnitKernel(
                name=f"{loaded.source.kernels[0].symbol}_{at}" if loaded.source.kernels else f"nothing_{at}",
                program=program,
                schedule=planned.schedule,
                plan=planned.plan,
                threads=HOST_THREADS,
                target=target,
                buffers=planned.schedule.func.buffers,
                flops=flops(program),
                code=loaded,
            )
        progress("compile", len(first), len(first), "")
    return tuple(made[unit.program] for unit in units)


def device_units(graph: Graph, target: GpuTarget, precision: Precision = "f32") -> GraphUnits:
    """The units of a graph on a device: all values plain, loops over time written out.

    Numbers of f16 stay such where the device has matrix units, and become f32 elsewhere. With the precision
    ``tf32`` factors of products that these units then take are rounded.
    """
    plan = GraphPlan(precision)
    passes = (WriteOutLoops(), *plan.passes.passes())
    if target.matrix_units:
        passes = tuple(each for each in passes if not isinstance(each, WidenHalf))
    partition = fuse(simplify(graph, passes), plan.fusion)
    units = plain_units(partition)
    if precision == "tf32":
        units = tuple(replace(unit, program=round_factors(unit.program, target)) for unit in units)
    return GraphUnits(partition, units, plan)


def planned_for_device(
    program: Program, target: GpuTarget, strategy: Strategy | None = None, plans: ModelPlan | None = None
) -> Planned:
    """The plan of a kernel, carried out: a known one, the best of a strategy, or the default."""
    task = Task(program, Machine(target, HOST_THREADS))
    known = None if plans is None else plans.find(program, HOST_THREADS)
    if known is not None:
        known = written(program, known, task.machine)
        return Planned(known, build_unit(program, known, task.machine))
    return task.default() if strategy is None else best_by_model(strategy, task)


def assemble_on_device(
    steps: Steps, device: Device, wanted: Collection[str], *, checks: bool = True
) -> Assembled:
    """The plan that computes the values ``wanted`` from the graph's inputs, on a device.

    With ``checks`` a run ends where a place that is read from data is out of range. Raises ResourceError
    where the device has too little memory.
    """
    graph = steps.graph
    builder = DevicePlanBuilder(device)
    made = {value for unit in steps.units for value in unit.outputs.values()}
    sizes = {value: _nbytes(steps, value) for value in (*graph.inputs, *made)}
    refs: dict[str, BufferRef] = {value: builder.input(sizes[value]) for value in graph.inputs}
    outputs = tuple(dict.fromkeys(root for root in map(steps.root, wanted) if root in made))
    refs.update({value: builder.output(sizes[value]) for value in outputs})
    planned = {value: sizes[value] for value in made if value not in refs}
    moves = []
    for at, (unit, kernel) in enumerate(zip(steps.units, steps.kernels, strict=True)):
        reads = [*unit.inputs.values(), *unit.only_checked]
        writes = list(map(steps.root, unit.outputs.values()))
        if kernel.memory.workspace:
            # lives as long as the step
            planned[_workspace(at)] = kernel.memory.workspace
            writes.append(_workspace(at))
        moves.append(Step(tuple(dict.fromkeys(map(steps.root, reads))), tuple(dict.fromkeys(writes)), ()))
    rounded = {value: -(-n // DEVICE_ALIGNMENT) * DEVICE_ALIGNMENT for value, n in planned.items()}
    layout = plan_memory(moves, rounded)
    refs.update({value: builder.arena(layout.offsets[value], planned[value]) for value in planned})
    stored: dict[int, BufferRef] = {}
    for at, (unit, kernel) in enumerate(zip(steps.units, steps.kernels, strict=True)):
        assert isinstance(kernel.code, LoadedKernels)  # others are not assembled here
        for asked in unit.ranges if checks else ():
            builder.check(range_check(steps, refs, at, asked))
        arguments: dict[str, BufferRef] = {}
        for b in kernel.buffers:
            array = steps.constants.get((at, b.name))
            if array is None:
                value = steps.root(unit.inputs.get(b.name) or unit.outputs[b.name])
                arguments[b.name] = refs[value]
                continue
            if id(array) not in stored:
                stored[id(array)] = builder.constant(array)
            arguments[b.name] = stored[id(array)]
        kernel.code.add_to(builder, builder.step(unit.label), arguments, refs.get(_workspace(at)), {})
    arrays = tuple((value_dtype(steps, value).numpy, value_shape(steps, value)) for value in outputs)
    calls = tuple((at, 1) for at in range(len(steps.units)))
    return Assembled(builder.build(), graph.inputs, outputs, arrays, calls)


def _workspace(at: int) -> str:
    """The name of a step's workspace among values: one that no model's value can have."""
    return f"\0workspace {at}"


def _nbytes(steps: Steps, value: str) -> int:
    return math.prod(value_shape(steps, value)) * value_dtype(steps, value).bytes
