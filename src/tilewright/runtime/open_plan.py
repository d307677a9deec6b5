"""Plans for open sizes: one native plan whose steps are given the sizes of each run.

All that depends on the sizes is a number of the plan's size program, so that nothing is planned or compiled
for a further size: a run computes those numbers, makes its results, and calls.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.runtime import native
from tilewright.runtime.bound import BoundModel, bound_feeds
from tilewright.runtime.executor import Amount, BufferRef, ExecutionPlan, amount_in
from tilewright.runtime.memory import aligned_empty
from tilewright.runtime.size_program import SizeProgram
from tilewright.runtime.tensors import TensorInfo, checked_feeds, checked_names, checked_results
from tilewright.support import InputError, quoted

Array = npt.NDArray[Any]

#: Sizes whose numbers are kept: the last used. They take some kilobytes each.
SIZES_KEPT: Final = 64


class CountError(InputError):
    """Data says a size that there cannot be, or a number that is none."""


@dataclass(frozen=True, slots=True)
class SizedTensor:
    """An input or output whose shape depends on the sizes of a run."""

    name: str
    dtype: np.dtype[Any]
    extents: tuple[Amount, ...]

    def at(self, values: Sequence[int]) -> TensorInfo:
        """What it is in a run of these numbers."""
        return TensorInfo(self.name, self.dtype, tuple(amount_in(n, values) for n in self.extents))


@dataclass(frozen=True, slots=True)
class Relation:
    """Two numbers of a run that have to be equal, as ``node`` needs them; the texts say what they are.

    Whether they are ``said`` by data, so that the model may run otherwise.
    """

    texts: tuple[str, str]
    numbers: tuple[Amount, Amount]
    node: str
    said: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What a run at some sizes needs to know."""

    values: list[int]
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]


