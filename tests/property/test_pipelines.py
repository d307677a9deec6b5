"""Pipelines x schedules: a few of what ``python tests/property/pipelines.py`` judges, and what it found."""

import pytest

from property.pipelines import FOUND, judge, schedules


@pytest.mark.few(16)
@pytest.mark.parametrize("seed", [*range(40), *FOUND])
def test_schedules_of_random_pipelines_are_right(seed):
    assert judge(seed)["beam"] == 1


def test_seeds_are_replayed_alike():
    (one, first), (two, second) = schedules(7), schedules(7)
    assert one == two
    assert {k: s.trace for k, s in first.items()} == {k: s.trace for k, s in second.items()}
