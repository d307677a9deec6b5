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
    DType,
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
from tilewright.target.model import Instruction, Operand
from tilewright.target.registry import find_instruction, instruction_names

Meaning = Callable[[Sequence[npt.NDArray[Any]], Sequence[Any]], None]


def lane_semantics(instruction: Instruction) -> LoopFunction:
    """One lane of an instruction: ``result[...] += a[...] * b[...]`` over its inner axes.

    The arguments are ``result``, ``a`` and ``b``, of one element where they span no inner axis.
    """
    extents = dict(instruction.inner_axes)

    def shape(operand: Operand) -> tuple[int, ...]:
        return tuple(extents[axis] for axis in operand.axes if axis in extents) or (1,)

    def at(operand: Operand) -> tuple[Index, ...]:
        return tuple(var(axis) for axis in operand.axes if axis in extents) or (Index(0),)

    def factor(operand: Operand, to: DType) -> Expr:
        return Cast(Load(operand.name, at(operand), operand.dtype), to)

    result, a, b = instruction.result, instruction.a, instruction.b
    total = result.dtype
    old = Load(result.name, at(result), total)
    value = Binary("add", old, Binary("mul", factor(a, total), factor(b, total)))
    iters = tuple(
        Iter(axis, Index(0), Index(n), "par" if axis in result.axes else "red") for axis, n in extents.items()
    )
    block = Block(
        "term", "term", iters, tuple(var(axis) for axis in extents), store(result.name, at(result), value)
    )
    body: Stmt = block
    for axis, n in reversed(extents.items()):
        body = For(axis, Index(0), Index(n), body)
    buffers = tuple(buffer(o.name, shape(o), o.dtype) for o in (result, a, b))
    return LoopFunction(instruction.name, (), buffers, (result.name,), body)


def _meaning(instruction: Instruction) -> Meaning:
    """An instruction on window arrays, changed in place; their dimensions of extent 1 do not count."""
    function = lane_semantics(instruction)
    shapes = [tuple(e.as_int() for e in b.shape) for b in function.buffers]

    def run(windows: Sequence[npt.NDArray[Any]], _: Sequence[Any]) -> None:
        named = {
            b.name: np.ascontiguousarray(w).reshape(s)
            for b, w, s in zip(function.buffers, windows, shapes, strict=True)
        }
        made = run_function(function, named, inout=function.outputs, complete=False)
        for b, w in zip(function.buffers, windows, strict=True):
            if b.name in made:
                w[...] = made[b.name].reshape(w.shape)

    return run


INTERPRETED: Final[Mapping[str, Meaning]] = MappingProxyType(
    {name: _meaning(find_instruction(name)) for name in instruction_names()}
)
"""Every instruction as the reference interpreter runs it (``instructions=`` of ``run_function``)."""
