"""Models with open sizes: one file at many sizes, kernels for ranges of them, a plan a size."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Final

from tilewright.build import Array, UnitKernel
from tilewright.driver.aside import Aside
from tilewright.driver.assemble import Assembled, Packs, Steps, make_steps
from tilewright.driver.graph_plan import GraphUnits, constants_of, without_packed
from tilewright.driver.imported_sizes import MOST_SIZES, imported, require_affine
from tilewright.driver.model import CompiledModel
from tilewright.driver.open_kernels import Compiler, OpenKernels
from tilewright.driver.profile import Profile
from tilewright.driver.progress import Progress, no_progress
from tilewright.driver.range_plan import AtSizes, NoRangePlanError, range_plan, sizes_to_compare
from tilewright.driver.samples import index_bounds
from tilewright.driver.save import Described, Library, Weights, range_manifest, save_model
from tilewright.driver.size_ranges import (
    NamedRanges,
    ranges_between,
)
from tilewright.frontend import ReadModel, Shapes
from tilewright.graph import TensorType
from tilewright.ir import dtype_of
from tilewright.plan import GraphPlan
from tilewright.runtime import (
    BoundModel,
    HoldsCode,
    OpenManifest,
    OpenTensor,
    RangePlan,
    Ranges,
    SizeReader,
)
from tilewright.support import (
    ArtefactError,
    InputError,
    ModelError,
    UnsupportedOperatorError,
    get_logger,
    known_names,
    quoted,
)

_log = get_logger(__name__)


#: Sizes of which the plan of a run, with its memory, is kept: the last used.
SIZES_KEPT: Final = 16
#: Runs of one size after which kernels are made for it alone, and how many such sizes are kept.
SINGLE_AFTER: Final = 64
SINGLES_KEPT: Final = 2
#: Sizes whose runs are counted.
COUNTED: Final = 1024


class DynamicModel(HoldsCode):
    """A model whose sizes are open; made by ``tilewright.compile(…, dynamic=…)``.

    Calls take the sizes from the shapes of their arrays. Kernels with symbolic sizes are compiled once for a
    range of sizes (up to 16, to 32, to 64 …) when one in it is first used; other sizes in it need the model's
    shapes and a plan of a run, no kernels. What has no symbolic form is compiled for its size alone. Any
    number of Python threads may use one model at once.
    """

    def __init__(
        self,
        model: ReadModel,
        ranges: NamedRanges,
        shapes: Shapes,
        constants: Mapping[str, Array],
        compiler: Compiler,
        progress: Progress = no_progress,
    ) -> None:
        start = time.perf_counter()
        self._model, self._shapes, self._constants = model, dict(shapes), dict(constants)
        self._compiler = compiler
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, ...], CompiledModel] = OrderedDict()
        self._packs = Packs()
        self._arrays: dict[str, Array] = {}
        self._plans: dict[Ranges, RangePlan | None] = {}
        self._largest: dict[Ranges, Steps] = {}
        self._aside = Aside()
        # where the sizes of the last run were: mostly those of the next one are there, too
        self._last: Ranges = tuple((hi + 1, hi) for _, hi in ranges.values())
        self._ahead: set[tuple[Ranges, tuple[bool, ...]]] = set()
        self._used: OrderedDict[tuple[int, ...], int] = OrderedDict()
        self._single: OrderedDict[tuple[int, ...], CompiledModel] = OrderedDict()
        self.sizes = dict(ranges)
        """The least and the largest value of each open size."""
        self.inputs = {name: self._declared(name, type_) for name, type_ in model.inputs().items()}
        """The type of each input; sizes that are open are names."""
        self._open = tuple(
            OpenTensor(name, dtype_of(type_.dtype).numpy, type_.shape) for name, type_ in self.inputs.items()
        )
        self._reader = SizeReader(self._open, self.sizes)
        self.target = compiler.target
        """The machine that the model was compiled for."""
        self.threads = compiler.options.threads
        """Threads that a run uses."""
        self._plan: GraphPlan | None = None
        self._compares_sizes = model.size_comparison() is not None
        self._kernels = OpenKernels(compiler, self.sizes, self._units)
        self._kernels.family({name: hi for name, (_, hi) in self.sizes.items()}, progress)
        self.name = model.model.graph.name
        """The model's name, as it says itself."""
        self.compile_seconds = {"total": time.perf_counter() - start}
        """Seconds until the first size could be compiled."""

    def at(self, **sizes: int) -> CompiledModel:
        """The model at given sizes, which is the same object as one that is compiled for them alone.

        Raises InputError for a size that is missing, strange or out of its range.
        """
        return self._at(self._given(sizes))

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
        single = self._single.get(sizes)
        if single is not None:
            return single.run(output_names, feeds, out=out)
        self._count(sizes)
        ranges = self._last
        if not all(lo <= n <= hi for n, (lo, hi) in zip(sizes, ranges, strict=True)):
            ranges = self._last = self._kernels.range_of(sizes)
        plan = self._plans.get(ranges)
        if plan is not None:
            self._look_ahead(sizes, ranges)
            return plan.run(output_names, feeds, sizes, out)
        made = self._at(sizes).run(output_names, feeds, out=out)
        self._want(ranges)
        return made

    def prepare(self, *sizes: Mapping[str, int]) -> None:
        """Make what runs at these sizes need, and at all others of their ranges; by default at all sizes.

        Returns when all of it stands: a run compiles and plans nothing then. Ranges whose sizes have no plan
        in common are planned size by size nevertheless, when they are first used. Raises what :meth:`at`
        raises.
        """
        for each in sizes:
            self._at(self._given(each))
        wanted = (
            [self._kernels.range_of(self._given(each)) for each in sizes] if sizes else self._all_ranges()
        )
        for ranges in dict.fromkeys(wanted):
            if ranges not in self._plans:
                self._plan_range(ranges)
        self.wait()

    def save(self, path: str | os.PathLike[str], sizes: Iterable[Mapping[str, int]] = ()) -> None:
        """Write the model as one file that ``tilewright.load`` runs without the compiler.

        It holds the plans of all ranges of sizes, made now where they do not stand yet, and those of the
        given single ``sizes``, each compiled for itself. A range whose sizes have no plan in common is in
        the file at such sizes only. Raises InputError where nothing would be in it, and for sizes as
        :meth:`at` does; ArtefactError where the file cannot be written, InstallationError off x86-64 where
        there is no C compiler to link with.
        """
        alone = dict.fromkeys(self._given(each) for each in sizes)
        self.prepare()
        library, weights = Library(), Weights()
        ranges = []
        for key in self._all_ranges():
            plan = self._plans[key]
            if plan is not None:
                steps = self._largest[key]
                said = Described(self.name, self.target, (), (), index_bounds(steps.graph))
                ranges.append(range_manifest(key, plan, steps.kernels, said, library, weights))
        if not ranges and not alone:
            raise InputError(
                f"no sizes of {quoted(self.name)} share a plan",
                hint="say which sizes the file is to hold: save(path, sizes=[{'batch': 8}])",
            )
        single = [(key, self._compiled_alone(key).parts(library, weights).manifest) for key in alone]
        manifest = OpenManifest(self.sizes, self._open, tuple(ranges), tuple(single))
        save_model(manifest, library, weights, path)

    def wait(self) -> None:
        """Wait until all that is made aside stands: plans of ranges in use, kernels of sizes often used."""
        self._aside.wait()

    def bind(self, feeds: Mapping[str, Array]) -> BoundModel:
        """As :meth:`CompiledModel.bind`, at the sizes that the arrays' shapes show."""
        return self._for(feeds).bind(feeds)

    def profile(self, feeds: Mapping[str, Array], repeats: int = 20) -> Profile:
        """As :meth:`CompiledModel.profile`, at the sizes that the arrays' shapes show."""
        return self._for(feeds).profile(feeds, repeats)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {lo} to {hi}" for name, (lo, hi) in self.sizes.items())
        return f"<DynamicModel {self.name!r}: {', '.join(self.inputs)}; {sizes}>"

    def _declared(self, name: str, type_: TensorType) -> TensorType:
        """An input's type with the sizes that are settled."""
        given = self._shapes.get(name)
        if given is not None and not isinstance(given, int):
            return replace(type_, shape=tuple(given))
        settled = {size: value for size, value in self._shapes.items() if isinstance(value, int)}
        return replace(type_, shape=tuple(settled.get(str(dim), dim) for dim in type_.shape))

    def _for(self, feeds: Mapping[str, Array]) -> CompiledModel:
        return self._at(self._reader.read(feeds))

    def _given(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Sizes by name as a caller gives them, checked."""
        for name in sizes:
            if name not in self.sizes:
                hint = known_names(name, list(self.sizes), "its sizes")
                raise InputError(f"the model has no open size {quoted(name)}", hint=hint)
        if missing := [name for name in self.sizes if name not in sizes]:
            raise InputError(f"the size {quoted(missing[0])} is missing")
        return tuple(self._reader.checked(name, sizes[name]) for name in self.sizes)

    def _at(self, key: tuple[int, ...]) -> CompiledModel:
        with self._lock:
            if key not in self._known:
                self._known[key] = self._made(dict(zip(self.sizes, key, strict=True)))
                while len(self._known) > SIZES_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return self._known[key]

    def _made(self, sizes: Mapping[str, int]) -> CompiledModel:
        """The model at sizes that were not used lately."""
        start = time.perf_counter()
        made = self._units(sizes)
        steps, assembled = self._assembled(made, sizes)
        return self._compiled_model(made, steps, assembled, time.perf_counter() - start)

    def _assembled(self, made: GraphUnits, sizes: Mapping[str, int]) -> tuple[Steps, Assembled]:
        """The steps and the plan of a run at some sizes, by kernels of their range as far as there are."""
        graph, views = made.partition.graph, made.partition.views
        kernels = self._kernels.at(made.units, sizes, constants_of(graph, views))
        return self._planned(made, kernels, self._packs)

    def _planned(
        self, made: GraphUnits, kernels: Sequence[UnitKernel], packs: Packs | None
    ) -> tuple[Steps, Assembled]:
        graph, views = made.partition.graph, made.partition.views
        steps = make_steps(graph, made.units, kernels, views, self.threads, packs)
        steps = replace(steps, graph=without_packed(graph))
        return steps, self._compiler.assemble(steps, graph.outputs)

    def _compiled_model(
        self, made: GraphUnits, steps: Steps, assembled: Assembled, seconds: float
    ) -> CompiledModel:
        compiler = self._compiler
        return CompiledModel(
            steps,
            assembled,
            target=compiler.target,
            threads=self.threads,
            assemble=compiler.assemble,
            compile_seconds={"total": seconds},
            precision=compiler.precision,
            graph_plan=made.plan,
        )

    def _all_ranges(self) -> list[Ranges]:
        """All ranges, those of the smallest sizes first."""
        return list(product(*(ranges_between(lo, hi) for lo, hi in self.sizes.values())))

    def _plan_range(self, ranges: Ranges) -> None:
        """Make the plan of a range: at some of its sizes as for each alone, and what these have in common."""
        names = list(self.sizes)
        points: list[AtSizes] = []
        try:
            for at in sizes_to_compare(ranges):
                if self._aside.is_over():
                    return
                with self._lock:
                    if ranges in self._plans:
                        return
                    sizes = dict(zip(names, at, strict=True))
                    steps, assembled = self._assembled(self._units(sizes), sizes)
                points.append(AtSizes(at, steps, assembled))
                if len(points) == 2:
                    # the rest need not be made where two differ already
                    range_plan(points, ranges, steps.graph.output_names)
            plan = range_plan(points, ranges, points[0].steps.graph.output_names)
            if self._compares_sizes and not self._is_one_model(ranges):
                return
        except NoRangePlanError as error:
            _log.info("the sizes %s have a plan each: %s", ranges, error)
            plan = None
        with self._lock:
            self._plans[ranges] = plan
            if plan is not None:
                self._largest[ranges] = points[0].steps

    def _is_one_model(self, ranges: Ranges) -> bool:
        """Look at what is imported at every size of a range; False where time is over before.

        Raises NoRangePlanError where it is another model at some.
        """
        if prod(hi - lo + 1 for lo, hi in ranges) > MOST_SIZES:
            raise NoRangePlanError("it compares sizes, and there are many of them")
        found = {}
        for at in product(*(range(lo, hi + 1) for lo, hi in ranges)):
            if self._aside.is_over():
                return False
            sizes = dict(zip(self.sizes, at, strict=True))
            found[at] = imported(self._model.graph({**self._shapes, **sizes}, self._constants))
        require_affine(found)
        return True

    def _want(self, ranges: Ranges) -> None:
        """Have the plan of a range made aside."""
        if ranges not in self._plans:
            self._aside.want(ranges, lambda: self._plan_range(ranges))

    def _look_ahead(self, sizes: tuple[int, ...], ranges: Ranges) -> None:
        """Have the range after this one planned before sizes that grow come there."""
        upper = tuple([2 * n > lo + hi for n, (lo, hi) in zip(sizes, ranges, strict=True)])
        if (ranges, upper) not in self._ahead:
            self._ahead.add((ranges, upper))
            most = (hi for _, hi in self.sizes.values())
            after = [
                min(hi + 1, end) if far else n
                for n, far, (_, hi), end in zip(sizes, upper, ranges, most, strict=True)
            ]
            self._want(self._kernels.range_of(after))

    def _count(self, sizes: tuple[int, ...]) -> None:
        """Count a run; kernels for a size that is often used are made aside, and swapped in."""
        count = self._used[sizes] = self._used.get(sizes, 0) + 1
        if count == SINGLE_AFTER:
            self._aside.want(sizes, lambda: self._make_single(sizes))
        if len(self._used) > COUNTED:
            with self._lock:
                while len(self._used) > COUNTED:
                    self._used.popitem(last=False)

    def _make_single(self, key: tuple[int, ...]) -> None:
        """Have the model of one size alone at hand."""
        model = self._compiled_alone(key)
        with self._lock:
            self._single[key] = model
            while len(self._single) > SINGLES_KEPT:
                gone, _ = self._single.popitem(last=False)
                # it has to be used as often again
                self._used.pop(gone, None)

    def _compiled_alone(self, key: tuple[int, ...]) -> CompiledModel:
        """The model compiled for one size alone, all its decisions made for that."""
        start = time.perf_counter()
        sizes = dict(zip(self.sizes, key, strict=True))
        graph = self._model.graph({**self._shapes, **sizes}, self._constants)
        made = self._compiler.units(graph, None)
        found = constants_of(made.partition.graph, made.partition.views)
        kernels = self._compiler.kernels(made.units, found)
        steps, assembled = self._planned(made, kernels, None)
        return self._compiled_model(made, steps, assembled, time.perf_counter() - start)

    def _units(self, sizes: Mapping[str, int]) -> GraphUnits:
        """The units at some sizes, cut and laid out as at all others where that is possible."""
        try:
            graph = self._model.graph({**self._shapes, **sizes}, self._constants)
        except ModelError as error:
            if error.hint is None and sizes and not isinstance(error, UnsupportedOperatorError):
                # the numbers in the message are of sizes that nobody may have named
                at = ", ".join(f"{quoted(name)} {n}" for name, n in sizes.items())
                error.hint = (
                    f"so it is at the open sizes {at}: sizes that depend on each other need one name in the "
                    "file, or values in shapes="
                )
            raise
        graph = replace(graph, constants={v: self._shared(v, a) for v, a in graph.constants.items()})
        try:
            made = self._compiler.units(graph, self._plan)
        except ArtefactError as error:
            _log.info("at %s the graph is another one: %s", dict(sizes), error.what)
            made = self._compiler.units(graph, None)
        if self._plan is None:
            # parts of a batch divide one size, not others
            self._plan = replace(made.plan, parts={})
            made = self._compiler.units(graph, self._plan) if made.plan.parts else made
        views = made.partition
        constants = {v: self._shared(v, a) for v, a in views.graph.constants.items()}
        units = tuple(
            replace(unit, tables={n: self._shared(f"{at}: {n}", a) for n, a in unit.tables.items()})
            for at, unit in enumerate(made.units)
        )
        return replace(
            made, partition=replace(views, graph=replace(views.graph, constants=constants)), units=units
        )

    def _shared(self, name: str, array: Array) -> Array:
        """An array, or the equal one that another size had under that name: what is packed of it is kept."""
        known = self._arrays.get(name)
        if known is None:
            self._packs.keep(array)
            self._arrays[name] = known = array
        same = known is array or (
            known.shape == array.shape and known.dtype == array.dtype and known.tobytes() == array.tobytes()
        )
        return known if same else array
