"""Saved models with open sizes: running them, without the compiler and what it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from tilewright.runtime.open_manifest import OpenManifest
from tilewright.runtime.open_plan import OpenPlan
from tilewright.runtime.open_sizes import OpenTensor, Ranges, SizeReader, Sizes
from tilewright.runtime.saved import SavedModel
from tilewright.runtime.tensors import HoldsCode, draw_feeds
from tilewright.support import InputError

Array = npt.NDArray[Any]


class SavedDynamicModel(HoldsCode):
    """A model with open sizes that was compiled and saved before; made by ``tilewright.load``.

    Calls take the sizes from the shapes of their arrays. Nothing is compiled or planned any more: it runs at
    the sizes for which there is a plan. Any number of Python threads may run one model at once.
    """

    def __init__(
        self,
        manifest: OpenManifest,
        ranges: Sequence[tuple[Ranges, OpenPlan]],
        single: Mapping[Sizes, SavedModel],
    ) -> None:
        self._manifest = manifest
        self._ranges = tuple(ranges)
        self._single = dict(single)
        self._reader = SizeReader(manifest.inputs, manifest.sizes)
        # mostly the next run's sizes are in the last one's range
        self._last = self._ranges[0] if self._ranges else None
        first = manifest.plans[0]
        self.name = first.name
        """The model's name, as it says itself."""
        self.producer = first.producer
        """What wrote the file."""
        self.requires = first.requires
        """What the code needs of a machine."""
        self.sizes = dict(manifest.sizes)
        """The values of each open size, by its name in the model."""
        self.inputs: tuple[OpenTensor, ...] = manifest.inputs
        """Name, dtype and dimensions of each input; sizes that are open are names."""
        self.output_names = tuple(info.name for info in first.outputs)
        """The name of each output."""
        self.threads = (self._ranges[0][1].plan.pool if self._ranges else next(iter(single.values()))).threads
        """Threads that a run uses."""

    @property
    def ranges(self) -> tuple[dict[str, tuple[int, int]], ...]:
        """The ranges of sizes that it runs at; a single size is a range of its own."""
        known = [*(ranges for ranges, _ in self._ranges), *(tuple((n, n) for n in at) for at in self._single)]
        return tuple(dict(zip(self.sizes, each, strict=True)) for each in known)

    def __call__(self, *arrays: Array) -> list[Array]:
        """Run on one array an input, in order; returns all outputs in order. Raises what :meth:`run` does."""
        if len(arrays) != len(self.inputs):
            names = ", ".join(each.name for each in self.inputs)
            raise InputError(f"the model takes {len(self.inputs)} inputs, got {len(arrays)}", hint=names)
        return self.run(None, {each.name: a for each, a in zip(self.inputs, arrays, strict=True)})

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Array]:
        """The named outputs (``None``: all, in order) for the given inputs by name.

        Bit for bit those of the model that was saved. Raises what :meth:`SavedModel.run` raises, InputError
        also for sizes that contradict each other, are out of their range or have no plan in the file.
        """
        sizes = self._reader.read(feeds)
        if self._single and (model := self._single.get(sizes)) is not None:
            return model.run(output_names, feeds)
        return self._plan(sizes).run(output_names, feeds, sizes)

    def sample_feeds(self, seed: int = 0, **sizes: int) -> dict[str, Array]:
        """Random inputs at some sizes: normal numbers, indices within the tables that they index.

        Raises InputError for a size that is missing, strange or out of its range.
        """
        values = dict(zip(self.sizes, self._reader.given(sizes), strict=True))
        return draw_feeds(
            [each.at(values) for each in self.inputs], self._manifest.plans[0].index_bounds, seed
        )

    def trim(self) -> None:
        """Free the memory kept for runs to come."""
        for _, plan in self._ranges:
            plan.plan.trim()
        for model in self._single.values():
            model.trim()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {known}" for name, known in self.sizes.items())
        return f"<SavedDynamicModel {self.name!r}: {', '.join(each.name for each in self.inputs)}; {sizes}>"

    def _plan(self, sizes: Sizes) -> OpenPlan:
        last = self._last
        if last is not None and _within(sizes, last[0]):
            return last[1]
        for known in self._ranges:
            if _within(sizes, known[0]):
                self._last = known
                return known[1]
        shown = ", ".join(f"{name} {n}" for name, n in zip(self.sizes, sizes, strict=True))
        held = "; ".join(", ".join(_shown(*named) for named in each.items()) for each in self.ranges[:8])
        raise InputError(
            f"the saved model has no plan for {shown}",
            hint=f"it has: {held}; DynamicModel.save(path, sizes=[...]) adds single sizes",
        )


def _shown(name: str, bounds: tuple[int, int]) -> str:
    lo, hi = bounds
    return f"{name} {lo}" if lo == hi else f"{name} {lo} to {hi}"


def _within(sizes: Sizes, ranges: Ranges) -> bool:
    return all(lo <= n <= hi for n, (lo, hi) in zip(sizes, ranges, strict=True))
