"""NarrowInputs: what convolutions read of a model's inputs is rounded, and their taps come in groups."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from onnx_models import model, tensor
from tilewright.frontend import import_onnx
from tilewright.graph import NarrowInputs, evaluate_graph

PASS = NarrowInputs("bf16", 2)


def conv(x, w, *, bias=True, before=(), elem=TensorProto.FLOAT, **attributes):
    """A convolution of the model's input by random weights, after the nodes ``before`` that make ``h``."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=w).astype(np.float32), "b": rng.normal(size=w[0]).astype(np.float32)}
    names = ["h" if before else "x", "w", *(["b"] if bias else [])]
    nodes = [*before, helper.make_node("Conv", names, ["y"], **attributes)]
    return import_onnx(model(nodes, [tensor("x", x, elem)], [tensor("y", (None,) * len(w))], constants))


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((1, 3, 11, 12), (8, 3, 7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
        ((2, 3, 9, 8), (16, 3, 3, 3), {"pads": (1, 1, 1, 1), "bias": False}),
        ((1, 1, 10), (4, 1, 5), {"auto_pad": "SAME_UPPER"}),
        ((1, 5, 6, 7), (8, 5, 2, 2), {}),
        ((1, 3, 5, 9, 8), (8, 3, 3, 3, 3), {"strides": (1, 2, 2), "pads": (1, 0, 1, 1, 2, 1)}),
    ],
)
def test_sums_are_of_rounded_inputs(x, w, attributes):
    graph = conv(x, w, **attributes)
    changed = PASS(graph)
    changed.check()
    found = {n.op: n for n in changed.nodes}
    wide = found["ConvWide"]
    assert (
        changed.types[wide.inputs[0]].dtype == "bf16" and changed.constants[wide.inputs[1]].shape[-1] % 2 == 0
    )
    assert "pads" not in wide.attributes and ("Pad" in found) == (changed.types[wide.inputs[0]].shape != x)
    values = np.random.default_rng(1).normal(size=x).astype(np.float32)
    (made,) = evaluate_graph(changed, {"x": values}).values()
    rounded = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    (want,) = evaluate_graph(graph, {"x": rounded}).values()
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "graph",
    [
        conv((1, 3, 6, 6), (8, 3, 1, 1)),  # as many products as without the instruction
        conv((1, 3, 9, 9), (8, 3, 3, 3), dilations=(1, 2)),  # taps that are no neighbours
        conv((1, 4, 6, 6), (8, 1, 3, 3), group=4),
        conv((1, 3, 6, 6), (8, 3, 3, 3), before=[helper.make_node("Relu", ["x"], ["h"])]),
    ],
)
def test_others_stay(graph):
    assert PASS(graph) is graph
