"""Limits of the machine: the larger bound counts, and what is timed does what it says."""

import numpy as np
import pytest
from tests.native_kernel import HOST

from tilewright.driver import Limits, copying, limits, peak_gflops, peak_meter, reading
from tilewright.ir import F32
from tilewright.runtime import aligned_copy

LIMITS = Limits(2, 100.0, {1 << 20: 200.0, 1 << 26: 50.0})


def test_the_larger_of_both_is_the_limit():
    assert LIMITS.bound(1e9, 1e6) == "compute"
    assert LIMITS.seconds(1e9, 1e6) == pytest.approx(0.01)
    assert LIMITS.bound(1e6, 1e8) == "memory"
    assert LIMITS.seconds(1e6, 1e8) == pytest.approx(0.002)


def test_bandwidth_is_that_of_the_next_larger_size():
    assert LIMITS.bandwidth(1000) == 200e9
    assert LIMITS.bandwidth(2 << 20) == 50e9
    assert LIMITS.bandwidth(1 << 30) == 50e9


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("nbytes", [4, 100_000])
def test_what_is_copied_is_all_there(nbytes, threads, monkeypatch):
    arrays = []

    def kept(array):
        arrays.append(aligned_copy(array))
        return arrays[-1]

    monkeypatch.setattr(limits, "aligned_copy", kept)
    copying(HOST, threads, nbytes)()
    source, result = arrays
    np.testing.assert_array_equal(source, np.ones_like(source))
    np.testing.assert_array_equal(result, source)
    assert abs(result.nbytes - nbytes) <= threads * HOST.vector_bits


def test_what_is_read_is_all_there(monkeypatch):
    arrays = []

    def kept(array):
        arrays.append(aligned_copy(array))
        return arrays[-1]

    monkeypatch.setattr(limits, "aligned_copy", kept)
    memory = aligned_copy((np.arange(1 << 15) % 7).astype(np.float32))
    reading(HOST, 2, 1 << 16, memory)()
    (sums,) = arrays
    source = memory[: 1 << 14].reshape(2, -1, *sums.shape[1:])
    np.testing.assert_array_equal(sums, source.sum(axis=1))
    reading(HOST, 2, 1 << 16)()
    np.testing.assert_array_equal(arrays[-1], np.full_like(sums, source.shape[1]))


def test_the_peak_is_more_than_a_multiply_add_of_one_number_a_cycle_would_give():
    rate = peak_meter(HOST)()
    # orders of magnitude: others may work on the machine
    assert 0.1 < rate / max(peak_gflops(HOST, 0.01) for _ in range(3)) < 10
    assert rate > HOST.lanes(F32) * 0.1


def test_threads_measure_their_peak_at_once():
    assert peak_meter(HOST, 2)() > HOST.lanes(F32) * 0.1
