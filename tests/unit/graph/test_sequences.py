"""Sequences of known length, as exporters write them: the same as onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnx_models as tiny
import tilewright
from tilewright.graph import Node, Subgraph, TensorType, typed_graph
from tilewright.support import ModelError, UnsupportedOperatorError

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def _model(nodes, outputs, **constants):
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    return tiny.model(nodes, [tiny.tensor("x", X.shape)], infos, arrays)


def _check(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for got, want in zip(
        tilewright.compile(model, threads=1).run(None, {"x": X}), session.run(None, {"x": X}), strict=True
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("split", [None, np.int64(2), np.int64(4), np.array([1, 3, 2])])
@pytest.mark.parametrize("new_axis", [0, 1])
def test_parts_of_a_tensor_and_back(split, new_axis):
    if split is not None and split.ndim and new_axis:
        pytest.skip("parts of different sizes do not stack")
    if split is not None and int(np.max(split)) == 4 and new_axis:
        pytest.skip("parts of different sizes do not stack")
    constants = {"at": np.int64(-1)} | ({} if split is None else {"split": split})
    nodes = [
        helper.make_node(
            "SplitToSequence",
            ["x", *(["split"] if split is not None else [])],
            ["s"],
            axis=1,
            keepdims=int(split is not None),
        ),
        helper.make_node("SequenceAt", ["s", "at"], ["last"]),
        helper.make_node("SequenceLength", ["s"], ["n"]),
        helper.make_node(
            "ConcatFromSequence", ["s"], ["y"], axis=-1 if split is not None else 0, new_axis=new_axis
        ),
    ]
    _check(
        _model(
            nodes, {"last": TensorProto.FLOAT, "n": TensorProto.INT64, "y": TensorProto.FLOAT}, **constants
        )
    )


def test_sequences_that_grow_and_shrink():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["x"], ["b"]),
        helper.make_node("SequenceConstruct", ["x", "a"], ["s"]),
        helper.make_node("SequenceInsert", ["s", "b"], ["t"]),
        helper.make_node("SequenceInsert", ["t", "a", "zero"], ["u"]),
        helper.make_node("SequenceErase", ["u", "one"], ["v"]),
        helper.make_node("Identity", ["v"], ["w"]),
        helper.make_node("ConcatFromSequence", ["w"], ["y"], axis=0),
    ]
    _check(_model(nodes, {"y": TensorProto.FLOAT}, zero=np.int64(0), one=np.int64(1)))


@pytest.mark.parametrize("place", range(-2, 3))
def test_elements_are_inserted_before_places_from_either_end(place):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["x"], ["b"]),
        helper.make_node("SequenceConstruct", ["x", "a"], ["s"]),
        helper.make_node("SequenceInsert", ["s", "b", "place"], ["t"]),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    _check(_model(nodes, {"y": TensorProto.FLOAT}, place=np.int64(place)))


@pytest.mark.parametrize(("op", "place"), [("SequenceInsert", 3), ("SequenceInsert", -3), ("SequenceAt", 2)])
def test_places_outside_are_refused(op, place):
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node(op, ["s", *["x"] * (op == "SequenceInsert"), "place"], ["y"]),
    ]
    with pytest.raises(ModelError, match=f"place {place} is out of range for 2 elements"):
        tilewright.compile(_model(nodes, {"y": TensorProto.FLOAT}, place=np.int64(place)))


def _float(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def test_functions_are_mapped_over_sequences():
    body = helper.make_graph(
        [
            helper.make_node("Add", ["p", "r"], ["q"]),
            helper.make_node("Mul", ["q", "c"], ["u"]),
            helper.make_node("Sub", ["p", "row"], ["v"]),
        ],
        "body",
        [_float("p"), _float("r"), _float("c")],
        [_float("u"), _float("v")],
    )
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["s"]),
        helper.make_node("Neg", ["x"], ["e"]),
        helper.make_node("SplitToSequence", ["e", "two"], ["t"]),
        helper.make_node("SequenceMap", ["s", "t", "half"], ["u", "v"], body=body),
        helper.make_node("ConcatFromSequence", ["u"], ["y"], axis=0),
        helper.make_node("ConcatFromSequence", ["v"], ["z"], axis=1),
    ]
    constants = {"two": np.int64(2), "half": np.float32(0.5), "row": X[0]}
    _check(_model(nodes, {"y": TensorProto.FLOAT, "z": TensorProto.FLOAT}, **constants))


def test_loops_carry_sequences():
    step, going = (
        helper.make_tensor_value_info("at", TensorProto.INT64, []),
        helper.make_tensor_value_info("on", TensorProto.BOOL, []),
    )
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "at"], ["row"], axis=0),
            helper.make_node("SequenceInsert", ["s", "row", "zero"], ["t"]),
            helper.make_node("Identity", ["on"], ["still"]),
        ],
        "body",
        [step, going, helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("t", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Loop", ["four", "", "none"], ["rows"], body=body),
        helper.make_node("ConcatFromSequence", ["rows"], ["y"], axis=0, new_axis=1),
    ]
    _check(_model(nodes, {"y": TensorProto.FLOAT}, zero=np.int64(0), four=np.int64(4)))


_HALVES = Subgraph(("p", "q"), ("o",), (Node("Add", ("p", "q"), ("o",)),), {})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (("x", "x"), "its input 0 is no sequence"),
        (("s", "t"), "its input 1 has 4 elements, its input 0 has 2"),
        (("s",), "its body takes 2 values and makes 1; the node gives it 1 and wants 1"),
    ],
)
def test_what_functions_cannot_be_mapped_over(inputs, message):
    made = [
        Node("SplitToSequence", ("x", "two"), ("s",), version=21),
        Node("SplitToSequence", ("x",), ("t",), version=21),
        Node("SequenceMap", inputs, ("u",), {"body": _HALVES}, name="culprit", version=21),
        Node("ConcatFromSequence", ("u",), ("y",), {"axis": 0}, version=21),
    ]
    with pytest.raises(ModelError, match=f"'culprit'.*{message}"):
        typed_graph({"x": TensorType("f32", X.shape)}, ["y"], made, {"two": np.array(2)})


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        (
            [("SequenceConstruct", ["x"], "s"), ("SequenceAt", ["s", "three"], "y")],
            ModelError,
            "place 3 is out of",
        ),
        ([("SequenceErase", ["x"], "s"), ("SequenceAt", ["s", "three"], "y")], ModelError, "is no sequence"),
        ([("SequenceEmpty", [], "s"), ("SequenceErase", ["s"], "y")], ModelError, "the sequence is empty"),
        (
            [("SequenceConstruct", ["x"], "s"), ("Relu", ["s"], "y")],
            UnsupportedOperatorError,
            "is a sequence",
        ),
        ([("SequenceConstruct", ["x"], "y")], UnsupportedOperatorError, "output 'y' is a sequence"),
        ([("Optional", [], "y")], UnsupportedOperatorError, "an optional value that is not there"),
        (
            [("SplitToSequence", ["x", "three"], "s"), ("SequenceAt", ["s", "x"], "y")],
            ModelError,
            "one element",
        ),
        ([("SplitToSequence", ["x", "none"], "y")], ModelError, "parts of 0 elements"),
        ([("SplitToSequence", ["long"], "y")], UnsupportedOperatorError, "1025 parts; at most 1024 are made"),
    ],
    ids=str,
)
def test_what_sequences_cannot_be(nodes, error, message):
    made = [Node(op, tuple(inputs), (output,), name="culprit", version=21) for op, inputs, output in nodes]
    constants = {"three": np.array(3), "none": np.array(0)}
    if message == "one element":
        constants["x"] = X
        given = {}
    else:
        given = {"x": TensorType("f32", X.shape), "long": TensorType("f32", (1025, 1))}
    with pytest.raises(error, match=message):
        typed_graph(given, ["y"], made, constants)
