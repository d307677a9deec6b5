"""Functions that only front ends other than ONNX's write: their values, and what they refuse."""

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.graph import OWN, Node, TensorType, typed_graph
from tilewright.support import ModelError, UnsupportedOperatorError

STRANGE = np.array([0.0, -0.0, 0.5, -0.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-20], np.float32)


def graph_of(op, *types):
    inputs = {f"x{at}": type_ for at, type_ in enumerate(types)}
    return typed_graph(inputs, ["y"], [Node(op, tuple(inputs), ("y",), domain=OWN)], {})


@pytest.mark.parametrize("op", ["Trunc", "Expm1", "Log1p", "Log2", "Exp2"])
def test_functions_are_numpys(op):
    model = tilewright.compile(graph_of(op, TensorType("f32", STRANGE.shape)), threads=1)
    with np.errstate(all="ignore"):
        expected = getattr(np, op.lower())(STRANGE)
    (found,) = model(STRANGE)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.array_equal(np.signbit(found), np.signbit(expected)) or op not in ("Trunc", "Expm1")


def test_pairs():
    a, b = (x.reshape(-1) for x in np.meshgrid(STRANGE, STRANGE))
    kind = TensorType("f32", a.shape)
    (found,) = tilewright.compile(graph_of("Atan2", kind, kind), threads=1)(a, b)
    np.testing.assert_allclose(found, np.arctan2(a, b), rtol=1e-6)
    (found,) = tilewright.compile(graph_of("CopySign", kind, kind), threads=1)(a, b)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(b))
    x, y = np.array([7, -7, 7, -7, 6]), np.array([2, 2, -2, -2, 3])
    kind = TensorType("i64", x.shape)
    (found,) = tilewright.compile(graph_of("FloorDiv", kind, kind), threads=1)(x, y)
    np.testing.assert_array_equal(found, x // y)


def test_types_that_have_no_such_function():
    with pytest.raises(UnsupportedOperatorError, match="Log1p of i32"):
        graph_of("Log1p", TensorType("i32", (2,)))
    with pytest.raises(UnsupportedOperatorError, match="FloorDiv of f32"):
        graph_of("FloorDiv", *[TensorType("f32", (2,))] * 2)
    with pytest.raises(ModelError, match="its inputs have the dtypes f32 and f64"):
        graph_of("Atan2", TensorType("f32", (2,)), TensorType("f64", (2,)))


@pytest.mark.parametrize("op", ["Floor", "Ceil", "Round"])
def test_rounding_of_bf16_calls_nothing_outside(op):
    x = np.linspace(-4, 4, 19).astype(ml_dtypes.bfloat16)
    nodes = [
        Node("Cast", ("x",), ("wide",), {"to": "f32"}, version=21),
        Node(op, ("wide",), ("r",), version=21),
        Node("Cast", ("r",), ("y",), {"to": "bf16"}, version=21),
    ]
    graph = typed_graph({"x": TensorType("bf16", x.shape)}, ["y"], nodes, {})
    names = {"Round": "rint"}
    expected = getattr(np, names.get(op, op.lower()))(x.astype(np.float32)).astype(x.dtype)
    np.testing.assert_array_equal(tilewright.compile(graph, threads=1)(x)[0], expected)
