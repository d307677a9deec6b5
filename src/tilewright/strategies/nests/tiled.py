"""Nests in tiles: isl's schedule, tiles of its permutable bands, wavefronts on threads, rows in lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.cost import Machine
from tilewright.ir import LoopFunction
from tilewright.poly import (
    Dependences,
    Tiled,
    bounded,
    extract_model,
    import_tree,
    infer_kinds,
    isl_schedule,
    tiled,
)
from tilewright.strategies.nests.ordered import on_machine
from tilewright.support import ScheduleError

SECONDS: Final = 2
"""Seconds of a processor for isl's scheduler: what of PolyBench it finds at all it finds in 0.3."""


def tiled_nest(func: LoopFunction, machine: Machine, sizes: Sequence[int]) -> tuple[LoopFunction, int]:
    """A nest in the order of isl's scheduler, which looks for loops that may be permuted, in tiles of these.

    ``sizes`` are points of a tile in each of these loops, of which the most in a band are returned, too.

    Raises ScheduleError where there are none, ProgramError for storage inside of loops, ResourceError where
    isl needs too long.
    """
    func = infer_kinds(func)
    what = f"the tiles of {func.name} are too much for isl"

    def analysed() -> Dependences:
        dependences = Dependences(extract_model(func))
        dependences.among()
        return dependences

    dependences = bounded(analysed, what)
    schedule = isl_schedule(dependences, "min", seconds=SECONDS)

    def imported() -> tuple[Tiled, LoopFunction]:
        found = tiled(dependences, schedule, sizes, parallel=machine.threads > 1)
        if not found.bands:
            raise ScheduleError(f"no two loops of {func.name} may be permuted")
        return found, import_tree(dependences.model, found.schedule, func.body.names)

    found, made = bounded(imported, what)
    return on_machine(made, found.facts(made), machine.with_threads(1)), max(found.bands)
