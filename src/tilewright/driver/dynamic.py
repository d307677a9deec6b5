"""Models with open sizes: compiled once, run at all sizes."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from tilewright.build import Array
from tilewright.driver.compiler import Clock, OnCpu, compiled_graph
from tilewright.driver.model import CompiledModel
from tilewright.driver.open_plan import PlannedRange, plan_sizes
from tilewright.driver.open_sizes import OpenSizes, declared
from tilewright.driver.profile import Profile
from tilewright.driver.progress import Progress, no_progress
from tilewright.driver.samples import index_bounds
from tilewright.driver.save import Described, Library, Weights, range_manifest, save_model
from tilewright.frontend import ReadModel, Shapes
from tilewright.graph import UndeterminedError
from tilewright.ir import dtype_of, typical
from tilewright.runtime import (
    BoundModel,
    CountError,
    HoldsCode,
    OpenManifest,
    OpenTensor,
    SizeReader,
    Sizes,
    StagedPlan,
    draw_feeds,
)
from tilewright.support import InputError, ModelError, UnsupportedOperatorError, get_logger, quoted

_log = get_logger(__name__)

#: Models of one size each that are kept: the last used.
SIZES_KEPT: Final = 16


class DynamicModel(HoldsCode):
    """A model whose sizes are open; made by ``tilewright.compile(…, dynamic=…)``.

    Calls take the sizes from the shapes of their arrays. It is compiled once for all sizes: at a further size
    a run computes extents and bytes, and nothing is planned or compiled. A model that has no plan for all
    sizes is compiled at each size that is used, and one in which inputs say more than sizes (axes, say) for
    what they hold: ``compilations`` counts that. Any number of Python threads may use one model at once.
    """

    def __init__(
        self,
        model: ReadModel,
        sizes: OpenSizes,
        shapes: Shapes,
        constants: Mapping[str, Array],
        compiler: OnCpu,
        progress: Progress = no_progress,
    ) -> None:
        start = time.perf_counter()
        self._model, self._shapes, self._constants = model, dict(shapes), dict(constants)
        self._compiler = compiler
        self._lock = threading.Lock()
        self._alone: OrderedDict[tuple[object, ...], CompiledModel] = OrderedDict()
        self._asked: tuple[str, ...] = ()
        values = sizes.values()
        inputs = {
            name: declared(type_, name, shapes)
            for name, type_ in model.inputs().items()
            if name not in constants
        }
        self._open = tuple(
            OpenTensor(
                name, dtype_of(type_.dtype).numpy, tuple(sizes.shows(dim, values) for dim in type_.shape)
            )
            for name, type_ in inputs.items()
        )
        self.sizes = dict(sizes.ranges)
        """The values of each open size."""
        self.inputs = inputs
        """The type of each input; sizes that are open are names."""
        self._reader = SizeReader(self._open, self.sizes)
        self.target = compiler.target
        """The machine that the model was compiled for."""
        self.threads = compiler.threads
        """Threads that a run uses."""
        self.name = model.model.graph.name
        """The model's name, as it says itself."""
        self.plans = self._planned(sizes, values, progress)
        """The plans, each for a range of sizes; none where the model is compiled at each size."""
        self.compilations = 0
        """How often sizes were compiled since the model was."""
        self._last = self.plans[0] if self.plans else None
        self.compile_seconds = {"total": time.perf_counter() - start}
        """Seconds that compiling took."""

    def at(self, **sizes: int) -> CompiledModel:
        """The model compiled for given sizes alone.

        Raises InputError for a size that is missing, strange or out of its range.
        """
        return self._at(self._reader.given(sizes))

    def __call__(self, *arrays: Array) -> list[Array]:
        """Run on one array an input, in order; returns all outputs in order. Raises what :meth:`run` does."""
        if len(arrays) != len(self.inputs):
            raise InputError(
                f"the model takes {len(self.inputs)} inputs, got {len(arrays)}", hint=", ".join(self.inputs)
            )
        return self.run(None, dict(zip(self.inputs, arrays, strict=True)))

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        *,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """As :meth:`CompiledModel.run`, at the sizes that the arrays' shapes show.

        Raises InputError also for sizes that contradict each other or are out of their range.
        """
        sizes = self._reader.read(feeds)
        planned = self._plan(sizes)
        if planned is None:
            return self._run_alone(sizes, output_names, feeds, out)
        try:
            return planned.plan.run(output_names, feeds, sizes, out)
        except CountError:
            # numbers that are no sizes: places from the end, say
            try:
                return self._run_alone(sizes, output_names, feeds, out)
            except ModelError:
                pass
            raise

    def _run_alone(
        self,
        sizes: Sizes,
        names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        out: Sequence[Array] | None,
    ) -> list[Array]:
        model = self._at(sizes, feeds)
        return model.run(names, {info.name: feeds[info.name] for info in model.inputs}, out=out)

    def prepare(self, *sizes: Mapping[str, int]) -> None:
        """Compile for these sizes what has no plan for all. Raises what :meth:`at` raises."""
        for each in sizes:
            given = self._reader.given(each)
            if self._plan(given) is None:
                self._at(given)

    def save(self, path: str | os.PathLike[str], sizes: Iterable[Mapping[str, int]] = ()) -> None:
        """Write the model as one file that ``tilewright.load`` runs without the compiler.

        It holds the plans for all sizes, and those of the given single ``sizes``, each compiled for itself.
        Raises InputError where nothing would be in it, and for sizes as :meth:`at` does; ArtefactError where
        the file cannot be written, InstallationError off x86-64 where there is no C compiler to link with.
        """
        alone = dict.fromkeys(self._reader.given(each) for each in sizes)
        library, weights = Library(), Weights()
        ranges = []
        for planned in self.plans:
            if isinstance(planned.plan, StagedPlan):
                raise InputError(
                    f"{quoted(self.name)} computes sizes from data: no file holds such plans yet",
                    hint="save the model before the node that does: NonZero, Compress and their like",
                )
            said = Described(self.name, self.target, (), (), index_bounds(planned.stages[0].steps.graph))
            ranges.append(
                range_manifest(
                    planned.ranges, planned.plan, planned.stages[0].steps.kernels, said, library, weights
                )
            )
        if not ranges and not alone:
            raise InputError(
                f"{quoted(self.name)} has no plan for all sizes",
                hint="say which sizes the file is to hold: save(path, sizes=[{'batch': 8}])",
            )
        single = [(key, self._at(key).parts(library, weights).manifest) for key in alone]
        manifest = OpenManifest(self.sizes, self._open, tuple(ranges), tuple(single))
        save_model(manifest, library, weights, path)

    def sample_feeds(self, seed: int = 0, **sizes: int) -> dict[str, Array]:
        """Random inputs at some sizes: normal numbers, indices within the tables that they index.

        Raises InputError for a size that is missing, strange or out of its range.
        """
        given = self._reader.given(sizes)
        planned = self._plan(given)
        if planned is None:
            return self._at(given).sample_feeds(seed)
        values = dict(zip(self.sizes, given, strict=True))
        infos = [each.at(values) for each in self._open]
        return draw_feeds(infos, index_bounds(planned.stages[0].steps.graph), seed)

    def bind(self, feeds: Mapping[str, Array]) -> BoundModel:
        """As :meth:`CompiledModel.bind`, at the sizes that the arrays' shapes show."""
        sizes = self._reader.read(feeds)
        planned = self._plan(sizes)
        if planned is not None:
            return planned.plan.bind(feeds, sizes)
        model = self._at(sizes, feeds)
        return model.bind({info.name: feeds[info.name] for info in model.inputs})

    def profile(self, feeds: Mapping[str, Array], repeats: int = 20) -> Profile:
        """As :meth:`CompiledModel.profile`, at the sizes that the arrays' shapes show."""
        model = self._at(self._reader.read(feeds), feeds)
        return model.profile({info.name: feeds[info.name] for info in model.inputs}, repeats)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {known}" for name, known in self.sizes.items())
        return f"<DynamicModel {self.name!r}: {', '.join(self.inputs)}; {sizes}>"

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

    def _plan(self, sizes: Sizes) -> PlannedRange | None:
        """The plan of some sizes; none where the model is no model at these, or has no plans."""
        last = self._last
        if last is None or _within(sizes, last):
            return last
        found = next((planned for planned in self.plans if _within(sizes, planned)), None)
        self._last = found or last
        return found

    def _at(self, sizes: Sizes, feeds: Mapping[str, Array] = MappingProxyType({})) -> CompiledModel:
        """The model compiled for sizes alone, and for what inputs hold that decide more than sizes."""
        with self._lock:
            key = (sizes, *((name, *_content(feeds.get(name))) for name in self._asked))
            while key not in self._alone:
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
                self._alone[key] = made
                self.compilations += 1
                while len(self._alone) > SIZES_KEPT:
                    self._alone.popitem(last=False)
            self._alone.move_to_end(key)
            return self._alone[key]

    def _compiled(self, sizes: Mapping[str, int], given: Mapping[str, Array]) -> CompiledModel:
        """The model compiled for one size alone, and for what is ``given``."""
        shapes = {**self._shapes, **self._fixed(sizes)}
        shapes = {name: shape for name, shape in shapes.items() if name not in given}
        graph = self._model.graph(shapes, {**self._constants, **given})
        return compiled_graph(graph, self._compiler, Clock())

    def _fixed(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The whole shape of each input at some sizes."""
        return {each.name: each.at(sizes).shape for each in self._open}


def _content(array: Array | None) -> tuple[object, ...]:
    """What tells what an input holds from what others do."""
    return (
        () if array is None else (np.shape(array), np.asarray(array).dtype.str, np.asarray(array).tobytes())
    )


def _within(sizes: Sizes, planned: PlannedRange) -> bool:
    return all(lo <= n <= hi for n, (lo, hi) in zip(sizes, planned.ranges, strict=True))


def _hinted(error: ModelError, sizes: Mapping[str, int]) -> ModelError:
    """An error whose numbers are of sizes that nobody may have named."""
    if error.hint is None and sizes:
        at = ", ".join(f"{quoted(name)} {n}" for name, n in sizes.items())
        error.hint = (
            f"so it is at the open sizes {at}: sizes that depend on each other need one name in the file, or "
            "values in shapes="
        )
    return error
