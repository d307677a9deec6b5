"""Constants that a schedule makes of other constants: what the compiler computes once, before any run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Step

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class DerivedConstant:
    """A constant argument made of the program's own argument ``source`` by ``compute``."""

    source: str
    compute: Callable[[Array], Array]
    error: Callable[[Array], float]
    """The error of the algorithm that takes it, in a sample, relative to the largest result."""


def derived_constants(s: Schedule) -> dict[str, DerivedConstant]:
    """The constant arguments that the program phase of a schedule added, by name."""
    out: dict[str, DerivedConstant] = {}
    for program, step in _program_phase(s):
        if step.primitive == "winograd":
            stage, m, name = str(step.args[0]), int(str(step.args[1])), str(step.args[2])
            match = match_winograd(program, program.stage(stage))
            assert match is not None
            out[name] = DerivedConstant(
                match.weights.buffer, partial(_transform, match, m), partial(winograd_error, match, m)
            )
        elif step.primitive == "strassen":
            stage, width, name = str(step.args[0]), int(str(step.args[1])), str(step.args[2])
            product = match_product(program, program.stage(stage))
            assert product is not None
            out[name] = DerivedConstant(
                product.weights.buffer,
                partial(_quarter, product, width),
                partial(strassen_error, product, width),
            )
        elif step.primitive == "bf16x3":
            found = match_sum(program, program.stage(str(step.args[0])))
            assert found is not None
            if found.constant:
                out[str(dict(step.kwargs)["weights"])] = DerivedConstant(
                    found.other.buffer, pieces_of, partial(bf16x3_error, found)
                )
    return out


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


def _transform(match: Any, m: int, array: Array) -> Array:
    return np.asarray(transform_weights(match, m, array))


def _quarter(match: Any, width: int, array: Array) -> Array:
    return np.asarray(quarter_weights(match, width, array))
