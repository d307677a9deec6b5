"""Compiled models: calling, inspecting and profiling them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from tilewright.build import (
    Array,
    KernelDescription,
    UnitKernel,
    describe,
    is_plain,
    moved_bytes,
    reduction_length,
    unpack,
)
from tilewright.codegen import emit_c, lower_for_c
from tilewright.cost import Machine
from tilewright.devices import BoundTensors, DevicePlan, Lendable, bind_tensors
from tilewright.driver.assemble import Assembled, Steps
from tilewright.driver.export_c import export_c
from tilewright.driver.feeds import tensor_info
from tilewright.driver.limits import Limits
from tilewright.driver.plans import ModelPlan, plan_of_kernels
from tilewright.driver.profile import KernelProfile, Profile
from tilewright.driver.samples import index_bounds
from tilewright.driver.save import Described, Library, Parts, Weights, save_model, take_apart
from tilewright.driver.save_device import save_for_device
from tilewright.driver.units import Precision, Unit
from tilewright.ir import dtype_of
from tilewright.plan import GraphPlan, Reasons, why
from tilewright.runtime import (
    BoundModel,
    HoldsCode,
    Results,
    aligned_empty,
    as_declared,
    bound_feeds,
    checked_feeds,
    checked_names,
    checked_results,
    draw_feeds,
    named_feeds,
)
from tilewright.support import InputError, TargetError, known_names, quoted
from tilewright.target import CpuTarget, GpuTarget, TargetBase

Assembler: TypeAlias = Callable[[Steps, Sequence[str]], Assembled]
"""What makes a plan that computes given values."""


Text: TypeAlias = Literal["c", "llvm", "asm"]
TEXTS: Final[tuple[Text, ...]] = ("c", "llvm", "asm")


@dataclass(frozen=True, slots=True, eq=False)
class GroupInfo:
    """One step of a model, for explanations: the model's nodes, their values, and the kernel."""

    index: int
    label: str
    operators: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kernel: UnitKernel
    parts: int
    """Calls of the kernel in a run: for parts of the batch, or for steps in time."""
    sliced: frozenset[str] = frozenset()
    """The kernel's arguments of which a call sees its part alone."""

    @property
    def terms(self) -> int:
        """Roundings on the longest way from an input to an output of the group, for error bounds."""
        return reduction_length(self.kernel.program)


