"""Strategies: from programs to schedules."""

from tilewright.strategies.beam.strategy import BeamStrategy, stage_seconds
from tilewright.strategies.catalog import (
    DEFAULT,
    MEASURED,
    ON_DEVICES,
    STRATEGIES,
    best_by_model,
    find_strategy,
)
from tilewright.strategies.default import default_schedule
from tilewright.strategies.joint.settings import NETWORK, OPERATOR, QUICK, JointSettings
from tilewright.strategies.joint.strategy import JointStrategy
from tilewright.strategies.nests import (
    WRITTEN,
    AnyTask,
    NestTask,
    ScheduledNest,
    for_code_generation,
    loops_plan,
    schedule_nest,
    work,
)
from tilewright.strategies.pricing import Prices
from tilewright.strategies.search import AnyTime, Candidate, History, Search, Status, Strategy, Task, Trial

__all__ = [
    "DEFAULT",
    "MEASURED",
    "NETWORK",
    "ON_DEVICES",
    "OPERATOR",
    "QUICK",
    "STRATEGIES",
    "WRITTEN",
    "AnyTask",
    "AnyTime",
    "BeamStrategy",
    "Candidate",
    "History",
    "JointSettings",
    "JointStrategy",
    "NestTask",
    "Prices",
    "ScheduledNest",
    "Search",
    "Status",
    "Strategy",
    "Task",
    "Trial",
    "best_by_model",
    "default_schedule",
    "find_strategy",
    "for_code_generation",
    "loops_plan",
    "schedule_nest",
    "stage_seconds",
    "work",
]
