"""Axes that only a run knows: each of them right, by the one plan; wrong ones are named."""

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests import onnx_models

import tilewright
from tilewright.support import InputError, ModelError

node, info = helper.make_node, helper.make_tensor_value_info
INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT
X = np.random.default_rng(5).standard_normal((3, 4, 5)).astype(np.float32)


def compiled(nodes, axes, shape=("a", "b", "c"), weights=None, kind=INT, **ranges):
    inputs = [onnx_models.tensor("x", shape), onnx_models.tensor("axes", axes, kind)]
    source = onnx_models.model(nodes, inputs, [info("y", FLOAT, None)], weights or {})
    return tilewright.compile(source, threads=1, dynamic=ranges)


@pytest.mark.parametrize("keep", [0, 1])
def test_reductions(keep, tmp_path):
    made = compiled([node("ReduceSum", ["x", "axes"], ["y"], keepdims=keep)], (2,))
    made.save(tmp_path / "it.tw")
    for model in (made, tilewright.load(tmp_path / "it.tw")):
        for axes in itertools.permutations(range(-3, 3), 2):
            given = np.array(axes)
            if axes[0] % 3 == axes[1] % 3:
                with pytest.raises(InputError, match=r"'y' \(ReduceSum\): what 'axes' holds are no axes"):
                    model(X, given)
                continue
            wanted = X.sum(tuple(axes), keepdims=bool(keep))
            np.testing.assert_allclose(model(X, given)[0], wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="holds 3, which is out of range"):
        made(X, np.array([0, 3]))
    assert made.compilations == 0


@pytest.mark.parametrize(
    ("nodes", "axes", "of"),
    [
        ([node("CumSum", ["x", "axes"], ["y"])], (), lambda a: X.cumsum(a)),
        ([node("Unsqueeze", ["x", "axes"], ["y"])], (1,), lambda a: np.expand_dims(X, a)),
        ([node("ReduceMax", ["x", "axes"], ["r"], keepdims=1), node("Squeeze", ["r", "axes"], ["y"])], (1,),
         lambda a: X.max(a)),
        ([node("ReduceMean", ["x", "axes"], ["y"])], (1,), lambda a: X.mean(a, keepdims=True)),
    ],
)  # fmt: skip
def test_one_axis(nodes, axes, of):
    made = compiled(nodes, axes)
    rank = 4 if nodes[0].op_type == "Unsqueeze" else 3
    for axis in range(-rank, rank):
        got = made(X, np.full(axes, axis))[0]
        np.testing.assert_allclose(got, of(axis), rtol=1e-5, atol=1e-5)
    assert made.compilations == 0


def test_axes_in_order():
    weights = {"starts": np.array([1, 0]), "ends": np.array([3, 2]), "steps": np.array([1, 1])}
    made = compiled(
        [node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])], (2,), (3, 4, 5), weights
    )
    np.testing.assert_array_equal(made(X, np.array([2, 0]))[0], X[0:2, :, 1:3])
    np.testing.assert_array_equal(made(X, np.array([0, 2]))[0], X[1:3, :, 0:2])
    assert made.compilations == 0


def test_no_axes_are_known():
    whole = compiled([node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], (0,))
    np.testing.assert_allclose(whole(X, np.zeros(0, np.int64))[0], X.sum(), rtol=1e-5)
    same = compiled([node("ReduceSum", ["x", "axes"], ["y"], noop_with_empty_axes=1)], (0,))
    np.testing.assert_array_equal(same(X, np.zeros(0, np.int64))[0], X)


def test_axes_none_of_which_fits():
    made = compiled([node("Squeeze", ["x", "axes"], ["y"])], (1,), (3, 4))
    with pytest.raises(ModelError, match="are not all 1"):
        made(X[0, :, :4].T[:3], np.array([0]))
