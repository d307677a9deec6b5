"""Runs that end before they are done: by the clock, by another thread; and what runs afterwards."""

import threading
import time

import numpy as np
import pytest
from onnx import helper
from tests import onnx_models

import tilewright
from tilewright.support import InputError, StoppedError

STEPS = 6


def slow_model(size=256):
    """A chain of products, each a kernel."""
    weights = {"w": np.eye(size, dtype=np.float32)}
    nodes = []
    for k in range(STEPS):
        nodes += [helper.make_node("MatMul", [f"v{k}", "w"], [f"m{k}"], name=f"product {k}")]
        nodes += [helper.make_node("Softmax", [f"m{k}"], [f"v{k + 1}"], name=f"rows {k}")]
    shape = (2 * size, size)
    ends = [onnx_models.tensor("v0", shape)], [onnx_models.tensor(f"v{STEPS}", shape)]
    return onnx_models.model(nodes, *ends, weights), {"v0": np.zeros(shape, np.float32)}


@pytest.fixture(scope="module")
def model():
    made, feeds = slow_model()
    return tilewright.compile(made, threads=2), feeds


def test_a_time_ends_a_run_between_kernels(model):
    compiled, feeds = model
    (whole,) = compiled.run(None, feeds)
    with tilewright.Stop(timeout=1e-4), pytest.raises(StoppedError, match="was stopped before"):
        for _ in range(1000):
            compiled.run(None, feeds)
    np.testing.assert_array_equal(compiled.run(None, feeds)[0], whole)
    with tilewright.Stop(timeout=600.0):
        np.testing.assert_array_equal(compiled.run(None, feeds)[0], whole)


def test_another_thread_ends_runs(model):
    compiled, feeds = model
    stop, begun = tilewright.Stop(), threading.Event()

    def run(ends):
        with stop:
            try:
                while time.monotonic() < end:
                    compiled.run(None, feeds)
                    begun.set()
            except StoppedError as error:
                ends.append(error)

    end, ends = time.monotonic() + 60, []
    threads = [threading.Thread(target=run, args=(ends,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    stop.now()
    for thread in threads:
        thread.join()
    assert len(ends) == 2
    with stop, pytest.raises(StoppedError):  # for runs to come as well
        compiled.run(None, feeds)


def test_an_outer_one_ends_what_an_inner_one_lets_run(model):
    compiled, feeds = model
    with tilewright.Stop() as outer, tilewright.Stop(timeout=600.0):
        outer.now()
        with pytest.raises(StoppedError):
            compiled.run(None, feeds)
    compiled.run(None, feeds)


def test_loops_over_time_end_within_a_step():
    steps = 2_000
    gru = helper.make_node("GRU", ["x", "w", "r"], ["", "h"], hidden_size=8)
    weights = {name: np.ones((1, 24, 8), np.float32) for name in "wr"}
    ends = [onnx_models.tensor("x", (steps, 1, 8))], [onnx_models.tensor("h", (1, 1, 8))]
    compiled = tilewright.compile(onnx_models.model([gru], *ends, weights), threads=1)
    feeds = {"x": np.ones((steps, 1, 8), np.float32)}
    with tilewright.Stop(timeout=1e-4), pytest.raises(StoppedError):
        for _ in range(1000):
            compiled.run(None, feeds)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf"), "1", True])
def test_timeouts_are_positive_seconds(timeout):
    with pytest.raises(InputError, match="must be a positive number of seconds"):
        tilewright.Stop(timeout=timeout)
