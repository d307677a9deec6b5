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

    The program-phase form of :func:`~tilewright.schedule.producer.inline.inline`, with the same conditions.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X, Y = lang.placeholder((8,), name="X"), lang.placeholder((4,), name="Y")
    >>> T = lang.compute((8,), lambda i: X[i] * 2, name="T")
    >>> k = lang.reduce_axis(4, "k")
    >>> C = lang.compute((8,), lambda i: lang.sum(T[i] * Y[k], axis=k), name="C")
    >>> s = Schedule(lang.program([X, Y], [C]))
    >>> print(s)
    func main:
        alloc T: f32[8] global
        for i in 0:8:
            block T(par i=i):
                T[i] = (X[i] * f32(2.0))
        for C_i in 0:8:
            for k in 0:4:
                block C(par i=C_i, red k=k):
                    init:
                        C[i] = f32(0.0)
                    C[i] = (C[i] + (T[i] * Y[k]))
    >>> print(s.inline_stage("T"))
    func main:
        for i in 0:8:
            for k in 0:4:
                block C(par i=i, red k=k):
                    init:
                        C[i] = f32(0.0)
                    C[i] = (C[i] + ((X[i] * f32(2.0)) * Y[k]))

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
