"""Nodes and groups that are alike are built once, and only those."""

import numpy as np
import pytest

from tilewright.graph import Node, TensorType, evaluate_graph, fuse, simplify, typed_graph
from tilewright.graph.alike import SMALL, group_key, node_key

F = TensorType("f32", (4, 4))


def test_what_a_definition_can_see_makes_the_key():
    base = Node("Relu", ("x",), ("y",), version=21)
    key = node_key(base, [F], [None])
    assert key == node_key(Node("Relu", ("a",), ("b",), version=21, name="other"), [F], [None])
    assert key != node_key(base, [TensorType("f32", (4, 5))], [None])
    assert key != node_key(Node("Relu", ("x",), ("y",), version=13), [F], [None])
    assert key != node_key(Node("Relu", ("x",), ("y",), {"a": 1}, version=21), [F], [None])
    assert node_key(Node("Nothing", ("x",), ("y",)), [F], [None]) is None
    assert node_key(Node("Relu", ("x",), ("y",), {"a": np.zeros(2)}, version=21), [F], [None]) is None


def test_small_constants_and_static_ones_count():
    node = Node("Add", ("x", "c"), ("y",), version=21)
    small, other = np.zeros((4, 4), np.float32), np.ones((4, 4), np.float32)
    assert node_key(node, [F, F], [None, small]) != node_key(node, [F, F], [None, other])
    size = (SMALL, SMALL)
    large, large_other = np.zeros(size, np.float32), np.ones(size, np.float32)
    big = TensorType("f32", size)
    assert node_key(node, [big, big], [None, large]) == node_key(node, [big, big], [None, large_other])
    assert node_key(node, [big, big], [None, large]) != node_key(node, [big, big], [None, None])
    tile = Node("Expand", ("x", "c"), ("y",), version=21)
    shape = np.zeros(SMALL + 1, np.int64)
    assert node_key(tile, [F, TensorType("i64", shape.shape)], [None, shape]) is None


def test_values_that_stand_in_one_place_are_told_apart():
    types = dict.fromkeys("abcd", F)

    def key(x, y, z):
        return group_key([Node("Add", (x, y), (z,), version=21)], types, {}, [z])

    assert key("a", "b", "c")[0] == key("b", "a", "d")[0]
    assert key("a", "b", "c")[0] != key("a", "a", "c")[0]
    assert key("a", "b", "c")[1] == ("a", "b", "c")


@pytest.mark.parametrize("same", [True, False])
def test_equal_layers_share_programs_and_compute_their_own(same):
    rng = np.random.default_rng(0)
    nodes, constants = [], {}
    value = "x"
    for at in range(6):
        constants[f"w{at}"] = rng.standard_normal((16, 16)).astype(np.float32)
        constants[f"b{at}"] = np.float32(at if not same else 1).reshape(1)
        nodes += [
            Node("MatMul", (value, f"w{at}"), (f"m{at}",), version=21),
            Node("Add", (f"m{at}", f"b{at}"), (f"a{at}",), version=21),
            Node("Transpose", (f"a{at}",), (f"t{at}",), {"perm": (1, 0)}, version=21),
        ]
        value = f"t{at}"
    graph = simplify(typed_graph({"x": TensorType("f32", (16, 16))}, [value], nodes, constants))
    partition = fuse(graph)
    programs = [partition.program(group) for group in partition.groups]
    assert len({id(made.program) for made in programs}) == (1 if same else 6)
    feeds = {"x": rng.standard_normal((16, 16)).astype(np.float32)}
    values = {**graph.constants, **feeds}
    for made in programs:
        values.update(made.evaluate(values))
    (want,) = evaluate_graph(graph, feeds).values()
    np.testing.assert_allclose(values[value], want, rtol=1e-5)
    x = feeds["x"]
    for at in range(6):
        x = (x @ constants[f"w{at}"] + constants[f"b{at}"]).T
    np.testing.assert_allclose(want, x, rtol=1e-3)
