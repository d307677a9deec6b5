"""The loop of mapper and transformations: programs are rewritten where the mapper's failures ask for it.

    queue = [program]
    take the program with the fewest steps, of those the one with the fewest stages
    map it; for each failure, for each transformation that addresses it: the rewritten program joins the queue

Programs seen before, up to renaming, are dropped; the number of programs is bounded. (ISA Mapper, Fig. 1.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tilewright.ir import Program, structural_hash
from tilewright.mapping.mapper import find_mappings
from tilewright.mapping.mapping import Failure, Mapping
from tilewright.mapping.match import Match
from tilewright.mapping.needle import Needle
from tilewright.mapping.transform import TRANSFORMATIONS, Transformation
from tilewright.schedule import Schedule, Step
from tilewright.support import ScheduleError
from tilewright.target import Instruction

T = TypeVar("T")

MAX_PROGRAMS: Final = 64
"""Programs that are mapped before the search gives up: transformations can be repeated for ever."""
MAX_STEPS: Final = 3
"""Transformations one after another."""


@dataclass(frozen=True, slots=True)
class Transformed:
    """Mappings of a program that steps make of the one asked for; without steps, of that itself."""

    schedule: Schedule
    mappings: tuple[Mapping, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The transformations, in order."""
        return self.schedule.trace.steps

    @property
    def program(self) -> Program:
        """The rewritten program."""
        return self.schedule.require_program()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Programs with mappings, nearest first, the failures of the given one, and how many were mapped."""

    found: tuple[Transformed, ...]
    failures: tuple[Failure, ...]
    programs: int


def search_mappings(
    program: Program,
    instruction: Instruction | Needle,
    *,
    programs: int = MAX_PROGRAMS,
    steps: int = MAX_STEPS,
    bundle: bool = False,
    transformations: tuple[Transformation, ...] = TRANSFORMATIONS,
) -> Outcome:
    """Mappings of a program as it is, and as transformations make it.

    At most ``programs`` are mapped, each at most ``steps`` transformations away; ``bundle`` as in
    :func:`~tilewright.mapping.mapper.find_mappings`. Deterministic. Where a
    transformation is refused the program is left as it is.

    >>> from tilewright import lang
    >>> from tilewright.target import BUILT_IN
    >>> A, B = lang.placeholder((4, 8), "i8", name="A"), lang.placeholder((8, 6), "i8", name="B")
    >>> k = lang.reduce_axis(8, "k")
    >>> C = lang.compute(
    ...     (4, 6), lambda i, j: lang.sum(lang.cast(A[i, k], "i32") * lang.cast(B[k, j], "i32"), k), name="C"
    ... )
    >>> outcome = search_mappings(lang.program([A, B], [C]), BUILT_IN["tdpbusd"])
    >>> for each in outcome.found[:2]:
    ...     print(each.steps[0], "->", each.mappings[0])
    shift_factor("C", 0, "C_shifted0") -> tdpbusd: m = i, n = j, k = k; \
result = C_shifted0_sum[i, j], a = C_shifted0[i, k], b = B[k, j]
    shift_factor("C", 1, "C_shifted0") -> tdpbusd: m = j, n = i, k = k; \
result = C_shifted0_sum[i, j], a = C_shifted0[k, j], b = A[i, k]
    """
    needle = instruction if isinstance(instruction, Needle) else Needle.of(instruction)

    def look(current: Program) -> tuple[Match, Sequence[Failure]]:
        match = find_mappings(current, needle, bundle=bundle)
        return match, match.failures

    looked = list(transformed(program, look, programs=programs, steps=steps, transformations=transformations))
    found = tuple(Transformed(s, match.mappings) for s, match in looked if match.mappings)
    return Outcome(found, looked[0][1].failures, len(looked))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program that is to be looked at. ``cost``: transformations, stages, how many were found before."""

    schedule: Schedule
    cost: tuple[int, int, int]


def nearest(options: Sequence[Candidate]) -> int:
    """The one of the fewest transformations, of those the one of the fewest stages."""
    return min(range(len(options)), key=lambda n: options[n].cost)


def transformed(
    program: Program,
    look: Callable[[Program], tuple[T, Sequence[Failure]]],
    *,
    programs: int = MAX_PROGRAMS,
    steps: int = MAX_STEPS,
    transformations: tuple[Transformation, ...] = TRANSFORMATIONS,
    choose: Callable[[Sequence[Candidate]], int] = nearest,
) -> Iterator[tuple[Schedule, T]]:
    """A program and those that transformations make of it, each with what ``look`` says of it.

    The failures that it gives as well say which transformations come next; ``choose`` says which program.
    """
    queue = [Candidate(Schedule(program), (0, len(program.stages), 0))]
    seen = {structural_hash(program)}
    for _ in range(programs):
        if not queue:
            return
        taken = queue.pop(choose(queue))
        current = taken.schedule.require_program()
        result, failures = look(current)
        yield taken.schedule, result
        depth = taken.cost[0] + 1
        for step in _proposed(current, failures, transformations) if depth <= steps else ():
            try:
                made = taken.schedule.apply(step.primitive, *step.args)
            except ScheduleError:
                continue  # not applicable here: the proposals are guesses
            new = made.require_program()
            key = structural_hash(new)
            if key not in seen:
                seen.add(key)
                queue.append(Candidate(made, (depth, len(new.stages), len(seen))))


def _proposed(
    program: Program, failures: Sequence[Failure], transformations: tuple[Transformation, ...]
) -> tuple[Step, ...]:
    """Steps that address failures, each once, in the order of the transformations."""
    out: dict[Step, None] = {}
    for t in transformations:
        for name in dict.fromkeys(f.stage for f in failures if t.addresses(f)):
            out.update(dict.fromkeys(t.proposals(program, program.stage(name))))
    return tuple(out)
