"""Operands of contractions that vectors would have to gather become tensors of their own."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.analysis import pointwise_reader
from tilewright.plan.contraction.match import panels_of
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.plan.fallback import fell_back
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import Target


def gather_operands(
    s: Schedule, target: Target, constants: Collection[str], but: Collection[str] = ()
) -> Schedule:
    """Make operands of contractions that vectors would have to gather tensors of their own, vectors last.

    Stages ``but`` are left as they are.
    """
    program = s.program
    assert program is not None
    for stage in program.stages:
        if stage.name in but:
            continue
        now = s.program
        assert now is not None
        current = now.stage(stage.name)
        last = pointwise_reader(now, current)
        c = is_tileable(now, current, target, last, packed=False)
        if (
            c is None
            or c.b is None
            or c.b_logical is None
            or is_tileable(now, current, target, last) is not None
        ):
            continue
        if panel_layout(now, c, target, constants) is not None:
            continue
        moved = [v for i in c.b_logical.indices for v in i.vars]
        axes = [it.name for it in current.iters if it.name in moved and it.name != c.vector]
        try:
            s = s.gather_operand(
                stage.name, current.operands.index(c.b_logical), [*axes, c.vector], panels_of(stage)
            )
        except ScheduleError as error:
            s = fell_back(s, f"stage {stage.name} reads its operand as it is", error)
    return s
