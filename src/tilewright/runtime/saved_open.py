"""Saved models with open sizes: running them, without the compiler and what it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from tilewright.runtime.model import FixedModel
from tilewright.runtime.open_manifest import OpenManifest
from tilewright.runtime.open_model import NoPlanError, OpenModel
from tilewright.runtime.open_sizes import Ranges, Sizes
from tilewright.runtime.staged import StagedPlan

Array = npt.NDArray[Any]


class SavedDynamicModel(OpenModel):
    """A model with open sizes that was compiled and saved before; made by ``tilewright.load``.

    Calls take the sizes from the shapes of their arrays. Nothing is compiled or planned any more: it runs at
    the sizes for which there is a plan, bit for bit as the model that was saved. Any number of Python threads
    may run one model at once.
    """

    def __init__(
        self, manifest: OpenManifest, plans: Sequence[tuple[Ranges, StagedPlan]], threads: int
    ) -> None:
        first = manifest.plans[0]
        bounds = {name: n for plan in manifest.plans for name, n in plan.index_bounds.items()}
        super().__init__(
            first.name, manifest.sizes, manifest.inputs, manifest.outputs, plans, bounds, threads
        )
        self.producer = first.producer
        """What wrote the file."""
        self.requires = first.requires
        """What the code needs of a machine."""

    def _alone(self, sizes: Sizes, feeds: Mapping[str, Array]) -> FixedModel:
        shown = ", ".join(f"{name} {n}" for name, n in zip(self.sizes, sizes, strict=True))
        held = "; ".join(", ".join(_shown(*named) for named in each.items()) for each in self.ranges[:8])
        raise NoPlanError(
            f"the saved model has no plan for {shown}",
            hint=f"it has: {held}; save(path, sizes=[...]) of the compiled model adds single sizes",
        )


def _shown(name: str, bounds: tuple[int, int]) -> str:
    lo, hi = bounds
    return f"{name} {lo}" if lo == hi else f"{name} {lo} to {hi}"
