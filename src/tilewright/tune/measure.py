"""Who measures: the protocol of measurers, and the limits that they keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol, runtime_checkable

from tilewright.strategies import AnyTask, Candidate, Trial

#: Seconds for which a candidate is run, at most, and in one of several turns; runs at least.
SECONDS: Final = 0.03
ROUND_SECONDS: Final = 0.02
LEAST_RUNS: Final = 3
#: A run of so many seconds is enough by itself: what disturbs single runs is small beside it.
LONG_RUN: Final = 0.1


def turn_seconds(run: float) -> float:
    """What one of several turns takes where a run takes so long."""
    return run if run >= LONG_RUN else max(LEAST_RUNS * run, ROUND_SECONDS + run)


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """What one candidate may take, and how it is timed.

    ``build_seconds`` and ``run_seconds`` (checks included) end in the status ``hung``, ``memory_bytes`` (half
    of the machine's by default) in ``memory``, and a first run longer than ``slow`` times the untuned one in
    ``slow``. With more than one of ``rounds`` all candidates are built in one process and take turns there:
    the seconds of a trial are then those of each round, in order, so that trials can be compared pairwise.
    At the moment ``until`` of ``time.monotonic`` all ends: what was not measured by then is no trial, and
    trials in turns have the rounds that all were part of.
    """

    build_seconds: float = 60.0
    run_seconds: float = 30.0
    memory_bytes: int | None = None
    slow: float = 20.0
    rounds: int = 1
    until: float = inf


#: The limits of a first measurement.
LIMITS = TrialLimits()


class Measurer(Protocol):
    """Who builds, checks and times candidates; a candidate that fails in any way is a trial with a reason."""

    def measure(
        self, task: AnyTask, candidates: Sequence[Candidate], limits: TrialLimits = LIMITS
    ) -> list[Trial]:
        """One trial a candidate, in order; results are compared with those of the default plan.

        Candidates that the limits leave no time for have none.

        Raises TargetError for a task of a machine that it cannot measure on.
        """


@runtime_checkable
class ManyMeasurer(Measurer, Protocol):
    """A measurer that can keep many machines busy, with candidates of several tasks at once."""

    @property
    def width(self) -> int:
        """How many candidates it takes at once before any of them waits."""

    def measure_all(
        self, jobs: Sequence[tuple[AnyTask, Sequence[Candidate]]], limits: TrialLimits = LIMITS
    ) -> list[list[Trial]]:
        """The trials of each task's candidates, in order. Raises what :meth:`measure` does."""


def width_of(measurer: Measurer) -> int:
    """How many candidates a measurer takes at once."""
    return measurer.width if isinstance(measurer, ManyMeasurer) else 1


def measured_together(
    measurer: Measurer, jobs: Sequence[tuple[AnyTask, Sequence[Candidate]]], limits: TrialLimits = LIMITS
) -> list[list[Trial]]:
    """The trials of each task's candidates; side by side where the measurer can."""
    if isinstance(measurer, ManyMeasurer):
        return measurer.measure_all(jobs, limits)
    return [measurer.measure(task, candidates, limits) if candidates else [] for task, candidates in jobs]
