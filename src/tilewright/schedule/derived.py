"""Constants that a schedule makes of other constants: what the compiler computes once, before any run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tilewright.ir import Program
from tilewright.schedule.algorithm import Array, DerivedConstant
from tilewright.schedule.catalog import ALGORITHMS, PRIMITIVES
from tilewright.schedule.layout.arrays import pack_argument
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Step


def derived_constants(s: Schedule) -> dict[str, DerivedConstant]:
    """The constant arguments that the program phase of a schedule added, by name."""
    out: dict[str, DerivedConstant] = {}
    made_at: dict[str, int] = {}
    for at, (program, step) in enumerate(_program_phase(s)):
        if step.primitive in ("store_at", "decouple_at"):
            parts = _of_constants(s, out, made_at, at, step)
            out.update(parts)
            made_at.update(dict.fromkeys(parts, at + 1))
        algorithm = ALGORITHMS.get(step.primitive)
        if algorithm is not None:
            match = algorithm.match(program, program.stage(str(step.args[0])))
            assert match is not None  # or the step would have been refused
            variant = algorithm.variant(step)
            made = algorithm.constants(match, step)
            out.update({name: replace(constant, variant=variant) for name, constant in made.items()})
    return {
        name: replace(made, compute=partial(_laid_out, made.compute, name, s.trace.steps[made_at[name] :]))
        if name in made_at
        else made
        for name, made in out.items()
    }


def scheduled_program(s: Schedule) -> Program | None:
    """The program whose stages the loops of a schedule run: after its program phase.

    ``None`` for the schedule of a loop function.
    """
    program = s.source if isinstance(s.source, Program) else None
    for before, step in _program_phase(s):
        program = PRIMITIVES[step.primitive].function(before, *step.args, **dict(step.kwargs))
    return program


def _program_phase(s: Schedule) -> Iterator[tuple[Program, Step]]:
    """Each step of the program phase with the program that it changes."""
    program = s.source
    if not isinstance(program, Program):
        return
    for step in s.trace.steps:
        entry = PRIMITIVES[step.primitive]
        if entry.phase != "program":
            return
        yield program, step
        program = entry.function(program, *step.args, **dict(step.kwargs))


def _of_constants(
    s: Schedule, out: Mapping[str, DerivedConstant], made_at: Mapping[str, int], at: int, step: Step
) -> dict[str, DerivedConstant]:
    """What a step that joins constants, or takes one apart, makes."""
    before, args = s.trace.steps[:at], step.args
    ends: dict[str, bool | None]
    if step.primitive == "store_at":
        names, dim, ends = args[:2], args[2], {str(args[3]): None}
    else:
        names, dim, ends = args[:1], args[1], {str(args[2]): False, str(args[3]): True}
    parts = [_part(s, out, made_at, str(name), before) for name in names]
    read = tuple(name for part in parts for name in part.sources)
    return {
        name: DerivedConstant(read, partial(_stored, parts, int(str(dim)), end), _exact)
        for name, end in ends.items()
    }


def _part(
    s: Schedule,
    out: Mapping[str, DerivedConstant],
    made_at: Mapping[str, int],
    name: str,
    before: Sequence[Step],
) -> DerivedConstant:
    """A tensor as it is after the steps ``before``: an argument of the program, or derived itself."""
    made = out.get(name)
    if made is not None:
        steps = before[made_at.get(name, 0) :]
        return replace(made, compute=partial(_laid_out, made.compute, name, steps))
    assert isinstance(s.source, Program)
    layout = s.source.buffer(name).layout
    return DerivedConstant((name,), partial(pack_argument, tensor=name, steps=before, layout=layout), _exact)


def _stored(parts: Sequence[DerivedConstant], dim: int, end: bool | None, *arrays: Array) -> Array:
    """The first part behind the second along a dimension; of one part its last element, or the rest."""
    left, made = list(arrays), []
    for part in parts:
        made.append(part.compute(*left[: len(part.sources)]))
        del left[: len(part.sources)]
    if end is None:
        return np.concatenate([made[1], np.expand_dims(made[0], dim)], axis=dim)
    return made[0].take(-1, axis=dim) if end else made[0].take(range(made[0].shape[dim] - 1), axis=dim)


def _laid_out(compute: Callable[..., Array], name: str, steps: Sequence[Step], *arrays: Array) -> Array:
    return pack_argument(compute(*arrays), name, steps)


def _exact(*arrays: Array) -> float:
    return 0.0
