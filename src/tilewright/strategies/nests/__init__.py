"""Schedules of loop nests: lifted to programs where values allow it, else reordered by exact dependences."""

from tilewright.strategies.nests.neighbours import neighbours_in_registers
from tilewright.strategies.nests.ordered import work
from tilewright.strategies.nests.plan import RULE, NestPlan
from tilewright.strategies.nests.schedule import ScheduledNest, schedule_nest
from tilewright.strategies.nests.streams import streams_asked_ahead

__all__ = [
    "RULE",
    "NestPlan",
    "ScheduledNest",
    "neighbours_in_registers",
    "schedule_nest",
    "streams_asked_ahead",
    "work",
]
