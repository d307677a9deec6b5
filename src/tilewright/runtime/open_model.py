"""Models with open sizes: what compiled and loaded ones have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from tilewright.runtime.bound import BoundModel
from tilewright.runtime.open_sizes import OpenTensor, Ranges, SizeRange, SizeReader, Sizes
from tilewright.runtime.staged import CountError, StagedPlan
from tilewright.runtime.tensors import HoldsCode, TensorInfo, checked_feeds, draw_feeds
from tilewright.support import InputError, ModelError

Array = npt.NDArray[Any]


class NoPlanError(InputError):
    """A file has no plan for some sizes."""


class RunsAlone(Protocol):
    """A model of one size."""

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Its inputs."""

    def run(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, Array], *, out: Sequence[Array] | None
    ) -> list[Array]:
        """The named outputs."""

    def bind(self, feeds: Mapping[str, Array]) -> BoundModel:
        """Runs on these very arrays."""

    def sample_feeds(self, seed: int = 0) -> dict[str, Array]:
        """Random inputs."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What preparing sizes took and made: seconds, bytes of memory that runs have, models compiled."""

    seconds: float
    nbytes: int
    compiled: int


class OpenModel(HoldsCode, ABC):
    """A model that takes its sizes from the shapes of its arrays, with plans for parts of their range."""

    def __init__(
        self,
        name: str,
        sizes: Mapping[str, SizeRange],
        inputs: Sequence[OpenTensor],
        outputs: Sequence[OpenTensor],
        plans: Sequence[tuple[Ranges, StagedPlan]],
        bounds: Mapping[str, int],
        threads: int,
    ) -> None:
        self.name = name
        """The model's name, as it says itself."""
        self.sizes = dict(sizes)
        """The values of each open size, by its name in the model."""
        self.inputs = tuple(inputs)
        """Name, dtype and dimensions of each input; sizes that are open are names."""
        self.outputs = tuple(outputs)
        """Name, dtype and dimensions of each output: names, expressions of them, "?" where data decides."""
        self.threads = threads
        """Threads that a run uses."""
        self.compilations = 0
        """How often sizes were compiled since the model was."""
        self._plans = tuple(plans)
        self._bounds = dict(bounds)
        self._reader = SizeReader(self.inputs, self.sizes)

    @property
    def ranges(self) -> tuple[dict[str, tuple[int, int]], ...]:
        """The ranges of sizes that there are plans for; the first that has some sizes runs them."""
        return tuple(dict(zip(self.sizes, ranges, strict=True)) for ranges, _ in self._plans)

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights."""
        every = (a for _, plan in self._plans for part in plan.plans for a in part.plan.contents.constants)
        return sum({id(array): array.nbytes for array in every}.values())

    def __call__(self, *arrays: Array, out: Sequence[Array] | None = None) -> list[Array]:
        """Run on one array an input, in order; returns all outputs in order. Raises what :meth:`run` does."""
        if len(arrays) != len(self.inputs):
            names = ", ".join(each.name for each in self.inputs)
            raise InputError(f"the model takes {len(self.inputs)} inputs, got {len(arrays)}", hint=names)
        feeds = {each.name: array for each, array in zip(self.inputs, arrays, strict=True)}
        return self.run(None, feeds, out=out)

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        *,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """The named outputs (``None``: all, in order) for the given inputs by name, at the sizes these show.

        As ``run`` of a model with fixed sizes. Raises what that raises, InputError also for sizes that
        contradict each other or are out of their range.
        """
        sizes = self._reader.read(feeds)
        plan = self._plan(sizes)
        if plan is None:
            return self._run_alone(sizes, output_names, feeds, out)
        try:
            return plan.run(output_names, self._fitting(plan, feeds, sizes), sizes, out)
        except CountError:
            # numbers that are no sizes: places from the end, say
            try:
                return self._run_alone(sizes, output_names, feeds, out)
            except (ModelError, NoPlanError):
                pass
            raise

    def bind(self, feeds: Mapping[str, Array]) -> BoundModel:
        """Runs on these very arrays, as ``bind`` of a model with fixed sizes, at the sizes that they show."""
        sizes = self._reader.read(feeds)
        plan = self._plan(sizes)
        if plan is not None:
            return plan.bind(feeds, sizes)
        model = self._alone(sizes, feeds)
        return model.bind({info.name: feeds[info.name] for info in model.inputs})

    def prepare(self, *sizes: Mapping[str, int]) -> Prepared:
        """Have all that runs at these sizes need: their memory, and what has no plan for all sizes compiled.

        What a run at sizes up to these needs is then there, once for each thread that runs at the same time
        later. Memory of sizes that data says comes with the runs. Raises InputError for a size that is
        missing, strange or out of its range, ResourceError where there is no memory.
        """
        start, before, nbytes = time.perf_counter(), self.compilations, 0
        for each in sizes:
            given = self._reader.given(each)
            plan = self._plan(given)
            if plan is None:
                self._alone(given, {})
            else:
                nbytes = max(nbytes, plan.reserve(given))
        return Prepared(time.perf_counter() - start, nbytes, self.compilations - before)

    def sample_feeds(self, seed: int = 0, **sizes: int) -> dict[str, Array]:
        """Random inputs at some sizes: normal numbers, indices within the tables that they index.

        Raises InputError for a size that is missing, strange or out of its range.
        """
        given = self._reader.given(sizes)
        if self._plan(given) is None:
            return self._alone(given, {}).sample_feeds(seed)
        values = dict(zip(self.sizes, given, strict=True))
        return draw_feeds([each.at(values) for each in self.inputs], self._bounds, seed)

    def trim(self) -> None:
        """Free the memory kept for runs to come."""
        for _, plan in self._plans:
            plan.trim()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {known}" for name, known in self.sizes.items())
        return (
            f"<{type(self).__name__} {self.name!r}: {', '.join(each.name for each in self.inputs)}; {sizes}>"
        )

    @abstractmethod
    def _alone(self, sizes: Sizes, feeds: Mapping[str, Array]) -> RunsAlone:
        """The model of sizes that no plan is for, and of what inputs hold that say more than sizes."""

    def _run_alone(
        self,
        sizes: Sizes,
        names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        out: Sequence[Array] | None,
    ) -> list[Array]:
        model = self._alone(sizes, feeds)
        return model.run(names, {info.name: feeds[info.name] for info in model.inputs}, out=out)

    def _plan(self, sizes: Sizes) -> StagedPlan | None:
        """The plan of some sizes."""
        for ranges, plan in self._plans:
            if all(lo <= n <= hi for n, (lo, hi) in zip(sizes, ranges, strict=True)):
                return plan
        return None

    def _fitting(self, plan: StagedPlan, feeds: Mapping[str, Array], sizes: Sizes) -> Mapping[str, Array]:
        """The inputs, looked at where no single plan does."""
        if plan.course.alone is not None:
            return feeds
        values = dict(zip(self.sizes, sizes, strict=True))
        return checked_feeds(feeds, [each.at(values) for each in self.inputs])
