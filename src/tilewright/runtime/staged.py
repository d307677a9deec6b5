"""Plans in stages: between them a run reads sizes off what it has computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.runtime.bound import BoundModel, bound_feeds
from tilewright.runtime.open_plan import OpenPlan
from tilewright.runtime.tensors import TensorInfo, checked_names, checked_results
from tilewright.support import InputError, quoted

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Count:
    """A size that element ``at`` of a value says, in its bounds; number ``place`` among all sizes."""

    value: str
    at: int
    place: int
    least: int
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class PlanStage:
    """A plan for all sizes, and the ``counts`` that are read before it runs."""

    counts: tuple[Count, ...]
    plan: OpenPlan


class StagedPlan:
    """Plans one after the other. ``results`` are the values that the model returns, under their names.

    Values that no plan makes are inputs, or among the ``constants``.
    """

    def __init__(
        self,
        stages: Sequence[PlanStage],
        sizes: int,
        results: Mapping[str, str],
        constants: Mapping[str, Array],
    ) -> None:
        self.stages = tuple(stages)
        """The plans."""
        self.results = dict(results)
        """The value of each output."""
        self.constants = dict(constants)
        """The constants among the outputs."""
        self._sizes = sizes + sum(len(stage.counts) for stage in stages)

    def run(
        self,
        names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        sizes: tuple[int, ...],
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """As :meth:`OpenPlan.run`. Raises InputError for a size that data says, and that there cannot be."""
        wanted = checked_names(names, [_named(name) for name in self.results])
        known = self._run(feeds, sizes)
        values = [self.results[name] for name in wanted]
        made = [known[v].copy() if v in feeds or v in values[:n] else known[v] for n, v in enumerate(values)]
        if out is None:
            return made
        pairs = zip(wanted, made, strict=True)
        given = checked_results(out, [TensorInfo(n, a.dtype, a.shape) for n, a in pairs], [*feeds.values()])
        for target, result in zip(given, made, strict=True):
            np.copyto(target, result)
        return given

    def bind(self, feeds: Mapping[str, Array], sizes: tuple[int, ...]) -> BoundModel:
        """Runs on these very arrays; results are new arrays. Raises what :meth:`run` raises."""
        arrays = bound_feeds(feeds, [TensorInfo(name, a.dtype, a.shape) for name, a in feeds.items()])
        again = _Again(self, arrays, sizes)
        return BoundModel(again, lambda: list(again.results))

    def _run(self, feeds: Mapping[str, Array], sizes: tuple[int, ...]) -> dict[str, Array]:
        known = {**self.constants, **feeds}
        numbers = [*sizes, *[0] * (self._sizes - len(sizes))]
        for stage in self.stages:
            for count in stage.counts:
                n = int(np.asarray(known[count.value]).reshape(-1)[count.at])
                if not count.least <= n <= count.most:
                    allowed = f"is not from {count.least} to {count.most}"
                    allowed = allowed if count.least < count.most else f"has to be {count.most}"
                    raise InputError(f"{quoted(count.value)} says a size of {n}, which {allowed}")
                numbers[count.place] = n
            plan = stage.plan
            missing = [tensor.name for tensor in plan.inputs if tensor.name not in known]
            if missing:
                raise InputError(f"the input {quoted(missing[0])} is missing")
            given = {tensor.name: known[tensor.name] for tensor in plan.inputs}
            made = plan.run(None, given, tuple(numbers))
            known.update(zip((tensor.name for tensor in plan.outputs), made, strict=True))
        return known


@dataclass(slots=True, eq=False)
class _Again:
    """Runs at sizes that are known, of a plan whose results have others each time."""

    plan: StagedPlan
    feeds: Mapping[str, Array]
    sizes: tuple[int, ...]
    results: list[Array] = field(default_factory=list)

    def run(self) -> None:
        """Run once."""
        self.results = self.plan.run(None, self.feeds, self.sizes)


def _named(name: str) -> TensorInfo:
    return TensorInfo(name, np.dtype(np.uint8), ())
