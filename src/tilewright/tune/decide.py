"""Which of the leaders of a search is faster than the default plan, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb, log2
from statistics import median
from typing import Final

from tilewright.strategies import AnyTask, Candidate, Trial
from tilewright.tune.measure import Measurer, TrialLimits

#: Leaders that are measured again beside the default plan: the first minimum lies.
LEADERS: Final = 3
#: Rounds of that, taking turns.
ROUNDS: Final = 13
#: Part of the time that a winner must save in the median of the rounds to be kept.
LEAST_GAIN: Final = 0.02
#: How sure it must be that a winner is faster at all, all leaders together.
CONFIDENCE: Final = 0.98
#: Part of the time that a winner must save where the time ended before that could be sure.
UNSURE_GAIN: Final = 0.1
#: From this part of the CPUs' time on that others use, leaders are measured once more.
LOADED: Final = 0.15


@dataclass(frozen=True, slots=True)
class Finalist:
    """A leader measured beside the default plan: medians of its seconds, and of its rounds' ratios."""

    trial: Trial
    seconds: float
    ratio: float
    sure: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """The finalists that are surely faster, the fastest first; the default's seconds beside them.

    Not ``whole`` is one for which there was too little time: winners are likely faster, by all that is known.
    ``load`` is others' part of the CPUs' time meanwhile, where that could be told.
    """

    untuned: Trial
    seconds: float
    winners: tuple[Finalist, ...]
    load: float | None = None
    whole: bool = True


def least_rounds(leaders: int) -> int:
    """The fewest rounds after which a leader that won all of them is surely faster."""
    return ceil(log2(leaders / (1 - CONFIDENCE)))


def decide(
    task: AnyTask,
    default: Candidate,
    leaders: Sequence[Candidate],
    measurer: Measurer,
    limits: TrialLimits,
) -> Decision | None:
    """Measure the default plan and leaders in turns.

    Each round's seconds are compared with the default's of the same round, so that what slows all down at
    a time slows both. A leader wins where the median of these ratios saves LEAST_GAIN and a sign test says,
    with CONFIDENCE for all leaders together, that it is faster more often than not. Where the time
    ended before there were rounds enough for that, it must have won all of them and save UNSURE_GAIN;
    ``None`` where it ended before the first.
    """
    trials = measurer.measure(task, [default, *leaders], limits)
    if len(trials) <= len(leaders):
        return None
    base, others = trials[0], trials[1:]
    if base.status != "ok":
        return Decision(base, base.best, ())
    whole = len(base.seconds) >= min(limits.rounds, least_rounds(len(others)))
    winners = []
    for trial in others:
        if trial.status != "ok":
            continue
        ratios = [mine / theirs for mine, theirs in zip(trial.seconds, base.seconds, strict=False)]
        ratio = median(ratios)
        if whole:
            sure = ratio < 1 - LEAST_GAIN and _chance(ratios) <= (1 - CONFIDENCE) / len(others)
        else:
            sure = ratio < 1 - UNSURE_GAIN and max(ratios) < 1
        winners.append(Finalist(trial, median(trial.seconds), ratio, sure))
    fastest = sorted((w for w in winners if w.sure), key=lambda w: w.ratio)
    return Decision(base, median(base.seconds), tuple(fastest), base.load, whole)


def likely(untuned: Trial, leaders: Sequence[Trial]) -> Decision:
    """What first measurements say where there was no time for others: the leaders that save UNSURE_GAIN."""
    found = [Finalist(t, t.best, t.best / untuned.best, False) for t in leaders if t.best < untuned.best]
    clear = sorted((f for f in found if f.ratio < 1 - UNSURE_GAIN), key=lambda f: f.ratio)
    return Decision(untuned, untuned.best, tuple(clear), untuned.load, not leaders)


def _chance(ratios: Sequence[float]) -> float:
    """How likely so many rounds are won where both are equally fast: the binomial distribution's tail."""
    count, won = len(ratios), sum(ratio < 1 for ratio in ratios)
    return sum(comb(count, n) for n in range(won, count + 1)) / 2.0**count
