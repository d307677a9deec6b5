"""The default strategy: a good schedule at once, chosen by the roles of axes, nothing measured."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan import WINOGRAD_SIZES, WinogradMode, plan_unit
from tilewright.schedule import Schedule


def default_schedule(
    program: Program,
    machine: Machine,
    constants: Collection[str] = (),
    *,
    winograd: WinogradMode = "auto",
    sizes: Sequence[int] = WINOGRAD_SIZES,
) -> Schedule:
    """Schedule a whole program for ``threads`` threads of ``target`` (of a device: the host's).

    ``constants`` names the argument buffers whose contents are known at compile time: their layouts may be
    changed, as those of arguments in scope ``const``: the buffers of the scheduled function say how.
    ``winograd`` says how 3x3 convolutions are done: directly (``off``), by Winograd's method with tiles of 2
    or 4 where it applies (``f2``, ``f4``), or in the fastest way (``auto``), with tiles of ``sizes`` only.
    With ``auto`` and any ``sizes``, products with constant matrices take Strassen's method where that is
    faster. Deterministic.
    """
    return plan_unit(program, machine, constants, winograd=winograd, sizes=sizes).schedule
