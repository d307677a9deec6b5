"""What instructions mean: one lane of each as a loop function, and as what the interpreter runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.ir import (
    Binary,
    Block,
    Cast,
    Const,
    Expr,
    For,
    Index,
    Iter,
    Load,
    LoopFunction,
    Stmt,
    buffer,
    run_function,
    store,
    var,
)
from tilewright.target.model import Instruction, Move, Operand
from tilewright.target.registry import find_operation, instruction_names

Meaning = Callable[[Sequence[npt.NDArray[Any]], Sequence[Any]], None]


def lane_semantics(instruction: Instruction, part: Mapping[str, int] = MappingProxyType({})) -> LoopFunction:
    """One lane of an instruction: ``result[...] += a[...] * b[...]`` over its inner axes.

    The arguments are ``result``, ``a`` and ``b``, of one element where they span no inner axis. ``part`` are
    smaller extents of partial axes.
    """
    extents = {**dict(instruction.inner_axes), **part}
    result, a, b = instruction.result, instruction.a, instruction.b
    total = result.dtype

    def factor(operand: Operand) -> Expr:
        return Cast(Load(operand.name, _at(operand, extents), operand.dtype), total)

    old = Load(result.name, _at(result, extents), total)
    value = Binary("add", old, Binary("mul", factor(a), factor(b)))
    return _function(instruction, extents, (result, a, b), value)


def move_semantics(move: Move, part: Mapping[str, int] = MappingProxyType({})) -> LoopFunction:
    """A move: ``result[...] = source[...]``, or zeros; the arguments are ``result`` and any ``source``."""
    extents = {**dict(move.axes), **part}
    result, source = move.result, move.source
    if source is None:
        return _function(move, extents, (result,), Const(0, result.dtype))
    return _function(move, extents, (result, source), Load(source.name, _at(source, extents), source.dtype))


def _at(operand: Operand, extents: Mapping[str, int]) -> tuple[Index, ...]:
    return tuple(var(axis) for axis in operand.axes if axis in extents) or (Index(0),)


def _function(
    operation: Instruction | Move, extents: Mapping[str, int], operands: tuple[Operand, ...], value: Expr
) -> LoopFunction:
    """``value`` for each element of the first operand."""
    result = operands[0]
    iters = tuple(
        Iter(axis, Index(0), Index(n), "par" if axis in result.axes else "red") for axis, n in extents.items()
    )
    bind = tuple(var(axis) for axis in extents)
    body: Stmt = Block("term", "term", iters, bind, store(result.name, _at(result, extents), value))
    for axis, n in reversed(list(extents.items())):
        body = For(axis, Index(0), Index(n), body)

    def shape(operand: Operand) -> tuple[int, ...]:
        return tuple(extents[axis] for axis in operand.axes if axis in extents) or (1,)

    buffers = tuple(buffer(o.name, shape(o), o.dtype) for o in operands)
    return LoopFunction(operation.name, (), buffers, (result.name,), body)


def _meaning(operation: Instruction | Move) -> Meaning:
    """An instruction on window arrays, changed in place; their dimensions of extent 1 do not count.

    Where axes are partial, the arrays have one dimension for each axis of the operand.
    """
    if isinstance(operation, Move):
        operands = [operation.result, *([operation.source] if operation.source else [])]
    else:
        operands = [operation.result, operation.a, operation.b]

    def run(windows: Sequence[npt.NDArray[Any]], _: Sequence[Any]) -> None:
        part: dict[str, int] = {}
        if operation.partial:
            for operand, w in zip(operands, windows, strict=True):
                part.update(zip(operand.axes, w.shape, strict=True))
        if isinstance(operation, Move):
            function = move_semantics(operation, part)
        else:
            function = lane_semantics(operation, part)
        named = {
            b.name: np.ascontiguousarray(w).reshape([e.as_int() for e in b.shape])
            for b, w in zip(function.buffers, windows, strict=True)
        }
        made = run_function(function, named, inout=function.outputs, complete=False)
        for b, w in zip(function.buffers, windows, strict=True):
            if b.name in made:
                w[...] = made[b.name].reshape(w.shape)

    return run


INTERPRETED: Final[Mapping[str, Meaning]] = MappingProxyType(
    {name: _meaning(find_operation(name)) for name in instruction_names()}
)
"""Every instruction as the reference interpreter runs it (``instructions=`` of ``run_function``)."""
