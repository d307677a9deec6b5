"""inline_stage: put the definition of a stage into the stages that read it, in a program."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import Program
from tilewright.schedule.producer.definition import definition_of, inlined
from tilewright.schedule.producer.stages import find_stage, refused
from tilewright.schedule.registry import primitive


@primitive("inline_stage", phase="program")
def inline_stage(program: Program, stage: str) -> Program:
    """Replace every load of what ``stage`` computes by its definition; the stage and its buffer disappear.

    The program-phase form of :func:`~tilewright.schedule.producer.inline.inline`, with the same conditions::

        T[i] = X[i] * 2                     C[i] = sum(X[i] * 2 * Y[k], over k)
        C[i] = sum(T[i] * Y[k], over k)

    Raises ScheduleError where the stage is a reduction, defines several buffers or an output, or where
    something it reads is changed before the last use.
    """
    node = find_stage(program, stage)
    found = definition_of(node.iters, node.body, node.init)
    if isinstance(found, str):
        raise refused(node, f"stage {stage!r} cannot be inlined: {found}")
    name = found.buffer
    if name not in {b.name for b in program.temps}:
        raise refused(node, f"stage {stage!r} defines {name!r}, an argument, which must be stored")
    readers = program.consumers(name)
    at = program.stages.index(node)
    last = max((program.stages.index(s) for s in readers), default=at)
    for s in program.stages[at + 1 : last + 1]:
        changed = [b for b in s.writes if b in node.reads]
        if changed:
            raise refused(s, f"stage {s.name!r} changes {changed[0]!r}, which {stage!r} reads")
    if len(program.producers(name)) != 1:
        raise refused(node, f"several stages write {name!r}")
    stages = tuple(
        replace(
            s,
            body=inlined(s.body, found),
            init=None if s.init is None else inlined(s.init, found),
        )
        if name in s.reads
        else s
        for s in program.stages
        if s.name != stage
    )
    return replace(program, stages=stages, temps=tuple(b for b in program.temps if b.name != name))
