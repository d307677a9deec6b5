"""Each pass on a small graph, and all of them on random ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given

from model_cases import VERSION, graph_feeds, random_graphs
from tilewright.graph import Graph, Node, TensorType, evaluate_graph, fuse, simplify, typed_graph
from tilewright.graph.passes import (
    FoldChannelAffine,
    HoistScales,
    RemoveIdentities,
    ShareSubexpressions,
    SimplifyViews,
    SinkViews,
)

F32 = np.float32


def _graph(shape: Sequence[int], nodes: Sequence[Node], *outputs: str, **constants: np.ndarray) -> Graph:
    types = {name: TensorType("f32", tuple(shape)) for name in ("x", "r")}
    return typed_graph(types, outputs or ("y",), nodes, constants)


def _node(op: str, inputs: str, outputs: str, **attributes: object) -> Node:
    return Node(op, tuple(inputs.split()), tuple(outputs.split()), attributes, version=VERSION)


def _well_typed(graph: Graph) -> None:
    """The graph is well formed, and typed as the operators' definitions say."""
    graph.check()
    inputs = {name: graph.types[name] for name in graph.inputs}
    again = typed_graph(inputs, graph.outputs, graph.nodes, graph.constants)
    assert all(again.types[value] == graph.types[value] for value in again.types)


def _same(before: Graph, after: Graph) -> None:
    """The second graph is well typed, and computes what the first one does."""
    _well_typed(after)
    feeds = graph_feeds(before)
    expected, found = evaluate_graph(before, feeds), evaluate_graph(after, feeds)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)


@given(random_graphs())
def test_all_passes_keep_what_random_graphs_compute(graph: Graph) -> None:
    steps: dict[int, Graph] = {}
    final = simplify(graph, observe=lambda name, result: steps.setdefault(id(result), result))
    for step in steps.values():
        _well_typed(step)
    _same(graph, final)


def test_passes_report_themselves() -> None:
    names: list[str] = []
    simplify(_graph((4,), [_node("Relu", "x", "y")]), observe=lambda name, graph: names.append(name))
    assert names[:3] == ["widen-half", "pack-blocks", "fold-dequantised"]


# batch normalisation


