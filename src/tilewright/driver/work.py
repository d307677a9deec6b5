"""How much arithmetic a program does: what profiles divide by time."""

from __future__ import annotations

import math

from tilewright.ir import Binary, Call, Program, Stage, stmt_exprs, walk

_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "min", "max"})


def flops(program: Program) -> int:
    """Floating-point operations of one run: each add, multiply, min, max, division or function call is one.

    Stages with symbolic or dependent extents count as nothing.
    """
    return sum(stage_points(stage) * _operations(stage) for stage in program.stages)


def moved_bytes(program: Program) -> int:
    """Bytes of all arguments: what a run must read and write at least. Symbolic ones count as nothing."""
    return sum(
        math.prod(e.as_int() if e.is_const else 0 for e in b.shape) * b.dtype.bytes
        for b in (*program.inputs, *program.outputs)
    )


def reduction_length(program: Program) -> int:
    """The most terms that one element of an output adds up, stage after stage: at least one a stage."""
    return sum(
        math.prod(_extent(stage, kind="red"), start=1) if stage.is_reduction else 1
        for stage in program.stages
    )


def stage_points(stage: Stage, kind: str | None = None) -> int:
    """Instances of a stage, or of its axes of one ``kind``; symbolic extents count as nothing."""
    return math.prod(_extent(stage, kind))


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
