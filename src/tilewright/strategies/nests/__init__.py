"""Schedules of loop nests: lifted to programs where values allow it, else reordered by exact dependences."""

from tilewright.strategies.nests.ordered import work
from tilewright.strategies.nests.part import WRITTEN, AnyTask, NestTask, ScheduledNest, loops_plan
from tilewright.strategies.nests.schedule import for_code_generation, schedule_nest

__all__ = [
    "WRITTEN",
    "AnyTask",
    "NestTask",
    "ScheduledNest",
    "for_code_generation",
    "loops_plan",
    "schedule_nest",
    "work",
]
