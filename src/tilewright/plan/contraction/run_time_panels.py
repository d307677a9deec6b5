"""Operands given at run time, put into the groups that dot products and products of matrices read.

Constant operands are packed when compiling; others have to be copied, once a run::

    for panels, groups of depth:
        groups[j // P][k // depth][j % P][k % depth] = b[k, j]
    c[i, j] += dot(a[i, k : k + depth], groups[...])

Without the copy bytes and bf16 numbers would be widened one by one: u8 times i8, 512x512x512, two threads of
Granite Rapids, 1.46 -> 0.09 ms (constant operand 0.06).
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.analysis import Contraction
from tilewright.cost import packing_cycles
from tilewright.ir import CONST, Program, fresh_name
from tilewright.plan.contraction.instructions import select_instruction, use_of
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.precision import contraction_of
from tilewright.plan.fallback import fell_back
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import Target


def store_in_groups(s: Schedule, target: Target, constants: Collection[str]) -> Schedule:
    """Copy operands of contractions that are no constants where an instruction then saves more than that."""
    for stage in s.require_program().stages:
        now = s.require_program()
        c = contraction_of(now, stage.name, target)
        if c is None or c.b is None or not _is_open(now, c, constants):
            continue
        if select_instruction(c, target, packing_cycles(now.buffer(c.b.buffer), target)) is None:
            continue
        try:
            s = _stored(s, c, target)
        except ScheduleError as error:
            s = fell_back(s, f"stage {stage.name} reads its operand as it is", error)
    return s


def _is_open(program: Program, c: Contraction, constants: Collection[str]) -> bool:
    """Whether the operand with the vector axis is given at run time, as it is."""
    if (
        use_of(c) is not None
        or c.b_logical is None
        or c.vector not in c.axes("n")
        or c.axes("window")
        or c.guard
    ):
        return False
    buffer = program.buffer(c.b_logical.buffer)
    if buffer.layout is not None or buffer.scope == CONST or buffer.name in constants:
        return False
    return all(i.as_var() is not None for i in c.b_logical.indices)


def _stored(s: Schedule, c: Contraction, target: Target) -> Schedule:
    """The schedule with the copy. Raises ScheduleError where a step is refused."""
    program, name = s.require_program(), c.stage.name
    assert c.b_logical is not None
    groups = fresh_name(
        f"{name}_groups", {b.name for b in program.buffers} | {x.name for x in program.stages}
    )
    axes = [i.as_var() or "" for i in c.b_logical.indices]
    made = s.gather_operand(name, c.stage.operands.index(c.b_logical), axes, groups)
    then = contraction_of(made.require_program(), name, target)
    layout = None if then is None else panel_layout(made.require_program(), then, target, (groups,))
    if layout is None:
        return s
    made = made.layout_place(*layout)
    done = contraction_of(made.require_program(), name, target)
    return s if done is None or use_of(done) is None else made
