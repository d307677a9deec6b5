"""What rewrites of programs share: finding a stage and its operands, free names, a new operand."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from tilewright.ir import Buffer, Load, Program, Stage, Store, iter_env, prove_ge0, prove_lt, var
from tilewright.support import ScheduleError


def stage_called(program: Program, name: str) -> Stage:
    """The stage of that name; ScheduleError, with the names of all, where there is none."""
    for s in program.stages:
        if s.name == name:
            return s
    names = ", ".join(s.name for s in program.stages)
    raise ScheduleError(f"there is no stage {name!r}", hint=f"the stages are {names}")


def operand_of(stage: Stage, number: int) -> Load:
    """The operand of that number, counted from 0; ScheduleError where there is none."""
    found = stage.operands
    if not 0 <= number < len(found):
        raise ScheduleError(f"stage {stage.name!r} has {len(found)} operands, there is no number {number}")
    return found[number]


def moved_operand(stage: Stage, iterators: Sequence[str]) -> Load:
    """The one operand of a sum that moves along iterators of its results, of constant extents.

    ScheduleError where the stage is no sum without conditions, or another number of operands move.
    """
    names = list(dict.fromkeys(iterators))
    known = {it.name for it in stage.iters if it.kind == "par" and it.extent.is_const}
    if not stage.is_reduction or not isinstance(stage.body, Store) or not set(names) <= known:
        raise ScheduleError(
            f"stage {stage.name!r} is no sum without conditions along {' and '.join(map(repr, iterators))}, "
            "of constant extents"
        )
    moved = [ld for ld in stage.operands if any(set(names) & i.vars for i in ld.indices)]
    if len(moved) != 1 or len(names) < len(iterators):
        raise ScheduleError(
            f"{len(moved)} operands of {stage.name!r} move along {' or '.join(map(repr, iterators))}, not one"
        )
    return moved[0]


def copy_maker(program: Program, load: Load, stage: str) -> Stage:
    """The stage that makes, element by element, the tensor that ``stage`` alone reads by ``load``.

    ScheduleError where the tensor is not of constant shape and the program's own for that stage alone.
    """
    makers = program.producers(load.buffer)
    buffer = program.buffer(load.buffer)
    own = load.buffer in {b.name for b in program.temps} and len(program.consumers(load.buffer)) == 1
    if not own or len(makers) != 1 or not all(e.is_const for e in buffer.shape):
        raise ScheduleError(
            f"{load.buffer!r} is no tensor that is copied for {stage!r} alone",
            hint="pad_operand makes one",
        )
    body = makers[0].body
    here = tuple(var(it.name) for it in makers[0].iters)
    # a scan reads what it made before, by the old dimensions
    ordered = any(it.kind != "par" for it in makers[0].iters)
    if ordered or not isinstance(body, Store) or len(body.writes) != 1 or body.writes[0].indices != here:
        raise ScheduleError(f"{load.buffer!r} is not made element by element")
    return makers[0]


def check_bounds(program: Program, stage: Stage, load: Load, hint: str | None = None) -> None:
    """Refuse a load that is in bounds only where a condition of its stage holds."""
    env = iter_env(stage.iters)
    for i, size in zip(load.indices, program.buffer(load.buffer).shape, strict=True):
        if not (prove_ge0(i, env) and prove_lt(i, size, env)):
            where = f"where a condition of stage {stage.name!r} hides it"
            raise ScheduleError(f"{load} may lie outside of {load.buffer!r} {where}", hint=hint)


def taken_names(program: Program) -> set[str]:
    """Names of all stages and buffers."""
    return {*(s.name for s in program.stages), *(b.name for b in program.buffers)}


def check_name(name: str, taken: Set[str], *others: str) -> None:
    """Refuse a name that is taken or no identifier; ``others`` are names that are made of it."""
    if not taken.isdisjoint((name, *others)) or not name.isidentifier():
        raise ScheduleError(f"the name {name!r} is taken or no identifier", hint="choose another name")


def with_operand(program: Program, old: Stage, new: Stage, made: Stage, buffer: Buffer) -> Program:
    """The program with ``new`` in the place of ``old``, after the stage that makes what it reads."""
    at = program.stages.index(old)
    stages = (*program.stages[:at], made, new, *program.stages[at + 1 :])
    return replace(program, stages=stages, temps=(*program.temps, buffer))
