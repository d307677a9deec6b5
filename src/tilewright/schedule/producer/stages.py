"""What program-phase primitives share: finding stages and buffers, refusing at the user's line."""

from __future__ import annotations

from tilewright.ir import Buffer, Program, Stage
from tilewright.support import ScheduleError, known_names


def find_stage(program: Program, name: str) -> Stage:
    """The stage of that name; ScheduleError where there is none."""
    for s in program.stages:
        if s.name == name:
            return s
    names = [s.name for s in program.stages]
    raise ScheduleError(
        f"program {program.name!r} has no stage {name[:80]!r}",
        hint=known_names(name, names, "the stages"),
    )


def find_tensor(program: Program, name: str) -> Buffer:
    """The buffer of that name; ScheduleError where there is none."""
    known = {b.name: b for b in program.buffers}
    if name not in known:
        raise ScheduleError(
            f"program {program.name!r} has no tensor {name[:80]!r}",
            hint=known_names(name, known, "the tensors"),
        )
    return known[name]


def refused(stage: Stage, what: str, hint: str | None = None) -> ScheduleError:
    """The error of a refused program-phase primitive, at the stage's line of the user's source."""
    return ScheduleError(what, where=None if stage.source is None else str(stage.source), hint=hint)
