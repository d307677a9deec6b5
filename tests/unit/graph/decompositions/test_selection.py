"""Slices that a known condition keeps: of data that only a run knows."""

import numpy as np
import pytest
from onnx import helper
from tests import onnx_models

import tilewright
from tilewright.support import ModelError


def compress(shape, condition, **attributes):
    return onnx_models.model(
        [helper.make_node("Compress", ["x", "c"], ["y"], name="culprit", **attributes)],
        [onnx_models.tensor("x", shape)],
        [onnx_models.tensor("y", None)],
        {"c": np.array(condition)},
    )


@pytest.mark.parametrize(
    ("axis", "condition"),
    [(None, [True, False, True]), (0, [False, True]), (-1, [True, False, True, True]), (1, [False, False])],
)
def test_a_condition_that_is_known_keeps_slices_of_data(axis, condition):
    attributes = {} if axis is None else {"axis": axis}
    x = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
    (y,) = tilewright.compile(compress(x.shape, condition, **attributes), threads=1)(x)
    np.testing.assert_array_equal(y, np.compress(condition, x, axis=axis))


@pytest.mark.parametrize(
    ("condition", "message"), [([[True]], "must have one axis"), ([False, True, True], "out of range")]
)
def test_conditions_that_do_not_fit_are_refused(condition, message):
    with pytest.raises(ModelError, match=message) as caught:
        tilewright.compile(compress((2, 3), condition, axis=0))
    assert "culprit" in str(caught.value)
