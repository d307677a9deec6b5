"""Which stages end a contraction: itself, what alone reads its result in place."""

from __future__ import annotations

from tilewright.analysis import Contraction, reads_in_place
from tilewright.ir import Program, Stage
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.target import Target


def contraction_of(program: Program, last: Stage, target: Target) -> Contraction | None:
    """The contraction that a stage is, or whose result it alone reads, element by element."""
    if last.is_reduction:
        return is_tileable(program, last, target, packed=False)
    return contraction_before(program, last, target)


def contraction_before(program: Program, stage: Stage, target: Target) -> Contraction | None:
    """The contraction whose result ``stage`` alone reads, element by element."""
    temps = {t.name for t in program.temps}
    for name in stage.reads:
        producers = program.producers(name)
        if len(producers) != 1 or program.consumers(name) != (stage,) or name not in temps:
            continue
        if not reads_in_place(stage, name) or program.buffer(name).layout is not None:
            continue
        found = is_tileable(program, producers[0], target, stage, packed=False)
        if found is not None:
            return found
    return None


def panels_of(stage: Stage) -> str:
    """The name of the stage that makes an operand of a contraction."""
    return f"{stage.name}_panels"


def panels_before(program: Program, stage: Stage) -> str | None:
    """The stage that makes an operand of a contraction, if one does: that of a sum in parts is its parts'."""
    made = (each.name for each in program.stages if set(each.writes) & set(stage.reads))
    return next((name for name in made if name == panels_of(stage)), None)
