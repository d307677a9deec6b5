"""Weights in the type of what they are multiplied with, where an instruction does such products."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.analysis import Contraction, pointwise_reader
from tilewright.ir import CONST, Program
from tilewright.plan.contraction.instructions import select_instruction
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.schedule import Schedule
from tilewright.target import Target


def round_weights(s: Schedule, target: Target, constants: Collection[str]) -> Schedule:
    """Store constant operands of contractions in the narrower type of the other operand.

    Only where the target then has an instruction for the products: elsewhere it would gain little.
    """
    program = s.require_program()
    for stage in program.stages:
        now = s.require_program()
        c = contraction_of(now, stage.name, target)
        if c is None or c.b_logical is None:
            continue
        buffer = now.buffer(c.b_logical.buffer)
        known = buffer.scope == CONST or buffer.name in constants
        if not known or not buffer.dtype.is_float or c.a.dtype.bytes >= buffer.dtype.bytes:
            continue
        if c.a.dtype.is_float and len(now.consumers(buffer.name)) == 1:
            rounded = s.store_as(buffer.name, c.a.dtype.name)
            then = contraction_of(rounded.require_program(), stage.name, target)
            if then is not None and select_instruction(then, target) is not None:
                s = rounded
    return s


def contraction_of(program: Program, name: str, target: Target) -> Contraction | None:
    """The contraction of the stage ``name``, however its operands lie; ``None`` for other stages."""
    stage = program.stage(name)
    return is_tileable(program, stage, target, pointwise_reader(program, stage), packed=False)
