"""Tuning: measuring candidates within a budget, and remembering what was found."""

from tilewright.tune.auto import AUTO as AUTO
from tilewright.tune.database import (
    MEMORY as MEMORY,
    Database as Database,
    GraphRecord as GraphRecord,
    Record as Record,
    TaskRow as TaskRow,
)
from tilewright.tune.decide import LOADED as LOADED
from tilewright.tune.events import EVENTS_VERSION as EVENTS_VERSION, Event as Event
from tilewright.tune.exchange import exported as exported, imported as imported
from tilewright.tune.fitting import fitted as fitted, samples_of as samples_of
from tilewright.tune.measure import (
    LEAST_RUNS as LEAST_RUNS,
    LIMITS as LIMITS,
    LONG_RUN as LONG_RUN,
    ROUND_SECONDS as ROUND_SECONDS,
    SECONDS as SECONDS,
    Measurer as Measurer,
    TrialLimits as TrialLimits,
)
from tilewright.tune.network import Link as Link, Network as Network, Step as Step
from tilewright.tune.records import (
    OFF as OFF,
    Records as Records,
    records_at as records_at,
)
from tilewright.tune.schema import STATUSES as STATUSES
from tilewright.tune.session import Budget as Budget, tune_task as tune_task, tune_tasks as tune_tasks
from tilewright.tune.share import pull as pull, push as push
from tilewright.tune.start import start_database as start_database
from tilewright.tune.task import TaskResult as TaskResult, TaskUse as TaskUse
