"""How much arithmetic a program does: what profiles divide by time."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Final

from tilewright.ir import (
    Binary,
    Buffer,
    Call,
    Condition,
    If,
    Iter,
    Program,
    Stage,
    evaluate_index,
    stmt_exprs,
    stmt_loads,
    walk,
)

#: Combinations of iterators for which conditions are looked at.
MOST_PLACES: Final = 4096

_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "min", "max"})


def flops(program: Program) -> int:
    """Floating-point operations of one run: each add, multiply, min, max, division or function call is one.

    Stages with symbolic or dependent extents count as nothing, terms that a sum leaves out neither.
    """
    return sum(round(stage_points(stage) * _taken(stage)) * _operations(stage) for stage in program.stages)


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


def _taken(stage: Stage) -> Fraction:
    """The part of a stage's instances whose terms count; conditions on many iterators count as holding."""
    body = stage.body
    left = [c for c in body.cond if c.index is not None] if isinstance(body, If) else []
    part = Fraction(1)
    while left:
        tied = [left.pop()]
        names = set(tied[0].vars)
        while found := [c for c in left if c.vars & names]:
            tied += found
            left = [c for c in left if c not in found]
            names.update(*(c.vars for c in found))
        iters = [it for it in stage.iters if it.name in names]
        places = stage_points(replace(stage, iters=tuple(iters)))
        if len(iters) != len(names) or not 0 < places <= MOST_PLACES:
            continue
        values = product(*(range(it.lo.as_int(), it.hi.as_int()) for it in iters))
        holds = sum(all(_holds(c, iters, at) for c in tied) for at in values)
        part *= Fraction(holds, places)
    return part


def _holds(c: Condition, iters: Sequence[Iter], at: Sequence[int]) -> bool:
    assert c.index is not None
    value = evaluate_index(c.index, dict(zip([it.name for it in iters], at, strict=True)))
    return value == 0 if c.op == "eq" else value >= 0


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
