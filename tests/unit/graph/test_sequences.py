"""Sequences of known length, as exporters write them: the same as onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnx_models as tiny
import tilewright
from tilewright.graph import Node, TensorType, typed_graph
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
