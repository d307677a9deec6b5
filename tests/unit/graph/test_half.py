"""Models of half precision: computed in single precision, from what is given to what is returned."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_models as tiny
from tilewright.frontend import import_onnx
from tilewright.graph import evaluate_graph, simplify
from tilewright.graph.passes import WidenHalf

HALF = TensorProto.FLOAT16


def _graph(nodes, outputs, **weights):
    results = [tiny.tensor(name, shape, elem) for name, shape, elem in outputs]
    return import_onnx(tiny.model(nodes, [tiny.tensor("x", (2, 4), HALF)], results, weights))


def test_nothing_is_rounded_between_nodes():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Sqrt", ["b"], ["y"]),
    ]
    w = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float16)
    graph = _graph(nodes, [("y", (2, 3), HALF)], w=w)
    wide = WidenHalf()(graph)
    wide.check()
    inside = {wide.types[value].dtype for node in wide.nodes[:-1] for value in node.used_outputs}
    assert inside == {"f32"} and wide.nodes[0].op == wide.nodes[-1].op == "Cast"
    x = (np.random.default_rng(1).standard_normal((2, 4)) * 400).astype(np.float16)
    (made,) = evaluate_graph(wide, {"x": x}).values()
    # squares of hundreds exceed the range of half precision, their roots do not
    exact = np.abs(x.astype(np.float64) @ w.astype(np.float64))
    assert made.dtype == np.float16 and exact.max() > 256
    np.testing.assert_allclose(made, exact.astype(np.float16), rtol=1e-3)


def test_conversions_end_in_the_wider_type():
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["a"], ["b"], to=HALF),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    graph = _graph(nodes, [("y", (2, 4), HALF), ("a", (2, 4), tiny.FLOAT)], c=np.float16(0.5))
    x = np.arange(8, dtype=np.float16).reshape(2, 4)
    y, a = evaluate_graph(simplify(graph), {"x": x}).values()
    np.testing.assert_array_equal(y, x + np.float16(0.5))
    np.testing.assert_array_equal(a, x.astype(np.float32))
    assert (y.dtype, a.dtype) == (np.float16, np.float32)


@pytest.mark.parametrize("how", ["Cast", "CastLike"])
def test_conversions_of_the_model_round(how):
    given = [tiny.tensor("x", (2,), tiny.FLOAT)]
    to = {"to": HALF} if how == "Cast" else {}
    nodes = [
        helper.make_node(how, ["x", "c"][: 1 + (how == "CastLike")], ["a"], **to),
        helper.make_node("Cast", ["a"], ["b"], to=tiny.FLOAT),
        helper.make_node("Add", ["a", "a"], ["y"]),
    ]
    results = [tiny.tensor(name, (2,), elem) for name, elem in (("a", HALF), ("b", tiny.FLOAT), ("y", HALF))]
    graph = import_onnx(tiny.model(nodes, given, results, {"c": np.float16(1)}))
    x = np.array([1.0009, 7e4], np.float32)
    wide = WidenHalf()(simplify(graph))
    wide.check()
    with np.errstate(over="ignore"):
        rounded = x.astype(np.float16)
        for found in (evaluate_graph(WidenHalf()(graph), {"x": x}), evaluate_graph(wide, {"x": x})):
            for made, expected in zip(
                found.values(), (rounded, rounded.astype(np.float32), rounded * 2), strict=True
            ):
                np.testing.assert_array_equal(made, expected)


def test_inputs_and_weights_that_are_returned_stay_as_they_are():
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Identity", ["c"], ["z"])]
    graph = _graph(
        nodes, [("y", (2, 4), HALF), ("x", (2, 4), HALF), ("z", (1,), HALF)], c=np.array([3], np.float16)
    )
    x = np.arange(8, dtype=np.float16).reshape(2, 4)
    y, same, z = evaluate_graph(simplify(graph), {"x": x}).values()
    np.testing.assert_array_equal(y, -x)
    np.testing.assert_array_equal(same, x)
    assert z.dtype == np.float16 and z == 3


def test_bits_are_looked_at_as_they_are():
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("BitCast", ["a"], ["y"], to=TensorProto.INT16),
    ]
    made = tiny.model(nodes, [tiny.tensor("x", (2, 4), HALF)], [tiny.tensor("y", (2, 4), TensorProto.INT16)])
    made.opset_import[0].version = 26
    graph = import_onnx(made)
    assert WidenHalf()(graph) is graph


def test_models_of_single_precision_are_left_alone():
    graph = import_onnx(tiny.mlp())
    assert WidenHalf()(graph) is graph
