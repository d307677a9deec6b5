"""Long reductions with few results: each thread computes a part of them, and the parts are added up."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.analysis import Contraction
from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.schedule import Schedule


def share_reductions(
    s: Schedule, machine: Machine, steps: Callable[[Program, Contraction], int | None]
) -> Schedule:
    """Give each thread a part of the reductions of some contractions.

    ``steps`` says how many steps a part has, ``None`` where the reduction stays whole; those that are shared
    have one reduction axis of more than one step.
    """
    for stage in s.require_program().stages if machine.threads > 1 else ():
        program = s.require_program()
        c = is_tileable(program, stage, machine.target)
        part = None if c is None else steps(program, c)
        if c is not None and part is not None:
            (k,) = c.axes("k", "window")
            s = s.rfactor(stage.name, k, part, name=f"{stage.name}_part")
    return s