def _normalisation(channels: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    mean, scale, bias = random.standard_normal((3, channels)).astype(F32)
    return {"mean": mean, "scale": scale, "bias": bias, "var": random.random(channels).astype(F32) + F32(0.5)}


NORM = _node("BatchNormalization", "t scale bias mean var", "y")


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_batch_normalisation_folds_into_a_convolution(with_bias: bool, group: int) -> None:
    weights = np.random.default_rng(1).standard_normal((6, 4 // group, 3, 3)).astype(F32)
    constants = {"w": weights, **_normalisation(6)}
    if with_bias:
        constants["b"] = np.arange(6, dtype=F32)
    conv = _node("Conv", "x w b" if with_bias else "x w", "t", pads=(1, 1, 1, 1), group=group)
    before = _graph((2, 4, 5, 5), [conv, NORM], **constants)
    after = FoldChannelAffine()(before)
    assert [node.op for node in after.nodes] == ["Conv"]
    _same(before, after)


def test_scales_and_shifts_by_channel_fold_one_after_another() -> None:
    constants = {
        "w": np.random.default_rng(1).standard_normal((6, 4, 1, 1)).astype(F32),
        "s": np.arange(1, 7, dtype=F32).reshape(6, 1, 1),
        "o": np.array(0.5, F32),
        **_normalisation(6),
    }
    nodes = [
        _node("Conv", "x w", "a"),
        _node("Mul", "s a", "b"),
        _node("Sub", "b o", "t"),
        NORM,
    ]
    before = _graph((2, 4, 3, 3), nodes, **constants)
    after = FoldChannelAffine()(before)
    assert [node.op for node in after.nodes] == ["Conv"]
    _same(before, after)


@pytest.mark.parametrize("trans_b", [0, 1])
def test_batch_normalisation_folds_into_a_gemm(trans_b: int) -> None:
    weights = np.random.default_rng(1).standard_normal((5, 4) if trans_b else (4, 5)).astype(F32)
    nodes = [_node("Gemm", "x w", "t", transB=trans_b), NORM]
    before = _graph((3, 4), nodes, w=weights, **_normalisation(5))
    after = FoldChannelAffine()(before)
    assert [node.op for node in after.nodes] == ["Gemm"]
    _same(before, after)


def test_batch_normalisation_folds_into_a_transposed_convolution() -> None:
    weights = np.random.default_rng(1).standard_normal((4, 3, 2, 2)).astype(F32)
    before = _graph((1, 4, 3, 3), [_node("ConvTranspose", "x w", "t"), NORM], w=weights, **_normalisation(3))
    after = FoldChannelAffine()(before)
    assert [node.op for node in after.nodes] == ["ConvTranspose"]
    _same(before, after)


def test_a_convolution_wanted_by_others_is_left_alone() -> None:
    weights = np.ones((4, 4, 1, 1), F32)
    nodes = [_node("Conv", "x w", "t"), NORM]
    for outputs in (("y", "t"),):
        graph = _graph((1, 4, 2, 2), nodes, *outputs, w=weights, **_normalisation(4))
        assert FoldChannelAffine()(graph) is graph
    graph = _graph((1, 4, 2, 2), [*nodes, _node("Add", "t y", "z")], "z", w=weights, **_normalisation(4))
    assert FoldChannelAffine()(graph) is graph


# identities, subexpressions


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        (_node("Identity", "x", "h"), {}),
        (_node("Dropout", "x", "h"), {}),
        (_node("Cast", "x", "h", to="f32"), {}),
        (_node("Transpose", "x", "h", perm=(0, 1, 2)), {}),
        (_node("Reshape", "x c", "h"), {"c": np.array([2, 3, 4])}),
        (_node("Expand", "x c", "h"), {"c": np.array([3, 1])}),
        (_node("Slice", "x a b", "h"), {"a": np.array([0]), "b": np.array([9])}),
        (_node("Pad", "x c", "h"), {"c": np.zeros(6, np.int64)}),
        (_node("Concat", "x", "h", axis=0), {}),
        (_node("Add", "c x", "h"), {"c": np.full((1, 1), -0.0, F32)}),
        (_node("Sub", "x c", "h"), {"c": np.zeros(4, F32)}),
        (_node("Mul", "x c", "h"), {"c": np.ones(4, F32)}),
        (_node("Div", "x c", "h"), {"c": np.ones((), F32)}),
        (_node("Pow", "x c", "h"), {"c": np.ones((), F32)}),
    ],
    ids=lambda value: value.op if isinstance(value, Node) else "",
)
def test_what_does_nothing_is_removed(node: Node, constants: dict[str, np.ndarray]) -> None:
    before = _graph((2, 3, 4), [node, _node("Relu", "h", "y")], **constants)
    after = RemoveIdentities()(before)
    assert [n.op for n in after.nodes] == ["Relu"]
    _same(before, after)


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        (_node("Sub", "c x", "h"), {"c": np.zeros((), F32)}),
        (_node("Div", "c x", "h"), {"c": np.ones((), F32)}),
        (_node("Add", "x c", "h"), {"c": np.full((2, 1, 1, 1), -0.0, F32)}),
        # -0.0 becomes 0.0
        (_node("Add", "x c", "h"), {"c": np.zeros((), F32)}),
        (_node("Sub", "x c", "h"), {"c": np.float32([0, 0, -0.0, 0])}),
        (
            _node("Slice", "x a b axes steps", "h"),
            {"a": np.array([-1]), "b": np.array([-9]), "axes": np.array([0]), "steps": np.array([-1])},
        ),
    ],
)
def test_what_does_something_stays(node: Node, constants: dict[str, np.ndarray]) -> None:
    graph = _graph((2, 3, 4), [node, _node("Relu", "h", "y")], **constants)
    assert RemoveIdentities()(graph) is graph


