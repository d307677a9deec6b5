"""Semantics as the mapper looks for them: all stages over one set of axes, no element-wise one by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tilewright.ir import Index, Program, Stage, Store, stmt_loads, substitute
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError


def joined(semantics: Program) -> Program:
    """A program with what is element-wise put where it is read, their axes named as the first one's."""
    made = Schedule(semantics)
    for s in semantics.stages[:-1]:
        if not s.is_reduction:
            try:
                made = made.inline_stage(s.name)
            except ScheduleError:
                continue  # an output, or an accumulator
    program = made.require_program()
    first, *later = program.stages
    out = [first]
    for s in later:
        names = renamed((out[-1], s))
        if names is not None:  # else no program's stages are found to be these
            iters = tuple(replace(it, name=str(names[it.name])) for it in s.iters)
            s = replace(s, iters=iters, body=substitute(s.body, names))
        out.append(s)
    return replace(program, stages=tuple(out))


def renamed(stages: Sequence[Stage]) -> dict[str, Index] | None:
    """For each axis of a chain's later stages the first one's; ``None`` where an axis has none of its own."""
    names: dict[str, Index] = {}
    for before, stage in pairwise(stages):
        assert isinstance(before.body, Store)
        (w,) = before.body.writes
        for read in (ld for ld in stmt_loads(stage.body) if ld.buffer == w.buffer):
            for own, theirs in zip(read.indices, w.indices, strict=True):
                a, b = own.as_var(), theirs.as_var()
                if a is None or b is None:
                    return None
                found = names.get(b, theirs)
                if names.setdefault(a, found) != found:
                    return None
        if any(it.name not in names for it in stage.iters):
            return None
    return names
