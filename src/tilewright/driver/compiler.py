"""What compiles graphs for a CPU or a device: units, kernels, plans, and models of fixed sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from tilewright.build import Array, UnitKernel, device_of
from tilewright.driver.assemble import Assembled, Packs, Steps, assemble, make_steps
from tilewright.driver.device_model import assemble_on_device, build_device_kernels, device_units
from tilewright.driver.graph_plan import GraphUnits, constants_of, graph_units
from tilewright.driver.kernels import KernelOptions, build_kernels
from tilewright.driver.model import CompiledModel
from tilewright.driver.plans import graph_key, unit_key
from tilewright.driver.progress import Progress, no_progress
from tilewright.driver.units import Precision, Unit
from tilewright.graph import Graph
from tilewright.plan import GraphPlan
from tilewright.runtime import ThreadPool, return_free_memory
from tilewright.strategies import ON_DEVICES
from tilewright.support import ArtefactError, InputError, Settings, TargetError, get_logger
from tilewright.target import CpuTarget, GpuTarget, TargetBase

_log = get_logger(__name__)

_TRIM_FROM_BYTES: Final = 1 << 25
"""From so many bytes of weights on, freed memory is given back to the system after a compilation."""


class Builder(Protocol):
    """What of a compilation depends on the kind of machine."""

    @property
    def target(self) -> TargetBase:
        """The machine."""

    @property
    def precision(self) -> Precision:
        """How f32 values are stored and multiplied."""

    @property
    def threads(self) -> int:
        """Threads that a run uses."""

    def units(self, graph: Graph) -> GraphUnits:
        """The units of compilation."""

    def kernels(
        self, units: Sequence[Unit], constants: Callable[[str], Array | None], progress: Progress
    ) -> tuple[Sequence[Unit], Sequence[UnitKernel]]:
        """Units with their kernels: the given ones, or versions of them for some sizes each."""

    def assemble(self, steps: Steps, wanted: Sequence[str]) -> Assembled:
        """The plan that computes values."""


@dataclass(frozen=True, slots=True)
class OnCpu:
    """Compiles for a CPU; runs use the threads of ``pool`` and look at indices where ``checks`` says so."""

    target: CpuTarget
    options: KernelOptions
    precision: Precision
    settings: Settings
    pool: ThreadPool
    memory: int
    checks: bool

    @property
    def threads(self) -> int:
        """Threads that a run uses."""
        return self.options.threads

    def units(self, graph: Graph) -> GraphUnits:
        """The units of compilation: as a plan or a record of the graph says, else as usual."""
        options = self.options

        def make(plan: GraphPlan | None) -> GraphUnits:
            return graph_units(graph, self.target, options.threads, self.precision, options.accuracy, plan)

        given = None if options.plan is None else options.plan.graph
        made = make(given)
        if given is not None or options.strategy is not None or options.records is None:
            return made
        if any(unit.program.params for unit in made.units):
            # records are of measured sizes
            return made
        found = options.records.graph(partial(key_of_graph, made, self.target, options))
        if found is not None:
            try:
                return make(found)
            except ArtefactError as error:
                _log.warning("the record of the graph is not used: %s", error)
        return made

    def kernels(
        self, units: Sequence[Unit], constants: Callable[[str], Array | None], progress: Progress
    ) -> tuple[Sequence[Unit], Sequence[UnitKernel]]:
        """Units with their kernels: the given ones, or versions of them."""
        return build_kernels(units, self.target, self.options, constants, self.settings, progress)

    def assemble(self, steps: Steps, wanted: Sequence[str]) -> Assembled:
        """The plan that computes values."""
        return assemble(steps, self.pool, self.memory, wanted, checks=self.checks)


def key_of_graph(made: GraphUnits, target: CpuTarget, options: KernelOptions) -> str:
    """What the record of a graph's decisions is found by, given the default's."""
    units = (unit_key(unit.program, options.threads) for unit in made.units)
    return graph_key(made.plan, units, target.fingerprint, options.accuracy)


class OnDevice:
    """Compiles for a device. Raises InputError for precisions, TargetError for strategies that it lacks."""

    def __init__(
        self,
        target: GpuTarget,
        options: KernelOptions,
        precision: Precision,
        settings: Settings,
        *,
        checks: bool,
    ) -> None:
        if precision == "bf16":
            raise InputError(
                "precision bf16 is for CPUs",
                hint="models on devices store f32 values as they are; tf32 multiplies them by matrix units",
            )
        if options.strategy is not None and options.strategy.name not in ON_DEVICES:
            raise TargetError(
                f"the strategy {options.strategy.name!r} is for CPUs, and {target.name} is none",
                hint=f"choose default, {', '.join(sorted(ON_DEVICES))}",
            )
        self.target, self.precision, self.threads = target, precision, 1
        self._settings, self._options, self._checks = settings, options, checks
        self._device = device_of(target)

    def units(self, graph: Graph) -> GraphUnits:
        """The units of compilation."""
        return device_units(graph, self.target, self.precision)

    def kernels(
        self, units: Sequence[Unit], constants: Callable[[str], Array | None], progress: Progress
    ) -> tuple[Sequence[Unit], Sequence[UnitKernel]]:
        """Units with their kernels."""
        options = self._options
        return units, build_device_kernels(
            units, self.target, self._device, self._settings, progress, options.strategy, options.plan
        )

    def assemble(self, steps: Steps, wanted: Sequence[str]) -> Assembled:
        """The plan that computes values."""
        return assemble_on_device(steps, self._device, wanted, checks=self._checks)


class Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @property
    def total(self) -> float:
        """The sum over the phases."""
        return sum(self.seconds.values())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def compiled_steps(
    graph: Graph, builder: Builder, clock: Clock, progress: Progress, packs: Packs | None = None
) -> tuple[Steps, GraphUnits]:
    """The units of a graph with their kernels, and what was decided about it."""
    with clock.phase("graph"):
        progress("graph", 0, 1)
        made = builder.units(graph)
        graph, views = made.partition.graph, made.partition.views
        progress("graph", 1, 1)
    with clock.phase("kernels"):
        units, kernels = builder.kernels(made.units, constants_of(graph, views), progress)
    with clock.phase("plan"):
        steps = make_steps(graph, units, kernels, views, builder.threads, packs)
    # kernels have copies of the others
    returned = {steps.root(value) for value in graph.outputs}
    kept = {value: array for value, array in graph.constants.items() if value in returned}
    return replace(steps, graph=replace(graph, constants=kept)), made


def compiled_graph(
    graph: Graph, builder: Builder, clock: Clock, progress: Progress = no_progress
) -> CompiledModel:
    """The model of a graph whose sizes are known. Raises what compiling raises."""
    steps, made = compiled_steps(graph, builder, clock, progress)
    del graph
    with clock.phase("plan"):
        progress("plan", 0, 1)
        assembled = builder.assemble(steps, steps.graph.outputs)
        progress("plan", 1, 1)
    decided = made.plan
    del made
    if sum(array.nbytes for array in steps.constants.values()) >= _TRIM_FROM_BYTES:
        # The model's file and its weights as it had them were as large again.
        return_free_memory()
    _log.info("compiled %d kernels in %.2f s", len(set(steps.kernels)), clock.total)
    return CompiledModel(
        steps,
        assembled,
        target=builder.target,
        threads=builder.threads,
        assemble=builder.assemble,
        compile_seconds={**clock.seconds, "total": clock.total},
        precision=builder.precision,
        graph_plan=decided,
    )
