"""What time allows: how many trials fit into what is left of a budget, how thoroughly leaders are decided"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log2
from typing import Final

from tilewright.strategies import Trial
from tilewright.tune.decide import CONFIDENCE, LEADERS, ROUNDS
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


def least_rounds(leaders: int) -> int:
    """The fewest rounds after which a leader that won all of them is surely faster."""
    return ceil(log2(leaders / (1 - CONFIDENCE)))


def deciding_seconds(untuned: Trial, leaders: Sequence[Trial], rounds: int) -> float:
    """What it takes to build, check and time leaders in turns with the untuned plan."""
    trials = (untuned, *leaders)
    checks = CHECKS * (untuned.best + sum(t.best for t in trials))
    turns = rounds * sum(turn_seconds(t.best) for t in trials)
    return DECIDING + sum(t.build_seconds for t in trials) + checks + turns


def allowed(untuned: Trial, leaders: Sequence[Trial], seconds: float) -> Allowance:
    """The most leaders, the fastest first, that can be decided in so many seconds, and in how many rounds."""
    for count in range(min(len(leaders), LEADERS), 0, -1):
        least = least_rounds(count)
        for rounds in range(max(ROUNDS, least), least - 1, -1):
            if deciding_seconds(untuned, leaders[:count], rounds) <= seconds:
                return Allowance(count, rounds)
    return Allowance(0, ROUNDS)


def trials_within(made: int, taken: float, seconds: float, most: int) -> int:
    """How many trials fit into so many seconds, by what those made so far took; one at least."""
    if not made or taken <= 0 or seconds == inf:
        return most
    return max(1, min(most, int(seconds * made / taken)))
