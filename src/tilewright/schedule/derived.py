"""Constants that a schedule makes of other constants: what the compiler computes once, before any run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.ir import Program
from tilewright.lang import (
    bf16x3_error,
    match_product,
    match_sum,
    match_winograd,
    pieces_of,
    quarter_weights,
    strassen_error,
    transform_weights,
    winograd_error,
)
from tilewright.schedule.catalog import PRIMITIVES
from tilewright.schedule.layout.arrays import pack_argument
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Step

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class DerivedConstant:
    """A constant argument made of the program's own arguments ``sources`` by ``compute``."""

    sources: tuple[str, ...]
    compute: Callable[..., Array]
    error: Callable[..., float]
    """The error of the algorithm that takes it, in a sample, relative to the largest result."""

    def of(self, arrays: Mapping[str, Array]) -> Array:
        """The constant, from the arrays of the program's arguments."""
        return self.compute(*(arrays[name] for name in self.sources))


def derived_constants(s: Schedule) -> dict[str, DerivedConstant]:
    """The constant arguments that the program phase of a schedule added, by name."""
    out: dict[str, DerivedConstant] = {}
    made_at: dict[str, int] = {}
    for at, (program, step) in enumerate(_program_phase(s)):
        if step.primitive in ("store_at", "decouple_at"):
            parts = _of_constants(s, out, made_at, at, step)
            out.update(parts)
            made_at.update(dict.fromkeys(parts, at + 1))
        elif step.primitive == "winograd":
            stage, m, name = str(step.args[0]), int(str(step.args[1])), str(step.args[2])
            match = match_winograd(program, program.stage(stage))
            assert match is not None
            out[name] = DerivedConstant(
                (match.weights.buffer,), partial(_transform, match, m), partial(winograd_error, match, m)
            )
        elif step.primitive == "strassen":
            stage, width, name = str(step.args[0]), int(str(step.args[1])), str(step.args[2])
            product = match_product(program, program.stage(stage))
            assert product is not None
            out[name] = DerivedConstant(
                (product.weights.buffer,),
                partial(_quarter, product, width),
                partial(strassen_error, product, width),
            )
        elif step.primitive == "bf16x3":
            found = match_sum(program, program.stage(str(step.args[0])))
            assert found is not None
            if found.constant:
                out[str(dict(step.kwargs)["weights"])] = DerivedConstant(
                    (found.other.buffer,), pieces_of, partial(bf16x3_error, found)
                )
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


def _transform(match: Any, m: int, array: Array) -> Array:
    return np.asarray(transform_weights(match, m, array))


def _quarter(match: Any, width: int, array: Array) -> Array:
    return np.asarray(quarter_weights(match, width, array))
