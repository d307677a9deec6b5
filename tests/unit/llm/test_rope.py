"""Angles of rotary embeddings: by the papers' formulas, and entries of configurations that do not fit.

That they are those of `transformers`, test_decoder.py shows for each kind.
"""

import math

import numpy as np
import pytest

from tilewright.llm.rope import Rope
from tilewright.support import ModelError, UnsupportedOperatorError

PLAIN = 10000.0 ** (-np.arange(0, 8, 2) / 8)


def _angles(rope, place=1, places=8):
    cosines, sines = rope.tables(places)
    return np.arctan2(sines[place], cosines[place]), np.hypot(sines[place], cosines[place])


def test_plain_and_linear_angles():
    np.testing.assert_allclose(_angles(Rope(8))[0], PLAIN, rtol=1e-5)
    np.testing.assert_allclose(
        _angles(Rope(8, kind="linear", scaling={"factor": 4}))[0], PLAIN / 4, rtol=1e-5
    )


def test_llama3_divides_slow_ones_and_keeps_fast_ones():
    entries = {
        "factor": 8,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
        "original_max_position_embeddings": 64,
    }
    found = _angles(Rope(8, kind="llama3", scaling=entries))[0] / PLAIN
    turns = 64 * PLAIN / (2 * math.pi)
    blended = (turns[1] - 1) / 3
    assert turns[0] > 4 and turns[2] < 1
    blended = min(max(blended, 0), 1)
    np.testing.assert_allclose(found, [1, blended + (1 - blended) / 8, 1 / 8, 1 / 8], rtol=1e-5)


def test_yarn_makes_scores_larger():
    rope = Rope(8, kind="yarn", scaling={"factor": 4.0}, trained=64, longest=256)
    angles, amplitude = _angles(rope)
    np.testing.assert_allclose(amplitude, 0.1 * math.log(4) + 1, rtol=1e-5)
    assert angles[0] == pytest.approx(1, rel=1e-5) and angles[-1] == pytest.approx(PLAIN[-1] / 4, rel=1e-4)
    by = {"factor": 4.0, "mscale": 2.0, "mscale_all_dim": 0.5}
    wanted = (0.2 * math.log(4) + 1) / (0.05 * math.log(4) + 1)
    amplitude = _angles(Rope(8, kind="yarn", scaling=by, trained=64))[1]
    np.testing.assert_allclose(amplitude, wanted, rtol=1e-5)


def test_longrope_takes_the_longer_factors_beyond_the_texts_of_training():
    entries = {"short_factor": [1.0, 1.0, 1.0, 2.0], "long_factor": [2.0, 3.0, 4.0, 5.0]}
    rope = Rope(8, kind="longrope", scaling=entries, trained=8, longest=16)
    np.testing.assert_allclose(_angles(rope)[0], PLAIN / entries["short_factor"], rtol=1e-5)
    angles, amplitude = _angles(rope, places=9)
    np.testing.assert_allclose(angles, PLAIN / entries["long_factor"], rtol=1e-5)
    np.testing.assert_allclose(amplitude, math.sqrt(1 + math.log(2) / math.log(8)), rtol=1e-5)


def test_what_does_not_fit_is_refused():
    with pytest.raises(UnsupportedOperatorError, match="rotary embeddings of the type 'dynamic'"):
        Rope(8, kind="dynamic").tables(4)
    for factor in (None, 0, "2", True, math.inf):
        with pytest.raises(ModelError, match="factor of the rotary embedding is"):
            Rope(8, kind="linear", scaling={"factor": factor}).tables(4)
    with pytest.raises(ModelError, match="short_factor of the rotary embedding is no list of 4 numbers"):
        Rope(8, kind="longrope", scaling={"short_factor": [1.0]}, trained=8, longest=8).tables(4)
