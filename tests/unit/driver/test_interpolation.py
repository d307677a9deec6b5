"""Interpolated images: right in any layout, axis by axis in the cheapest order."""

import numpy as np
import pytest
from onnx import helper

import tilewright
from onnx_models import model, tensor
from tilewright.driver import verify_model


def interpolated(channels, size, scales, *, blocked=False, **attributes):
    """A model that resizes the spatial axes, between convolutions of one tap if ``blocked``; compiled."""
    rank = len(size)
    out = [int(n * f) for n, f in zip(size, scales, strict=True)]
    constants = {"scales": np.array([1, 1, *scales], np.float32)}
    nodes = [helper.make_node("Resize", ["h", "", "scales"], ["r"], name="resize", **attributes)]
    if blocked:
        rng = np.random.default_rng(0)
        constants["a"] = rng.normal(size=(channels, 4, *[1] * rank)).astype(np.float32)
        constants["b"] = rng.normal(size=(4, channels, *[1] * rank)).astype(np.float32)
        nodes = [
            helper.make_node("Conv", ["x", "a"], ["h"]), *nodes, helper.make_node("Conv", ["r", "b"], ["y"])
        ]  # fmt: skip
    else:
        nodes[0].input[0], nodes[0].output[0] = "x", "y"
    ends = 4 if blocked else channels
    onnx_model = model(nodes, [tensor("x", (1, ends, *size))], [tensor("y", (1, ends, *out))], constants)
    compiled = tilewright.compile(onnx_model, threads=2)
    outcome = verify_model(compiled, onnx_model, compiled.sample_feeds(), "onnx")
    assert outcome.ok, outcome.first_difference
    return next((group.kernel for group in compiled.groups() if "resize" in group.label), None)


SCALES = {
    "lines": ((13,), (2,)),
    "twice": ((9, 11), (2, 2)),
    "eight times": ((9, 7), (8, 8)),
    "smaller": ((20, 24), (0.5, 0.25)),
    "one way": ((7, 12), (3, 0.5)),
    "odd": ((12, 14), (1.25, 2.5)),
    "volumes": ((4, 5, 6), (2, 2, 2)),
}
MODES = {
    "linear": {"mode": "linear"},
    "corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    "cubic": {"mode": "cubic"},
    "antialias": {"mode": "linear", "antialias": 1},
    "nearest": {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
}


@pytest.mark.few(30)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", SCALES)
@pytest.mark.parametrize("blocked", [False, True], ids=["plain", "blocked"])
def test_values(case, mode, blocked):
    interpolated(32 if blocked else 5, *SCALES[case], blocked=blocked, **MODES[mode])


def test_plain_rows_are_looked_up_before_there_are_more_of_them():
    kernel = interpolated(5, (9, 16), (8, 4), mode="linear")
    assert [tuple(e.as_int() for e in b.shape) for b in kernel.program.temps] == [(1, 5, 9, 64)]
    # both passes are in vectors
    assert str(kernel.schedule).count(" vector") == 2


def test_rows_that_become_fewer_are_combined_first():
    kernel = interpolated(5, (64, 16), (0.125, 4), mode="linear")
    assert [tuple(e.as_int() for e in b.shape) for b in kernel.program.temps] == [(1, 5, 8, 16)]


def test_channels_in_blocks_are_one_pass():
    kernel = interpolated(32, (9, 16), (2, 2), blocked=True, mode="linear")
    assert len(kernel.schedule.blocks()) == 1


def test_results_without_columns():
    """Scales that leave nothing of a short axis: there is nothing to compute."""
    assert interpolated(1, (16, 2), (1.7, 0.3), mode="cubic") is None
