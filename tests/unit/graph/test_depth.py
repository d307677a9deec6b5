"""How deep expressions nest, and that no length of a chain is too much for a kernel."""

import numpy as np
import pytest
from onnx import helper

import tilewright
from onnx_models import model, tensor
from tilewright.frontend import import_onnx
from tilewright.graph import FusionOptions, Node, TensorType, fuse
from tilewright.graph.depth import LEVELS_OF_CALL, expression_depth

X = {"x": TensorType("f32", (3,)), "y": TensorType("f32", (3,)), "z": TensorType("f32", (3,))}


def test_levels_are_counted_along_the_longest_way():
    negation = expression_depth(Node("Neg", ("x",), ("y",)), X, {})
    assert expression_depth(Node("Tanh", ("x",), ("y",)), X, {}) == negation + LEVELS_OF_CALL - 1
    assert expression_depth(Node("Add", ("x", "y"), ("z",)), X, {}) == negation
    # a quotient by two numbers, a sum, a function in it, one and a half in turns
    assert negation < expression_depth(Node("HardSwish", ("x",), ("y",)), X, {}) < negation + LEVELS_OF_CALL


@pytest.mark.parametrize("count", [2, 3, 300])
def test_sums_of_many_operands_are_as_deep_as_their_logarithm(count):
    names = tuple(f"x{n}" for n in range(count))
    types = dict.fromkeys((*names, "y"), TensorType("f32", (3,)))
    assert expression_depth(Node("Sum", names, ("y",)), types, {}) <= 2 + np.ceil(np.log2(count))


def chain(op, count, last=None):
    nodes = [helper.make_node(op, [f"v{n}"], [f"v{n + 1}"]) for n in range(count)]
    if last:
        nodes.append(helper.make_node(last, [f"v{count}"], [f"v{count + 1}"]))
    result = tensor(nodes[-1].output[0], (2, 5) if last is None else None)
    return model(nodes, [tensor("v0", (2, 5))], [result], {})


@pytest.mark.parametrize(
    ("op", "last", "of"), [("Tanh", None, np.tanh), ("Neg", None, np.negative), ("Sin", "ReduceSum", np.sin)]
)
def test_chains_of_any_length_are_cut_into_kernels(op, last, of):
    x = np.linspace(0.1, 2, 10, dtype=np.float32).reshape(2, 5)
    want = x.astype(np.float64)
    for _ in range(400):
        want = of(want)
    (made,) = tilewright.compile(chain(op, 400, last), threads=1).run(None, {"v0": x})
    np.testing.assert_allclose(made, want.sum(keepdims=True) if last else want, rtol=1e-4)


def test_groups_are_as_deep_as_is_allowed():
    graph = import_onnx(chain("Tanh", 40))
    one = expression_depth(graph.nodes[0], graph.types, {})
    sizes = [len(g.nodes) for g in fuse(graph, FusionOptions(max_depth=3 * one)).groups]
    assert sizes == [*[3] * 13, 1]
    assert len(fuse(graph, FusionOptions(max_depth=0)).groups) == 20


def test_reductions_in_a_row_are_cut_as_well():
    groups = fuse(import_onnx(chain("Softmax", 60))).groups
    assert 1 < max(len(g.nodes) for g in groups) < 20
