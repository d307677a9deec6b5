"""Strategies: from programs to schedules."""

from tilewright.strategies.default import default_schedule

__all__ = ["default_schedule"]
