"""What a saved model with open sizes says about itself: its sizes, and the plans of their ranges.

Each range, be it of single sizes, has plans, and a course that says when they run: what depends on sizes is a
number that a plan's size program computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.runtime import native
from tilewright.runtime.container import newer_or_older
from tilewright.runtime.course import Course, check_course, course_data, read_course
from tilewright.runtime.entries import MalformedError, entry, list_of, number, numbers, size, text
from tilewright.runtime.executor import MAX_BYTES, Amount, ParamRef
from tilewright.runtime.lists import OpenList
from tilewright.runtime.manifest import ABI, DTYPES, Manifest, amount_data, read_plan, read_size
from tilewright.runtime.open_plan import Relation
from tilewright.runtime.open_sizes import AffineDim, OpenTensor, Ranges, SizeRange
from tilewright.runtime.size_program import SIZE_OPS, SizeProgram
from tilewright.support import ArtefactError

Array = npt.NDArray[Any]

OPEN_SCHEMA: Final = 8
"""Version of the manifest of models with open sizes."""
_MOST_SIZES: Final = 64

Extents: TypeAlias = tuple[Amount, ...]
"""A shape of numbers, or those of a run."""


Load: TypeAlias = Callable[[int, int], Array]
"""What gives bytes of a file's constants, by their place."""


@dataclass(frozen=True, slots=True)
class PartManifest:
    """A plan, what its runs compute of sizes, and the shapes of its inputs and outputs."""

    plan: Manifest
    program: SizeProgram
    inputs: tuple[Extents, ...]
    outputs: tuple[Extents, ...]
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class RangeManifest:
    """The plans of a range of sizes, and their course."""

    ranges: Ranges
    parts: tuple[PartManifest, ...]
    course: Course


@dataclass(frozen=True, slots=True, eq=False)
class OpenManifest:
    """A saved model with open sizes, by name with their values. The first range that has some sizes runs."""

    sizes: Mapping[str, SizeRange]
    inputs: tuple[OpenTensor, ...]
    outputs: tuple[OpenTensor, ...]
    ranges: tuple[RangeManifest, ...]

    @property
    def plans(self) -> tuple[Manifest, ...]:
        """The plans of all ranges."""
        return tuple(part.plan for each in self.ranges for part in each.parts)

    def as_data(self, keep: Callable[[Array], Sequence[int]]) -> dict[str, Any]:
        """The manifest as plain data; ``keep`` puts an array into the file, and says where it is."""
        return {
            "schema": OPEN_SCHEMA,
            "abi": ABI,
            "sizes": [[name, known.least, known.largest, known.step] for name, known in self.sizes.items()],
            "inputs": list(map(_tensor_data, self.inputs)),
            "outputs": list(map(_tensor_data, self.outputs)),
            "ranges": [
                {
                    "ranges": [list(pair) for pair in each.ranges],
                    "course": course_data(each.course, keep),
                    "parts": [
                        {
                            "sizes": part.program.count,
                            "program": [list(row) for row in part.program.instructions],
                            "inputs": [list(map(amount_data, shape)) for shape in part.inputs],
                            "outputs": [list(map(amount_data, shape)) for shape in part.outputs],
                            "relations": [
                                [*r.texts, *map(amount_data, r.numbers), r.node, r.said]
                                for r in part.relations
                            ],
                            "plan": part.plan.as_data(),
                        }
                        for part in each.parts
                    ],
                }
                for each in self.ranges
            ],
        }


def read_open_manifest(data: Mapping[str, Any], shown: str, load: Load) -> OpenManifest:
    """The manifest from plain data, checked: what a run reads and writes is checked at its sizes.

    ``shown`` names the file in messages, ``load`` gives its constants. Raises ArtefactError for another
    version, or naming the entry that is wrong.
    """
    if (schema := data.get("schema")) != OPEN_SCHEMA and type(schema) is int:
        raise newer_or_older(shown, "schema", schema, OPEN_SCHEMA)
    try:
        if size(data, "schema") != OPEN_SCHEMA:
            raise MalformedError("schema")
        abi = size(data, "abi")
        manifest = _read(data, load)
        _check(manifest)
    except MalformedError as error:
        raise ArtefactError(f"the manifest of {shown} is malformed: {error}") from None
    if abi != ABI:
        raise newer_or_older(shown, "kernel interface", abi, ABI)
    return manifest


def is_open(data: Mapping[str, Any]) -> bool:
    """Whether a manifest is that of a model with open sizes."""
    return "ranges" in data


def _tensor_data(each: OpenTensor) -> dict[str, Any]:
    def dim_data(dim: int | str | AffineDim) -> int | str | list[int | list[Any]]:
        return [list(map(list, dim.terms)), dim.offset] if isinstance(dim, AffineDim) else dim

    listed = [each.many, each.optional, each.any_rank] if isinstance(each, OpenList) else None
    return {"name": each.name, "dtype": each.dtype.name, "dims": list(map(dim_data, each.shape)),
            "list": listed}  # fmt: skip


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


