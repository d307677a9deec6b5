"""Top-k and sorting: against a stable sort by numpy, whatever algorithm the sizes choose."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_models as tiny
import tilewright
from tilewright.frontend import import_onnx
from tilewright.graph import evaluate_graph
from tilewright.graph.ops.sorting import _plan

TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int8": TensorProto.INT8,
    "int64": TensorProto.INT64,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
}


def _model(shape, count, axis, largest, elem):
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=axis, largest=largest)
    out = [count if at == axis % len(shape) else n for at, n in enumerate(shape)]
    results = [tiny.tensor("v", out, elem), tiny.tensor("i", out, TensorProto.INT64)]
    return tiny.model([node], [tiny.tensor("x", shape, elem)], results, {"k": np.array([count], np.int64)})


def _draw(shape, dtype):
    """Few different values, so that there are ties; ends of the range, zeros of both signs, what is no
    number.
    """
    random = np.random.default_rng(5)
    if np.dtype(dtype).kind == "f":
        x = random.integers(-9, 9, shape).astype(dtype)
        odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, np.finfo(dtype).tiny, -np.nan], dtype)
    else:
        info = np.iinfo(dtype)
        x = random.integers(max(info.min, -9), 9, shape).astype(dtype)
        odd = np.array([info.min, info.max, info.max - 1, info.min + 1], dtype)
    places = random.integers(0, x.size, len(odd))
    x.reshape(-1)[places] = odd
    return x


def _expected(x, count, axis, largest):
    """By a stable sort of numbers that are larger for what comes first."""
    x = np.moveaxis(x, axis, -1)
    whole = np.unique(x[x == x])
    ranks = np.searchsorted(whole, x).astype(np.int64)
    ranks[x != x] = len(whole)
    order = np.argsort(-ranks if largest else ranks, axis=-1, kind="stable")[..., :count]
    return np.moveaxis(np.take_along_axis(x, order, -1), -1, axis), np.moveaxis(order, -1, axis)


#: Shape, count, axis: few elements, for the reference evaluation, which takes ordered steps one by one.
SMALL = [((7,), 7, 0), ((3, 20), 5, -1), ((12, 2), 2, 0), ((3, 4), 0, 1)]
#: Ranked; sorted; by blocks, once and in blocks of blocks, with and without a rest.
LARGE = [
    ((3, 14), 5, -1),
    ((3, 40), 5, -1),
    ((2, 2000), 1990, -1),
    ((900, 2), 850, 0),
    ((2, 1024), 3, -1),
    ((1031,), 4, -1),
    ((50000,), 6, 0),
    ((9000,), 300, 0),
]


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("shape", "count", "axis"), SMALL, ids=str)
def test_the_first_elements_in_order(shape, count, axis, dtype, largest):
    x = _draw(shape, dtype)
    graph = import_onnx(_model(shape, count, axis, largest, TYPES[dtype]))
    values, places = evaluate_graph(graph, {"x": x}).values()
    wanted, order = _expected(x, count, axis, largest)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, wanted)


def test_all_algorithms_are_among_the_sizes():
    widths = {_plan(shape[axis], count)[1] for shape, count, axis in LARGE}
    assert {0, 1} < widths
    size, count = 50000, 6
    width = _plan(size, count)[1]
    assert width > 1 and _plan(-(-size // width), count)[1] > 1


@pytest.mark.few(14)
@pytest.mark.parametrize(
    ("dtype", "largest"), [("float32", 1), ("float32", 0), ("float64", 1), ("int64", 0), ("uint64", 1)]
)
@pytest.mark.parametrize(("shape", "count", "axis"), LARGE, ids=str)
def test_compiled(shape, count, axis, dtype, largest):
    x = _draw(shape, dtype)
    found = tilewright.compile(_model(shape, count, axis, largest, TYPES[dtype]), threads=2).run(
        None, {"x": x}
    )
    for made, wanted in zip(found, _expected(x, count, axis, largest), strict=True):
        np.testing.assert_array_equal(made, wanted)
