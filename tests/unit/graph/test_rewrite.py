"""Sorting, aliasing and removing nodes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph import Graph, Node, TensorType
from tilewright.graph.rewrite import Rewriter, topological, without_dead_code
from tilewright.support import ModelError

F32 = TensorType("f32", (4,))


def _chain() -> Graph:
    nodes = (
        Node("Relu", ("x",), ("a",)),
        Node("Identity", ("a",), ("b",)),
        Node("Add", ("b", "c"), ("y",)),
        Node("Neg", ("a",), ("unused",)),
    )
    types = dict.fromkeys(("x", "a", "b", "c", "d", "y", "unused"), F32)
    constants = {"c": np.ones(4, np.float32), "d": np.ones(4, np.float32)}
    return Graph(inputs=("x",), outputs=("y",), nodes=nodes, constants=constants, types=types)


def test_sorting_keeps_an_order_that_is_right() -> None:
    nodes = _chain().nodes
    assert topological(nodes, {"x", "c"}) == nodes
    mixed = (nodes[2], nodes[1], nodes[3], nodes[0])
    assert [n.op for n in topological(mixed, {"x", "c"})] == ["Relu", "Identity", "Add", "Neg"]


def test_a_cycle_is_refused_by_name() -> None:
    nodes = (Node("Add", ("x", "b"), ("a",), name="left"), Node("Neg", ("a",), ("b",), name="right"))
    with pytest.raises(ModelError, match="'left'"):
        topological(nodes, {"x"})


def test_dead_code_goes() -> None:
    graph = without_dead_code(_chain())
    assert [n.op for n in graph.nodes] == ["Relu", "Identity", "Add"]
    assert set(graph.constants) == {"c"}
    assert "unused" not in graph.types
    assert without_dead_code(graph) is graph


def test_an_alias_replaces_a_value_everywhere() -> None:
    rewriter = Rewriter(_chain())
    for node in rewriter.graph.nodes:
        if node.op == "Identity":
            rewriter.alias(node.outputs[0], rewriter.resolve(node.inputs[0]))
        else:
            rewriter.keep(node)
    graph = rewriter.finish()
    graph.check()
    assert [n.inputs for n in graph.nodes] == [("x",), ("a", "c")]


def test_an_aliased_output_keeps_its_public_name() -> None:
    rewriter = Rewriter(_chain())
    rewriter.keep(rewriter.graph.nodes[0])
    rewriter.alias("y", "a")
    graph = rewriter.finish()
    assert (graph.outputs, graph.output_names) == (("a",), ("y",))


def test_fresh_names_are_fresh() -> None:
    rewriter = Rewriter(_chain())
    assert rewriter.fresh("a") == "a.1"
    assert rewriter.fresh("a") == "a.2"
    assert rewriter.constant(np.zeros(2, np.float32), "c") == "c.1"
