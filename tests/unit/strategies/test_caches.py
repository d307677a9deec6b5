"""What can be counted on of a cache level that others share."""

from dataclasses import replace

import pytest
from tests.unit.strategies.test_blocking import machine
from tests.unit.strategies.test_products import product

from tilewright.strategies.caches import (
    comes_from_memory,
    exceeds_caches,
    last_cache,
    perhaps_kept,
    whole_cache,
)

MIB = 1 << 20


def sharing(size, whole):
    """A machine whose last level has ``size`` MiB for this process, of ``whole``."""
    own = machine(1024, size * 1024)
    l1, l2, l3, memory = own.memory
    return replace(own, memory=(l1, l2, replace(l3, whole=None if whole is None else whole * MIB), memory))


@pytest.mark.parametrize(("size", "whole", "kept"), [(8, None, 8), (8, 12, 12), (8, 32, 16)])
def test_what_a_level_may_keep(size, whole, kept):
    target = sharing(size, whole)
    assert last_cache(target) == size * MIB
    assert whole_cache(target) == (whole or size) * MIB
    assert perhaps_kept(target) == kept * MIB


@pytest.mark.parametrize(("mib", "exceeds", "far"), [(8, False, False), (9, True, False), (17, True, True)])
def test_buffers_that_no_level_keeps(mib, exceeds, far):
    target, buffer = sharing(8, 32), product(mib, 16, 1 << 18).buffer("A")
    assert (exceeds_caches(buffer, target), comes_from_memory(buffer, target)) == (exceeds, far)
