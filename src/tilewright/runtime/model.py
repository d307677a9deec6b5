"""Models: one interface of compiled and loaded ones, of fixed sizes and of open ones."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tilewright.runtime.bound import BoundModel
from tilewright.runtime.executor import ExecutionPlan
from tilewright.runtime.open_sizes import OpenTensor, SizeRange
from tilewright.runtime.tensors import HoldsCode, TensorInfo, draw_feeds, named_feeds
from tilewright.support import InputError, quoted

Array = npt.NDArray[Any]
_Tensor = TypeVar("_Tensor", TensorInfo, OpenTensor)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What preparing took and made: seconds, bytes of memory that runs have, models compiled."""

    seconds: float
    nbytes: int
    compiled: int


class Model(HoldsCode, ABC, Generic[_Tensor]):
    """A model that runs on arrays. Any number of Python threads may run one at once."""

    name: str
    """The model's name, as it says itself."""
    threads: int
    """Threads that a run uses."""
    sizes: Mapping[str, SizeRange]
    """The values of each open size, by its name in the model; nothing where its sizes are fixed."""
    compilations: int = 0
    """How often sizes were compiled since the model was."""
    inputs: tuple[_Tensor, ...]
    """Name, dtype and shape of each input; sizes that are open are names."""
    outputs: tuple[_Tensor, ...]
    """Name, dtype and shape of each output: names, expressions of them, "?" where data decides."""

    def __call__(self, *arrays: Array, out: Sequence[Array] | None = None) -> list[Array]:
        """Run on one array an input, in order; returns all outputs in order. Raises what :meth:`run` does."""
        return self.run(None, named_feeds(arrays, self.inputs), out=out)

    @abstractmethod
    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        *,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """The named outputs (``None``: all, in order) for the given inputs by name.

        Arrays must have exactly the dtypes and shapes of :attr:`inputs`; any strides will do. The results are
        new arrays, or with ``out`` those given: one for each output asked for, row-major, writeable and apart
        from one another and from the inputs. Raises InputError naming the input or output that does not fit,
        the sizes that contradict each other or are out of their range, or the node that is given an index
        out of range, ResourceError where there is no memory, StoppedError where a :class:`tilewright.Stop`
        around it ends it.
        """

    @abstractmethod
    def bind(self, feeds: Mapping[str, Array]) -> BoundModel:
        """Runs on these very arrays, whose contents may change between runs: ``bind(feeds).run()``.

        The arrays are checked once. The results of a run are overwritten by the next one. Raises InputError
        naming the input that does not fit or does not lie row by row in memory, ResourceError where there is
        no memory.
        """

    @abstractmethod
    def measure(self, feeds: Mapping[str, Array], repeats: int = 20) -> npt.NDArray[np.int64]:
        """Nanoseconds of each step in ``repeats`` runs after one to warm up, of shape (repeats, steps).

        Raises what :meth:`run` raises.
        """

    @abstractmethod
    def prepare(self, *sizes: Mapping[str, int]) -> Prepared:
        """Have what runs at these sizes need: their memory, and what has no plan for all sizes compiled.

        Sizes up to these then find the memory of one run there. That of sizes which data says comes with
        the runs. Raises InputError for a size that is missing, strange or out of its range, ResourceError
        where there is no memory.
        """

    @abstractmethod
    def sample_feeds(self, seed: int = 0, **sizes: int) -> dict[str, Array]:
        """Random inputs at some sizes: normal numbers, indices within the tables that they index; no lists.

        Raises InputError for a size that is missing, strange or out of its range.
        """

    @abstractmethod
    def trim(self) -> None:
        """Free the memory kept for runs to come."""


class FixedModel(Model[TensorInfo]):
    """A model of fixed sizes."""

    sizes: Mapping[str, SizeRange] = {}
    _index_bounds: Mapping[str, int]

    @property
    @abstractmethod
    def run_bytes(self) -> int:
        """Bytes of intermediate memory of one run."""

    @property
    @abstractmethod
    def _own_plan(self) -> object:
        """What runs."""

    def at(self, **sizes: int) -> Self:
        """The model itself. Raises InputError for a size: none is open."""
        for name in sizes:
            raise InputError(f"the model has no open size {quoted(name)}", hint="all of its sizes are fixed")
        return self

    def prepare(self, *sizes: Mapping[str, int]) -> Prepared:
        """Have the memory of a run. Raises InputError for a size, ResourceError where there is no memory."""
        start = time.perf_counter()
        for each in sizes:
            self.at(**each)
        if isinstance(self._own_plan, ExecutionPlan):
            self._own_plan.reserve()
        return Prepared(time.perf_counter() - start, self.run_bytes, 0)

    def sample_feeds(self, seed: int = 0, **sizes: int) -> dict[str, Array]:
        """Random inputs: normal numbers, indices within the tables that they index."""
        return draw_feeds(self.at(**sizes).inputs, self._index_bounds, seed)