class CompiledModel(HoldsCode):
    """A model compiled for one machine, fixed shapes and a number of threads; made by ``tilewright.compile``.

    Call it with arrays, or use :meth:`run`. Any number of Python threads may run one model at once: each run
    has memory of its own, and the GIL is released meanwhile.
    """

    def __init__(
        self,
        steps: Steps,
        assembled: Assembled,
        *,
        target: TargetBase,
        threads: int,
        assemble: Assembler,
        compile_seconds: Mapping[str, float],
        precision: Precision = "f32",
        graph_plan: GraphPlan | None = None,
        strides: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> None:
        graph = steps.graph
        self._steps = steps
        self._assembled = assembled
        self._assemble = assemble
        self._results = Results(assembled.arrays)
        self._returned = dict(zip(graph.output_names, graph.outputs, strict=True))
        self._as_made = self._made_as_returned()
        self._index_bounds = index_bounds(graph)
        self._tracing: Assembled | None = None
        self._lock = threading.Lock()
        self._graph_plan = graph_plan
        self.target = target
        """The machine that the model was compiled for."""
        self.threads = threads
        """Threads that a run uses; on a device those of the caller, which only starts kernels."""
        self.precision = precision
        """The precision in which f32 values are stored between kernels and multiplied."""
        self.name = graph.name
        """The model's name, as it says itself."""
        self.compile_seconds = dict(compile_seconds)
        """Seconds of each phase of the compilation, and of all (``total``)."""
        self.inputs = tuple(tensor_info(graph, value, strides=strides.get(value)) for value in graph.inputs)
        """Name, dtype and shape of each input."""
        self.outputs = tuple(
            tensor_info(graph, value, name)
            for name, value in zip(graph.output_names, graph.outputs, strict=True)
        )
        """Name, dtype and shape of each output."""
        shown = {*graph.narrow, *graph.texts, *graph.maps}
        self._shown = {info.name: info for info in self.outputs if info.name in shown}

    @property
    def run_bytes(self) -> int:
        """Bytes of intermediate memory of one run."""
        return self._assembled.plan.run_bytes

    @property
    def constant_bytes(self) -> int:
        """Bytes of packed weights."""
        arrays = {id(array): array.nbytes for array in self._steps.constants.values()}
        return sum(arrays.values())

    def __call__(self, *arrays: Array, out: Sequence[Array] | None = None) -> list[Array]:
        """Run on one array an input, in order; returns all outputs in order. Raises what :meth:`run` does."""
        return self.run(None, named_feeds(arrays, self.inputs), out=out)

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        *,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """The named outputs (``None``: all, in order) for the given inputs by name.

        Arrays must have exactly the dtypes and shapes of :attr:`inputs`; any strides will do. The results are
        new arrays, or with ``out`` those given: one for each output asked for, row-major, writeable and apart
        from one another and from the inputs. Raises InputError naming the input or output that does not fit,
        or the node that is given an index out of range, ResourceError where there is no memory.
        """
        arrays = checked_feeds(feeds, self.inputs)
        if out is not None:
            return self._run_into(output_names, arrays, out)
        if output_names is None and self._as_made is not None:
            outputs = self._results.take()
            self._assembled.plan.run(list(arrays.values()), outputs)
            made = outputs if len(outputs) == 1 else [outputs[at] for at in self._as_made]
            return self._declared(made) if self._shown else made
        wanted = checked_names(output_names, self.outputs)
        values = self._execute(self._assembled, arrays, self._results.take())
        given: set[str] = set()
        returned = [self._value(self._returned[name], arrays, values, given) for name in wanted]
        return self._declared(returned, wanted) if self._shown else returned

    def _declared(self, arrays: Sequence[Array], names: Sequence[str] | None = None) -> list[Array]:
        """Results as the model declares them: integers of 4 and 2 bits, texts and maps are held otherwise."""
        pairs = zip(arrays, self._returned if names is None else names, strict=True)
        return [as_declared(a, self._shown[name]) if name in self._shown else a for a, name in pairs]

    def _run_into(
        self, output_names: Sequence[str] | None, arrays: Mapping[str, Array], out: Sequence[Array]
    ) -> list[Array]:
        """A run whose results lie in the arrays of a caller: written there by the kernels where these can."""
        names = checked_names(output_names, self.outputs)
        infos = {info.name: info for info in self.outputs}
        given = checked_results(out, [infos[name] for name in names], tuple(arrays.values()))
        if self._as_made is not None and len(names) == len(self.outputs) and len(set(names)) == len(names):
            into = dict(zip(names, given, strict=True))
            made = self._results.take()
            for at, info in zip(self._as_made, self.outputs, strict=True):
                made[at] = into[info.name]
            self._assembled.plan.run(list(arrays.values()), made)
            return given
        for target, result in zip(given, self.run(names, arrays), strict=True):
            np.copyto(target, result)
        return given

    def bind(self, feeds: Mapping[str, Array]) -> BoundModel:
        """Runs on these very arrays, whose contents may change between runs: ``bind(feeds).run()``.

        The arrays are checked once. The results of a run are overwritten by the next one. Raises InputError
        naming the input that does not fit or does not lie row by row in memory, ResourceError where there is
        no memory.
        """
        arrays = bound_feeds(feeds, self.inputs)
        outputs = [aligned_empty(shape, dtype) for dtype, shape in self._assembled.arrays]
        plan = self._assembled.plan.bind(list(arrays.values()), outputs)
        if self._as_made is not None:
            returned = [outputs[at] for at in self._as_made]
            return BoundModel(plan, (lambda: self._declared(returned)) if self._shown else returned.copy)
        made = dict(zip(self._assembled.outputs, outputs, strict=True))

        def results() -> list[Array]:
            given: set[str] = set()
            return self._declared(
                [self._value(value, arrays, made, given) for value in self._returned.values()]
            )

        return BoundModel(plan, results)

    def bind_tensors(self, feeds: Mapping[str, Lendable]) -> BoundTensors:
        """Runs on tensors in the memory of the model's device, such as torch's and cupy's: nothing is copied.

        Inputs are read where they lie, by DLPack; ``run()`` gives tensors on the device, which other
        libraries take without a copy (``torch.from_dlpack``) and the next run overwrites. Raises InputError
        naming the input that does not fit or lies elsewhere, and for models of CPUs, whose :meth:`bind` takes
        any array of the host.
        """
        if not isinstance(self._assembled.plan, DevicePlan):
            raise InputError(
                f"the model runs on a CPU, {self.target.name}: bind takes its tensors as arrays",
                hint="model.bind({name: numpy.from_dlpack(tensor)})",
            )
        if self._as_made is None:
            raise InputError(
                "an output of the model is an input, a constant, or stored in another type than it has",
                hint="use run() or bind() with arrays",
            )
        return bind_tensors(self._assembled.plan, feeds, self.inputs, self.outputs, self._as_made)

    def profile(
        self, feeds: Mapping[str, Array], repeats: int = 20, *, limits: Limits | None = None
    ) -> Profile:
        """Time every kernel in ``repeats`` runs after one to warm up. Raises what :meth:`run` raises.

        With ``limits``, made by :func:`~tilewright.driver.measure_limits`, each kernel is compared with what
        the machine can do: the larger of its operations over the peak and the bytes of its arguments, each
        once, over the reading bandwidth. Operations are those of the model as it is written: an algorithm
        that needs fewer may exceed the limit.
        """
        arrays = checked_feeds(feeds, self.inputs)
        plan = self._assembled.plan
        outputs = self._results.take()
        plan.run(list(arrays.values()), outputs)
        measured = plan.measure(list(arrays.values()), outputs, repeats=repeats)
        nanoseconds = self._assembled.unit_times(measured, len(self._steps.units))
        rows = [
            KernelProfile(
                index=at,
                kernel=kernel.name,
                nodes=tuple(node.location.name for node in unit.nodes),
                operators=unit.operators,
                milliseconds=float(np.median(times)) / 1e6,
                fastest=float(times.min()) / 1e6,
                flops=kernel.flops * unit.calls,
                nbytes=moved_bytes(kernel.program, unit.calls, unit.partly_seen),
                algorithm=description.algorithm,
                limit=None if limits is None else _limit(limits, unit, kernel, description) * 1e3,
            )
            for at, (unit, kernel, description, times) in enumerate(
                zip(self._steps.units, self._steps.kernels, self.descriptions(), nanoseconds.T, strict=True)
            )
        ]
        return Profile(tuple(rows), float(np.median(nanoseconds.sum(axis=1))) / 1e6, repeats, limits)

    def descriptions(self) -> tuple[KernelDescription, ...]:
        """What the kernel of each step does: algorithm, layouts, register tile and threads."""
        made = {id(k): describe(k.schedule, self.threads) for k in set(self._steps.kernels)}
        return tuple(made[id(kernel)] for kernel in self._steps.kernels)

    def groups(self) -> tuple[GroupInfo, ...]:
        """The steps of a run in order, each with the nodes it computes and its kernel."""
        return tuple(
            GroupInfo(
                index=at,
                label=unit.label,
                operators=unit.operators,
                nodes=tuple(node.location.name for node in unit.nodes),
                inputs=tuple(unit.inputs.values()),
                outputs=tuple(unit.outputs.values()),
                kernel=kernel,
                parts=unit.calls,
                sliced=unit.partly_seen,
            )
            for at, (unit, kernel) in enumerate(zip(self._steps.units, self._steps.kernels, strict=True))
        )

    def plan(self) -> ModelPlan:
        """What is decided about the model and each kernel: what ``compile(…, plan=)`` takes."""
        found = [(k.program, k.decided()) for k in dict.fromkeys(self._steps.kernels)]
        return plan_of_kernels(
            self.target, ((p, *made) for p, made in found if made is not None), self._graph_plan
        )

    def explain(self) -> list[dict[str, Any]]:
        """What was compiled, as plain data: one entry a group, its nodes, kernel, algorithm and schedule."""
        return [
            {
                "group": group.index,
                "nodes": list(group.nodes),
                "operators": group.operators,
                "inputs": list(group.inputs),
                "outputs": list(group.outputs),
                "kernel": group.kernel.name,
                **description.as_data(),
                "flops": group.kernel.flops * group.parts,
                "bytes": moved_bytes(group.kernel.program, group.parts, group.sliced),
                "parts": group.parts,
                "workspace_bytes": group.kernel.memory.workspace,
                "scratch_bytes": group.kernel.memory.scratch,
                "schedule": group.kernel.schedule.trace.to_python(),
            }
            for group, description in zip(self.groups(), self.descriptions(), strict=True)
        ]

    def why(self, node: str) -> list[tuple[GroupInfo, tuple[Reasons, ...]]]:
        """Why the kernels that compute a node are made as they are: see :func:`tilewright.plan.why`.

        ``node`` is the name of a node, or of a value that one makes. Raises InputError where the model has
        none of that name, or its kernel follows no plan.
        """
        groups = self.groups()
        found = [each for each in groups if node in each.nodes or node in each.outputs]
        if not found:
            names = [name for each in groups for name in each.nodes]
            raise InputError(
                f"no kernel computes a node {quoted(node)}", hint=known_names(node, names, "the nodes")
            )
        out = []
        for each in found:
            decided = each.kernel.decided()
            if decided is None:
                raise InputError(
                    f"the kernel of {quoted(node)} has no plan: its sizes are open, or its schedule was given"
                )
            threads, plan = decided
            assert isinstance(self.target, CpuTarget | GpuTarget)  # there are no others
            out.append((each, why(each.kernel.program, plan, Machine(self.target, threads))))
        return out

    @property
    def views(self) -> Mapping[str, str]:
        """Values that are another value's buffer under another shape, with that other value."""
        return {view: self._steps.root(view) for view in self._steps.views}

    def sample_feeds(self, seed: int = 0) -> dict[str, Array]:
        """Random inputs: normal numbers, indices within the tables that they index."""
        return draw_feeds(self.inputs, self._index_bounds, seed)

    def intermediates(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """All values that the kernels exchange, by their names in the model, in the order of their making.

        The same kernels run as in :meth:`run`. Raises what :meth:`run` raises.
        """
        arrays = checked_feeds(feeds, self.inputs)
        with self._lock:
            if self._tracing is None:
                every = [value for unit in self._steps.units for value in unit.outputs.values()]
                self._tracing = self._assemble(self._steps, every)
        made = self._execute(self._tracing, arrays, Results(self._tracing.arrays).take())
        given: set[str] = set()
        return {
            value: self._value(value, arrays, made, given)
            for value in (*self._tracing.outputs, *self._steps.views)
            if self._steps.root(value) in made
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one file that ``tilewright.load`` runs without the compiler.

        It holds machine code for this machine's CPU features or for the device, the weights, and how to run
        them. What was at
        ``path`` is replaced once all is written. Raises ArtefactError where the file cannot be written,
        InstallationError off x86-64 where there is no C compiler to link with.
        """
        if isinstance(self.target, GpuTarget):
            save_for_device(path, self._steps, self._assembled, self._said())
            return
        parts = self.parts(Library(), Weights())
        save_model(parts.manifest, parts.library, parts.weights, path)

    def trim(self) -> None:
        """Free the memory kept for runs to come."""
        self._results.trim()
        self._assembled.plan.trim()

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.inputs))
        gives = ", ".join(map(str, self.outputs))
        return f"<CompiledModel {self.name!r}: ({takes}) -> ({gives}), {len(self._steps.units)} kernels>"

    def export_c(self, header: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write ``NAME.h`` and beside it the shared library ``NAME.so``, for programs in C; returns both.

        The library stands alone: it holds kernels, weights and the runtime. Raises InputError for a name that
        does not end in ``.h``, ResourceError for more weights than a library can hold, ArtefactError where
        the files cannot be written, InstallationError where there is no C compiler.
        """
        return export_c(self.parts(Library(), Weights()), header)

    def emit(self, form: Text = "c") -> str:
        """The kernels in the order in which they first run: as ``c``, ``llvm`` (after its passes) or ``asm``.

        Raises InputError for another form, TargetError for one that the machine does not have, and where a
        kernel uses instructions that C does not have.
        """
        return kernel_texts(list(dict.fromkeys(self._steps.kernels)), form)

    def c_source(self) -> str:
        """The kernels as one file of C99 with pragmas of OpenMP, in the order in which they first run."""
        return self.emit("c")

    def parts(self, library: Library, weights: Weights) -> Parts:
        """The model taken apart, its kernels and constants put to those of a file.

        Raises TargetError for a model of a device.
        """
        if not isinstance(self.target, CpuTarget):
            raise TargetError(
                f"a model compiled for {self.target.name} is no library for C",
                hint="CompiledModel.save writes it, tilewright.load runs it",
            )
        said = self._said()
        return Parts(take_apart(self._steps, self._assembled, said, library, weights), library, weights)

    def _said(self) -> Described:
        return Described(self.name, self.target, self.inputs, self.outputs, self._index_bounds)

    def _made_as_returned(self) -> tuple[int, ...] | None:
        """Where the plan makes exactly the arrays that a run returns: the number of each, in order."""
        steps, made = self._steps, self._assembled
        places: list[int] = []
        for value in self._returned.values():
            type_, root = steps.graph.types[value], steps.root(value)
            if root not in made.outputs:
                return None
            at = made.outputs.index(root)
            buffer = steps.buffers.get(root)
            plain = buffer is None or is_plain(buffer)
            if not plain or made.arrays[at] != (dtype_of(type_.dtype).numpy, tuple(type_.sizes)):
                return None
            places.append(at)
        return tuple(places) if len(set(places)) == len(places) else None

    def _execute(
        self, assembled: Assembled, arrays: Mapping[str, Array], outputs: Sequence[Array]
    ) -> dict[str, Array]:
        assembled.plan.run(list(arrays.values()), outputs)
        return dict(zip(assembled.outputs, outputs, strict=True))

    def _value(
        self, value: str, arrays: Mapping[str, Array], made: Mapping[str, Array], given: set[str]
    ) -> Array:
        """A value as an array of its own: from the bytes that a run made, an input or a constant.

        ``given`` are the values whose bytes have been handed out; another array of theirs is a copy.
        """
        steps = self._steps
        type_ = steps.graph.types[value]
        root = steps.root(value)
        if root not in made:
            known = arrays[root] if root in arrays else steps.graph.constants[root]
            return known.reshape(type_.sizes).copy()
        array = made[root]
        wanted = dtype_of(type_.dtype).numpy
        buffer = steps.buffers.get(root)
        if buffer is not None and not is_plain(buffer):
            return unpack(array, buffer).reshape(type_.sizes).astype(wanted, copy=False)
        if array.dtype != wanted:
            return array.reshape(type_.sizes).astype(wanted)
        if root in given:
            array = array.copy()
        given.add(root)
        return array.reshape(type_.sizes)


def kernel_texts(kernels: Sequence[UnitKernel], form: Text) -> str:
    """Kernels in one text: see :meth:`CompiledModel.emit`.

    Raises InputError for a form that there is not, TargetError for one that the machine does not have.
    """
    if form == "c":
        lowered = [
            replace(lower_for_c(kernel.loops(), kernel.schedule.operations), name=kernel.name)
            for kernel in kernels
        ]
        return emit_c(*lowered).text
    if form not in TEXTS:
        raise InputError(f"there is no form {form!r}", hint=f"it is one of {', '.join(TEXTS)}")
    return "\n".join(kernel.code_text(form) for kernel in kernels)


def _limit(limits: Limits, unit: Unit, kernel: UnitKernel, description: KernelDescription) -> float:
    """The least seconds for a unit's operations and the bytes of its arguments, all its parts together."""
    instruction = next(iter(description.instructions), None)
    nbytes = moved_bytes(kernel.program, unit.calls, unit.partly_seen)
    return limits.seconds(kernel.flops * unit.calls, nbytes, instruction)
