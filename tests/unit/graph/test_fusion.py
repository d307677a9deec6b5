"""Fusion groups: what is fused, and that running the groups gives what the graph computes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from model_cases import feeds_of, graph_feeds, random_graphs, run_partition
from tilewright.frontend import import_onnx, zoo
from tilewright.graph import (
    FusionOptions,
    Graph,
    Kind,
    Node,
    Partition,
    TensorType,
    evaluate_graph,
    fuse,
    simplify,
    typed_graph,
)

NOTHING = FusionOptions(
    epilogues=False,
    reductions=False,
    elementwise=False,
    through_movement=False,
    transposed_outputs=False,
    chains=False,
)


def _stems(partition: Partition) -> Counter[str]:
    return Counter(group.stem for group in partition.groups)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet18", {"conv_relu": 5, "conv_add_relu": 4, "conv": 3, "maxpool": 1, "gemm": 1}),
        ("mobilenet_v2", {"conv_clip": 23, "conv": 7, "conv_add": 4}),
        ("bert_base", {"matmul_add": 10, "matmul_div_add_softmax_matmul": 2, "layernormalization": 4}),
        ("tinybert4", {"reducemean_sub_pow_add_sqrt_div_mul": 2}),
        ("gpt2", {"gemm_mul_pow_add_tanh": 2, "gemm_add": 4, "matmul_div_where_softmax_matmul": 2}),
    ],
)
def test_the_reference_architectures_fuse_as_wanted(name: str, expected: dict[str, int]) -> None:
    stems = _stems(fuse(simplify(import_onnx(zoo.SMALL[name]()))))
    assert {stem: stems[stem] for stem in expected} == expected
    assert not any("transpose" in stem or "reshape" in stem for stem in stems)


@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_the_groups_of_the_reference_architectures_compute_the_model(name: str) -> None:
    model = zoo.SMALL[name]()
    graph = import_onnx(model)
    feeds = feeds_of(model)
    expected = evaluate_graph(graph, feeds)
    found = run_partition(fuse(simplify(graph)), feeds)
    for output, array in expected.items():
        np.testing.assert_allclose(found[output], array, rtol=1e-3, atol=1e-4)


@given(random_graphs(), st.sampled_from([None, FusionOptions(), NOTHING]))
def test_groups_of_random_graphs_compute_the_same(graph: Graph, options: FusionOptions | None) -> None:
    feeds = graph_feeds(graph)
    expected = evaluate_graph(graph, feeds)
    found = run_partition(fuse(graph, options) if options else fuse(simplify(graph)), feeds)
    for output, array in expected.items():
        np.testing.assert_allclose(found[output], array, rtol=1e-4, atol=1e-5)


@given(random_graphs())
def test_every_value_is_made_once_and_in_time(graph: Graph) -> None:
    partition = fuse(simplify(graph))
    ready = {*partition.graph.inputs, *partition.graph.constants}
    for group in partition.groups:
        assert len(group.outputs) == 1 or len(group.nodes) == 1
        assert {partition.buffer(value) for value in group.inputs} <= ready
        assert not ready.intersection(group.outputs)
        ready.update(group.outputs)
    assert {partition.buffer(value) for value in partition.graph.outputs} <= ready


def _graph(nodes: list[Node], outputs: list[str], **constants: np.ndarray) -> Graph:
    types = {name: TensorType("f32", (1, 8, 16)) for name in ("x", "r")}
    return typed_graph(types, outputs, nodes, constants)


WEIGHT = np.eye(16, dtype=np.float32)


def test_two_readers_of_an_inner_value_keep_it_out_of_the_group() -> None:
    nodes = [
        Node("MatMul", ("x", "w"), ("h",)),
        Node("Relu", ("h",), ("a",)),
        Node("Softmax", ("h",), ("b",), version=21),
    ]
    partition = fuse(_graph(nodes, ["a", "b"], w=WEIGHT))
    assert sorted(_stems(partition)) == ["matmul", "relu", "softmax"]


def test_branches_that_meet_again_are_one_epilogue() -> None:
    nodes = [
        Node("MatMul", ("x", "w"), ("h",)),
        Node("Tanh", ("h",), ("a",)),
        Node("Mul", ("h", "a"), ("b",)),
        Node("Add", ("b", "r"), ("y",)),
    ]
    partition = fuse(_graph(nodes, ["y"], w=WEIGHT))
    assert [group.stem for group in partition.groups] == ["matmul_tanh_mul_add"]
    assert partition.groups[0].inputs == ("x", "w", "r")


@pytest.mark.parametrize("reads_again", [False, True])
def test_constants_times_a_number_of_the_run_are_made_where_they_are_read(reads_again: bool) -> None:
    nodes = [
        Node("MatMul", ("x", "w"), ("h",)),
        Node("Mul", ("c", "s"), ("z",)),
        Node("Sub", ("h", "z"), ("y",)),
        *([Node("Neg", ("z",), ("n",))] if reads_again else []),
    ]
    types = {"x": TensorType("f32", (1, 8, 16)), "s": TensorType("f32", ())}
    plane = np.ones((1, 8, 16), np.float32)
    outputs = ["y", "n"] if reads_again else ["y"]
    partition = fuse(typed_graph(types, outputs, nodes, {"w": WEIGHT, "c": plane}))
    stems = ["matmul_sub", "mul", "neg"] if reads_again else ["matmul_mul_sub"]
    assert sorted(group.stem for group in partition.groups) == stems
    if not reads_again:
        assert partition.groups[0].inputs == ("x", "w", "c", "s")


def test_an_epilogue_does_not_wait_for_itself() -> None:
    # Add reads h and something made from h by another kernel: fused, the group would depend on itself.
    nodes = [
        Node("MatMul", ("x", "w"), ("h",)),
        Node("Softmax", ("h",), ("s",), version=21),
        Node("Add", ("h", "s"), ("y",)),
    ]
    partition = fuse(_graph(nodes, ["y"], w=WEIGHT))
    assert [group.stem for group in partition.groups] == ["matmul", "softmax_add"]


def test_heads_are_read_and_written_without_kernels_of_their_own() -> None:
    shape, flat = np.array([1, 8, 4, 4]), np.array([1, 8, 16])
    nodes = [
        Node("MatMul", ("x", "w"), ("q",)),
        Node("Reshape", ("q", "shape"), ("q4",), version=21),
        Node("Transpose", ("q4",), ("qh",), {"perm": (0, 2, 1, 3)}),
        Node("Reshape", ("r", "shape"), ("k4",), version=21),
        Node("Transpose", ("k4",), ("kh",), {"perm": (0, 2, 3, 1)}),
        Node("MatMul", ("qh", "kh"), ("scores",)),
        Node("MatMul", ("scores", "qh"), ("context",)),
        Node("Transpose", ("context",), ("moved",), {"perm": (0, 2, 1, 3)}),
        Node("Reshape", ("moved", "flat"), ("merged",), version=21),
        Node("MatMul", ("merged", "w"), ("y",)),
    ]
    partition = fuse(_graph(nodes, ["y"], w=WEIGHT, shape=shape, flat=flat))
    assert [group.stem for group in partition.groups] == ["matmul"] * 4
    scores = partition.program(partition.groups[1]).program
    assert len(scores.stages) == 1
    context = partition.groups[2]
    assert context.outputs == ("moved",)
    assert [size.as_int() for size in partition.program(context).program.outputs[0].shape] == [1, 8, 4, 4]
    assert partition.views["merged"] == "moved"


def _attention(axis: int = -1, *outputs: str) -> Partition:
    nodes = [
        Node("MatMul", ("x", "w"), ("scores",), version=21),
        Node("Relu", ("scores",), ("masked",), version=21),
        Node("Softmax", ("masked",), ("weights",), {"axis": axis}, version=21),
        Node("MatMul", ("weights", "w"), ("y",), version=21),
    ]
    return fuse(_graph(nodes, ["y", *outputs], w=WEIGHT))


def test_a_reduction_of_rows_between_contractions_is_one_group_with_them() -> None:
    (group,) = _attention().groups
    assert group.operators == ("MatMul", "Relu", "Softmax", "MatMul")
    assert group.kind is Kind.CONTRACTION
    assert group.inputs == ("x", "w")


def test_rows_that_others_read_end_a_chain() -> None:
    assert [group.stem for group in _attention(-1, "masked").groups] == ["matmul_relu", "softmax", "matmul"]
    assert [group.stem for group in _attention(-1, "weights").groups] == ["matmul_relu", "softmax", "matmul"]


def test_a_reduction_over_another_axis_is_no_chain() -> None:
    assert [group.stem for group in _attention(1).groups] == ["matmul_relu", "softmax", "matmul"]


def test_rows_too_long_for_the_cache_are_no_chain() -> None:
    graph = _attention().graph
    assert len(fuse(graph, FusionOptions(chain_bytes=1023)).groups) == 3
    assert len(fuse(graph, FusionOptions(chain_bytes=1024)).groups) == 1


def test_a_transposition_is_stored_or_read_through_but_not_both() -> None:
    nodes = [
        Node("MatMul", ("x", "w"), ("h",)),
        Node("Transpose", ("h",), ("t",), {"perm": (0, 2, 1)}),
        Node("MatMul", ("t", "v"), ("y",)),
    ]
    partition = fuse(_graph(nodes, ["y"], w=WEIGHT, v=np.ones((8, 4), np.float32)))
    assert [(group.inputs, group.outputs) for group in partition.groups] == [
        (("x", "w"), ("t",)),
        (("t", "v"), ("y",)),
    ]


@pytest.mark.parametrize(
    ("kinds", "stems"),
    [
        (("bf16", "f32"), ["matmul"]),
        (("f32", "f16", "f32"), ["slice", "cast", "matmul"]),
        (("i32", "f32"), ["slice", "cast", "matmul"]),
    ],
    ids=str,
)
def test_only_conversions_that_keep_every_number_are_read_through(
    kinds: tuple[str, ...], stems: list[str]
) -> None:
    first, *others = kinds
    nodes = [Node("Slice", ("x", "zero", "most", "axis"), ("c0",), version=13)]
    nodes += [Node("Cast", (f"c{n}",), (f"c{n + 1}",), {"to": to}) for n, to in enumerate(others)]
    nodes.append(Node("MatMul", ("w", f"c{len(others)}"), ("y",)))
    constants = {"w": np.ones((3, 6), np.float32)} | {name: np.array([at]) for name, at in PLACES}
    graph = typed_graph({"x": TensorType(first, (8, 4))}, ["y"], nodes, constants)
    partition = fuse(graph)
    assert [group.stem for group in partition.groups] == stems


PLACES = (("zero", 0), ("most", 6), ("axis", 0))


def test_a_view_that_divides_is_not_read_through() -> None:
    nodes = [
        Node("Transpose", ("x",), ("t",), {"perm": (0, 2, 1)}),
        Node("Reshape", ("t", "shape"), ("v",), version=21),
        Node("MatMul", ("v", "w"), ("y",)),
    ]
    partition = fuse(_graph(nodes, ["y"], w=WEIGHT, shape=np.array([1, 8, 16])))
    assert [group.stem for group in partition.groups] == ["transpose", "matmul"]


def test_equal_layers_have_equal_programs() -> None:
    partition = fuse(simplify(import_onnx(zoo.SMALL["bert_base"]())))
    texts = {str(partition.program(group).program.stages) for group in partition.groups}
    assert len(partition.groups) == 21
    assert len(texts) == 9


def test_an_output_may_be_an_input_a_constant_or_given_twice() -> None:
    nodes = [Node("Identity", ("x",), ("same",)), Node("Relu", ("x",), ("y",))]
    graph = simplify(_graph(nodes, ["same", "c", "y", "y"], c=np.ones(3, np.float32)))
    feeds = graph_feeds(graph)
    found = run_partition(fuse(graph), feeds)
    assert graph.output_names == ("same", "c", "y", "y")
    np.testing.assert_array_equal(found["same"], feeds["x"])
    np.testing.assert_array_equal(found["y"], np.maximum(feeds["x"], 0))


def test_nothing_is_fused_where_that_is_asked() -> None:
    partition = fuse(simplify(import_onnx(zoo.SMALL["bert_base"]())), NOTHING)
    assert all(len(group.nodes) == 1 for group in partition.groups)
    assert {group.kind for group in partition.groups} >= {Kind.CONTRACTION, Kind.MOVEMENT, Kind.ELEMENTWISE}


@given(random_graphs())
def test_programs_read_no_more_than_their_groups_say(graph: Graph) -> None:
    partition = fuse(simplify(graph))
    for group in partition.groups:
        made = partition.program(group)
        assert set(made.inputs.values()) <= set(group.inputs)
        assert tuple(made.outputs.values()) == group.outputs
        assert not any(value.endswith("shape") for value in made.inputs.values())


def test_places_that_runs_look_at_are_stored() -> None:
    types = {"x": TensorType("f32", (5, 4, 8)), "i": TensorType("i64", (5, 2, 1))}
    nodes = [
        Node("Expand", ("i", "shape"), ("wide",), version=21),
        Node("GatherElements", ("x", "wide"), ("found",), {"axis": 1}, version=21),
        Node("ReduceSum", ("found", "axes"), ("y",), version=21),
    ]
    graph = typed_graph(types, ["y"], nodes, {"shape": np.array([5, 2, 8]), "axes": np.array([1])})
    partition = fuse(graph)
    assert ("wide",) in [group.outputs for group in partition.groups]