def test_the_zero_of_integers_has_no_sign() -> None:
    types = {"x": TensorType("i32", (3,))}
    nodes = [_node("Add", "x c", "h"), _node("Abs", "h", "y")]
    graph = typed_graph(types, ["y"], nodes, {"c": np.zeros((), np.int32)})
    assert [n.op for n in RemoveIdentities()(graph).nodes] == ["Abs"]


def test_equal_nodes_are_computed_once() -> None:
    nodes = [
        _node("Mul", "x two", "a"),
        _node("Mul", "x other", "b"),
        _node("Neg", "b", "c"),
        _node("Add", "a c", "y"),
    ]
    before = _graph((4,), nodes, two=np.array(2, F32), other=np.array(2, F32))
    after = ShareSubexpressions()(before)
    assert [node.op for node in after.nodes] == ["Mul", "Neg", "Add"]
    _same(before, after)


def test_nodes_that_differ_in_an_attribute_are_not_equal() -> None:
    nodes = [
        _node("Softmax", "x", "a", axis=0),
        _node("Softmax", "x", "b", axis=1),
        _node("Add", "a b", "y"),
    ]
    graph = _graph((2, 3), nodes)
    assert ShareSubexpressions()(graph) is graph


# views


def test_views_of_views_are_one_and_useless_ones_none() -> None:
    constants = {"flat": np.array([24]), "back": np.array([2, 3, 4]), "wide": np.array([4, 6])}
    nodes = [
        _node("Reshape", "x flat", "a"),
        _node("Reshape", "a back", "b"),
        _node("Relu", "b", "c"),
        _node("Reshape", "a wide", "y"),
    ]
    before = _graph((2, 3, 4), nodes, "y", "c", **constants)
    after = SimplifyViews()(before)
    assert [str(node) for node in after.nodes] == ["c = Relu(x)", "y = Reshape(x, y.shape)"]
    _same(before, after)


def test_transpositions_merge_and_become_views() -> None:
    nodes = [
        _node("Transpose", "x", "a", perm=(1, 2, 0)),
        _node("Transpose", "a", "y", perm=(2, 0, 1)),
        _node("Transpose", "x", "z", perm=(2, 1, 0)),
    ]
    before = _graph((1, 3, 1), nodes, "y", "z")
    after = SimplifyViews()(before)
    assert after.nodes == ()
    assert after.outputs == ("x", "x")
    before = _graph((2, 3, 4), nodes, "y", "z")
    after = SimplifyViews()(before)
    assert [node.op for node in after.nodes] == ["Transpose"]
    assert after.outputs[0] == "x"
    _same(before, after)


def test_a_view_sinks_below_the_operations_after_it() -> None:
    constants = {
        "w": np.random.default_rng(0).standard_normal((4, 4)).astype(F32),
        "flat": np.array([6, 4]),
        "back": np.array([2, 3, 4]),
        "bias": np.arange(4, dtype=F32).reshape(1, 1, 4),
        "half": np.full((1, 1, 1), 0.5, F32),
    }
    nodes = [
        _node("Reshape", "x flat", "a"),
        _node("Gemm", "a w", "g"),
        _node("Reshape", "g back", "b"),
        _node("Add", "b bias", "c"),
        _node("Mul", "half c", "d"),
        _node("Add", "d r", "y"),
    ]
    before = _graph((2, 3, 4), nodes, **constants)
    after = SimplifyViews()(SinkViews()(before))
    _same(before, after)
    assert [node.op for node in after.nodes] == ["Reshape", "Gemm", "Add", "Mul", "Reshape", "Add", "Reshape"]
    assert after.types[after.nodes[-2].outputs[0]].shape == (6, 4)


