"""Plans for ranges of sizes: one native plan whose steps are given the sizes of each run.

Where everything lies was planned for the largest sizes of the range, so that nothing is planned, compiled or
looked up for a further size: a run computes the shapes of its results, and calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.runtime.executor import ExecutionPlan
from tilewright.runtime.memory import aligned_empty
from tilewright.runtime.tensors import TensorInfo, checked_feeds, checked_names, checked_results

Array = npt.NDArray[Any]

Extent: TypeAlias = tuple[int, ...]
"""An affine function of the sizes: what does not depend on them, then the factor of each."""


def extent_at(extent: Extent, sizes: Sequence[int]) -> int:
    """The value of an extent at some sizes."""
    total = extent[0]
    for at, n in enumerate(sizes, 1):
        total += extent[at] * n
    return total


@dataclass(frozen=True, slots=True)
class SizedTensor:
    """An input or output whose shape depends on the sizes of a run."""

    name: str
    dtype: np.dtype[Any]
    extents: tuple[Extent, ...]
    _known: TensorInfo = field(init=False, repr=False, compare=False)
    _moving: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # most dimensions of most tensors are the same at all sizes, and small models run for microseconds
        object.__setattr__(
            self, "_known", TensorInfo(self.name, self.dtype, tuple(e[0] for e in self.extents))
        )
        moving = (axis for axis, (_, *factors) in enumerate(self.extents) if any(factors))
        object.__setattr__(self, "_moving", tuple(moving))

    def at(self, sizes: Sequence[int]) -> TensorInfo:
        """What it is at some sizes."""
        if not self._moving:
            return self._known
        shape = list(self._known.shape)
        for axis in self._moving:
            shape[axis] = extent_at(self.extents[axis], sizes)
        return TensorInfo(self.name, self.dtype, tuple(shape))


class RangePlan:
    """A plan for all sizes of a range; ``made[n]`` is the plan's output that is output ``n`` of the model.

    The plan's parameters are the sizes ``params``, by number, then how many numbers each of its checks looks
    at, which are all of the shapes ``checked``, then the bytes of what it copies to outputs.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        params: Sequence[int],
        inputs: Sequence[SizedTensor],
        outputs: Sequence[SizedTensor],
        made: Sequence[int],
        checked: Sequence[tuple[Extent, ...]],
    ) -> None:
        self.plan = plan
        """The native plan."""
        self.params = tuple(params)
        """The sizes that it is given, by number."""
        self.inputs = tuple(inputs)
        """The model's inputs."""
        self.outputs = tuple(outputs)
        """The model's outputs."""
        self.made = tuple(made)
        """The plan's output that each output is."""
        self.checked = tuple(checked)
        """The shape of what each check looks at."""
        order = [self.made.index(n) for n in range(len(self.made))]
        self._order = order if order != sorted(order) else None
        self._copied = [self.made.index(target.index) for _, target in plan.contents.copies]

    def run(
        self,
        names: Sequence[str] | None,
        feeds: Mapping[str, Array],
        sizes: Sequence[int],
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """The named outputs at some sizes of the range. Raises what a model of these sizes alone raises."""
        arrays = list(checked_feeds(feeds, [tensor.at(sizes) for tensor in self.inputs]).values())
        infos = [tensor.at(sizes) for tensor in self.outputs]
        into: dict[str, Array] = {}
        if out is not None:
            known = {info.name: info for info in infos}
            wanted = checked_names(names, infos)
            given = checked_results(out, [known[name] for name in wanted], arrays)
            into = dict(zip(wanted, given, strict=True))
        results = [
            into[info.name] if info.name in into else aligned_empty(info.shape, info.dtype) for info in infos
        ]
        shapes = [tuple(extent_at(e, sizes) for e in shape) for shape in self.checked]
        params = [sizes[n] for n in self.params]
        params += map(prod, shapes)
        params += [results[n].nbytes for n in self._copied]
        outputs = results if self._order is None else [results[n] for n in self._order]
        self.plan.run_within(arrays, outputs, params, shapes)
        if out is not None:
            return list(out)
        if names is None:
            return results
        found = dict(zip((info.name for info in infos), results, strict=True))
        returned: list[Array] = []
        for name in checked_names(names, infos):
            again = any(found[name] is array for array in returned)
            returned.append(found[name].copy() if again else found[name])
        return returned
