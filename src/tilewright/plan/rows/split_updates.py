"""Updates in no order, such as histograms: each thread has a copy, and the copies are added up.

::

    parallel for parts of the elements:
        copy[part] = 0
        for elements of the part: copy[part][bin of x[...]] += 1
    counts += the copies
"""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.cost import Machine
from tilewright.ir import Program, Stage
from tilewright.plan.elementwise.plan import accumulates
from tilewright.schedule import Schedule

#: Updates from which on threads are worth starting.
MIN_UPDATES: Final = 1 << 15
#: Updates for each element of a thread's copy, at least: it is filled before them and added up afterwards.
UPDATES_AN_ELEMENT: Final = 16


def share_updates(s: Schedule, machine: Machine) -> Schedule:
    """Give each thread a part of the updates in no order that have no axes for all threads.

    Only where a copy of the whole buffer for each of them costs little beside its updates.
    """
    for stage in s.require_program().stages if machine.threads > 1 else ():
        cut = _cut(s.require_program(), stage, machine.threads)
        if cut is not None:
            s = s.rfactor(stage.name, *cut, name=f"{stage.name}_part")
    return s


def _cut(program: Program, stage: Stage, parts: int) -> tuple[str, int] | None:
    """The axis to cut, and its steps in a part; ``None`` where the update stays whole."""
    if stage.init is not None or not accumulates(stage):
        return None
    if any(it.kind == "ord" or not it.extent.is_const for it in stage.iters):
        return None
    reds = {it.name: it.extent.as_int() for it in stage.iters if it.kind == "red"}
    pars = prod(it.extent.as_int() for it in stage.iters if it.kind == "par")
    held = next(b for b in program.buffers if b.name == stage.writes[0]).shape
    if not reds or pars >= parts or not all(n.is_const for n in held):
        return None
    updates, copy = pars * prod(reds.values()), prod(n.as_int() for n in held)
    if updates < max(MIN_UPDATES, UPDATES_AN_ELEMENT * parts * copy):
        return None
    axis = next((name for name, extent in reds.items() if extent >= parts), None)
    return None if axis is None else (axis, -(-reds[axis] // parts))
