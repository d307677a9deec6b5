"""Schedules of loop nests: lifted to programs where values allow it, else reordered by exact dependences."""

from tilewright.strategies.nests.neighbours import neighbours_in_registers
from tilewright.strategies.nests.plan import RULE, NestPlan
from tilewright.strategies.nests.schedule import ScheduledNest, schedule_nest

__all__ = ["RULE", "NestPlan", "ScheduledNest", "neighbours_in_registers", "schedule_nest"]
