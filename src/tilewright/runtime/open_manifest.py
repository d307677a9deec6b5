"""What a saved model with open sizes says about itself: its sizes, and the plans of their ranges.

Each range has a plan that says everything as it is at the range's largest sizes; beside it stand the shapes
of inputs, outputs and checked values as affine functions of the sizes. Single sizes may have plans of their
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np

from tilewright.runtime import native
from tilewright.runtime.container import newer_or_older
from tilewright.runtime.entries import MalformedError, entry, list_of, number, numbers, size, text
from tilewright.runtime.executor import MAX_BYTES
from tilewright.runtime.manifest import ABI, DTYPES, Manifest, read_plan
from tilewright.runtime.open_sizes import AffineDim, OpenTensor, Ranges, Sizes
from tilewright.runtime.ranges import Extent, extent_at
from tilewright.support import ArtefactError

OPEN_SCHEMA: Final = 5
"""Version of the manifest of models with open sizes."""
_MOST_SIZES: Final = 12
"""A shape is looked at in all corners of a range: twice as many with each further size."""

Extents: TypeAlias = tuple[Extent, ...]
"""A shape whose dimensions are affine functions of the sizes."""


@dataclass(frozen=True, slots=True)
class RangeManifest:
    """The plan of a range of sizes: as it is at the largest, and the shapes at all of them.

    ``params`` are the numbers of the sizes that the plan's parameters begin with; how many numbers each check
    looks at and how many bytes each copy has follow.
    """

    ranges: Ranges
    plan: Manifest
    params: tuple[int, ...]
    inputs: tuple[Extents, ...]
    outputs: tuple[Extents, ...]
    checked: tuple[Extents, ...]


@dataclass(frozen=True, slots=True)
class OpenManifest:
    """A saved model with open sizes, by name from their least to their largest value."""

    sizes: Mapping[str, tuple[int, int]]
    inputs: tuple[OpenTensor, ...]
    ranges: tuple[RangeManifest, ...]
    single: tuple[tuple[Sizes, Manifest], ...]

    @property
    def plans(self) -> tuple[Manifest, ...]:
        """The plans of all ranges, then those of single sizes."""
        return (*(each.plan for each in self.ranges), *(plan for _, plan in self.single))

    def as_data(self) -> dict[str, Any]:
        """The manifest as plain data."""
        return {
            "schema": OPEN_SCHEMA,
            "abi": ABI,
            "sizes": [[name, lo, hi] for name, (lo, hi) in self.sizes.items()],
            "inputs": [
                {"name": each.name, "dtype": each.dtype.name, "dims": list(map(_dim_data, each.dims))}
                for each in self.inputs
            ],
            "ranges": [
                {
                    "ranges": [list(pair) for pair in each.ranges],
                    "params": list(each.params),
                    "inputs": _shapes_data(each.inputs),
                    "outputs": _shapes_data(each.outputs),
                    "checked": _shapes_data(each.checked),
                    "plan": each.plan.as_data(),
                }
                for each in self.ranges
            ],
            "single": [{"sizes": list(sizes), "plan": plan.as_data()} for sizes, plan in self.single],
        }


def read_open_manifest(data: Mapping[str, Any], shown: str) -> OpenManifest:
    """The manifest from plain data, checked: what a run at any size of a range reads and writes exists.

    ``shown`` names the file in messages. Raises ArtefactError for another version, or naming the entry that
    is wrong.
    """
    if (schema := data.get("schema")) != OPEN_SCHEMA and type(schema) is int:
        raise newer_or_older(shown, "schema", schema, OPEN_SCHEMA)
    try:
        if size(data, "schema") != OPEN_SCHEMA:
            raise MalformedError("schema")
        abi = size(data, "abi")
        manifest = _read(data)
        _check(manifest)
    except MalformedError as error:
        raise ArtefactError(f"the manifest of {shown} is malformed: {error}") from None
    if abi != ABI:
        raise newer_or_older(shown, "kernel interface", abi, ABI)
    return manifest


def is_open(data: Mapping[str, Any]) -> bool:
    """Whether a manifest is that of a model with open sizes."""
    return "ranges" in data


def _dim_data(dim: int | str | AffineDim) -> int | str | list[int | str]:
    return [dim.size, dim.factor, dim.offset] if isinstance(dim, AffineDim) else dim


def _dim(value: object, what: str) -> int | str | AffineDim:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return number(value, what)
    if len(value) != 3 or any(type(n) is not int or abs(n) > MAX_BYTES for n in value[1:]) or not value[1]:
        raise MalformedError(what)
    return AffineDim(text(value[0], what), value[1], value[2])


def _shapes_data(shapes: Sequence[Extents]) -> list[list[list[int]]]:
    return [[list(extent) for extent in shape] for shape in shapes]


def _read(data: Mapping[str, Any]) -> OpenManifest:
    sizes: dict[str, tuple[int, int]] = {}
    for value in entry(data, "sizes", list):
        if not isinstance(value, list) or len(value) != 3 or text(value[0], "sizes") in sizes:
            raise MalformedError("sizes")
        lo, hi = numbers(value[1:], 2, "sizes")
        sizes[value[0]] = (lo, hi)
    if (count := len(sizes)) > _MOST_SIZES:
        raise MalformedError("sizes")
    return OpenManifest(
        sizes=sizes,
        inputs=list_of(data, "inputs", _input),
        ranges=tuple(_range(value, count) for value in entry(data, "ranges", list)),
        single=tuple(_single(value, count) for value in entry(data, "single", list)),
    )


def _input(value: object, what: str) -> OpenTensor:
    data = value if isinstance(value, dict) else {}
    if (dtype := data.get("dtype")) not in DTYPES:
        raise MalformedError(what)
    dims = tuple(_dim(dim, what) for dim in entry(data, "dims", list))
    return OpenTensor(entry(data, "name", str), np.dtype(dtype), dims)


def _range(value: object, count: int) -> RangeManifest:
    data = value if isinstance(value, dict) else {}
    pairs = entry(data, "ranges", list)
    if len(pairs) != count:
        raise MalformedError("ranges")

    def shapes(key: str) -> tuple[Extents, ...]:
        found = entry(data, key, list)
        if not all(isinstance(shape, list) for shape in found):
            raise MalformedError(key)
        return tuple(tuple(_extent(extent, count, key) for extent in shape) for shape in found)

    ranges = [numbers(pair, 2, "ranges") for pair in pairs]
    return RangeManifest(
        ranges=tuple((lo, hi) for lo, hi in ranges),
        plan=read_plan(entry(data, "plan", dict)),
        params=list_of(data, "params", number),
        inputs=shapes("inputs"),
        outputs=shapes("outputs"),
        checked=shapes("checked"),
    )


def _extent(value: object, count: int, what: str) -> Extent:
    if not isinstance(value, list) or len(value) != count + 1:
        raise MalformedError(what)
    if any(type(n) is not int or abs(n) > MAX_BYTES for n in value):
        raise MalformedError(what)
    return tuple(value)


def _single(value: object, count: int) -> tuple[Sizes, Manifest]:
    data = value if isinstance(value, dict) else {}
    return tuple(numbers(data.get("sizes"), count, "sizes")), read_plan(entry(data, "plan", dict))


def _check(manifest: OpenManifest) -> None:
    plans = manifest.plans
    if not plans:
        raise MalformedError("ranges")
    shown = {name for each in manifest.inputs for name in each.sizes}
    if shown != set(manifest.sizes) or any(lo > hi for lo, hi in manifest.sizes.values()):
        raise MalformedError("sizes")
    names = [(each.name, each.dtype) for each in manifest.inputs]
    outputs = [(each.name, each.dtype) for each in plans[0].outputs]
    for plan in plans:
        if [(each.name, each.dtype) for each in plan.inputs] != names:
            raise MalformedError("inputs")
        if [(each.name, each.dtype) for each in plan.outputs] != outputs:
            raise MalformedError("outputs")
        if (plan.requires, plan.threads, plan.device) != (plans[0].requires, plans[0].threads, None):
            raise MalformedError("requires")
    for sizes, plan in manifest.single:
        if plan.param_count or len(sizes) != len(manifest.sizes):
            raise MalformedError("single")
        _check_inputs(manifest, sizes, [each.shape for each in plan.inputs])
    for each in manifest.ranges:
        _check_range(manifest, each)


def _check_range(manifest: OpenManifest, each: RangeManifest) -> None:
    """That shapes are those of the plan at the largest sizes, and nowhere larger."""
    plan = each.plan
    bounds = zip(each.ranges, manifest.sizes.values(), strict=True)
    if any(not least <= lo <= hi <= most for (lo, hi), (least, most) in bounds):
        raise MalformedError("ranges")
    if any(n >= len(manifest.sizes) for n in each.params):
        raise MalformedError("params")
    if plan.param_count != len(each.params) + len(plan.checks) + len(plan.copies):
        raise MalformedError("params")
    if sorted((ref.kind, ref.index) for ref in plan.results) != [
        (native.OUTPUT, n) for n in range(len(plan.plan_outputs))
    ]:
        raise MalformedError("results")
    if any(check.first or check.stride != 1 for check in plan.checks):
        raise MalformedError("checks")
    largest = tuple(hi for _, hi in each.ranges)
    known = (
        ("inputs", each.inputs, [info.shape for info in plan.inputs]),
        ("outputs", each.outputs, [info.shape for info in plan.outputs]),
        ("checked", each.checked, [check.shape for check in plan.checks]),
    )
    for what, shapes, whole in known:
        if [tuple(extent_at(e, largest) for e in shape) for shape in shapes] != whole:
            raise MalformedError(what)
        for corner in product(*each.ranges):
            # affine functions are largest and smallest at corners
            for shape, most in zip(shapes, whole, strict=True):
                found = [extent_at(e, corner) for e in shape]
                if any(not 0 <= n <= hi for n, hi in zip(found, most, strict=True)):
                    raise MalformedError(what)
    for corner in product(*each.ranges):
        _check_inputs(manifest, corner, [tuple(extent_at(e, corner) for e in shape) for shape in each.inputs])


def _check_inputs(manifest: OpenManifest, sizes: Sequence[int], shapes: Sequence[Sequence[int]]) -> None:
    """That inputs have the shapes that the sizes say."""
    values = dict(zip(manifest.sizes, sizes, strict=True))
    if [tuple(shape) for shape in shapes] != [each.at(values).shape for each in manifest.inputs]:
        raise MalformedError("inputs")