def test_a_view_does_not_sink_where_broadcasting_would_change() -> None:
    constants = {"back": np.array([2, 3, 4]), "rows": np.arange(3, dtype=F32).reshape(3, 1)}
    nodes = [_node("Relu", "x", "a"), _node("Reshape", "a back", "b"), _node("Add", "b rows", "y")]
    graph = _graph((6, 4), nodes, **constants)
    assert SinkViews()(graph) is graph


def test_a_view_stays_where_a_statistic_of_it_is_taken_off() -> None:
    # a layer norm written out, of a value that is also a residual
    constants = {
        "w": np.random.default_rng(0).standard_normal((4, 4)).astype(F32),
        "flat": np.array([6, 4]),
        "back": np.array([2, 3, 4]),
        "two": np.array(2.0, F32),
        "last": np.array([-1]),
    }
    nodes = [
        _node("Reshape", "x flat", "a"),
        _node("Gemm", "a w", "g"),
        _node("Reshape", "g back", "b"),
        _node("ReduceMean", "b last", "m"),
        _node("Sub", "b m", "d"),
        _node("Pow", "d two", "s"),
        _node("ReduceMean", "s last", "v"),
        _node("Div", "d v", "y"),
    ]
    before = _graph((2, 3, 4), nodes, "y", "b", **constants)
    assert SinkViews()(before) is before
    groups = fuse(simplify(before)).groups
    assert [group.operators for group in groups] == [
        ("Gemm",),
        ("ReduceMean", "Sub", "Pow", "ReduceMean", "Div"),
    ]


# scales of matrix products


def _scores(*nodes: Node, outputs: Sequence[str] = ("y",), **constants: np.ndarray) -> Graph:
    types = {"x": TensorType("f32", (2, 5, 4)), "r": TensorType("f32", (2, 4, 3))}
    return typed_graph(types, outputs, nodes, constants)


def test_scales_of_both_operands_move_behind_the_product() -> None:
    before = _scores(
        _node("Mul", "s x", "a"),
        _node("Div", "r d", "b"),
        _node("MatMul", "a b", "y"),
        s=np.array(0.25, F32),
        d=np.array([8.0], F32),
    )
    after = HoistScales()(before)
    assert [node.op for node in after.nodes] == ["MatMul", "Mul"]
    assert after.nodes[0].inputs == ("x", "r")
    assert after.constants[after.nodes[1].inputs[1]] == F32(0.25 / 8)
    _same(before, after)


def test_a_square_of_a_scaled_value_is_scaled_twice() -> None:
    types = {"x": TensorType("f32", (4, 4))}
    nodes = [_node("Mul", "x s", "a"), _node("MatMul", "a a", "y")]
    before = typed_graph(types, ["y"], nodes, {"s": np.array(3.0, F32)})
    after = HoistScales()(before)
    assert [node.op for node in after.nodes] == ["MatMul", "Mul"]
    _same(before, after)


@pytest.mark.parametrize("scale", [0.0, np.inf, 1e-30, 1e30, [1.0, 2.0, 3.0, 4.0]])
def test_scales_that_may_not_move_stay(scale: float | list[float]) -> None:
    before = _scores(_node("Mul", "x s", "a"), _node("MatMul", "a r", "y"), s=np.array(scale, F32))
    assert HoistScales()(before) is before


def test_a_scaled_value_that_others_want_stays() -> None:
    nodes = [_node("Mul", "x s", "a"), _node("MatMul", "a r", "y")]
    before = _scores(*nodes, outputs=("y", "a"), s=np.array(2.0, F32))
    assert HoistScales()(before) is before


def test_a_product_with_a_number_of_higher_rank_stays() -> None:
    before = _scores(_node("Mul", "x s", "a"), _node("MatMul", "a r", "y"), s=np.full((1, 1, 1, 1), 2.0, F32))
    assert HoistScales()(before) is before


def test_scales_before_weights_stay() -> None:
    weights = np.ones((4, 3), F32)
    nodes = [_node("Mul", "x s", "a"), _node("MatMul", "a w", "y")]
    before = _scores(*nodes, s=np.array(2.0, F32), w=weights)
    assert HoistScales()(before) is before
