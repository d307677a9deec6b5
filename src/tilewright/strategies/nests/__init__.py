"""Schedules of loop nests: lifted to programs where values allow it, else reordered by exact dependences."""

from tilewright.strategies.nests.schedule import ScheduledNest, schedule_nest

__all__ = ["ScheduledNest", "schedule_nest"]
