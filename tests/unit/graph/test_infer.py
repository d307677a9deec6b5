"""Types, constant folding, and reports of what cannot be compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.graph import (
    Graph,
    Limits,
    Node,
    Subgraph,
    TensorType,
    UndeterminedError,
    evaluate_graph,
    typed_graph,
)
from tilewright.support import ModelError, ResourceError, UnsupportedOperatorError

X = {"x": TensorType("f32", (2, 3, 4))}


def _graph(
    nodes: Sequence[Node], output: str = "y", limits: Limits | None = None, **constants: object
) -> Graph:
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    return typed_graph(X, [output], nodes, arrays, limits=limits)


def test_a_chain_that_computes_a_shape_dissolves() -> None:
    graph = _graph(
        [
            Node("Shape", ("x",), ("shape",), version=21),
            Node("Gather", ("shape", "zero"), ("batch",), version=21),
            Node("Unsqueeze", ("batch", "axes"), ("batch1",), version=21),
            Node("Concat", ("batch1", "rest"), ("target",), {"axis": 0}, version=21),
            Node("Reshape", ("x", "target"), ("y",), version=21),
        ],
        zero=np.int64(0),
        axes=np.array([0]),
        rest=np.array([-1]),
    )
    assert [n.op for n in graph.nodes] == ["Reshape"]
    assert graph.types["y"] == TensorType("f32", (2, 12))
    assert graph.constants["target"].tolist() == [2, -1]


def test_nodes_may_come_in_any_order() -> None:
    graph = _graph([Node("Neg", ("h",), ("y",)), Node("Abs", ("x",), ("h",))])
    assert [n.op for n in graph.nodes] == ["Abs", "Neg"]


def test_all_that_is_unsupported_is_reported_at_once() -> None:
    nodes = [
        Node("Frobnicate", ("x",), ("a",), name='first "one"'),
        Node("Abs", ("a",), ("b",)),
        Node("Confuse", ("b",), ("c",), name="second\nline"),
        Node("Reshape", ("x", "c"), ("y",), name="third"),
    ]
    with pytest.raises(UnsupportedOperatorError) as caught:
        _graph(nodes)
    places = [str(place) for place, _ in caught.value.nodes]
    assert places == ["node 'first \"one\"' (Frobnicate)", "node 'second\\nline' (Confuse)"]


def test_a_shape_known_only_at_run_time_names_the_input() -> None:
    inputs = X | {"shape": TensorType("i64", (2,))}
    node = Node("Reshape", ("x", "shape"), ("y",), version=21, name="reshape")
    with pytest.raises(UndeterminedError, match="'shape'") as caught:
        typed_graph(inputs, ["y"], [node], {})
    assert caught.value.inputs == ("shape",)


def test_a_tensor_beyond_the_limit_is_refused_before_it_is_made() -> None:
    nodes = [Node("ConstantOfShape", ("shape",), ("y",), name="huge", version=21)]
    with pytest.raises(ResourceError, match=r"'huge'.*17\.2 GiB|'huge'.*GiB"):
        _graph(nodes, shape=np.array([68_000, 68_000]))
    tiles = [Node("Tile", ("x", "times"), ("y",), name="tiles", version=21)]
    with pytest.raises(ResourceError, match="'tiles'"):
        _graph(tiles, times=np.array([1000, 1000, 1000]))
    with pytest.raises(ResourceError, match="'tiles'"):
        _graph(tiles, times=np.array([1, 1, 2]), limits=Limits(tensor_bytes=100))


def test_a_wrong_model_names_the_node() -> None:
    with pytest.raises(ModelError, match=r"'product' \(MatMul\).*3.*4"):
        _graph([Node("MatMul", ("x", "w"), ("y",), name="product")], w=np.zeros((3, 2), np.float32))
    with pytest.raises(ModelError, match="'nothing', which nothing makes"):
        _graph([Node("Abs", ("nothing",), ("y",))])
    with pytest.raises(ModelError, match="its input 1 is missing"):
        _graph([Node("MatMul", ("x",), ("y",))])


def test_a_branch_with_a_known_condition_is_taken() -> None:
    then = Subgraph((), ("t",), (Node("Abs", ("x",), ("t",)),), {})
    other = Subgraph((), ("e",), (Node("Neg", ("x",), ("e",)),), {})
    node = Node("If", ("c",), ("y",), {"then_branch": then, "else_branch": other}, version=21)
    assert [n.op for n in _graph([node], c=np.array(True)).nodes] == ["Abs", "Identity"]
    assert [n.op for n in _graph([node], c=np.array(False)).nodes] == ["Neg", "Identity"]
    with pytest.raises(UndeterminedError, match="'c'"):
        typed_graph(X | {"c": TensorType("bool", ())}, ["y"], [node], {})


def test_evaluation_gives_outputs_and_what_is_kept() -> None:
    graph = _graph([Node("Abs", ("x",), ("h",)), Node("Neg", ("h",), ("y",))])
    x = np.full((2, 3, 4), -2, np.float32)
    values = evaluate_graph(graph, {"x": x}, keep=["h"])
    assert values["y"].tolist() == x.tolist()
    assert values["h"].min() == 2


def _scan(steps: int, **attributes: object) -> Graph:
    """A running sum over the second axis of x, `steps` long, started at zero."""
    nodes = (
        Node("Add", ("total", "row"), ("sum",)),
        Node("Mul", ("sum", "two"), ("doubled",)),
    )
    body = Subgraph(("total", "row"), ("sum", "doubled"), nodes, {"two": np.array(2, np.float32)})
    node = Node(
        "Scan",
        ("start", "x"),
        ("last", "y"),
        {"body": body, "num_scan_inputs": 1, "scan_input_axes": (1,), **attributes},
        version=21,
    )
    inputs = {"x": TensorType("f32", (2, steps)), "start": TensorType("f32", (2,))}
    return typed_graph(inputs, ["y", "last"], [node], {})


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan_is_unrolled(backwards: int) -> None:
    graph = _scan(3, scan_input_directions=(backwards,), scan_output_axes=(1,))
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    found = evaluate_graph(graph, {"x": x, "start": np.array([1, 0], np.float32)})
    sums = np.cumsum(x[:, ::-1] if backwards else x, axis=1) + np.array([[1], [0]], np.float32)
    np.testing.assert_array_equal(found["y"], 2 * sums)
    np.testing.assert_array_equal(found["last"], sums[:, -1])


def test_a_scan_without_end_is_refused() -> None:
    with pytest.raises(ModelError, match="more than 1024 steps"):
        _scan(2000)


def test_a_loop_runs_as_often_as_its_condition_says() -> None:
    nodes = (
        Node("Add", ("state", "x"), ("next",)),
        Node("Less", ("i", "two"), ("again",)),
    )
    body = Subgraph(("i", "c", "state"), ("again", "next", "next"), nodes, {"two": np.array(2)})
    node = Node("Loop", ("limit", "", "x"), ("last", "y"), {"body": body}, version=21)
    graph = typed_graph(X, ["last", "y"], [node], {"limit": np.array(9)})
    x = np.ones((2, 3, 4), np.float32)
    found = evaluate_graph(graph, {"x": x})
    assert found["last"].max() == 4
    assert found["y"].shape == (3, 2, 3, 4)
    with pytest.raises(UndeterminedError, match="'limit'"):
        typed_graph(X | {"limit": TensorType("i64", ())}, ["y"], [node], {})
