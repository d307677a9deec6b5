"""MergeGroups: convolutions by small groups between others, as convolutions by groups that fill blocks."""

import numpy as np
import pytest
from onnx import helper

from onnx_models import model, tensor
from tilewright.frontend import import_onnx
from tilewright.graph import MergeGroups, evaluate_graph
from tilewright.graph.passes.groups import merged_weights

PASS = MergeGroups(16)


def network(depth, groups, *, each=None, kernel=(3, 3), around=True, strides=None, dynamic=False):
    """A convolution by groups of `depth` channels, between two of one tap where `around` it is wanted."""
    rng = np.random.default_rng(0)
    channels, outputs = depth * groups, (each or depth) * groups
    constants = {
        "a": rng.normal(size=(channels, 96, *[1] * len(kernel))).astype(np.float32),
        "w": rng.normal(size=(outputs, depth, *kernel)).astype(np.float32),
        "b": rng.normal(size=(outputs,)).astype(np.float32),
        "c": rng.normal(size=(192, outputs, *[1] * len(kernel))).astype(np.float32),
    }
    size = (2, 96 if around else channels, *(6 + n for n in range(len(kernel))))
    inputs = [tensor("x", size)]
    if dynamic:
        inputs.append(tensor("w", constants.pop("w").shape))
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node(
            "Conv", ["r", "w", "b"], ["g"], group=groups, strides=strides or [1] * len(kernel),
            pads=[k // 2 for k in kernel] * 2,
        ),
        helper.make_node("Sigmoid", ["g"], ["s"]),
        helper.make_node("Mul", ["g", "s"], ["m"]),
        helper.make_node("Conv", ["m", "c"], ["y"]),
    ]  # fmt: skip
    if not around:
        nodes = [nodes[2]]
        nodes[0].input[0], nodes[0].output[0] = "x", "y"
        del constants["a"], constants["c"]
    return import_onnx(model(nodes, inputs, [tensor("y", (None,) * len(size))], constants))


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        (network(4, 8), 4),
        (network(8, 6), 2),
        (network(8, 4, each=16, kernel=(1, 3)), 2),
        (network(4, 8, kernel=(1, 1, 1)), 4),
        (network(12, 4, kernel=(1,)), 4),
        (network(8, 4, strides=[2, 2]), 2),
    ],
)
def test_merged_groups_compute_the_same(graph, count):
    changed = PASS(graph)
    changed.check()
    (old,) = [n for n in graph.nodes if n.attributes.get("group", 1) != 1]
    new = next(n for n in changed.nodes if n.outputs == old.outputs)
    assert new.attributes.get("group") == old.attributes["group"] // count
    assert changed.constants[new.inputs[1]].shape[1] == count * graph.constants[old.inputs[1]].shape[1]
    feeds = {"x": np.random.default_rng(1).normal(size=graph.types["x"].sizes).astype(np.float32)}
    (made,), (want,) = (evaluate_graph(g, feeds).values() for g in (changed, graph))
    np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "graph",
    [
        network(16, 4),  # full blocks
        network(1, 32),  # depthwise
        network(4, 8, around=False),  # nothing else to gain
        network(4, 3),  # no number of groups fills blocks
        network(2, 32, kernel=(5, 5)),  # too many products with zeros
        network(4, 8, dynamic=True),
    ],
)
def test_others_stay(graph):
    assert PASS(graph) is graph


def test_merged_weights_are_zero_between_groups():
    weights = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    merged = merged_weights(weights, 4, 2)
    assert merged.tolist() == [[1, 2, 0, 0], [0, 0, 3, 4], [5, 6, 0, 0], [0, 0, 7, 8]]
