"""The schedule of a nest: the first of several ways, the best first, that its dependences allow."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import LoopFunction
from tilewright.strategies.nests.lifted import lifted_nest
from tilewright.strategies.nests.ordered import ordered_nest
from tilewright.support import ResourceError, ScheduleError
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class ScheduledNest:
    """A nest as it will run, and in ``notes`` how it came about."""

    func: LoopFunction
    notes: tuple[str, ...]


def schedule_nest(func: LoopFunction, target: Target, threads: int) -> ScheduledNest:
    """A fast order for a nest of fixed sizes: same arguments, same results but for rounding of sums."""
    notes: list[str] = []
    try:
        return ScheduledNest(lifted_nest(func, target, threads), ("lifted to a program",))
    except (ScheduleError, ResourceError) as error:
        notes.append(f"not lifted: {error.what}")
    made = ordered_nest(func, target, threads)
    return ScheduledNest(made, (*notes, "in the order in which it is written"))
