"""Texts of tabular models: inputs that are looked up, labels that are returned, maps."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.support import InputError, UnsupportedOperatorError

S, I64, F32 = TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT
COLOURS = np.array([["red"], ["blue"], ["none of these"]], object)


def _model(nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, type_, shape) for name, type_, shape in inputs],
        [helper.make_tensor_value_info(name, type_, None) for name, type_ in outputs],
        initializers,
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def _ml(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, domain="ai.onnx.ml", **attributes)


def _classifier(maps=True):
    nodes = [
        _ml(
            "LinearClassifier",
            ["x"],
            ["l", "p"],
            coefficients=[1.0, -1.0, 0.0, 0.0],
            intercepts=[0.0, 0.25],
            classlabels_strings=["no", "yes"],
        )
    ]
    model = _model(nodes, [("x", F32, (3, 2))], [("l", S), ("p", F32)])
    if maps:
        model.graph.node.append(_ml("ZipMap", ["p"], ["m"], classlabels_strings=["no", "yes"]))
        model.graph.output[1].CopyFrom(
            helper.make_value_info(
                "m",
                helper.make_sequence_type_proto(
                    helper.make_map_type_proto(S, helper.make_tensor_type_proto(F32, None))
                ),
            )
        )
    return model


X = np.array([[1, 0], [0, 1], [0, 0]], np.float32)


def _runs(model, tmp_path, **options):
    compiled = tw.compile(model, threads=1, **options)
    compiled.save(tmp_path / "m.tw")
    return compiled, tw.load(tmp_path / "m.tw")


def test_labels_are_texts_and_scores_are_maps(tmp_path):
    for run in _runs(_classifier(), tmp_path):
        labels, maps = run.run(None, {"x": X})
        assert labels.dtype == object and labels.tolist() == ["no", "yes", "yes"]
        assert maps == [{"no": 1.0, "yes": 0.25}, {"no": -1.0, "yes": 0.25}, {"no": 0.0, "yes": 0.25}]
        assert run.run(["l"], {"x": X})[0].tolist() == ["no", "yes", "yes"]
        assert run.bind({"x": X}).run()[0].tolist() == ["no", "yes", "yes"]
        assert str(run.outputs[0]) == "'l': str[3]"


def test_texts_are_looked_up(tmp_path):
    nodes = [
        _ml(
            "LabelEncoder", ["c"], ["k"], keys_strings=["red", "blue"], values_int64s=[4, 9], default_int64=-7
        ),
        _ml("OneHotEncoder", ["c"], ["o"], cats_strings=["blue", "green", "red"]),
        helper.make_node("Equal", ["c", "wanted"], ["e"]),
    ]
    wanted = helper.make_tensor("wanted", S, [1], [b"blue"])
    outputs = [("k", I64), ("o", F32), ("e", TensorProto.BOOL)]
    for run in _runs(_model(nodes, [("c", S, (3, 1))], outputs, [wanted]), tmp_path):
        for given in (COLOURS, COLOURS.astype(str)):
            k, o, e = run.run(None, {"c": given})
            assert k.ravel().tolist() == [4, 9, -7]
            assert o[:, 0].tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
            assert e.ravel().tolist() == [False, True, False]
        assert run.sample_feeds()["c"].dtype == object
        with pytest.raises(InputError, match="got elements of float32"):
            run.run(None, {"c": np.zeros((3, 1), np.float32)})


def test_numbers_become_texts():
    """As exporters write classes of texts: the place of the largest score, the class at that place."""
    classes = helper.make_tensor("classes", S, [2], [b"a", "\u00e9".encode()])
    nodes = [
        helper.make_node("ArgMax", ["x"], ["i"], axis=1, keepdims=0),
        _ml("ArrayFeatureExtractor", ["classes", "i"], ["t"]),
        helper.make_node("Cast", ["t"], ["u"], to=S),
        helper.make_node("Flatten", ["u"], ["y"], axis=0),
        _ml("LabelEncoder", ["i"], ["z"], keys_int64s=[0], values_strings=["first"], default_string="other"),
    ]
    compiled = tw.compile(_model(nodes, [("x", F32, (3, 2))], [("y", S), ("z", S)], [classes]), threads=1)
    y, z = compiled.run(None, {"x": X})
    assert y.tolist() == [["a", "\u00e9", "a"]] and z.tolist() == ["first", "other", "first"]


def test_texts_that_cannot_be_told_apart_are_refused():
    for nodes, message in (
        ([helper.make_node("Identity", ["c"], ["y"])], "returns 'y', whose texts are those of an input"),
        ([helper.make_node("Equal", ["c", "c"], ["y"])], "holds texts, which it does not move or look up"),
        ([helper.make_node("Unique", ["c"], ["y"])], "holds texts, which it does not move or look up"),
    ):
        with pytest.raises(UnsupportedOperatorError, match=message):
            tw.compile(_model(nodes, [("c", S, (3, 1))], [("y", S)]), threads=1)


def test_results_that_are_no_arrays_of_numbers_are_not_written_to_any():
    model = tw.compile(_classifier(), threads=1)
    with pytest.raises(InputError, match="no array of numbers"):
        model.run(["l"], {"x": X}, out=[np.zeros(3, np.int64)])


def test_models_with_texts_are_compiled_for_each_size(caplog):
    model = _classifier()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    compiled = tw.compile(model, threads=1, dynamic={"n": (1, 8)})
    assert "models with open sizes do not have" in caplog.text
    for rows in (1, 3):
        labels, maps = compiled.run(None, {"x": X[:rows]})
        assert labels.tolist() == ["no", "yes", "yes"][:rows] and len(maps) == rows
