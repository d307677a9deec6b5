"""Cumulative sums and products: scans along any axis, both ways, with and without the element itself."""

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright


def cumulative(x, axis, op="CumSum", **attributes):
    node = helper.make_node(op, ["x", "axis"], ["y"], **attributes)
    elem = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = tiny.model(
        [node],
        [tiny.tensor("x", x.shape, elem)],
        [tiny.tensor("y", x.shape, elem)],
        {"axis": np.array(axis, np.int64)},
    )
    compiled = tilewright.compile(made, threads=2)
    return compiled.run(None, {"x": x})[0]


def wanted(x, axis, exclusive, reverse, fn=np.cumsum):
    x = np.flip(x, axis) if reverse else x
    y = fn(x.astype(np.float64 if x.dtype.kind == "f" else x.dtype), axis)
    if exclusive:
        y = np.roll(y, 1, axis)
        y[(slice(None),) * (axis % x.ndim) + (0,)] = 0 if fn is np.cumsum else 1
    return (np.flip(y, axis) if reverse else y).astype(x.dtype)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sums(axis, exclusive, reverse):
    x = np.random.default_rng(0).standard_normal((3, 40, 18)).astype(np.float32)
    made = cumulative(x, axis, exclusive=exclusive, reverse=reverse)
    np.testing.assert_allclose(made, wanted(x, axis, exclusive, reverse), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_types(dtype):
    x = np.arange(-60, 60).reshape(4, 30).astype(dtype)
    np.testing.assert_array_equal(cumulative(x, 1), np.cumsum(x, 1))


def test_work_grows_with_the_length_and_no_faster():
    """A million elements in a row: quadratic work would take minutes."""
    x = np.ones((1, 1 << 20), np.float32)
    np.testing.assert_array_equal(cumulative(x, 1)[0, ::4096], np.arange(1, (1 << 20) + 1, 4096))


def test_one_element_and_none():
    np.testing.assert_array_equal(cumulative(np.ones((5, 1), np.float32), 1, exclusive=1), np.zeros((5, 1)))
    assert cumulative(np.ones((5, 0), np.float32), 1).shape == (5, 0)
