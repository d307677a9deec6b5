"""The course of a run whose sizes, branches and loops data decides: plain values, in memory and in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.runtime.entries import MalformedError, entry, list_of, number, numbers, size, text
from tilewright.runtime.executor import Amount, ParamRef
from tilewright.runtime.lists import LIST_OPS
from tilewright.runtime.manifest import DTYPES, amount_data, read_size
from tilewright.runtime.size_program import SizeProgram

Array = npt.NDArray[Any]
Constants: TypeAlias = Mapping[str, Array]

_MOST_NESTED: Final = 32


def _none() -> Constants:
    return MappingProxyType({})


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
class Branch:
    """The first of two courses where a condition holds, else the second; or that of a number.

    A number that no course has is the ``refusal``.
    """

    condition: str
    courses: tuple[Course, ...]
    reads: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Constants = field(default_factory=_none)
    refusal: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A course again and again: for a number of steps, if that is given, and while it says so.

    ``inputs`` are that number, whether to begin, and what is ``carried`` ("" for what is absent); the course
    is given them under the names ``takes``. ``kinds`` are the element types and shapes of the outputs where
    it makes no step: numbers of the plan that runs before it.
    """

    courses: tuple[Course, ...]
    inputs: tuple[str, ...]
    takes: tuple[str, ...]
    carried: int
    reads: tuple[str, ...]
    outputs: tuple[str, ...]
    kinds: tuple[tuple[str, tuple[Amount, ...]] | None, ...]
    constants: Constants = field(default_factory=_none)


@dataclass(frozen=True, slots=True, eq=False)
class ListStep:
    """An operator on lists (``lists.py``), its attributes, ``where`` its node is; "" is what is absent."""

    op: str
    attributes: Mapping[str, int]
    where: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Constants = field(default_factory=_none)

    @property
    def courses(self) -> tuple[Course, ...]:
        """None run inside of it."""
        return ()


Control: TypeAlias = Branch | Loop | ListStep


