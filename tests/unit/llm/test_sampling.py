"""Sampling: which tokens may be drawn, with which probabilities, and what is refused."""

import numpy as np
import pytest

from tilewright.llm import Sampling
from tilewright.llm.sampling import choose, probabilities
from tilewright.support import InputError

SCORES = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [0.5, 0.25, 0.125, 0.125]),
        ({"temperature": 0.5}, np.array([16, 4, 1, 1]) / 22),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_k": 3}, [0.5, 0.25, 0.125, 0.125]),
        ({"top_p": 0.5}, [1, 0, 0, 0]),
        ({"top_p": 0.6}, [2 / 3, 1 / 3, 0, 0]),
        ({"min_p": 0.3}, [2 / 3, 1 / 3, 0, 0]),
        ({"min_p": 1.0}, [1, 0, 0, 0]),
    ],
)
def test_probabilities(options, wanted):
    found = probabilities(SCORES, Sampling(**{"temperature": 1.0, **options}))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_tokens_are_drawn_as_often_as_they_are_likely():
    generator, sampling = np.random.default_rng(0), Sampling(temperature=1.0, top_k=2)
    drawn = [choose(SCORES, (), sampling, generator) for _ in range(2000)]
    assert set(drawn) == {0, 1} and abs(drawn.count(0) / 2000 - 2 / 3) < 0.05


def test_without_temperature_the_likeliest_is_taken_and_what_was_there_counts_less():
    generator = np.random.default_rng(0)
    scores = np.array([2.0, 1.5, -1.0, -1.2])
    assert choose(scores, (), Sampling(), generator) == 0
    assert choose(scores, (0,), Sampling(repetition_penalty=1.5), generator) == 1
    # negative scores become more so
    assert choose(scores[2:], (0,), Sampling(repetition_penalty=1.5), generator) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_k": 1.5},
        {"top_p": 0.0},
        {"min_p": 2.0},
        {"repetition_penalty": 0.0},
        {"seed": -1},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(options):
    (name,) = options
    with pytest.raises(InputError, match=f"{name} is "):
        Sampling(**options)
