"""Saved models of fixed sizes: running them, without the compiler and what it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.runtime import native
from tilewright.runtime.bound import BoundModel, RunsOnArrays, bound_feeds
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.memory import aligned_empty
from tilewright.runtime.model import FixedModel
from tilewright.runtime.results import Results
from tilewright.runtime.tensors import as_declared, checked_feeds, checked_names, checked_results

Array = npt.NDArray[Any]


class RunnablePlan(Protocol):
    """A plan, on a CPU or a device, as a saved model needs it."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """Bytes of each output."""

    @property
    def run_bytes(self) -> int:
        """Bytes that a run works on."""

    @property
    def step_names(self) -> tuple[str, ...]:
        """The name of each step."""

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run once."""

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> RunsOnArrays:
        """Runs on these very arrays."""

    def measure(
        self, inputs: Sequence[Array], outputs: Sequence[Array], *, repeats: int = 1
    ) -> npt.NDArray[np.int64]:
        """Nanoseconds of each step."""

    def trim(self) -> None:
        """Free the memory kept for runs to come."""


class SavedModel(FixedModel):
    """A model that was compiled and saved before; made by ``tilewright.load``.

    Call it with arrays, or use :meth:`run`. Any number of Python threads may run one model at once: each run
    has memory of its own, and the GIL is released meanwhile.
    """

    def __init__(
        self, manifest: Manifest, plan: RunnablePlan, weights: Sequence[Array], *, threads: int
    ) -> None:
        self.threads = threads
        """Threads that a run uses; on a device that of the caller, which only starts kernels."""
        self._manifest = manifest
        self._index_bounds = manifest.index_bounds
        self._plan = plan
        self._weights = tuple(weights)
        self._results = Results([(np.dtype(np.uint8), (size,)) for size in plan.outputs])
        self.name = manifest.name
        """The model's name, as it says itself."""
        self.producer = manifest.producer
        """What wrote the file."""
        self.requires = manifest.requires
        """What the code needs of a machine."""
        self.inputs = manifest.inputs
        """Name, dtype and shape of each input."""
        self.outputs = manifest.outputs
        """Name, dtype and shape of each output."""

    @property
    def run_bytes(self) -> int:
        """Bytes of intermediate memory of one run."""
        return self._plan.run_bytes

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights, mapped from the file."""
        return sum(array.nbytes for array in self._weights)

    @property
    def step_names(self) -> tuple[str, ...]:
        """The nodes that each step of a run computes, by their names in the model."""
        return self._plan.step_names

    @property
    def _own_plan(self) -> RunnablePlan:
        return self._plan

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        *,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """As :meth:`Model.run`: bit for bit the results of the model that was saved."""
        wanted = checked_names(output_names, self.outputs)
        inputs = list(checked_feeds(feeds, self.inputs).values())
        numbers = {info.name: at for at, info in enumerate(self.outputs)}
        infos = [self.outputs[numbers[name]] for name in wanted]
        into = [] if out is None else checked_results(out, infos, inputs)
        made = self._results.take()
        self._plan.run(inputs, made)
        given: set[int] = set()
        results = [self._result(numbers[name], inputs, made, given) for name in wanted]
        if out is None:
            return results
        for target, result in zip(into, results, strict=True):
            np.copyto(target, result)
        return into

    def bind(self, feeds: Mapping[str, Array]) -> BoundModel:
        """As :meth:`Model.bind`."""
        inputs = list(bound_feeds(feeds, self.inputs).values())
        made = [aligned_empty((size,), np.uint8) for size in self._plan.outputs]

        def results() -> list[Array]:
            given: set[int] = set()
            return [self._result(at, inputs, made, given) for at in range(len(self.outputs))]

        return BoundModel(self._plan.bind(inputs, made), results)

    def measure(self, feeds: Mapping[str, Array], repeats: int = 20) -> npt.NDArray[np.int64]:
        """As :meth:`Model.measure`."""
        inputs = list(checked_feeds(feeds, self.inputs).values())
        made = self._results.take()
        self._plan.run(inputs, made)
        return self._plan.measure(inputs, made, repeats=repeats)

    def trim(self) -> None:
        """Free the memory kept for runs to come."""
        self._results.trim()
        self._plan.trim()

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.inputs))
        gives = ", ".join(map(str, self.outputs))
        return f"<SavedModel {self.name!r}: ({takes}) -> ({gives}), {len(self.step_names)} steps>"

    def _result(self, at: int, inputs: Sequence[Array], made: Sequence[Array], given: set[int]) -> Array:
        """An output as an array of its own. ``given`` are the plan's outputs that have been handed out."""
        info, place = self.outputs[at], self._manifest.results[at]
        if place.kind == native.OUTPUT:
            raw = made[place.index].copy() if place.index in given else made[place.index]
            given.add(place.index)
        else:
            source = inputs if place.kind == native.INPUT else self._weights
            raw = source[place.index].reshape(-1).view(np.uint8).copy()
        array = raw.view(info.dtype).reshape(info.shape)
        declared: Array = array if info.texts is None and info.keys is None else as_declared(array, info)
        return declared
