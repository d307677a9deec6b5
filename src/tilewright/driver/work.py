"""How much arithmetic a program does: what profiles divide by time."""

from __future__ import annotations

import math
from collections.abc import Collection

from tilewright.ir import Binary, Buffer, Call, Program, Stage, stmt_exprs, stmt_loads, walk

_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "min", "max"})


def flops(program: Program) -> int:
    """Floating-point operations of one run: each add, multiply, min, max, division or function call is one.

    Stages with symbolic or dependent extents count as nothing.
    """
    return sum(stage_points(stage) * _operations(stage) for stage in program.stages)


def moved_bytes(program: Program, parts: int = 1, sliced: Collection[str] = ()) -> int:
    """Bytes of all arguments: what a run must read and write at least. Symbolic ones count as nothing.

    Of an argument that a run reads in part only, such as the table of a gather, as many elements count as
    are read. A run calls the program ``parts`` times, each time with other bytes of the arguments ``sliced``.
    """
    read: dict[str, int] = {}
    for stage in program.stages:
        for load in stmt_loads(stage.body):
            read[load.buffer] = read.get(load.buffer, 0) + stage_points(stage)
    elements = [(b, min(_elements(b), read.get(b.name, 0))) for b in program.inputs]
    elements += [(b, _elements(b)) for b in program.outputs]
    return sum(count * b.dtype.bytes * (parts if b.name in sliced else 1) for b, count in elements)


def reduction_length(program: Program) -> int:
    """The most terms that one element of an output adds up, stage after stage: at least one a stage."""
    return sum(
        math.prod(_extent(stage, kind="red"), start=1) if stage.is_reduction else 1
        for stage in program.stages
    )


def stage_points(stage: Stage, kind: str | None = None) -> int:
    """Instances of a stage, or of its axes of one ``kind``; symbolic extents count as nothing."""
    return math.prod(_extent(stage, kind))


def _elements(buffer: Buffer) -> int:
    return math.prod(e.as_int() if e.is_const else 0 for e in buffer.shape)


def _extent(stage: Stage, kind: str | None = None) -> list[int]:
    found = [it.hi - it.lo for it in stage.iters if kind is None or it.kind == kind]
    return [extent.as_int() if extent.is_const else 0 for extent in found]


def _operations(stage: Stage) -> int:
    return sum(
        1
        for expression in stmt_exprs(stage.body)
        for node in walk(expression)
        if (isinstance(node, Call) or (isinstance(node, Binary) and node.op in _ARITHMETIC))
        and node.dtype.is_float
    )
