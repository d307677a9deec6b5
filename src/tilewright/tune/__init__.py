"""Tuning: measuring candidates within a budget, and remembering what was found."""

from tilewright.tune.auto import AUTO, AutoStrategy
from tilewright.tune.database import (
    MEMORY,
    Database,
    GraphRecord,
    NestRecord,
    Record,
    TaskRow,
    TrialRow,
)
from tilewright.tune.decide import LOADED
from tilewright.tune.events import EVENTS_VERSION, Event
from tilewright.tune.exchange import exported, imported
from tilewright.tune.fitting import fitted, samples_of
from tilewright.tune.measure import (
    LEAST_RUNS,
    LIMITS,
    LONG_RUN,
    ROUND_SECONDS,
    SECONDS,
    Measurer,
    TrialLimits,
)
from tilewright.tune.network import Link, Network, Step
from tilewright.tune.records import OFF, Records, nest_key, records_at
from tilewright.tune.schema import STATUSES
from tilewright.tune.session import Budget, tune_task, tune_tasks
from tilewright.tune.share import Pulled, Pushed, pull, push
from tilewright.tune.start import start_database
from tilewright.tune.task import TaskResult, TaskUse

__all__ = [
    "AUTO",
    "AutoStrategy",
    "Budget",
    "Database",
    "EVENTS_VERSION",
    "Event",
    "GraphRecord",
    "LEAST_RUNS",
    "LIMITS",
    "LOADED",
    "LONG_RUN",
    "MEMORY",
    "Link",
    "Measurer",
    "NestRecord",
    "Network",
    "OFF",
    "Pulled",
    "Pushed",
    "ROUND_SECONDS",
    "Record",
    "Records",
    "SECONDS",
    "STATUSES",
    "Step",
    "TaskResult",
    "TaskRow",
    "TaskUse",
    "TrialLimits",
    "TrialRow",
    "exported",
    "fitted",
    "imported",
    "nest_key",
    "pull",
    "push",
    "records_at",
    "samples_of",
    "start_database",
    "tune_task",
    "tune_tasks",
]
