"""What can be counted on of a cache level that others share."""

from dataclasses import replace

import pytest
from tests.unit.plan.contraction.test_cache_blocking import guest, machine
from tests.unit.plan.contraction.test_gemm import product

from tilewright.cost.machine import (
    comes_from_memory,
    exceeds_caches,
    goes_past_caches,
    last_cache,
    perhaps_kept,
    whole_cache,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("target", "whole", "kept"),
    [
        (machine(1024, 8 * 1024), 8, 8),
        (guest(8 * 1024, 12 * 1024), 12, 12),
        (guest(8 * 1024, 32 * 1024), 32, 16),
    ],
)
def test_what_a_level_may_keep(target, whole, kept):
    assert last_cache(target) == 8 * MIB
    assert whole_cache(target) == whole * MIB
    assert perhaps_kept(target) == kept * MIB


@pytest.mark.parametrize(("mib", "exceeds", "far"), [(8, False, False), (9, True, False), (17, True, True)])
def test_buffers_that_no_level_keeps(mib, exceeds, far):
    target, buffer = guest(8 * 1024, 32 * 1024), product(mib, 16, 1 << 18).buffer("A")
    assert (exceeds_caches(buffer, target), comes_from_memory(buffer, target)) == (exceeds, far)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_results_that_the_level_should_not_take(share):
    target = replace(machine(1024, 8 * 1024), past_share=share)
    room = int(share * 8 * MIB)
    assert not goes_past_caches(room, target) and goes_past_caches(room + 1, target)
