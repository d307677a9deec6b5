"""What instructions do: one lane of each as a loop function, and as what the interpreter runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.ir import (
    ZERO,
    Access,
    Buffer,
    Index,
    LoopFunction,
    Program,
    Stage,
    Stmt,
    Store,
    buffer,
    int_upper,
    map_loads,
    run_function,
    substitute_index,
    to_function,
)
from tilewright.target.instruction import Instruction
from tilewright.target.registry import BUILT_IN

Meaning = Callable[[Sequence[npt.NDArray[Any]], Sequence[Any]], None]


def lane_semantics(instruction: Instruction, part: Mapping[str, int] = MappingProxyType({})) -> LoopFunction:
    """One lane of an instruction: its stages over the inner axes.

    The arguments are the operands in order, without the dimensions that only lanes move along, of one element
    where none is left. ``part`` are smaller extents of partial axes.
    """
    extents = {**dict(instruction.inner_axes), **part}
    ranges = {axis: (ZERO, Index(n - 1)) for axis, n in extents.items()}
    stages = tuple(
        _lane_of(s, instruction.lanes, extents) for s in (instruction.stage, *instruction.epilogue)
    )
    made: dict[str, Buffer] = {}
    for stage in stages:
        assert isinstance(stage.body, Store)
        written = [(w.buffer, w.indices, w.value.dtype) for w in stage.body.writes]
        for name, indices, dtype in written + [(e.buffer, e.indices, e.dtype) for e in stage.operands]:
            shape = tuple((int_upper(i, ranges) or 0) + 1 for i in indices)
            made.setdefault(name, buffer(name, shape, dtype))
    order = tuple(made[o.name] for o in instruction.operands)
    between = tuple(b for b in made.values() if b not in order)
    nests = to_function(Program(instruction.name, (), order[1:], order[:1], between, stages))
    return LoopFunction(nests.name, (), order, (order[0].name,), nests.body)


def _lane_of(stage: Stage, lanes: tuple[str, ...], extents: Mapping[str, int]) -> Stage:
    """A stage without the axes of lanes, and without dimensions that only they move along."""
    first = dict.fromkeys(lanes, ZERO)

    def own(indices: tuple[Index, ...]) -> tuple[Index, ...]:
        left = tuple(i for i in indices if not i.vars or not i.vars <= set(lanes))
        return tuple(substitute_index(i, first) for i in left) or (ZERO,)

    def of(part: Stmt) -> Stmt:
        assert isinstance(part, Store)
        part = map_loads(part, lambda ld: replace(ld, indices=own(ld.indices)))
        assert isinstance(part, Store)
        return Store(tuple(Access(w.buffer, own(w.indices), w.value.substitute(first)) for w in part.writes))

    iters = tuple(replace(it, hi=Index(extents[it.name])) for it in stage.iters if it.name not in first)
    return replace(
        stage, iters=iters, body=of(stage.body), init=None if stage.init is None else of(stage.init)
    )


@lru_cache(maxsize=64)
def _lane_function(instruction: Instruction, part: tuple[tuple[str, int], ...]) -> LoopFunction:
    return lane_semantics(instruction, dict(part))


def meaning(instruction: Instruction) -> Meaning:
    """An instruction on window arrays, changed in place; their dimensions of extent 1 do not count.

    Where axes are partial, the arrays have one dimension for each of the operand's.
    """

    def run(windows: Sequence[npt.NDArray[Any]], _: Sequence[Any]) -> None:
        part: dict[str, int] = {}
        if instruction.partial:
            for operand, w in zip(instruction.operands, windows, strict=True):
                part.update(zip(operand.axes, w.shape, strict=True))
        function = _lane_function(instruction, tuple(part.items()))
        named = {
            b.name: np.ascontiguousarray(w).reshape([e.as_int() for e in b.shape])
            for b, w in zip(function.buffers, windows, strict=True)
        }
        made = run_function(function, named, inout=function.outputs, complete=False)
        for b, w in zip(function.buffers, windows, strict=True):
            if b.name in made:
                w[...] = made[b.name].reshape(w.shape)

    return run


def interpreted(operations: Iterable[Instruction]) -> Mapping[str, Meaning]:
    """Instructions as the reference interpreter runs them (``instructions=`` of ``run_function``)."""
    return MappingProxyType({row.name: meaning(row) for row in operations})


INTERPRETED: Final = interpreted(BUILT_IN.values())
"""Every instruction of the tables as the reference interpreter runs it."""
