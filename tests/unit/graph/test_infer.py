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


def _loop(steps: int, scan: bool) -> Graph:
    """`last` and `y`: x added to itself again and again, and what each step makes of that."""
    nodes = (Node("Add", ("s", "e"), ("t",)), Node("Concat", ("t", "t"), ("o",), {"axis": 0}))
    body = Subgraph(("s", "e"), ("t", "o"), nodes, {})
    types = {"z": TensorType("f32", (3,)), "x": TensorType("f32", (steps, 3) if scan else (3,))}
    if scan:
        attributes = {"body": body, "num_scan_inputs": 1, "scan_output_axes": (-1,)}
        return typed_graph(
            types, ["last", "y"], [Node("Scan", ("z", "x"), ("last", "y"), attributes, version=21)], {}
        )
    nodes = (Node("Add", ("s", "x"), ("t",)), Node("Concat", ("t", "t"), ("o",), {"axis": 0}))
    body = Subgraph(("i", "c", "s"), ("c", "t", "o"), nodes, {})
    loop = Node("Loop", ("n", "", "z"), ("last", "y"), {"body": body}, version=21)
    return typed_graph(types, ["last", "y"], [loop], {"n": np.int64(steps).reshape(())})


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("scan", [False, True])
def test_loops_of_any_number_of_steps_stack_what_steps_make(steps: int, scan: bool) -> None:
    x, z = np.float32([1, 2, 3]), np.float32([5, 6, 7])
    graph = _loop(steps, scan)
    found = evaluate_graph(graph, {"z": z, "x": np.stack([x] * steps or [x])[:steps] if scan else x})
    np.testing.assert_array_equal(found["last"], z + steps * x)
    rows = np.array([np.tile(z + (n + 1) * x, 2) for n in range(steps)], np.float32).reshape(steps, 6)
    np.testing.assert_array_equal(found["y"], rows.T if scan else rows)


EMPTY = {
    "a convolution of no images": (
        Node("Conv", ("x", "w"), ("y",), version=21),
        {"x": (0, 3, 8, 8)}, {"w": np.ones((4, 3, 1, 1), np.float32)}, (0, 4, 8, 8),
    ),
    "no places in no rows": (
        Node("Gather", ("x", "i"), ("y",), version=21), {"x": (0, 3)}, {"i": np.zeros(0, np.int64)}, (0, 3)
    ),
    "one place in rows of none": (
        Node("Gather", ("x", "i"), ("y",), {"axis": 1}, version=21), {"x": (0, 3)}, {"i": np.array(1)}, (0,)
    ),
    "no updates": (
        Node("ScatterND", ("x", "i", "u"), ("y",), version=21),
        {"x": (0, 3), "u": (0, 3)}, {"i": np.zeros((0, 1), np.int64)}, (0, 3),
    ),
    "larger images, none of them": (
        Node("Resize", ("x", "", "", "s"), ("y",), version=21),
        {"x": (0, 0, 4, 4)}, {"s": np.array([0, 0, 8, 8])}, (0, 0, 8, 8),
    ),
    "the largest of none": (
        Node("ArgMax", ("x",), ("y",), {"axis": 1}, version=21), {"x": (0, 2)}, {}, (0, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EMPTY)
def test_there_is_nothing_to_compute_of_what_has_no_elements(case: str) -> None:
    node, shapes, constants, shape = EMPTY[case]
    types = {name: TensorType("f32", sizes) for name, sizes in shapes.items()}
    graph = typed_graph(types, ["y"], [node], constants)
    assert not graph.nodes
    assert graph.constants["y"].shape == shape


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum", "ReduceProd"])
def test_the_mean_of_nothing_is_no_number(op: str) -> None:
    node = Node(op, ("x", "axes"), ("y",), version=21)
    graph = typed_graph({"x": TensorType("f32", (2, 0))}, ["y"], [node], {"axes": np.array([1])})
    (found,) = evaluate_graph(graph, {"x": np.zeros((2, 0), np.float32)}).values()
    np.testing.assert_array_equal(found, {"ReduceMean": np.nan, "ReduceSum": 0, "ReduceProd": 1}[op])


def test_an_axis_without_elements_cannot_grow() -> None:
    node = Node("Resize", ("x", "", "", "s"), ("y",), name="bigger", version=21)
    with pytest.raises(ModelError, match=r"'bigger'.*an axis without elements cannot grow"):
        typed_graph({"x": TensorType("f32", (1, 0))}, ["y"], [node], {"s": np.array([1, 2])})
