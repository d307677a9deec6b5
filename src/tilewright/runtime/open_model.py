"""Models with open sizes: what compiled and loaded ones have in common."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.runtime.bound import BoundModel
from tilewright.runtime.lists import OpenList
from tilewright.runtime.model import FixedModel, Model, Prepared
from tilewright.runtime.open_plan import CountError
from tilewright.runtime.open_sizes import OpenTensor, Ranges, SizeRange, SizeReader, Sizes
from tilewright.runtime.staged import StagedPlan
from tilewright.runtime.tensors import checked_feeds, checked_input_names, checked_repeats, draw_feeds
from tilewright.support import InputError, ModelError

Array = npt.NDArray[Any]


class NoPlanError(InputError):
    """A file has no plan for some sizes."""


class OpenModel(Model[OpenTensor]):
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
        self.sizes = dict(sizes)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.threads = threads
        self.compilations = 0
        self._plans = tuple(plans)
        self._bounds = dict(bounds)
        self._lists = {each.name: each for each in self.inputs if isinstance(each, OpenList)}
        self._tensors = tuple(each for each in self.inputs if each.name not in self._lists)
        self._reader = SizeReader(self._tensors, self.sizes)

    @property
    def ranges(self) -> tuple[dict[str, tuple[int, int]], ...]:
        """The ranges of sizes that there are plans for; the first that has some sizes runs them."""
        return tuple(dict(zip(self.sizes, ranges, strict=True)) for ranges, _ in self._plans)

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights."""
        every = (a for _, plan in self._plans for part in plan.plans for a in part.plan.contents.constants)
        return sum({id(array): array.nbytes for array in every}.values())

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        *,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """As :meth:`Model.run`, at the sizes that the arrays' shapes show."""
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
        """As :meth:`Model.bind`, at the sizes that the arrays' shapes show."""
        sizes = self._reader.read(feeds)
        plan = self._plan(sizes)
        if plan is not None:
            return plan.bind(self._fitting(plan, feeds, sizes) if self._lists else feeds, sizes)
        model = self._alone(sizes, feeds)
        return model.bind({info.name: feeds[info.name] for info in model.inputs})

    def measure(self, feeds: Mapping[str, Array], repeats: int = 20) -> npt.NDArray[np.int64]:
        """As :meth:`Model.measure`, at the sizes that the arrays show; steps of all plans in order."""
        sizes = self._reader.read(feeds)
        plan = self._plan(sizes)
        if plan is not None:
            return plan.measure(self._fitting(plan, feeds, sizes), sizes, checked_repeats(repeats))[0]
        model = self._alone(sizes, feeds)
        return model.measure({info.name: feeds[info.name] for info in model.inputs}, repeats)

    def prepare(self, *sizes: Mapping[str, int]) -> Prepared:
        """As :meth:`Model.prepare`."""
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
        """As :meth:`Model.sample_feeds`."""
        given = self._reader.given(sizes)
        if self._plan(given) is None:
            return self._alone(given, {}).sample_feeds(seed)
        values = dict(zip(self.sizes, given, strict=True))
        return draw_feeds([each.at(values) for each in self._tensors], self._bounds, seed)

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
    def _alone(self, sizes: Sizes, feeds: Mapping[str, Array]) -> FixedModel:
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

    def _fitting(self, plan: StagedPlan, feeds: Mapping[str, Any], sizes: Sizes) -> Mapping[str, Any]:
        """The inputs, looked at where no single plan does."""
        if plan.course.alone is not None and not self._lists:
            return feeds
        values = dict(zip(self.sizes, sizes, strict=True))
        checked_input_names(feeds, self.inputs)
        tensors = {each.name: feeds[each.name] for each in self._tensors}
        arrays = checked_feeds(tensors, [each.at(values) for each in self._tensors])
        if plan.course.alone is not None:
            return arrays
        return {**arrays, **{name: kind.checked(feeds[name]) for name, kind in self._lists.items()}}
