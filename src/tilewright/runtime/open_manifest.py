"""What a saved model with open sizes says about itself: its sizes, and the plans of their ranges.

Each plan is for a range of sizes: what depends on these is a number that its size program computes. Single
sizes may have plans of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from tilewright.runtime import native
from tilewright.runtime.container import newer_or_older
from tilewright.runtime.entries import MalformedError, entry, list_of, number, numbers, size, text
from tilewright.runtime.executor import MAX_BYTES, Amount, ParamRef
from tilewright.runtime.manifest import ABI, DTYPES, Manifest, amount_data, read_plan, read_size
from tilewright.runtime.open_plan import Relation
from tilewright.runtime.open_sizes import AffineDim, OpenTensor, Ranges, SizeRange, Sizes
from tilewright.runtime.size_program import SIZE_OPS, SizeProgram
from tilewright.support import ArtefactError

OPEN_SCHEMA: Final = 6
"""Version of the manifest of models with open sizes."""
_MOST_SIZES: Final = 64

Extents: TypeAlias = tuple[Amount, ...]
"""A shape of numbers, or those of a run."""


@dataclass(frozen=True, slots=True)
class RangeManifest:
    """The plan of a range of sizes, what its runs compute of these, and the shapes of inputs and outputs."""

    ranges: Ranges
    plan: Manifest
    program: SizeProgram
    inputs: tuple[Extents, ...]
    outputs: tuple[Extents, ...]
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenManifest:
    """A saved model with open sizes, by name with their values."""

    sizes: Mapping[str, SizeRange]
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
            "sizes": [[name, known.least, known.largest, known.step] for name, known in self.sizes.items()],
            "inputs": [
                {"name": each.name, "dtype": each.dtype.name, "dims": list(map(_dim_data, each.dims))}
                for each in self.inputs
            ],
            "ranges": [
                {
                    "ranges": [list(pair) for pair in each.ranges],
                    "program": [list(row) for row in each.program.instructions],
                    "inputs": [list(map(amount_data, shape)) for shape in each.inputs],
                    "outputs": [list(map(amount_data, shape)) for shape in each.outputs],
                    "relations": [[*r.texts, *map(amount_data, r.numbers), r.node] for r in each.relations],
                    "plan": each.plan.as_data(),
                }
                for each in self.ranges
            ],
            "single": [{"sizes": list(sizes), "plan": plan.as_data()} for sizes, plan in self.single],
        }


def read_open_manifest(data: Mapping[str, Any], shown: str) -> OpenManifest:
    """The manifest from plain data, checked: what a run reads and writes is checked at its sizes.

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


def _dim_data(dim: int | str | AffineDim) -> int | str | list[int | list[Any]]:
    return [list(map(list, dim.terms)), dim.offset] if isinstance(dim, AffineDim) else dim


def _dim(value: object, what: str) -> int | str | AffineDim:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return number(value, what)
    if len(value) != 2 or not isinstance(value[0], list) or not value[0]:
        raise MalformedError(what)
    terms = []
    for term in value[0]:
        if not isinstance(term, list) or len(term) != 2 or not _factor(term[1], what):
            raise MalformedError(what)
        terms.append((text(term[0], what), term[1]))
    return AffineDim(tuple(terms), _factor(value[1], what))


def _factor(value: object, what: str) -> int:
    if type(value) is not int or abs(value) > MAX_BYTES:
        raise MalformedError(what)
    return value


def _read(data: Mapping[str, Any]) -> OpenManifest:
    sizes: dict[str, SizeRange] = {}
    for value in entry(data, "sizes", list):
        if not isinstance(value, list) or len(value) != 4 or text(value[0], "sizes") in sizes:
            raise MalformedError("sizes")
        least, largest, step = numbers(value[1:], 3, "sizes")
        if least > largest or not step:
            raise MalformedError("sizes")
        sizes[value[0]] = SizeRange(least, largest, step)
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
        return tuple(tuple(read_size(extent, key) for extent in shape) for shape in found)

    rows = tuple(_instruction(row, count + at) for at, row in enumerate(entry(data, "program", list)))
    ranges = [numbers(pair, 2, "ranges") for pair in pairs]
    return RangeManifest(
        ranges=tuple((lo, hi) for lo, hi in ranges),
        plan=read_plan(entry(data, "plan", dict)),
        program=SizeProgram(count, rows),
        inputs=shapes("inputs"),
        outputs=shapes("outputs"),
        relations=list_of(data, "relations", _relation),
    )


def _instruction(value: object, at: int) -> tuple[str, int, int]:
    """Number ``at`` of a run, made of numbers before it."""
    if not isinstance(value, list) or len(value) != 3 or value[0] not in SIZE_OPS:
        raise MalformedError("program")
    op, a, b = value[0], _factor(value[1], "program"), _factor(value[2], "program")
    if op != "number" and not (0 <= a < at and 0 <= b < at):
        raise MalformedError("program")
    return op, a, b


def _relation(value: object, what: str) -> Relation:
    if not isinstance(value, list) or len(value) != 5:
        raise MalformedError(what)
    texts = (text(value[0], what), text(value[1], what))
    return Relation(texts, (read_size(value[2], what), read_size(value[3], what)), text(value[4], what))


def _single(value: object, count: int) -> tuple[Sizes, Manifest]:
    data = value if isinstance(value, dict) else {}
    return tuple(numbers(data.get("sizes"), count, "sizes")), read_plan(entry(data, "plan", dict))


def _check(manifest: OpenManifest) -> None:
    plans = manifest.plans
    if not plans:
        raise MalformedError("ranges")
    shown = {name for each in manifest.inputs for name in each.sizes}
    if shown != set(manifest.sizes):
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
        values = dict(zip(manifest.sizes, sizes, strict=True))
        if [each.shape for each in plan.inputs] != [each.at(values).shape for each in manifest.inputs]:
            raise MalformedError("inputs")
    for each in manifest.ranges:
        _check_range(manifest, each)


def _check_range(manifest: OpenManifest, each: RangeManifest) -> None:
    """That shapes are those of the tensors, and of numbers that there are."""
    plan = each.plan
    bounds = zip(each.ranges, manifest.sizes.values(), strict=True)
    if any(not known.least <= lo <= hi <= known.largest for (lo, hi), known in bounds):
        raise MalformedError("ranges")
    count = each.program.count + len(each.program.instructions)
    if plan.param_count != count:
        raise MalformedError("params")
    if [len(shape) for shape in each.inputs] != [len(known.dims) for known in manifest.inputs]:
        raise MalformedError("inputs")
    if len(each.outputs) != len(plan.outputs) or len(each.outputs) != len(plan.results):
        raise MalformedError("outputs")
    used: Sequence[Amount] = [n for shape in (*each.inputs, *each.outputs) for n in shape]
    used = [*used, *(n for relation in each.relations for n in relation.numbers)]
    if any(isinstance(n, ParamRef) and n.index >= count for n in used):
        raise MalformedError("program")
    made = {ref.index for ref in plan.results if ref.kind == native.OUTPUT}
    if made != set(range(len(plan.plan_outputs))):
        raise MalformedError("results")
