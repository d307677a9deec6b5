"""Runs of models with open sizes: plans one after the other, and what data decides between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.runtime.bound import BoundModel, bound_feeds
from tilewright.runtime.course import Branch, Count, Course, ListStep, Loop
from tilewright.runtime.executor import Amount, amount_in
from tilewright.runtime.lists import on_lists
from tilewright.runtime.open_plan import CountError, OpenPlan
from tilewright.runtime.tensors import TensorInfo, checked_names, checked_results
from tilewright.support import InputError, quoted

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class PlanRun:
    """A run of a plan, by number: all numbers of it, and the nanoseconds of each step."""

    plan: int
    values: Sequence[int]
    nanoseconds: npt.NDArray[np.int64]


class StagedPlan:
    """The ``plans`` of a model as its ``course`` says: one, where no data decides anything."""

    def __init__(self, course: Course, plans: Sequence[OpenPlan]) -> None:
        self.course = course
        """What runs when."""
        self.plans = tuple(plans)
        """The plans that it names by number."""
        self._alone = None if course.alone is None else self.plans[course.alone]
        self._infos = [TensorInfo(name, np.dtype(np.uint8), ()) for name, _ in course.results]

    def keep(self, states: Mapping[str, str]) -> None:
        """As :meth:`OpenPlan.keep`. Raises InputError where data decides something."""
        if self._alone is None:
            raise InputError(
                "states stay where they are in models in which data decides no sizes or branches"
            )
        self._alone.keep(states)

    def run(
        self,
        names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        sizes: tuple[int, ...],
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """As :meth:`OpenPlan.run`. Raises CountError for a size that data says, and that there cannot be."""
        if self._alone is not None:
            return self._alone.run(names, feeds, sizes, out)
        wanted = checked_names(names, self._infos)
        places = {name: n for n, (name, _) in enumerate(self.course.results)}
        known = self._known(self.course, feeds, sizes)
        every = [known[value] for _, value in self.course.results]
        made = every if names is None else [every[places[name]] for name in wanted]
        if out is None:
            return _apart(made, [*_arrays(feeds.values()), *self._constants()])
        pairs = zip(wanted, made, strict=True)
        for name, array in pairs:
            if not isinstance(array, np.ndarray):
                raise InputError(f"the output {quoted(name)} is a list, or may be absent: out= is for arrays")
        infos = [TensorInfo(n, a.dtype, a.shape) for n, a in zip(wanted, made, strict=True)]
        given = checked_results(out, infos, _arrays(feeds.values()))
        for target, result in zip(given, made, strict=True):
            np.copyto(target, result)
        return given

    def bind(self, feeds: Mapping[str, Array], sizes: tuple[int, ...]) -> BoundModel:
        """Runs on these very arrays. Raises what :meth:`run` raises.

        Results are new arrays where data decides something.
        """
        if self._alone is not None:
            return self._alone.bind(feeds, sizes)
        values: Mapping[str, Any] = feeds
        arrays = {name: a for name, a in values.items() if isinstance(a, np.ndarray)}
        bound = bound_feeds(arrays, [TensorInfo(name, a.dtype, a.shape) for name, a in arrays.items()])
        again = _Again(self, {**values, **bound}, sizes)
        return BoundModel(again, lambda: list(again.results))

    def measure(
        self, feeds: Mapping[str, Array], sizes: tuple[int, ...], repeats: int
    ) -> tuple[npt.NDArray[np.int64], list[PlanRun]]:
        """Nanoseconds of each step of all plans in some runs, after one to warm up; and what one run was.

        Raises what :meth:`run` raises.
        """
        starts = np.cumsum([0, *(len(plan.plan.step_names) for plan in self.plans)])
        nanoseconds = np.zeros((repeats, int(starts[-1])), np.int64)
        runs: list[PlanRun] = []
        self.run(None, feeds, sizes)
        for n in range(repeats):
            runs = []
            self._known(self.course, feeds, sizes, runs)
            for each in runs:
                nanoseconds[n, starts[each.plan] : starts[each.plan + 1]] += each.nanoseconds
        return nanoseconds, runs

    def reserve(self, sizes: tuple[int, ...]) -> int:
        """Have the memory that a run at these sizes needs, as far as no data says it; returns its bytes."""
        numbers = _numbers(self.course, sizes)
        first, *rest = self.course.stages
        known = [self.plans[first.plan]] if not first.counts else []
        known += [self.plans[stage.plan] for stage in rest if not stage.counts]
        return sum(plan.reserve(numbers) for plan in dict.fromkeys(known))

    def trim(self) -> None:
        """Free the memory kept for runs to come."""
        for plan in self.plans:
            plan.plan.trim()

    def _constants(self) -> list[Array]:
        found = [plan.constants for plan in self.plans]
        found += [tuple(c.constants.values()) for c in self.course.every()]
        return [array for arrays in found for array in arrays]

    def _known(
        self,
        course: Course,
        feeds: Mapping[str, Any],
        sizes: Sequence[int],
        runs: list[PlanRun] | None = None,
    ) -> dict[str, Any]:
        """All values of a course; unless ``None``, ``runs`` gets what its plans were run with, timed."""
        known = {**course.constants, **feeds}
        numbers = [*_numbers(course, sizes)]
        for stage in course.stages:
            for count in stage.counts:
                numbers[count.place] = _said(count, known[count.value])
            plan = self.plans[stage.plan]
            given = {tensor.name: known[tensor.name] for tensor in plan.inputs}
            if runs is None:
                made = plan.run(None, given, tuple(numbers))
            else:
                made, values, times = plan.timed(given, tuple(numbers))
                runs.append(PlanRun(stage.plan, values, times))
            known.update(zip((tensor.name for tensor in plan.outputs), made, strict=True))
            for control in stage.controls:
                if isinstance(control, ListStep):
                    given_ = {**control.constants, **known}
                    read = [given_[v] for v in control.inputs if v]
                    known[control.outputs[0]] = on_lists(control.op, control.attributes, control.where, read)
                    continue
                found = {**control.constants, **{v: known[v] for v in control.reads if v in known}}
                if isinstance(control, Branch):
                    said = _scalar(found, control.condition)
                    at = int(said) if control.refusal else 0 if said else 1
                    if not 0 <= at < len(control.courses):
                        raise InputError(control.refusal)
                    made = self._results(control.courses[at], found, numbers, runs)
                else:
                    made = self._loop(control, found, numbers, runs, plan)
                known.update(zip(control.outputs, made, strict=False))
        return known

    def _results(
        self, course: Course, feeds: Mapping[str, Any], sizes: Sequence[int], runs: list[PlanRun] | None
    ) -> list[Any]:
        known = self._known(course, feeds, sizes, runs)
        return [known[value] for _, value in course.results]

    def _loop(
        self,
        control: Loop,
        found: Mapping[str, Any],
        numbers: Sequence[int],
        runs: list[PlanRun] | None,
        before: OpenPlan,
    ) -> list[Any]:
        """What is carried at last, then what was collected, one element a step."""
        limit, going = (int(_scalar(found, v)) if v else None for v in control.inputs[:2])
        state = [found[v] for v in control.inputs[2:]]
        running = True if going is None else bool(going)
        series: list[list[Array]] = []
        step = 0
        while running and (limit is None or step < limit):
            given = [np.array(step, np.int64), np.array(running), *state]
            fed = {**found, **dict(zip(control.takes, given, strict=True))}
            running_, *made = self._results(control.courses[0], fed, numbers, runs)
            running = bool(running_.reshape(()))
            state = made[: control.carried]
            series.append(made[control.carried :])
            step += 1
        if not series:
            values = before.program.values(numbers[: before.program.count])
            return [*state, *(_nothing(kind, values) for kind in control.kinds[control.carried :])]
        named = zip(control.outputs[control.carried :], zip(*series, strict=True), strict=False)
        return [*state, *(_stacked(name, rows) for name, rows in named)]


def _numbers(course: Course, sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of a run, and places for those that data says."""
    return (*sizes, *[0] * (course.sizes - len(sizes)))