def _read(data: Mapping[str, Any], load: Load) -> OpenManifest:
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
        inputs=list_of(data, "inputs", _tensor),
        outputs=list_of(data, "outputs", _tensor),
        ranges=tuple(_range(value, count, load) for value in entry(data, "ranges", list)),
    )


def _tensor(value: object, what: str) -> OpenTensor:
    data = value if isinstance(value, dict) else {}
    if (dtype := data.get("dtype")) not in DTYPES:
        raise MalformedError(what)
    dims = tuple(_dim(dim, what) for dim in entry(data, "dims", list))
    name, listed = entry(data, "name", str), data.get("list")
    if listed is None:
        return OpenTensor(name, np.dtype(dtype), dims)
    if type(listed) is not list or list(map(type, listed)) != [bool] * 3:
        raise MalformedError(what)
    return OpenList(name, np.dtype(dtype), dims, *listed)


def _range(value: object, count: int, load: Load) -> RangeManifest:
    data = value if isinstance(value, dict) else {}
    pairs = entry(data, "ranges", list)
    if len(pairs) != count:
        raise MalformedError("ranges")
    course = read_course(data.get("course"), load)
    parts = tuple(_part(each) for each in entry(data, "parts", list))
    ranges = [numbers(pair, 2, "ranges") for pair in pairs]
    return RangeManifest(tuple((lo, hi) for lo, hi in ranges), parts, course)


def _part(value: object) -> PartManifest:
    data = value if isinstance(value, dict) else {}
    count = size(data, "sizes")

    def shapes(key: str) -> tuple[Extents, ...]:
        found = entry(data, key, list)
        if not all(isinstance(shape, list) for shape in found):
            raise MalformedError(key)
        return tuple(tuple(read_size(extent, key) for extent in shape) for shape in found)

    rows = tuple(_instruction(row, count + at) for at, row in enumerate(entry(data, "program", list)))
    return PartManifest(
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
    if not isinstance(value, list) or len(value) != 6 or type(value[5]) is not bool:
        raise MalformedError(what)
    texts = (text(value[0], what), text(value[1], what))
    return Relation(
        texts, (read_size(value[2], what), read_size(value[3], what)), text(value[4], what), value[5]
    )


def _check(manifest: OpenManifest) -> None:
    plans = manifest.plans
    if not plans:
        raise MalformedError("ranges")
    shown = {name for each in manifest.inputs for name in each.sizes}
    if shown != set(manifest.sizes):
        raise MalformedError("sizes")
    if any((p.requires, p.threads, p.device) != (plans[0].requires, plans[0].threads, None) for p in plans):
        raise MalformedError("requires")
    for each in manifest.ranges:
        bounds = zip(each.ranges, manifest.sizes.values(), strict=True)
        if any(not known.least <= lo <= hi <= known.largest for (lo, hi), known in bounds):
            raise MalformedError("ranges")
        for part in each.parts:
            _check_part(manifest, part)
        if [name for name, _ in each.course.results] != [tensor.name for tensor in manifest.outputs]:
            raise MalformedError("outputs")
        if any(course.sizes < len(manifest.sizes) for course in each.course.every()):
            raise MalformedError("sizes")
        known = [
            (p.program, [t.name for t in p.plan.inputs], [t.name for t in p.plan.outputs]) for p in each.parts
        ]
        check_course(each.course, known, [tensor.name for tensor in manifest.inputs])


def _check_part(manifest: OpenManifest, part: PartManifest) -> None:
    """That shapes are those of the tensors, and of numbers that there are."""
    plan = part.plan
    count = part.program.count + len(part.program.instructions)
    if plan.param_count != count:
        raise MalformedError("params")
    if len(part.inputs) != len(plan.inputs) or len(plan.inputs) != len(plan.plan_inputs):
        raise MalformedError("inputs")
    tensors = {tensor.name: tensor for tensor in manifest.inputs}
    for info, shape in zip(plan.inputs, part.inputs, strict=True):
        tensor = tensors.get(info.name)
        if tensor is not None and (tensor.dtype, len(tensor.shape)) != (info.dtype, len(shape)):
            raise MalformedError("inputs")
    if len(part.outputs) != len(plan.outputs) or len(part.outputs) != len(plan.results):
        raise MalformedError("outputs")
    used: Sequence[Amount] = [n for shape in (*part.inputs, *part.outputs) for n in shape]
    used = [*used, *(n for relation in part.relations for n in relation.numbers)]
    if any(isinstance(n, ParamRef) and n.index >= count for n in used):
        raise MalformedError("program")
    made = {ref.index for ref in plan.results if ref.kind == native.OUTPUT}
    if made != set(range(len(plan.plan_outputs))):
        raise MalformedError("results")
