"""Unfiltered random steps: nothing wrong is accepted, and a primitive that permits too much is found out."""

from collections import Counter

import pytest
from hypothesis import settings

from property.unfiltered import Judged, Wrong, fuzz, missing
from tilewright.schedule import carried, schedule

#: Accepted schedules to judge by profile; the command in ``unfiltered.py`` judges as many as wanted.
WANTED = {("deep", "gpu"): 900, ("deep", "cpu"): 300}
#: Random schedules within which every fault below is found, from wherever the seeds begin.
ENOUGH = 500


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_whatever_is_accepted_is_right(kind, record_property):
    wanted = WANTED.get((settings.get_current_profile_name(), kind), 60)
    counts = fuzz(kind, range(10**6), wanted)
    hits = counts["gpu"] or counts["accepted"]
    record_property("fuzz", {"subject": f"unfiltered {kind}", **counts, "hits": hits})
    assert counts["unordered"] == 0
    # something is accepted, and most is not: nobody filters
    assert hits >= wanted
    assert counts["accepted"] < 0.7 * counts["proposed"]
    if wanted >= 900:
        # each primitive of blocks of threads was asked for rightly and wrongly
        assert not missing(counts)


def everything_forced(pairs, ranges, shared, wanted, facts=((), ())):
    return frozenset(ranges) | frozenset(wanted)


FAULTS = {
    "no dependence is carried": (carried, "forced", everything_forced, "cpu"),
    "memory of threads is not asked for": (schedule, "check_threads", lambda *_: None, "gpu"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, *(pytest.param(10_000 * n, marks=pytest.mark.slow) for n in (1, 2, 3))])
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_permission_too_many_is_found(fault, seed, monkeypatch):
    module, name, instead, kind = FAULTS[fault]
    monkeypatch.setattr(module, name, instead)
    with pytest.raises(Wrong):
        for n in range(seed, seed + ENOUGH):
            Judged(n, kind, Counter()).run()
