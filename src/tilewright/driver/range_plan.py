"""One plan for all sizes of a range, made of the plans at some of them, which must agree.

What may differ between sizes: what kernels are given as their symbolic sizes, and the extents of inputs and
outputs, where these are affine. All the rest, kernel by kernel and constant by constant, is the same at every
size that is looked at: both ends of the range, and sizes within that divide by 2, 4, 8 … and do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.build import Array, is_plain
from tilewright.driver.assemble import Assembled, Steps
from tilewright.ir import dtype_of
from tilewright.runtime import (
    ExecutionPlan,
    Extent,
    ParamRef,
    RangePlan,
    SizedTensor,
    extent_at,
)

#: Sizes of a range besides its ends at which its plan is compared with the ones that are made for them.
WITHIN: Final = 6


class NoRangePlanError(Exception):
    """Why a range has no plan of its own; its sizes have one each."""


@dataclass(frozen=True, slots=True, eq=False)
class AtSizes:
    """A model assembled at some sizes, in their order."""

    sizes: tuple[int, ...]
    steps: Steps
    assembled: Assembled


def sizes_to_compare(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Sizes that a range's plan is compared at: the largest first, all corners, then others within."""
    found = dict.fromkeys(product(*((hi, lo) for lo, hi in ranges)))
    within = [list(_within(lo, hi)) for lo, hi in ranges]
    for n in range(WITHIN):
        # sizes of several names together, each time others
        found[tuple(each[(n + at) % len(each)] for at, each in enumerate(within))] = None
    return list(found)