def _scalar(found: Mapping[str, Array], name: str) -> Any:
    array = found[name]
    if array.size != 1:
        raise InputError(f"{quoted(name)} has {array.size} elements where one is needed")
    return array.reshape(())


def _said(count: Count, value: Array) -> int:
    """The size that a value says."""
    given = np.shape(value)
    if count.at >= (len(given) if count.axis else np.size(value)):
        raise CountError(f"{quoted(count.value)} has no {'axis' if count.axis else 'element'} {count.at}")
    n = given[count.at] if count.axis else int(np.asarray(value).reshape(-1)[count.at])
    if count.least <= n <= count.most:
        return n
    allowed = f"is not from {count.least} to {count.most}"
    allowed = allowed if count.least < count.most else f"has to be {count.most}"
    raise CountError(f"{quoted(count.value)} says a size of {n}, which {allowed}")


def _stacked(name: str, rows: Sequence[Array]) -> Array:
    if len({row.shape for row in rows}) > 1:
        raise InputError(f"the steps of a loop collect {quoted(name)} in unlike shapes")
    return np.stack(rows)


def _nothing(kind: tuple[str, tuple[Amount, ...]] | None, values: Sequence[int]) -> Array:
    """What a loop without steps collects."""
    dtype, shape = ("uint8", (0,)) if kind is None else kind
    return np.zeros(tuple(amount_in(n, values) for n in shape), dtype)


def _apart(made: Sequence[Any], others: Sequence[Array]) -> list[Any]:
    """Results as arrays of their own, in lists, too: a copy of what another array's memory holds."""
    taken = [*others]

    def apart(value: Any) -> Any:
        if isinstance(value, list):
            return [apart(each) for each in value]
        if value is not None:
            value = value.copy() if any(np.may_share_memory(value, other) for other in taken) else value
            taken.append(value)
        return value

    return [apart(value) for value in made]


def _arrays(values: Iterable[Any]) -> list[Array]:
    """The arrays among values, and those in their lists."""
    every = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return [array for array in every if array is not None]


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
