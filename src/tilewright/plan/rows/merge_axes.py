"""Reduction axes that lie one after the other in memory become one, along which there are whole vectors.

What is reduced over images or whole tensors has its terms in one piece, however short its lines are: those of
13 leave three of sixteen lanes without work, and each line is a loop of its own.
"""

from __future__ import annotations

from math import prod

from tilewright.analysis import flat_index
from tilewright.ir import ZERO, Iter, Program, Stage, Store, stmt_loads, var
from tilewright.plan.contraction.register_tiling import VECTORS_OF_SUMS, is_tileable
from tilewright.plan.elementwise.plan import accumulates
from tilewright.schedule import Schedule
from tilewright.target import Target


def merge_axes(s: Schedule, target: Target) -> Schedule:
    """One reduction axis for those in which neighbours follow one another, if the last has no whole vectors.

    Contractions of two operands stay as they are: their axes are channels and taps.
    """
    for stage in s.require_program().stages:
        if not _is_ragged(s.require_program(), stage, target):
            continue
        axes = [it for it in stage.iters if it.kind == "red"]
        inner = axes.pop()
        while axes and _follow(s.require_program(), s.require_program().stage(stage.name), axes[-1], inner):
            before = {it.name for it in s.require_program().stage(stage.name).iters}
            s = s.fuse_iterators(stage.name, axes.pop().name, inner.name)
            (inner,) = (it for it in s.require_program().stage(stage.name).iters if it.name not in before)
    return s


def _is_ragged(program: Program, stage: Stage, target: Target) -> bool:
    """Whether a stage reduces many elements along lines that are no whole vectors."""
    reds = [it for it in stage.iters if it.kind == "red"]
    if len(reds) < 2 or not accumulates(stage) or not isinstance(stage.body, Store):
        return False
    if not all(it.lo == ZERO and it.extent.is_const for it in stage.iters):
        return False
    lanes = target.lanes(stage.body.writes[0].value.dtype)
    sizes = [it.extent.as_int() for it in reds]
    if sizes[-1] % lanes == 0 or prod(sizes) < VECTORS_OF_SUMS * lanes:
        return False
    found = is_tileable(program, stage, target, packed=False)
    return found is None or found.b is None


def _follow(program: Program, stage: Stage, outer: Iter, inner: Iter) -> bool:
    """Whether all that moves along two axes moves as if they were one, by single elements."""
    moving = 0
    for ld in stmt_loads(stage.body):
        if not {outer.name, inner.name} & {v for i in ld.indices for v in i.vars}:
            continue
        place = flat_index(program, ld.buffer, ld.indices)
        if place is None:
            return False
        rest = place - var(outer.name) * inner.extent.as_int() - var(inner.name)
        if {outer.name, inner.name} & rest.vars:
            return False
        moving += 1
    return moving > 0