@dataclass(frozen=True, slots=True)
class RunStage:
    """The ``counts`` that are read, the number of the plan that runs then, and what runs behind it."""

    counts: tuple[Count, ...]
    plan: int
    controls: tuple[Control, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Stages, one after the other. ``results`` are the names and values of what is returned.

    Values that no stage makes are inputs, or among the ``constants``. There are ``sizes`` numbers in all: a
    run is given the first of them, data says the others.
    """

    stages: tuple[RunStage, ...]
    sizes: int
    results: tuple[tuple[str, str], ...]
    constants: Constants = field(default_factory=_none)

    @property
    def alone(self) -> int | None:
        """The plan that is all of it; ``None`` where data decides something."""
        (first, *rest) = self.stages
        return None if rest or first.counts or first.controls else first.plan

    def every(self) -> Iterator[Course]:
        """The course itself, and those inside of it."""
        yield self
        for stage in self.stages:
            for control in stage.controls:
                for inner in control.courses:
                    yield from inner.every()


def one_plan(sizes: int, names: Sequence[str]) -> Course:
    """The course of a model that one plan is all of; ``names`` are those of its outputs."""
    return Course((RunStage((), 0),), sizes, tuple((name, name) for name in names))


def course_data(course: Course, keep: Callable[[Array], Sequence[int]]) -> dict[str, Any]:
    """A course as plain data; ``keep`` puts an array into the file, and says where it is."""

    def constants(given: Constants) -> dict[str, Any]:
        return {v: [array.dtype.name, list(array.shape), *keep(array)] for v, array in given.items()}

    def control(each: Control) -> dict[str, Any]:
        if isinstance(each, ListStep):
            return {"op": each.op, "attributes": dict(each.attributes), "where": each.where,
                    "inputs": list(each.inputs), "outputs": list(each.outputs),
                    "constants": constants(each.constants)}  # fmt: skip
        own: dict[str, Any] = (
            {"condition": each.condition, "refusal": each.refusal} if isinstance(each, Branch) else {}
        )
        if isinstance(each, Loop):
            kinds = [
                None if kind is None else [kind[0], list(map(amount_data, kind[1]))] for kind in each.kinds
            ]
            own = {"inputs": list(each.inputs), "takes": list(each.takes), "carried": each.carried,
                   "kinds": kinds}  # fmt: skip
        courses = [course_data(inner, keep) for inner in each.courses]
        return {**own, "courses": courses, "reads": list(each.reads), "outputs": list(each.outputs),
                "constants": constants(each.constants)}  # fmt: skip

    return {
        "sizes": course.sizes,
        "results": [list(pair) for pair in course.results],
        "constants": constants(course.constants),
        "stages": [
            {
                "counts": [[c.value, c.at, c.axis, c.place, c.least, c.most] for c in stage.counts],
                "plan": stage.plan,
                "controls": list(map(control, stage.controls)),
            }
            for stage in course.stages
        ],
    }


def read_course(value: object, load: Callable[[int, int], Array], depth: int = 0) -> Course:
    """A course from plain data; ``load`` gives the bytes at a place of the file. Raises MalformedError."""
    if depth > _MOST_NESTED:
        raise MalformedError("courses")
    data = value if isinstance(value, dict) else {}

    def constants(given: Mapping[str, Any]) -> Constants:
        return {name: _constant(place, load) for name, place in entry(given, "constants", dict).items()}

    def control(each: object, what: str) -> Control:
        inner = each if isinstance(each, dict) else {}
        if "op" in inner:
            return _list_step(inner, constants(inner))
        courses = tuple(read_course(c, load, depth + 1) for c in entry(inner, "courses", list))
        reads, outputs = list_of(inner, "reads", text), list_of(inner, "outputs", text)
        if "condition" in inner:
            condition, refusal = entry(inner, "condition", str), entry(inner, "refusal", str)
            if not courses or (len(courses) != 2 and not refusal):
                raise MalformedError(what)
            return Branch(condition, courses, reads, outputs, constants(inner), refusal)
        kinds = list_of(inner, "kinds", _kind)
        made = Loop(courses, list_of(inner, "inputs", text), list_of(inner, "takes", text),
                    size(inner, "carried"), reads, outputs, kinds, constants(inner))  # fmt: skip
        fits = len(courses) == 1 and len(made.inputs) == len(made.takes) == 2 + made.carried
        if not fits or len(kinds) != len(outputs):
            raise MalformedError(what)
        return made

    def stage(each: object, what: str) -> RunStage:
        inner = each if isinstance(each, dict) else {}
        return RunStage(
            list_of(inner, "counts", _count), size(inner, "plan"), list_of(inner, "controls", control)
        )

    stages = list_of(data, "stages", stage)
    if not stages:
        raise MalformedError("stages")
    return Course(stages, size(data, "sizes"), list_of(data, "results", _pair), constants(data))


def check_course(
    course: Course, plans: Sequence[tuple[SizeProgram, Sequence[str], Sequence[str]]], given: Sequence[str]
) -> None:
    """That all that a course names is there: of each plan the numbers, what it takes and what it makes.

    Raises MalformedError.
    """
    known = {*given, *course.constants}

    def need(names: Sequence[str], what: str) -> None:
        if not known.issuperset(names):
            raise MalformedError(what)

    for stage in course.stages:
        need([count.value for count in stage.counts], "counts")
        if stage.plan >= len(plans) or any(count.place >= course.sizes for count in stage.counts):
            raise MalformedError("stages")
        program, takes, makes = plans[stage.plan]
        if program.count != course.sizes:
            raise MalformedError("sizes")
        need(takes, "stages")
        known.update(makes)
        for control in stage.controls:
            if isinstance(control, ListStep):
                need([v for v in control.inputs if v and v not in control.constants], "controls")
                known.update(control.outputs)
                continue
            inside = {*control.constants, *(v for v in control.reads if v in known)}
            own = [control.condition] if isinstance(control, Branch) else [v for v in control.inputs if v]
            taken = control.takes if isinstance(control, Loop) else ()
            kinds = [kind for kind in control.kinds if kind] if isinstance(control, Loop) else []
            amounts = [n.index for _, shape in kinds for n in shape if isinstance(n, ParamRef)]
            if any(at >= program.count + len(program.instructions) for at in amounts):
                raise MalformedError("kinds")
            least = len(control.outputs)
            least = 1 + max(control.carried, least) if isinstance(control, Loop) else least
            for inner in control.courses:
                if not inside.issuperset(own) or len(inner.results) < least or inner.sizes < course.sizes:
                    raise MalformedError("controls")
                check_course(inner, plans, (*inside, *taken))
            known.update(control.outputs)
    need([value for _, value in course.results], "results")


def _constant(value: object, load: Callable[[int, int], Array]) -> Array:
    if not isinstance(value, list) or len(value) != 4 or not isinstance(value[1], list):
        raise MalformedError("constants")
    offset, nbytes = numbers(value[2:], 2, "constants")
    shape = [number(n, "constants") for n in value[1]]
    raw = load(offset, nbytes)
    try:
        return raw.view(np.dtype(text(value[0], "constants"))).reshape(shape)
    except (TypeError, ValueError):
        raise MalformedError("constants") from None


def _list_step(data: Mapping[str, Any], constants: Constants) -> ListStep:
    inputs, outputs = list_of(data, "inputs", text), list_of(data, "outputs", text)
    attributes, op = entry(data, "attributes", dict), entry(data, "op", str)
    if op not in LIST_OPS or not LIST_OPS[op] <= len([v for v in inputs if v]) or len(outputs) != 1:
        raise MalformedError("controls")
    if not all(type(n) is int for n in attributes.values()):
        raise MalformedError("attributes")
    return ListStep(op, attributes, entry(data, "where", str), inputs, outputs, constants)


def _count(value: object, what: str) -> Count:
    if not isinstance(value, list) or len(value) != 6 or type(value[2]) is not bool:
        raise MalformedError(what)
    at, place, least, most = numbers([value[1], *value[3:]], 4, what)
    return Count(text(value[0], what), at, value[2], place, least, most)


def _kind(value: object, what: str) -> tuple[str, tuple[Amount, ...]] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or value[0] not in DTYPES or type(value[1]) is not list:
        raise MalformedError(what)
    return value[0], tuple(read_size(n, what) for n in value[1])


def _pair(value: object, what: str) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise MalformedError(what)
    return text(value[0], what), text(value[1], what)
