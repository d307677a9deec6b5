"""The default strategy: a good schedule at once, chosen by the roles of axes, nothing measured."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan import AUTO, Accuracy, plan_unit
from tilewright.schedule import Schedule


def default_schedule(
    program: Program,
    machine: Machine,
    constants: Collection[str] = (),
    *,
    accuracy: Accuracy = AUTO,
) -> Schedule:
    """Schedule a whole program for ``threads`` threads of ``target`` (of a device: the host's).

    ``constants`` names the argument buffers whose contents are known at compile time: their layouts may be
    changed, as those of arguments in scope ``const``: the buffers of the scheduled function say how.
    ``accuracy`` says which algorithms may take the place of the direct one, where they are faster.
    Deterministic.
    """
    return plan_unit(program, machine, constants, accuracy=accuracy).schedule
