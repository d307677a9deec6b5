"""Models as text and machine code for a device that need not be here."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from tilewright.build import flops, kernel_source, moved_bytes
from tilewright.codegen import DeviceSource, KernelResources, compile_cuda
from tilewright.cost import Machine
from tilewright.driver.choices import chosen_precision
from tilewright.driver.device_model import HOST_THREADS, device_units, planned_for_device
from tilewright.driver.fixed_sizes import import_settled
from tilewright.driver.kernels import naming_unit
from tilewright.driver.progress import Progress, no_progress
from tilewright.driver.units import Precision, Unit
from tilewright.frontend import Shapes, Source
from tilewright.ir import Program
from tilewright.plan import UnitPlan
from tilewright.strategies import Prices, Task
from tilewright.support import TargetError, available_cpus
from tilewright.target import GpuTarget

Form = Literal["source", "ptx", "cubin"]
FORMS: Final[tuple[Form, ...]] = ("source", "ptx", "cubin")
_ENDINGS: Final = {"cuda": ".cu", "opencl": ".cl", "c": ".c"}


@dataclass(frozen=True, slots=True)
class EmittedUnit:
    """The kernels of one program of a model: a file's name and content, and what is known of them."""

    file: str
    content: bytes
    nodes: tuple[str, ...]
    source: DeviceSource
    resources: dict[str, KernelResources]
    rules: tuple[str, ...]
    """The rule of each nest."""
    seconds: float | None
    """What the analytic model says of all of them; of a device as the target's table describes it."""
    flops: int
    moved_bytes: int
    """Bytes of all arguments, which a run must move at least."""
    calls: int
    """How often a run of the model does this."""

    def as_data(self) -> dict[str, Any]:
        """What is known of the kernels, as plain data."""
        rows = []
        for entry in self.source.kernels:
            row: dict[str, Any] = {
                "kernel": entry.symbol,
                "blocks": [str(extent) for extent in entry.grid.blocks],
                "threads": [str(extent) for extent in entry.grid.threads],
                "shared_bytes": entry.shared_bytes,
            }
            if entry.maps:
                row["tensor_maps"] = [asdict(each) for each in entry.maps]
            if used := self.resources.get(entry.symbol):
                row |= {"registers": used.registers, "spilled_bytes": used.spilled, "stack_bytes": used.stack}
            rows.append(row)
        return {
            "file": self.file,
            "nodes": list(self.nodes),
            "rules": list(self.rules),
            "modelled_seconds": self.seconds,
            "flops": self.flops,
            "moved_bytes": self.moved_bytes,
            "calls": self.calls,
            "kernels": rows,
        }


def emit_model(
    model: Source,
    target: GpuTarget,
    form: Form = "source",
    *,
    shapes: Shapes | None = None,
    precision: Precision | str = "f32",
    progress: Progress = no_progress,
) -> tuple[EmittedUnit, ...]:
    """The kernels of a model, each different program once, as text, PTX or machine code.

    Neither a device nor its driver is needed. Raises TargetError for PTX and machine code of other languages
    than CUDA, InstallationError where NVRTC is missing, and what compiling a model raises.
    """
    if form != "source" and target.language != "cuda":
        raise TargetError(
            f"{form} is for CUDA; the target {target.name} takes {target.language}",
            hint="--emit source, or a target such as cuda:sm_90",
        )
    graph = import_settled(model, shapes=shapes)
    same: dict[Program, list[Unit]] = {}
    for unit in device_units(graph, target, chosen_precision(precision)).units:
        same.setdefault(unit.program, []).append(unit)
    units = [found[0] for found in same.values()]
    sources: list[DeviceSource] = []
    plans: list[UnitPlan] = []
    for at, unit in enumerate(units):
        progress("schedule", at, len(units), unit.label)
        with naming_unit(unit):
            planned = planned_for_device(unit.program, target)
            sources.append(kernel_source(planned.schedule.func, target.language))
            plans.append(planned.plan)
    progress("schedule", len(units), len(units), "")
    calls = [len(found) for found in same.values()]
    return tuple(_emitted(units, sources, plans, calls, target, form, progress))


def _emitted(
    units: Sequence[Unit],
    sources: Sequence[DeviceSource],
    plans: Sequence[UnitPlan],
    calls: Sequence[int],
    target: GpuTarget,
    form: Form,
    progress: Progress,
) -> list[EmittedUnit]:
    made: list[EmittedUnit] = []
    # NVRTC compiles without holding Python's lock
    with ThreadPoolExecutor(available_cpus()) as executor:
        compiled = [executor.submit(_compiled, source, target, form) for source in sources]
        for at, (unit, source, plan, count, future) in enumerate(
            zip(units, sources, plans, calls, compiled, strict=True)
        ):
            progress("compile", at, len(units), unit.label)
            content, resources = future.result()
            ending = _ENDINGS[target.language] if form == "source" else f".{form}"
            nodes = tuple(node.location.name for node in unit.nodes)
            made.append(
                EmittedUnit(
                    file=f"kernels_{at:03}{ending}",
                    content=content,
                    nodes=nodes,
                    source=source,
                    resources=resources,
                    rules=tuple(nest.rule for nest in plan.nests),
                    seconds=Prices(Task(unit.program, Machine(target, HOST_THREADS))).seconds(plan),
                    flops=flops(unit.program),
                    moved_bytes=moved_bytes(unit.program),
                    calls=count,
                )
            )
    progress("compile", len(units), len(units), "")
    return made


def _compiled(
    source: DeviceSource, target: GpuTarget, form: Form
) -> tuple[bytes, dict[str, KernelResources]]:
    if form == "source":
        return source.text.encode(), {}
    module = compile_cuda(source.text, target.arch)
    return (module.ptx.encode() if form == "ptx" else module.cubin), dict(module.resources)