class OpenPlan:
    """A plan for all sizes of a range; ``results`` says where each output of the model is after a run.

    Outputs that no step makes are in an input, or among the ``constants``. Before the first run at some
    sizes ``check`` looks at its numbers.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        program: SizeProgram,
        inputs: Sequence[SizedTensor],
        outputs: Sequence[SizedTensor],
        results: Sequence[BufferRef],
        constants: Sequence[Array] = (),
        relations: Sequence[Relation] = (),
        check: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        self._check = check
        self.plan = plan
        """The native plan."""
        self.program = program
        """What a run computes of its sizes: the plan's parameters."""
        self.inputs = tuple(inputs)
        """The model's inputs."""
        self.outputs = tuple(outputs)
        """The model's outputs."""
        self.results = tuple(results)
        """Where each output is."""
        self.constants = tuple(constants)
        """The constants among the outputs."""
        self.relations = tuple(relations)
        """What has to be equal."""
        self._known: OrderedDict[tuple[int, ...], _Known] = OrderedDict()
        self._states: tuple[tuple[str, int], ...] = ()
        # the first output that is made there; others are copies
        self._makers = {
            ref.index: n for n, ref in reversed([*enumerate(results)]) if ref.kind == native.OUTPUT
        }

    def keep(self, states: Mapping[str, str]) -> None:
        """Have outputs, by the names of inputs, written in the memory of these inputs in all later runs."""
        numbers = {tensor.name: n for n, tensor in enumerate(self.outputs)}
        self._states = tuple((past, self.results[numbers[name]].index) for past, name in states.items())

    def run(
        self,
        names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        sizes: tuple[int, ...],
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """The named outputs at some sizes of the range.

        Raises what a model of these sizes alone raises, and InputError where two sizes have to be equal.
        """
        known = self._at(sizes)
        checked = checked_feeds(feeds, known.inputs)
        arrays, kept = list(checked.values()), self._kept(feeds, checked)
        if names is None and out is None:
            return self._returned(arrays, self._run(known, arrays, kept), known, range(len(self.results)))
        wanted = checked_names(names, known.outputs)
        numbers = {info.name: n for n, info in enumerate(known.outputs)}
        places = [numbers[name] for name in wanted]
        if out is None:
            return self._returned(arrays, self._run(known, arrays, kept), known, places)
        given = checked_results(out, [known.outputs[n] for n in places], arrays)
        into = {
            self.results[n].index: a for n, a in zip(places, given, strict=True) if n in self._makers.values()
        }
        made = self._returned(arrays, self._run(known, arrays, into | kept), known, places)
        for target, result in zip(given, made, strict=True):
            if target is not result:
                np.copyto(target, result)
        return given

    def bind(self, feeds: Mapping[str, Array], sizes: tuple[int, ...]) -> BoundModel:
        """Runs on these very arrays, at these sizes. Raises what :meth:`run` raises."""
        known = self._at(sizes)
        bound = bound_feeds(feeds, known.inputs)
        arrays = list(bound.values())
        made = self._empty(known, self._kept(feeds, bound))
        plan = self.plan.bind(arrays, made, known.values)
        return BoundModel(plan, lambda: self._returned(arrays, made, known, range(len(self.results))))

    def timed(
        self, feeds: Mapping[str, Array], sizes: tuple[int, ...]
    ) -> tuple[list[Array], Sequence[int], npt.NDArray[np.int64]]:
        """All outputs, all numbers of the run, and the nanoseconds of each step. Raises as :meth:`run`."""
        known = self._at(sizes)
        checked = checked_feeds(feeds, known.inputs)
        arrays = list(checked.values())
        made = self._empty(known, self._kept(feeds, checked))
        times = self.plan.measure(arrays, made, known.values)[0]
        return self._returned(arrays, made, known, range(len(self.results))), known.values, times

    def reserve(self, sizes: tuple[int, ...]) -> int:
        """Have the memory that a run at these sizes works on; returns its bytes.

        Raises ResourceError where there is none.
        """
        known = self._at(sizes)
        self.plan.reserve(known.values)
        return self.plan.run_bytes + sum(amount_in(n, known.values) for n in self.plan.contents.slots)

    def _kept(self, feeds: Mapping[str, Array], arrays: Mapping[str, Array]) -> dict[int, Array]:
        """The arrays that runs change, by the number of the output. Raises InputError for what cannot be."""
        found = {}
        for name, at in self._states:
            array = arrays[name]
            if array is not feeds[name] or not array.flags.writeable:
                raise InputError(
                    f"the state {quoted(name)} is changed where it is: it needs an array of numbers that is "
                    "row-major and writeable"
                )
            if any(np.may_share_memory(array, other) for key, other in arrays.items() if key != name):
                raise InputError(f"the state {quoted(name)} shares memory with another argument")
            found[at] = array
        return found

    def _run(self, known: _Known, arrays: list[Array], into: Mapping[int, Array]) -> list[Array]:
        made = self._empty(known, into)
        self.plan.run_within(arrays, made, known.values)
        return made

    def _empty(self, known: _Known, into: Mapping[int, Array]) -> list[Array]:
        """An array for each output of the plan: one of ``into``, or a new one."""
        infos = [known.outputs[self._makers[at]] for at in range(len(self.plan.outputs))]
        return [
            into[at] if at in into else aligned_empty(info.shape, info.dtype) for at, info in enumerate(infos)
        ]

    def _returned(
        self, arrays: Sequence[Array], made: Sequence[Array], known: _Known, places: Sequence[int]
    ) -> list[Array]:
        """The outputs of a run, each an array of its own."""
        returned: list[Array] = []
        given: set[int] = set()
        for n in places:
            ref, info = self.results[n], known.outputs[n]
            if ref.kind == native.OUTPUT:
                array = made[ref.index].reshape(info.shape)
                array = (
                    array.copy()
                    if ref.index in given
                    else made[ref.index]
                    if n == self._makers[ref.index]
                    else array
                )
                given.add(ref.index)
            else:
                source = arrays if ref.kind == native.INPUT else self.constants
                # constants of a file are bytes
                array = source[ref.index].reshape(-1).view(info.dtype).reshape(info.shape).copy()
            returned.append(array)
        return returned

    def _at(self, sizes: tuple[int, ...]) -> _Known:
        known = self._known.get(sizes)
        if known is not None:
            return known
        values = self.program.values(sizes)
        if self._check is not None:
            self._check(values)
        for relation in self.relations:
            first, second = (amount_in(n, values) for n in relation.numbers)
            if first != second:
                a, b = relation.texts
                kind = CountError if relation.said else InputError
                raise kind(f"{a} is {first} and {b} is {second}, which have to be equal for {relation.node}")
        known = _Known(values, [t.at(values) for t in self.inputs], [t.at(values) for t in self.outputs])
        self._known[sizes] = known
        while len(self._known) > SIZES_KEPT:
            try:
                self._known.popitem(last=False)
            except KeyError:
                # another thread was faster
                break
        return known
