"""Damaged models are refused, or compute what they say: a share of `benchmarks/malformed.py`."""

from __future__ import annotations

import pytest

from model_damage import damaged
from model_judge import judge

#: Cases that every run of the tests tries; the whole is `python benchmarks/malformed.py`.
COUNT = 240
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_models_are_refused_or_right(part: int) -> None:
    seen = set()
    for seed in range(part, COUNT, PARTS):
        status, message = judge(seed)
        assert status in ("ok", "refused"), f"{seed}: {message}"
        seen.add(status)
    assert seen == {"ok", "refused"}


def test_the_cases_are_the_same_in_every_run() -> None:
    assert [damaged(seed) for seed in range(40)] == [damaged(seed) for seed in range(40)]
    assert len({damaged(seed).content for seed in range(200)}) >= 170
