"""Compiled models: calling, inspecting and profiling them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.build import (
    Array,
    is_plain,
    moved_bytes,
    unpack,
)
from tilewright.devices import BoundTensors, DevicePlan, Lendable, bind_tensors
from tilewright.driver.assemble import Assembled, Steps
from tilewright.driver.explained import Explained, profile_row
from tilewright.driver.export_c import export_c
from tilewright.driver.feeds import tensor_info
from tilewright.driver.limits import Limits
from tilewright.driver.plans import ModelPlan, plan_of_kernels
from tilewright.driver.profile import Profile
from tilewright.driver.samples import index_bounds
from tilewright.driver.save import Described, Library, Parts, Weights, save_model, take_apart
from tilewright.driver.save_device import save_for_device
from tilewright.driver.units import Precision
from tilewright.ir import dtype_of
from tilewright.plan import GraphPlan
from tilewright.runtime import (
    BoundModel,
    FixedModel,
    Results,
    aligned_empty,
    as_declared,
    bound_feeds,
    checked_feeds,
    checked_names,
    checked_results,
)
from tilewright.support import InputError, TargetError
from tilewright.target import CpuTarget, GpuTarget, TargetBase

Assembler: TypeAlias = Callable[[Steps, Sequence[str]], Assembled]
"""What makes a plan that computes given values."""


class CompiledModel(FixedModel, Explained):
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
        shown = {*graph.texts, *graph.maps}
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

    @property
    def _own_plan(self) -> object:
        return self._assembled.plan

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        *,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """As :meth:`tilewright.Model.run`."""
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
        """As :meth:`tilewright.Model.bind`."""
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

    def measure(self, feeds: Mapping[str, Array], repeats: int = 20) -> npt.NDArray[np.int64]:
        """As :meth:`tilewright.Model.measure`."""
        arrays = list(checked_feeds(feeds, self.inputs).values())
        outputs, plan = self._results.take(), self._assembled.plan
        plan.run(arrays, outputs)
        return plan.measure(arrays, outputs, repeats=repeats)

    def profile(
        self, feeds: Mapping[str, Array], repeats: int = 20, *, limits: Limits | None = None
    ) -> Profile:
        """Time every kernel in ``repeats`` runs after one to warm up. Raises what :meth:`run` raises.

        With ``limits``, made by :func:`~tilewright.driver.measure_limits`, each kernel is compared with what
        the machine can do: the larger of its operations over the peak and the bytes of its arguments, each
        once, over the reading bandwidth. Operations are those of the model as it is written: an algorithm
        that needs fewer may exceed the limit.
        """
        nanoseconds = self._assembled.unit_times(self.measure(feeds, repeats), len(self._steps.units))
        of_units = zip(self._calls(), self.descriptions(), nanoseconds.T, strict=True)
        rows = [
            profile_row(
                at,
                unit,
                kernel,
                description,
                times,
                (kernel.flops * unit.calls, moved_bytes(kernel.program, unit.calls, unit.partly_seen)),
                limits,
            )
            for at, ((unit, kernel), description, times) in enumerate(of_units)
        ]
        return Profile(tuple(rows), float(np.median(nanoseconds.sum(axis=1))) / 1e6, repeats, limits)

    def _every_steps(self) -> Sequence[Steps]:
        return (self._steps,)

    def plan(self) -> ModelPlan:
        """What is decided about the model and each kernel: what ``compile(…, plan=)`` takes."""
        found = [(k.program, k.decided()) for k in dict.fromkeys(self._steps.kernels)]
        return plan_of_kernels(
            self.target, ((p, *made) for p, made in found if made is not None), self._graph_plan
        )

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
