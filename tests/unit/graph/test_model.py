"""The model graph: types, look-ups, and what makes a graph well formed."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph import Graph, Node, TensorType, type_of
from tilewright.support import InternalError, ModelError

F32 = TensorType("f32", (2, 3))


def _graph(*nodes: Node, outputs: tuple[str, ...] = ("y",), **types: TensorType) -> Graph:
    return Graph(
        inputs=("x",), outputs=outputs, nodes=nodes, constants={}, types={"x": F32, "y": F32, **types}
    )


def test_types_know_their_size_and_print() -> None:
    assert (F32.elements, F32.nbytes, F32.rank, str(F32)) == (6, 24, 2, "f32[2, 3]")
    assert TensorType("bool", ()).nbytes == 1
    assert not TensorType("f32", ("N", 3)).is_static
    with pytest.raises(InternalError, match="unknown sizes"):
        _ = TensorType("f32", ("N", 3)).elements


def test_arrays_have_types() -> None:
    assert type_of(np.zeros((2, 1), np.float16)) == TensorType("f16", (2, 1))
    with pytest.raises(ModelError, match="complex"):
        type_of(np.zeros(2, np.complex64))


def test_a_graph_answers_who_makes_and_reads_a_value() -> None:
    first, second = Node("Relu", ("x",), ("h",)), Node("Add", ("h", "h"), ("y",))
    graph = _graph(first, second, h=F32)
    graph.check()
    assert graph.producer("h") is first
    assert graph.producer("x") is None
    assert graph.consumers("h") == (second,)
    assert (graph.use_count("h"), graph.use_count("y")) == (1, 1)
    assert "y = Add(h, h)" in str(graph)


def test_a_node_is_called_by_its_name_or_its_output() -> None:
    assert str(Node("Relu", ("x",), ("y",), name="act").location) == "node 'act' (Relu)"
    assert str(Node("Relu", ("x",), ("", "y")).location) == "node 'y' (Relu)"


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (_graph(Node("Relu", ("h",), ("y",))), "'h', which nothing made"),
        (_graph(Node("Relu", ("x",), ("y",)), Node("Relu", ("x",), ("y",))), "made before"),
        (_graph(), "nothing makes the model's output 'y'"),
    ],
)
def test_a_malformed_graph_is_refused(graph: Graph, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        graph.check()


def test_equal_nodes_have_equal_keys() -> None:
    plain = Node("Concat", ("a", "b"), ("y",), {"axis": 1})
    assert plain.key() == Node("Concat", ("a", "b"), ("z",), {"axis": 1}, name="other").key()
    assert plain.key() != Node("Concat", ("b", "a"), ("y",), {"axis": 1}).key()
    assert plain.key() != Node("Concat", ("a", "b"), ("y",), {"axis": 0}).key()
