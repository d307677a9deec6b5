"""Strategies: from programs to schedules."""

from tilewright.strategies.default import default_schedule
from tilewright.strategies.layouts import Flow, assign_layouts

__all__ = ["Flow", "assign_layouts", "default_schedule"]
