"""clone_stage: one reader of a stage gets a copy of it, to be placed or inlined by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.ir import Program, Stage, fresh_name, rename_buffers
from tilewright.schedule.producer.stages import find_stage, refused
from tilewright.schedule.registry import primitive


@primitive("clone_stage", phase="program")
def clone_stage(program: Program, stage: str, reader: str) -> Program:
    """A copy of ``stage``, called ``<stage>_<reader>``, whose results ``reader`` alone reads.

    The copy follows ``stage``. So a stage with several readers can be inlined into one of them, or computed
    where one of them needs it, and be stored for the others.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((8,), name="X")
    >>> T = lang.compute((8,), lambda i: X[i] * 2, name="T")
    >>> B = lang.compute((7,), lambda i: T[i] + T[i + 1], name="B")
    >>> C = lang.compute((8,), lambda i: T[i] * T[i], name="C")
    >>> s = Schedule(lang.program([X], [B, C]))
    >>> print(s)
    func main:
        alloc T: f32[8] global
        for i in 0:8:
            block T(par i=i):
                T[i] = (X[i] * f32(2.0))
        for B_i in 0:7:
            block B(par i=B_i):
                B[i] = (T[i] + T[i + 1])
        for C_i in 0:8:
            block C(par i=C_i):
                C[i] = (T[i] * T[i])
    >>> print(s.clone_stage("T", "C").inline_stage("T_C"))
    func main:
        alloc T: f32[8] global
        for i in 0:8:
            block T(par i=i):
                T[i] = (X[i] * f32(2.0))
        for B_i in 0:7:
            block B(par i=B_i):
                B[i] = (T[i] + T[i + 1])
        for C_i in 0:8:
            block C(par i=C_i):
                C[i] = ((X[i] * f32(2.0)) * (X[i] * f32(2.0)))

    Raises ScheduleError where another stage writes what ``stage`` does, ``reader`` reads none of it or comes
    before, and where no other stage would read the stage any more.
    """
    node, target = find_stage(program, stage), find_stage(program, reader)
    shared = [b for b in node.writes if len(program.producers(b)) > 1]
    if shared:
        raise refused(node, f"several stages write {shared[0]!r}: a copy of {stage!r} alone would not be it")
    if reader == stage or not set(node.writes) & set(target.reads):
        raise refused(target, f"stage {reader!r} reads nothing that {stage!r} computes")
    arguments = {b.name for b in program.outputs}
    others = [s for b in node.writes for s in program.consumers(b) if s.name != reader]
    if not others and arguments.isdisjoint(node.writes):
        raise refused(node, f"stage {reader!r} is the only reader of {stage!r}", hint="it needs no copy")
    taken = {s.name for s in program.stages} | {b.name for b in program.buffers}
    taken |= {p.name for p in program.params}
    name = fresh_name(f"{stage}_{reader}", taken)
    taken.add(name)
    names: dict[str, str] = {}
    for b in node.writes:
        names[b] = name if len(node.writes) == 1 else fresh_name(f"{b}_{reader}", taken)
        taken.add(names[b])
    copy = replace(_renamed(node, names), name=name)
    stages: list[Stage] = []
    for s in program.stages:
        stages.append(_renamed(s, names) if s.name == reader else s)
        if s.name == stage:
            stages.append(copy)
    new = tuple(program.buffer(b).with_(name=n) for b, n in names.items())
    return replace(program, stages=tuple(stages), temps=(*program.temps, *new))


def _renamed(stage: Stage, names: Mapping[str, str]) -> Stage:
    """The stage with buffers renamed where its statements read and write them."""
    init = None if stage.init is None else rename_buffers(stage.init, names)
    return replace(stage, body=rename_buffers(stage.body, names), init=init)
