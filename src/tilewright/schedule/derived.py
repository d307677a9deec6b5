"""Constants that a schedule makes of other constants: what the compiler computes once, before any run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.ir import Program
from tilewright.lang import match_winograd, transform_weights, winograd_error
from tilewright.schedule.catalog import PRIMITIVES
from tilewright.schedule.schedule import Schedule

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
    program = s.source
    if not isinstance(program, Program):
        return out
    for step in s.trace.steps:
        entry = PRIMITIVES[step.primitive]
        if entry.phase != "program":
            break
        if step.primitive == "winograd":
            stage, m, name = str(step.args[0]), int(str(step.args[1])), str(step.args[2])
            match = match_winograd(program, program.stage(stage))
            assert match is not None
            out[name] = DerivedConstant(
                match.weights.buffer, partial(_transform, match, m), partial(winograd_error, match, m)
            )
        program = entry.function(program, *step.args, **dict(step.kwargs))
    return out


def _transform(match: Any, m: int, array: Array) -> Array:
    return np.asarray(transform_weights(match, m, array))
