"""SliceLookups: gathers at known places that lie together are slices."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright
from onnx_models import model, tensor
from tilewright.driver import verify_model
from tilewright.frontend import import_onnx
from tilewright.graph import PASSES, SliceLookups, evaluate_graph, simplify

PASS = SliceLookups()


def gathered(places, axis=0, shape=(3, 4, 5)):
    places = np.array(places, np.int64)
    rank = len(shape) - 1 + places.ndim
    nodes = [helper.make_node("Gather", ["x", "places"], ["y"], axis=axis)]
    return import_onnx(model(nodes, [tensor("x", shape)], [tensor("y", (None,) * rank)], {"places": places}))


@pytest.mark.parametrize(
    ("places", "axis", "operators"),
    [
        (1, 0, ["Slice", "Reshape"]),
        (-1, 1, ["Slice", "Reshape"]),
        ([2], 1, ["Slice"]),
        ([1, 2, 3], 1, ["Slice"]),
        ([-2, -1], -1, ["Slice"]),
        ([[0, 1], [2, 3]], 2, ["Slice", "Reshape"]),
    ],
)
def test_neighbours(places, axis, operators):
    graph = gathered(places, axis)
    changed = PASS(graph)
    changed.check()
    assert [node.op for node in changed.nodes] == operators
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    (made,), (want,) = (evaluate_graph(g, {"x": x}).values() for g in (changed, graph))
    np.testing.assert_array_equal(made, want)


@pytest.mark.parametrize("places", [[0, 2], [2, 1], [1, 1], [-1, 0]])
def test_others_stay(places):
    graph = gathered(places, 1)
    assert PASS(graph) is graph


def test_places_given_by_the_caller_stay():
    nodes = [helper.make_node("Gather", ["x", "places"], ["y"])]
    inputs = [tensor("x", (3, 4)), tensor("places", (1,), TensorProto.INT64)]
    graph = import_onnx(model(nodes, inputs, [tensor("y", (1, 4))]))
    assert PASS(graph) is graph


def test_attention_reads_its_operands_from_one_product():
    """Queries, keys and values as exporters take them from one product: no kernel copies them."""
    rng = np.random.default_rng(0)
    constants = {
        "w": (rng.normal(size=(64, 192)) / 8).astype(np.float32),
        "shape": np.array([1, 20, 3, 4, 16]),
        **{name: np.array(n) for n, name in enumerate("012")},
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Reshape", ["p", "shape"], ["s"]),
        helper.make_node("Transpose", ["s"], ["t"], perm=[2, 0, 3, 1, 4]),
        *(helper.make_node("Gather", ["t", str(n)], [name]) for n, name in enumerate("qkv")),
        helper.make_node("Transpose", ["k"], ["u"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "u"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"]),
        helper.make_node("MatMul", ["weights", "v"], ["y"], name="sums"),
    ]
    onnx_model = model(nodes, [tensor("x", (1, 20, 64))], [tensor("y", (1, 4, 20, 16))], constants)
    assert "Gather" not in {node.op for node in simplify(import_onnx(onnx_model), PASSES).nodes}
    compiled = tilewright.compile(onnx_model, threads=2)
    assert len(compiled.groups()) == 2
    outcome = verify_model(compiled, onnx_model, compiled.sample_feeds(), "onnx")
    assert outcome.ok, outcome.first_difference
