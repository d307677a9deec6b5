"""Models with open sizes: compiled once, run at all sizes."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from tilewright.build import Array, UnitKernel, describe, flops, moved_bytes
from tilewright.driver.assemble import Steps
from tilewright.driver.compiler import Clock, OnCpu, compiled_graph
from tilewright.driver.explained import Explained, profile_row
from tilewright.driver.limits import Limits
from tilewright.driver.model import CompiledModel
from tilewright.driver.open_plan import PlannedRange, open_list, plan_sizes
from tilewright.driver.open_sizes import OpenSizes, declared
from tilewright.driver.profile import KernelProfile, Profile
from tilewright.driver.progress import Progress, no_progress
from tilewright.driver.samples import index_bounds
from tilewright.driver.save import Described, Library, Weights, range_manifest, save_model, single_range
from tilewright.driver.units import Unit
from tilewright.frontend import OpenSource, Shapes
from tilewright.graph import ListType, TensorType, UndeterminedError
from tilewright.ir import dtype_of, program_at, typical
from tilewright.runtime import (
    KernelCall,
    OpenManifest,
    OpenModel,
    OpenTensor,
    Sizes,
    amount_in,
    checked_repeats,
)
from tilewright.support import InputError, ModelError, UnsupportedOperatorError, get_logger, quoted

_log = get_logger(__name__)

#: Models of one size each that are kept: the last used.
SIZES_KEPT: Final = 16


class DynamicModel(OpenModel, Explained):
    """A model whose sizes are open; made by ``tilewright.compile(…, dynamic=…)``.

    Calls take the sizes from the shapes of their arrays. It is compiled once for all sizes: at a further size
    a run computes extents and bytes, and nothing is planned or compiled. A model that has no plan for all
    sizes is compiled at each size that is used, and one in which inputs say more than sizes (axes, say) for
    what they hold: ``compilations`` counts that. Any number of Python threads may use one model at once.
    """

    def __init__(
        self,
        model: OpenSource,
        sizes: OpenSizes,
        shapes: Shapes,
        constants: Mapping[str, Array],
        compiler: OnCpu,
        progress: Progress = no_progress,
        states: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        start = time.perf_counter()
        self.states = dict(states)
        """The outputs that are written where inputs are, by the names of these."""
        self._model, self._shapes, self._constants = model, dict(shapes), dict(constants)
        self._compiler = compiler
        self._lock = threading.Lock()
        self._made: OrderedDict[tuple[object, ...], CompiledModel] = OrderedDict()
        self._asked: tuple[str, ...] = ()
        values = sizes.values()
        inputs = [
            open_list(name, kind, sizes)
            if isinstance(kind, ListType)
            else _open_tensor(name, declared(kind, name, shapes), sizes, values)
            for name, kind in model.kinds().items()
            if name not in constants
        ]
        self.plans = self._planned(sizes, values, progress)
        """The plans, each for a range of sizes; none where the model is compiled at each size."""
        if states and not self.plans:
            raise InputError(
                "there is no plan for all sizes, and states stay where they are in such plans alone"
            )
        for planned in self.plans if states else []:
            planned.plan.keep(states)
        stages = [stage for planned in self.plans for stage in planned.stages]
        super().__init__(
            model.name,
            sizes.ranges,
            inputs,
            _in_common([planned.outputs for planned in self.plans]),
            [(planned.ranges, planned.plan) for planned in self.plans],
            {name: n for stage in stages for name, n in index_bounds(stage.steps.graph).items()},
            compiler.threads,
        )
        self.target = compiler.target
        """The machine that the model was compiled for."""
        self.compile_seconds = {"total": time.perf_counter() - start}
        """Seconds that compiling took."""

    def at(self, **sizes: int) -> CompiledModel:
        """The model compiled for given sizes alone.

        Raises InputError for a size that is missing, strange or out of its range.
        """
        return self._alone(self._reader.given(sizes), {})

    def save(self, path: str | os.PathLike[str], sizes: Iterable[Mapping[str, int]] = ()) -> None:
        """Write the model as one file that ``tilewright.load`` runs without the compiler.

        It holds the plans for all sizes, and those of the given single ``sizes``, each compiled for itself.
        Raises InputError where nothing would be in it, and for sizes as :meth:`at` does; ArtefactError where
        the file cannot be written, InstallationError off x86-64 where there is no C compiler to link with.
        """
        if self.states:
            raise InputError("models whose states stay where they are are not saved")
        alone = dict.fromkeys(self._reader.given(each) for each in sizes)
        library, weights = Library(), Weights()
        single = [single_range(key, self._alone(key, {}).parts(library, weights).manifest) for key in alone]
        if not single and not self.plans:
            raise InputError(
                f"{quoted(self.name)} has no plan for all sizes",
                hint="say which sizes the file is to hold: save(path, sizes=[{'batch': 8}])",
            )
        ranges = [
            range_manifest(
                planned.ranges,
                planned.plan,
                [(stage.steps.graph, stage.steps.kernels) for stage in planned.stages],
                Described(self.name, self.target, (), (), {}),
                library,
                weights,
            )
            for planned in self.plans
        ]
        outputs = self.outputs or [
            OpenTensor(info.name, info.dtype, info.shape) for info in single[0].parts[0].plan.outputs
        ]
        manifest = OpenManifest(self.sizes, self.inputs, tuple(outputs), (*single, *ranges))
        save_model(manifest, library, weights, path)

    def profile(
        self, feeds: Mapping[str, Array], repeats: int = 20, *, limits: Limits | None = None
    ) -> Profile:
        """As :meth:`CompiledModel.profile`, at the sizes that the arrays' shapes show.

        What runs several times in a run, a loop's steps, is one row of all of them. Versions of a kernel that
        do not run at these sizes have none.
        """
        sizes = self._reader.read(feeds)
        plan = self._plan(sizes)
        if plan is None:
            model = self._alone(sizes, feeds)
            return model.profile({t.name: feeds[t.name] for t in model.inputs}, repeats, limits=limits)
        (planned,) = (each for each in self.plans if each.plan is plan)
        feeds = self._fitting(plan, feeds, sizes)
        nanoseconds, runs = plan.measure(feeds, sizes, checked_repeats(repeats))
        columns = iter(nanoseconds.T)
        rows: list[KernelProfile] = []
        for number, (stage, made) in enumerate(zip(planned.stages, plan.plans, strict=True)):
            calls = zip(stage.steps.units, stage.steps.kernels, made.plan.contents.steps, strict=True)
            for unit, kernel, call in calls:
                known = [run.values for run in runs if run.plan == number]
                times = next(columns)
                if unit.is_version and not any(amount_in(call.repeat, values) for values in known):
                    continue
                work = [work_at(unit, kernel, call, values) for values in known]
                total = (sum(flops for flops, _ in work), sum(nbytes for _, nbytes in work))
                told = describe(kernel.schedule, self.threads)
                rows.append(profile_row(len(rows), unit, kernel, told, times, total, limits))
        return Profile(tuple(rows), float(np.median(nanoseconds.sum(axis=1))) / 1e6, repeats, limits)

    def _every_steps(self) -> list[Steps]:
        return [stage.steps for planned in self.plans for stage in planned.stages]

    def _planned(self, sizes: OpenSizes, values: Mapping[str, int], progress: Progress) -> list[PlannedRange]:
        """The plans; none, and a line of the log, where there is something that they cannot say."""
        arguments = (self._model, sizes, self._shapes, self._constants, self._compiler, progress)
        try:
            return plan_sizes(*arguments)
        except ModelError as error:
            refusal = error
        # a model that is wrong, or not supported, is so at single sizes, too
        usual = {name: typical(values[name]) for name in sizes.dims}
        try:
            self._model.graph({**self._shapes, **usual}, self._constants)
        except UndeterminedError as error:
            # what they hold decides more than sizes
            names = ", ".join(map(quoted, error.inputs))
            _log.warning("what %s hold is compiled for when it is first used: %s", names, refusal)
            return []
        except ModelError as error:
            raise refusal if isinstance(error, UnsupportedOperatorError) else _hinted(error, usual) from None
        _log.warning("each size is compiled when it is first used: %s", refusal)
        return []

    def _alone(self, sizes: Sizes, feeds: Mapping[str, Array]) -> CompiledModel:
        """The model compiled for sizes alone, and for what inputs hold that decide more than sizes."""
        if self.states:
            raise InputError("a model whose states stay where they are runs by its plan for all sizes")
        with self._lock:
            key = (sizes, *((name, *_content(feeds.get(name))) for name in self._asked))
            while key not in self._made:
                given = {name: feeds[name] for name in self._asked if name in feeds}
                try:
                    made = self._compiled(dict(zip(self.sizes, sizes, strict=True)), given)
                except UndeterminedError as error:
                    new = [name for name in error.inputs if name not in self._asked]
                    if not new or any(name not in feeds for name in new):
                        raise
                    self._asked += tuple(new)
                    key = (sizes, *((name, *_content(feeds.get(name))) for name in self._asked))
                    continue
                self._made[key] = made
                self.compilations += 1
                while len(self._made) > SIZES_KEPT:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
            return self._made[key]

    def _compiled(self, sizes: Mapping[str, int], given: Mapping[str, Array]) -> CompiledModel:
        """The model compiled for one size alone, and for what is ``given``."""
        shapes = {**self._shapes, **{each.name: each.at(sizes).shape for each in self.inputs}}
        shapes = {name: shape for name, shape in shapes.items() if name not in given}
        graph = self._model.graph(shapes, {**self._constants, **given})
        return compiled_graph(graph, self._compiler, Clock())


def work_at(unit: Unit, kernel: UnitKernel, call: KernelCall, values: Sequence[int]) -> tuple[int, int]:
    """The operations and bytes of a unit in a run of some numbers."""
    sizes = [amount_in(n, values) for n in call.params]
    names = (p.name for p in kernel.program.params)
    program = program_at(kernel.program, dict(zip(names, sizes, strict=True)))
    repeat = amount_in(call.repeat, values)
    return flops(program) * repeat, moved_bytes(program, repeat, unit.partly_seen)


def _open_tensor(name: str, kind: TensorType, sizes: OpenSizes, values: Mapping[str, int]) -> OpenTensor:
    dims = tuple(sizes.shows(dim, values) for dim in kind.shape)
    return OpenTensor(name, dtype_of(kind.dtype).numpy, dims)


def _content(array: Array | None) -> tuple[object, ...]:
    """What tells what an input holds from what others do."""
    return (
        () if array is None else (np.shape(array), np.asarray(array).dtype.str, np.asarray(array).tobytes())
    )


def _in_common(of_plans: Sequence[Sequence[OpenTensor]]) -> list[OpenTensor]:
    """The outputs of all plans; dimensions that these have otherwise are not known."""
    return [
        replace(
            first,
            shape=tuple(
                dims[0] if len({*dims}) == 1 else "?"
                for dims in zip(first.shape, *(t.shape for t in rest), strict=True)
            ),
        )
        for first, *rest in zip(*of_plans, strict=True)
    ]


def _hinted(error: ModelError, sizes: Mapping[str, int]) -> ModelError:
    """An error whose numbers are of sizes that nobody may have named."""
    if error.hint is None and sizes:
        at = ", ".join(f"{quoted(name)} {n}" for name, n in sizes.items())
        error.hint = (
            f"so it is at the open sizes {at}: sizes that depend on each other need one name in the file, or "
            "values in shapes="
        )
    return error
