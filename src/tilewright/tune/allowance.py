"""What time allows: how many trials fit into what is left of a budget, how thoroughly leaders are decided"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from tilewright.strategies import Trial
from tilewright.tune.decide import LEADERS, ROUNDS, least_rounds
from tilewright.tune.measure import turn_seconds

#: Seconds that a decision takes before anything of the task was measured; beside builds and runs always.
DECIDING: Final = 1.0
#: Runs of a candidate, and of the untuned plan besides, that check results before anything is timed.
CHECKS: Final = 2


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many leaders are decided in how many rounds; none where there is no time for one."""

    leaders: int
    rounds: int


def deciding_seconds(untuned: Trial, leaders: Sequence[Trial], rounds: int, setup: float = 0.0) -> float:
    """What it takes to build, check and time leaders in turns with the untuned plan.

    ``setup`` is what a trial took on the whole: where building took less, there was more to do than that.
    """
    trials = (untuned, *leaders)
    checks = CHECKS * (untuned.best + sum(t.best for t in trials))
    turns = rounds * sum(turn_seconds(t.best) for t in trials)
    return DECIDING + sum(max(t.build_seconds, setup) for t in trials) + checks + turns


def allowed(untuned: Trial, leaders: Sequence[Trial], seconds: float, setup: float = 0.0) -> Allowance:
    """The most leaders, the fastest first, that can be decided in so many seconds, and in how many rounds."""
    for count in range(min(len(leaders), LEADERS), 0, -1):
        least = least_rounds(count)
        for rounds in range(max(ROUNDS, least), least - 1, -1):
            if deciding_seconds(untuned, leaders[:count], rounds, setup) <= seconds:
                return Allowance(count, rounds)
    return Allowance(0, ROUNDS)


def trials_within(made: int, taken: float, seconds: float, most: int) -> int:
    """How many trials fit into so many seconds, by what those made so far took; one at least."""
    if not made or taken <= 0 or seconds == inf:
        return most
    return max(1, min(most, int(seconds * made / taken)))
