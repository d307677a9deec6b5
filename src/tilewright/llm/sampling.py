"""Sampling: which token follows, of the scores that a model gives all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.support import InputError, whole_number

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen: by default the likeliest one.

    With a ``temperature`` above 0 they are drawn, of the ``top_k`` likeliest (0: of all), of the likeliest
    that together have the probability ``top_p`` (Holtzman et al., arXiv:1904.09751), and of those at least
    ``min_p`` times as likely as the likeliest (Nguyen et al., arXiv:2407.01082). Scores of tokens that are
    there already are divided by ``repetition_penalty``, or multiplied where they are negative (Keskar et
    al., arXiv:1909.05858). Equal seeds draw equal tokens.

    Raises InputError for values out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        counts = {name: whole_number(getattr(self, name)) for name in ("top_k", "seed")}
        for name, fits, wanted in (
            ("temperature", self.temperature >= 0 and math.isfinite(self.temperature), "a number from 0"),
            ("top_p", 0 < self.top_p <= 1, "a number above 0, at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "a number from 0 to 1"),
            ("repetition_penalty", 0 < self.repetition_penalty < math.inf, "a number above 0"),
            *((name, n is not None and n >= 0, "a whole number from 0") for name, n in counts.items()),
        ):
            if not fits:
                raise InputError(f"{name} is {getattr(self, name)!r}", hint=f"{name} is {wanted}")


def probabilities(scores: Array, sampling: Sampling) -> Array:
    """The probability of each token [tokens], those that are not drawn 0; ``temperature`` is above 0."""
    scaled = np.asarray(scores, np.float64) / sampling.temperature
    chances: Array = np.exp(scaled - scaled.max())
    chances /= chances.sum()
    if 0 < sampling.top_k < len(chances):
        # of equal ones at the end all: which came first says nothing
        chances = np.where(chances >= np.partition(chances, -sampling.top_k)[-sampling.top_k], chances, 0.0)
        chances /= chances.sum()
    if sampling.top_p < 1:
        order = np.argsort(-chances, kind="stable")
        before = np.cumsum(chances[order]) - chances[order]
        chances[order[before >= sampling.top_p]] = 0.0
    chances = np.where(chances >= sampling.min_p * chances.max(), chances, 0.0)
    return np.asarray(chances / chances.sum())


def choose(scores: Array, before: Sequence[int], sampling: Sampling, generator: np.random.Generator) -> int:
    """The token that follows those ``before``, by its scores [tokens]."""
    if sampling.repetition_penalty != 1.0 and before:
        there = np.unique(np.asarray(before))
        scores = np.array(scores, np.float64)
        penalty = sampling.repetition_penalty
        scores[there] = np.where(scores[there] > 0, scores[there] / penalty, scores[there] * penalty)
    if sampling.temperature == 0:
        return int(np.argmax(scores))
    chances = probabilities(scores, sampling)
    return int(generator.choice(len(chances), p=chances))
