"""Tiny ONNX models for the tests of the driver and of the command line."""

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

FLOAT, INT64, DOUBLE, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.BOOL


def tensor(name: str, shape: Sequence[int | str | None] | None, elem: int = FLOAT) -> ValueInfoProto:
    """The declaration of an input or output."""
    return helper.make_tensor_value_info(name, elem, None if shape is None else list(shape))


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    name: str = "tiny",
) -> ModelProto:
    """A model of these nodes."""
    constants = [numpy_helper.from_array(array, key) for key, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), name, list(inputs), list(outputs), constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def relu(shape: Sequence[int | str | None] = (2, 3)) -> ModelProto:
    """`y = relu(x)`."""
    return model(
        [helper.make_node("Relu", ["x"], ["y"], name="act")], [tensor("x", shape)], [tensor("y", shape)]
    )


def mlp() -> ModelProto:
    """Two linear layers with a residual: `y = relu(x a + b) c + x`, 4x8."""
    random = np.random.default_rng(0)
    weights = {
        "a": random.standard_normal((8, 16), dtype=np.float32),
        "b": random.standard_normal(16, dtype=np.float32),
        "c": random.standard_normal((16, 8), dtype=np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["m"], name="first"),
        helper.make_node("Add", ["m", "b"], ["n"], name="bias"),
        helper.make_node("Relu", ["n"], ["h"], name="act"),
        helper.make_node("MatMul", ["h", "c"], ["p"], name="second"),
        helper.make_node("Add", ["p", "x"], ["y"], name="residual"),
    ]
    return model(nodes, [tensor("x", (4, 8))], [tensor("y", (4, 8))], weights)


def mlp_expected(x: np.ndarray) -> np.ndarray:
    """What `mlp` computes, in double precision."""
    weights = {each.name: numpy_helper.to_array(each).astype(np.float64) for each in mlp().graph.initializer}
    return np.maximum(x @ weights["a"] + weights["b"], 0) @ weights["c"] + x
