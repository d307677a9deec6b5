"""Sums of rows that are picked: their panels are made for the sum, or for its parts, and once."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright
from onnx_models import model, tensor


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [5, 41, 64])
@pytest.mark.parametrize("columns", [8, 20])
def test_means_of_picked_rows(count, columns, threads):
    rng = np.random.default_rng(count)
    table = rng.standard_normal((20, columns)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["w", "x"], ["g"]),
        helper.make_node("ReduceSum", ["g", "axis"], ["r"], keepdims=1),
        helper.make_node("Div", ["r", "count"], ["y"]),
    ]
    constants = {"w": table, "axis": np.array([0]), "count": np.array(count, np.float32)}
    made = model(nodes, [tensor("x", (count,), TensorProto.INT64)], [tensor("y", (1, columns))], constants)
    at = rng.integers(0, 20, count)
    (got,) = tilewright.compile(made, threads=threads)(at)
    np.testing.assert_allclose(got, table[at].sum(0, keepdims=True) / count, rtol=1e-4, atol=1e-5)