def _within(lo: int, hi: int) -> Iterator[int]:
    """Sizes of a range that are odd, and that divide by 2, 4, 8, 16 and 32, as far as there are such."""
    middle = (lo + hi) // 2
    yield min(hi, middle | 1)
    for power in (32, 16, 8, 4, 2):
        # odd multiples of the power, not its double's
        n = (middle // power | 1) * power
        yield n if lo <= n <= hi else (lo + (power * 7) % max(1, hi - lo + 1))


def range_plan(
    points: Sequence[AtSizes], ranges: Sequence[tuple[int, int]], names: Sequence[str]
) -> RangePlan:
    """The plan of a range; the first of ``points`` is its largest sizes, ``names`` are the model's outputs.

    Raises NoRangePlanError where the points have something besides sizes and extents that differs.
    """
    whole = points[0]
    steps, assembled = whole.steps, whole.assembled
    if not isinstance(assembled.plan, ExecutionPlan):
        raise NoRangePlanError("it is a device's")
    for point in points:
        _compare(whole, point)
    params = tuple(n for n, (_, hi) in enumerate(ranges) if hi > 1)
    plan = _with_params(whole, params)
    at = [point.sizes for point in points]
    graphs = [point.steps.graph for point in points]
    inputs = [
        SizedTensor(
            value,
            dtype_of(steps.graph.types[value].dtype).numpy,
            _extents([graph.types[value].sizes for graph in graphs], at),
        )
        for value in steps.graph.inputs
    ]
    made = _made(whole)
    outputs = []
    for name, n in zip(names, made, strict=True):
        shapes = [point.assembled.arrays[n][1] for point in points]
        outputs.append(SizedTensor(name, assembled.arrays[n][0], _extents(shapes, at)))
    return RangePlan(plan, params, inputs, outputs, made, _checked(points))


def _compare(whole: AtSizes, point: AtSizes) -> None:
    """That a point differs from the largest sizes in nothing but sizes, and is nowhere larger."""
    a, b = whole.steps, point.steps
    if len(a.units) != len(b.units) or a.graph.inputs != b.graph.inputs or a.graph.outputs != b.graph.outputs:
        raise NoRangePlanError("its kernels are others at other sizes")
    for at, (unit, other) in enumerate(zip(a.units, b.units, strict=True)):
        kernel, its = a.kernels[at], b.kernels[at]
        if unit.parts != 1 or unit.repeat is not None or other.parts != 1 or other.repeat is not None:
            raise NoRangePlanError(f"{unit.label} runs in parts")
        if kernel.on_cpu().address != its.on_cpu().address:
            raise NoRangePlanError(f"{unit.label} has a kernel of its own at {point.sizes}")
        if not kernel.sizes and kernel.program != its.program:
            raise NoRangePlanError(f"{unit.label} is another program at {point.sizes}")
        if (unit.inputs, unit.outputs) != (other.inputs, other.outputs):
            raise NoRangePlanError(f"{unit.label} reads other values at {point.sizes}")
    if {v: a.root(v) for v in a.views} != {v: b.root(v) for v in b.views}:
        raise NoRangePlanError("values share memory in another way at other sizes")
    if a.constants.keys() != b.constants.keys():
        raise NoRangePlanError("its constants are others at other sizes")
    for key, array in a.constants.items():
        if not _begins_with(array, b.constants[key]):
            raise NoRangePlanError(f"the constant {key[1]} of {a.units[key[0]].label} is another one")
    if whole.assembled.outputs != point.assembled.outputs:
        raise NoRangePlanError("its outputs are made elsewhere at other sizes")
    for value, type_ in a.graph.types.items():
        its_type = b.graph.types.get(value)
        if its_type is not None and its_type.nbytes > type_.nbytes:
            raise NoRangePlanError("a value is larger at smaller sizes")


def _begins_with(array: Array, other: Array) -> bool:
    """Whether the bytes of one array are the first of another's."""
    if array is other:
        return True
    if array.dtype != other.dtype or array.nbytes < other.nbytes:
        return False
    return array.reshape(-1)[: other.size].tobytes() == other.tobytes()


def _with_params(whole: AtSizes, params: Sequence[int]) -> ExecutionPlan:
    """The plan of the largest sizes with the sizes of a run in their place."""
    steps, plan = whole.steps, whole.assembled.plan
    assert isinstance(plan, ExecutionPlan)
    contents = plan.contents
    refs = tuple(ParamRef(n) for n in range(len(params)))
    calls = []
    for call, (unit, _) in zip(contents.steps, whole.assembled.calls, strict=True):
        kernel = steps.kernels[unit]
        if kernel.sizes and kernel.sizes != tuple(whole.sizes[n] for n in params):
            raise NoRangePlanError(f"{call.name} has other sizes")
        calls.append(replace(call, params=refs if kernel.sizes else ()))
    counted = len(contents.checks) + len(contents.copies)
    counts = tuple(ParamRef(len(params) + n) for n in range(counted))
    made = replace(contents, steps=tuple(calls), param_count=len(params) + counted, counts=counts)
    return ExecutionPlan(plan.pool, made, steps.kernels)


def _made(whole: AtSizes) -> tuple[int, ...]:
    """The plan's output that each output of the model is."""
    steps, assembled = whole.steps, whole.assembled
    found = []
    for value in steps.graph.outputs:
        root, type_ = steps.root(value), steps.graph.types[value]
        buffer = steps.buffers.get(root)
        if root not in assembled.outputs or not (buffer is None or is_plain(buffer)):
            raise NoRangePlanError("an output is no array that a kernel writes")
        at = assembled.outputs.index(root)
        if assembled.arrays[at] != (dtype_of(type_.dtype).numpy, tuple(type_.sizes)):
            raise NoRangePlanError("an output is seen in another shape")
        found.append(at)
    if sorted(found) != list(range(len(assembled.outputs))):
        raise NoRangePlanError("two outputs are one array")
    return tuple(found)


def _checked(points: Sequence[AtSizes]) -> list[tuple[Extent, ...]]:
    """The shape of what each check looks at: of all its numbers, for the same range at all sizes."""
    plans = [point.assembled.plan for point in points]
    lists = [plan.contents.checks for plan in plans if isinstance(plan, ExecutionPlan)]
    if len({len(checks) for checks in lists}) != 1:
        raise NoRangePlanError("other values are checked at other sizes")
    found = []
    for row in zip(*lists, strict=True):
        if len({(c.node, c.value, c.low, c.high, c.dtype, c.step, c.place.kind) for c in row}) != 1:
            raise NoRangePlanError(f"what {row[0].value} may hold depends on a size")
        if any(c.first or c.stride != 1 or c.count != prod(c.shape) for c in row):
            raise NoRangePlanError(f"a part of {row[0].value} is checked")
        found.append(_extents([c.shape for c in row], [point.sizes for point in points]))
    return found


def _extents(shapes: Sequence[tuple[int, ...]], at: Sequence[tuple[int, ...]]) -> tuple[Extent, ...]:
    """The extents of a shape as affine functions of the sizes, exact at all of them."""
    if len({len(shape) for shape in shapes}) != 1:
        raise NoRangePlanError("a shape has more dimensions at some sizes")
    return tuple(_affine(column, at) for column in zip(*shapes, strict=True))


def _affine(values: Sequence[int], at: Sequence[tuple[int, ...]]) -> Extent:
    points: Any = np.array(at, dtype=np.float64)
    # a size that is the same everywhere is no reason for anything
    moving = [n for n in range(points.shape[1]) if len(set(points[:, n])) > 1]
    rows = np.concatenate([np.ones((len(at), 1)), points[:, moving]], axis=1)
    solved = np.rint(np.linalg.lstsq(rows, np.array(values, dtype=np.float64), rcond=None)[0])
    factors: Mapping[int, int] = {n: int(c) for n, c in zip(moving, solved[1:], strict=True)}
    extent = (int(solved[0]), *(factors.get(n, 0) for n in range(points.shape[1])))
    if any(extent_at(extent, sizes) != value for sizes, value in zip(at, values, strict=True)):
        raise NoRangePlanError("an extent is not affine in the sizes")
    return extent
