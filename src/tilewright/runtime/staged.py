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


class CountError(InputError):
    """Data says a size that there cannot be, or a number that is none."""


@dataclass(frozen=True, slots=True)
class Count:
    """A size that element ``at`` of a value says, or its axis; number ``place`` among all sizes."""

    value: str
    at: int
    axis: bool
    place: int
    least: int
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class PlanStage:
    """A plan for all sizes, the ``counts`` that are read before it runs, and what runs behind it."""

    counts: tuple[Count, ...]
    plan: OpenPlan
    controls: tuple[BranchStep | LoopStep, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BranchStep:
    """The first of two plans where a condition holds, else the second."""

    condition: str
    plans: tuple[StagedPlan, StagedPlan]
    reads: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]

    def run(self, known: Mapping[str, Array], numbers: Sequence[int]) -> list[Array]:
        """The outputs, in order."""
        found = {**self.constants, **{v: known[v] for v in self.reads if v in known}}
        plan = self.plans[not bool(found[self.condition].reshape(()))]
        return plan.run(None, found, tuple(numbers))


@dataclass(frozen=True, slots=True, eq=False)
class LoopStep:
    """A plan again and again: for a number of steps, if that is given, and while it says so.

    ``inputs`` are that number, whether to begin, and what is ``carried`` ("" for what is absent); the plan is
    given them under the names ``takes``. ``kinds`` are the element types and ranks of the outputs.
    """

    plan: StagedPlan
    inputs: tuple[str, ...]
    takes: tuple[str, ...]
    carried: int
    reads: tuple[str, ...]
    outputs: tuple[str, ...]
    kinds: tuple[tuple[np.dtype[Any], int] | None, ...]
    constants: Mapping[str, Array]

    def run(self, known: Mapping[str, Array], numbers: Sequence[int]) -> list[Array]:
        """The outputs, in order: what is carried at last, then what was collected, one element a step."""
        found = {**self.constants, **{v: known[v] for v in self.reads if v in known}}
        limit, going = (found[v] if v else None for v in (*self.inputs, "", "")[:2])
        state = [found[v] for v in self.inputs[2:]]
        running = True if going is None else bool(going.reshape(()))
        series: list[list[Array]] = []
        step = 0
        while running and (limit is None or step < int(limit.reshape(()))):
            given = [np.array(step, np.int64), np.array(running), *state]
            made = self.plan.run(None, {**found, **dict(zip(self.takes, given, strict=True))}, tuple(numbers))
            running = bool(made[0].reshape(()))
            state = made[1 : 1 + self.carried]
            series.append(made[1 + self.carried :])
            step += 1
        collected = [
            self._stacked([row[n] for row in series], n) for n in range(len(self.kinds) - self.carried)
        ]
        return [*state, *collected]

    def _stacked(self, rows: list[Array], n: int) -> Array:
        kind = self.kinds[self.carried + n]
        if rows:
            shapes = {row.shape for row in rows}
            if len(shapes) > 1:
                name = quoted(self.outputs[self.carried + n])
                raise InputError(f"the steps of a loop collect {name} in unlike shapes")
            return np.stack(rows)
        return np.zeros((0,), np.uint8) if kind is None else np.zeros((0,) * kind[1], kind[0])


class StagedPlan:
    """Plans one after the other. ``results`` are the values that the model returns, with their names.

    Values that no plan makes are inputs, or among the ``constants``. There are ``sizes`` numbers in all: a
    run is given the first of them, data says the others.
    """

    def __init__(
        self,
        stages: Sequence[PlanStage],
        sizes: int,
        results: Sequence[tuple[str, str]],
        constants: Mapping[str, Array],
    ) -> None:
        self.stages = tuple(stages)
        """The plans."""
        self.results = tuple(results)
        """The name and the value of each output."""
        self.constants = dict(constants)
        """The constants among the outputs."""
        self._sizes = sizes
        self._infos = [TensorInfo(name, np.dtype(np.uint8), ()) for name, _ in results]

    def run(
        self,
        names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        sizes: tuple[int, ...],
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """As :meth:`OpenPlan.run`. Raises CountError for a size that data says, and that there cannot be."""
        wanted = [name for name, _ in self.results] if names is None else checked_names(names, self._infos)
        known = self._run(feeds, sizes)
        if names is None:
            values = [value for _, value in self.results]
        else:
            values = [dict(self.results)[name] for name in wanted]
        made = [
            known[v].copy() if v in feeds or v in self.constants or v in values[:n] else known[v]
            for n, v in enumerate(values)
        ]
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
                value = np.asarray(known[count.value])
                n = value.shape[count.at] if count.axis else int(value.reshape(-1)[count.at])
                if not count.least <= n <= count.most:
                    allowed = f"is not from {count.least} to {count.most}"
                    allowed = allowed if count.least < count.most else f"has to be {count.most}"
                    raise CountError(f"{quoted(count.value)} says a size of {n}, which {allowed}")
                numbers[count.place] = n
            plan = stage.plan
            missing = [tensor.name for tensor in plan.inputs if tensor.name not in known]
            if missing:
                raise InputError(f"the input {quoted(missing[0])} is missing")
            given = {tensor.name: known[tensor.name] for tensor in plan.inputs}
            made = plan.run(None, given, tuple(numbers))
            known.update(zip((tensor.name for tensor in plan.outputs), made, strict=True))
            for control in stage.controls:
                known.update(zip(control.outputs, control.run(known, numbers), strict=False))
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
