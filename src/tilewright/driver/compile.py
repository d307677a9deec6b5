"""Compiling a model, from its file to one native call a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import overload

from tilewright.build import Array
from tilewright.driver.choices import (
    chosen_precision,
    chosen_target,
    chosen_threads,
    physical_memory,
)
from tilewright.driver.compiler import Builder, Clock, OnCpu, OnDevice, compiled_graph
from tilewright.driver.dynamic import DynamicModel
from tilewright.driver.fixed_sizes import import_settled
from tilewright.driver.kernels import KernelOptions
from tilewright.driver.model import CompiledModel
from tilewright.driver.nests import Nest, compile_nest, names_c
from tilewright.driver.open_sizes import GivenSizes, read_sizes
from tilewright.driver.plans import ModelPlan, given_plan
from tilewright.driver.programs import CompiledProgram, compile_program
from tilewright.driver.progress import Progress, no_progress
from tilewright.driver.states import KeptStates, checked_states
from tilewright.driver.units import Precision
from tilewright.frontend import OpenSource, Shapes, Source, checked_constants, checked_shapes, read_onnx
from tilewright.graph import Graph, Limits
from tilewright.ir import Program
from tilewright.plan import read_accuracy
from tilewright.runtime import pool_for
from tilewright.schedule import Schedule
from tilewright.strategies import Strategy, find_strategy
from tilewright.support import (
    InputError,
    Settings,
    WaitPolicy,
    get_logger,
    quoted,
    read_settings,
)
from tilewright.target import CpuTarget, GpuTarget, TargetBase
from tilewright.tune import records_at

_log = get_logger(__name__)


@overload
def compile_model(
    model: Source | Graph,
    *,
    target: str | TargetBase = ...,
    threads: int | None = ...,
    shapes: Shapes | None = ...,
    constants: Mapping[str, Array] | None = ...,
    precision: Precision | str = ...,
    accuracy: str | float = ...,
    winograd: str | None = ...,
    wait_policy: WaitPolicy | str | None = ...,
    checks: bool = ...,
    strategy: str | Strategy = ...,
    plan: ModelPlan | str | None = ...,
    records: Path | str | None = ...,
    settings: Settings | None = ...,
    progress: Progress = ...,
) -> CompiledModel: ...
@overload
def compile_model(
    model: Source | OpenSource,
    *,
    dynamic: GivenSizes,
    same: Mapping[str, str] = ...,
    state: Mapping[str, str] | None = ...,
    target: str | TargetBase = ...,
    threads: int | None = ...,
    shapes: Shapes | None = ...,
    constants: Mapping[str, Array] | None = ...,
    precision: Precision | str = ...,
    accuracy: str | float = ...,
    winograd: str | None = ...,
    wait_policy: WaitPolicy | str | None = ...,
    checks: bool = ...,
    strategy: str | Strategy = ...,
    records: Path | str | None = ...,
    settings: Settings | None = ...,
    progress: Progress = ...,
) -> DynamicModel: ...
@overload
def compile_model(
    model: str | Path,
    *,
    sizes: Mapping[str, int],
    target: str | TargetBase = ...,
    threads: int | None = ...,
    strategy: str | Strategy = ...,
    plan: ModelPlan | str | None = ...,
    records: Path | str | None = ...,
    defines: Mapping[str, str] | None = ...,
    headers: Sequence[Path | str] = ...,
) -> Nest: ...
@overload
def compile_model(
    model: Program | Schedule,
    *,
    target: str | TargetBase = ...,
    threads: int | None = ...,
    shapes: Shapes | None = ...,
    constants: Mapping[str, Array] | None = ...,
    accuracy: str | float = ...,
    winograd: str | None = ...,
    wait_policy: WaitPolicy | str | None = ...,
    strategy: str | Strategy = ...,
    plan: ModelPlan | str | None = ...,
    records: Path | str | None = ...,
    settings: Settings | None = ...,
    progress: Progress = ...,
) -> CompiledModel | CompiledProgram: ...
def compile_model(
    model: Source | OpenSource | Graph | Program | Schedule,
    *,
    target: str | TargetBase = "cpu",
    threads: int | None = None,
    shapes: Shapes | None = None,
    dynamic: GivenSizes | None = None,
    same: Mapping[str, str] = MappingProxyType({}),
    state: Mapping[str, str] | None = None,
    constants: Mapping[str, Array] | None = None,
    precision: Precision | str = "f32",
    accuracy: str | float = "auto",
    winograd: str | None = None,
    wait_policy: WaitPolicy | str | None = None,
    checks: bool = True,
    strategy: str | Strategy = "default",
    plan: ModelPlan | str | None = None,
    records: Path | str | None = None,
    settings: Settings | None = None,
    progress: Progress = no_progress,
    sizes: Mapping[str, int] | None = None,
    defines: Mapping[str, str] | None = None,
    headers: Sequence[Path | str] = (),
) -> CompiledModel | CompiledProgram | DynamicModel | Nest:
    """Compile an ONNX model, a program of :mod:`tilewright.lang`, a schedule or a C file for this machine.

    ``model`` is a path, the bytes of a file, or an ``onnx.ModelProto``; a model with external weights must be
    a path; or the typed graph that a front end has made of one.
    A program is compiled by the strategy, a schedule as it stands; one with symbolic sizes that
    ``shapes`` does not settle becomes a :class:`CompiledProgram`, which takes them from its arrays.
    ``threads`` is how many threads a run uses (default: the settings, else one a CPU). ``shapes``
    settles sizes that the model leaves open: an input's name with its shape, or the name of an unknown
    size with its value. ``dynamic`` leaves others open: the name of an unknown size with its least and its
    largest value (1 to 4096 of those that the file names and nobody mentions: ``{}`` leaves all open), with a
    step as well (``(32, 1280, 32)``), or as an expression of others (``"past + seq"``); ``same`` says of one
    that it is another (``{"batch_of_mask": "batch"}``). The
    result is a :class:`DynamicModel`, which takes them from its arrays. ``state`` names outputs of it, by the
    inputs whose next values they are (``{"past.key": "present.key"}``): runs write their new entries into the
    array of the input, which they return, and copy nothing. ``constants``
    fixes inputs whose elements must be known when compiling.
    ``precision`` is that of what f32 models store between kernels and multiply: ``bf16`` halves the memory
    traffic, and doubles the products where the machine has an instruction for them; sums, and what is
    computed between products, stay f32. Devices with matrix units know ``tf32``: products of f32 numbers are
    made of factors rounded to 11 significant bits.
    ``accuracy`` says what may be done instead of the direct method: nothing (``exact``: bit for bit the
    direct f32 method); whatever is fastest and errs, measured with the layer's weights in a sample, by at
    most 5e-5 of the largest result (``auto``), or by at most a given number. That is Winograd's method for
    3x3 convolutions of stride 1, Strassen's for large products with constant matrices, and, where the machine
    multiplies tiles of bf16 numbers, three of those products for each of f32 (bf16x3); from about 0.01 on
    activations are bytes in blocks, too, where weights have few bits and the machine sums products of bytes.
    ``f2`` and ``f4`` have convolutions done by Winograd's method with tiles of 2 or 4 wherever it applies.
    ``winograd`` is the older name of it, with ``off`` for ``exact``.
    ``wait_policy`` is what idle threads do between the loops of a run: ``active`` spins, for the lowest
    latency, ``passive`` sleeps almost at once, which leaves the CPUs to others (default: the settings).
    ``checks`` has runs look at indices that they are given or compute (of Gather, Scatter and their like):
    one that is out of range ends a run with an InputError naming node, index and range, the results
    untouched; without, such a run computes something or other.
    ``strategy`` chooses the plan of each kernel: a name of :data:`tilewright.strategies.STRATEGIES`, or a
    strategy; nothing is measured, the analytic model decides. ``plan`` (or its text, see
    :meth:`CompiledModel.plan`) says what is decided about the graph, and how kernels are made that it has;
    others are planned as usual. ``records`` is a database of tuning (see :func:`tilewright.tune`), by default
    that of the settings, or ``off``: where no strategy and no plan is given, kernels are made by the fastest
    plan that it has, if the function is the one that was measured and its algorithms are exact enough.
    ``progress`` is called as work gets done.
    ``sizes`` says that ``model`` is a loop nest, a C file (``kernel.c`` or ``kernel.c:name``) or a function
    of Python: see :func:`tilewright.driver.compile_nest`, which has its options.

    Raises UserError (ModelError, UnsupportedOperatorError listing every node that cannot be compiled,
    InputError, TargetError, ResourceError) naming the culprit.
    """
    if sizes is not None:
        given = (shapes, dynamic, constants, winograd, wait_policy)
        if any(x is not None for x in given) or (precision, accuracy, checks) != ("f32", "auto", True):
            raise InputError(
                "of the options of models nests have target, threads, strategy, plan and records",
                hint="sizes= settles their sizes, defines= and headers= are for their preprocessor",
            )
        return compile_nest(
            model, sizes, target, threads, strategy, records, defines, headers, plan, settings
        )
    if isinstance(model, str | Path) and names_c(model):
        raise InputError(f"{quoted(str(model))} is a nest in C", hint="give its sizes: sizes={'n': 100}")
    options = read_settings() if settings is None else settings
    machine = chosen_target(target)
    count = chosen_threads(threads, options)
    known = given_plan(plan)
    if known is not None and known.is_measured_otherwise(machine):
        _log.warning(
            "the plan was made when other quantities of this machine were known (`tilewright targets`): "
            "what it leaves open is decided by today's"
        )
    exact = read_accuracy(accuracy, winograd)
    found = records_at(records, options)
    settled, fixed = checked_shapes(shapes), checked_constants(constants)
    choices = KernelOptions(count, exact, find_strategy(strategy), known, found)
    wanted = chosen_precision(precision)
    if wanted == "tf32" and isinstance(machine, CpuTarget):
        raise InputError("precision tf32 is for devices with matrix units", hint="choose f32 or bf16 on CPUs")
    if isinstance(model, Program | Schedule):
        if not isinstance(machine, CpuTarget) or wanted != "f32":
            raise InputError(
                "programs are compiled for CPUs, in the precision that they are written in",
                hint="tilewright.driver.DeviceFunction runs schedules on devices",
            )
        pool = pool_for(options, count, wait_policy)
        return compile_program(model, machine, choices, pool, fixed, settled, options, progress)
    memory = physical_memory()

    def on_cpu(machine: CpuTarget) -> OnCpu:
        pool = pool_for(options, count, wait_policy)
        return OnCpu(machine, choices, wanted, options, pool, memory, checks)

    if dynamic is not None:
        if not isinstance(machine, CpuTarget) or known is not None or isinstance(model, Graph):
            raise InputError("dynamic= is for CPUs, without a plan", hint="shapes= settles the sizes")
        read = model if isinstance(model, OpenSource) else read_onnx(model, limits=_limits(memory))
        open_sizes = read_sizes(dynamic, same, read, settled, fixed)
        states = checked_states(state)
        read = KeptStates(read, states) if states else read
        return DynamicModel(read, open_sizes, settled, fixed, on_cpu(machine), progress, states)
    if state is not None:
        raise InputError("state= is for models with open sizes", hint="dynamic={} leaves all sizes open")
    clock = Clock()
    builder: Builder
    if isinstance(machine, GpuTarget):
        builder = OnDevice(machine, choices, wanted, options, checks=checks)
    else:
        builder = on_cpu(machine)

    def imported() -> Graph:
        with clock.phase("import"):
            progress("import", 0, 1)
            graph = model
            if isinstance(graph, OpenSource):
                graph = graph.graph(settled, fixed)
            elif not isinstance(graph, Graph):
                graph = import_settled(graph, settled, fixed, _limits(memory))
            progress("import", 1, 1)
        return graph

    # not kept here, so that its weights can go once they are packed
    return compiled_graph(imported(), builder, clock, progress)


def _limits(memory: int) -> Limits:
    """No single tensor of a model may take more than half of the machine's memory."""
    return Limits(tensor_bytes=min(Limits().tensor_bytes, memory // 2))
