"""Nodes of ONNX models that cannot be compiled, and what each is told: the node by name, and why."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import tilewright
from errors.test_onnx_models import RELU, _model, _value, refused
from tilewright.frontend import import_onnx
from tilewright.frontend.onnx.tensors import tensor_array
from tilewright.graph import Graph, Node, Subgraph, TensorType, evaluate_graph, typed_graph
from tilewright.support import InputError, ModelError, ResourceError, UnsupportedOperatorError

FLOAT, DOUBLE, INT32, INT64, BOOL = (
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.BOOL,
)


def _constant(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def _sparse(name):
    return helper.make_sparse_tensor(_constant(name, [1.0]), _constant("at", [2], np.int64), [4])


def _recurrent(steps=3, lengths=None, **attributes):
    weights = [_constant("w", np.ones((1, 4, 3))), _constant("r", np.ones((1, 4, 4)))]
    inputs = ["x", "w", "r"]
    if lengths is not None:
        weights.append(_constant("lengths", lengths, np.int32))
        inputs += ["", "lengths"]
    node = helper.make_node("RNN", inputs, ["y"], name="culprit", hidden_size=4, **attributes)
    return _model(
        node,
        inputs=[_value("x", steps, 2, 3)],
        outputs=[_value("y", None, None, None, None)],
        weights=weights,
    )


def _node(op, *inputs, elem=FLOAT, shape=(2, 3), opset=21, weights=(), out=FLOAT, **attributes):
    node = helper.make_node(op, ["x", *inputs], ["y"], name="culprit", **attributes)
    return _model(
        node,
        inputs=[_value("x", *shape, elem=elem)],
        outputs=[_value("y", *[None] * len(shape), elem=out)],
        weights=weights,
        opset=opset,
    )


#: A model of one node, and what is said of it.
UNSUPPORTED = {
    "erf of integers": (lambda: _node("Erf", elem=INT32, out=INT32), "Erf of i32"),
    "quantisation to a float": (
        lambda: _node(
            "QuantizeLinear",
            "scale",
            weights=[_constant("scale", 1.0)],
            out=TensorProto.FLOAT16,
            output_dtype=TensorProto.FLOAT16,
        ),
        "quantisation to f16",
    ),
    "another activation": (lambda: _recurrent(activations=["Swish"]), "the activation 'swish'"),
    "a long sequence": (lambda: _recurrent(steps=1_000_000), "1000000 steps; at most"),
    "log-sum-exp of integers": (
        lambda: _node("ReduceLogSumExp", elem=INT32, out=INT32),
        "ReduceLogSumExp of i32",
    ),
    "a constant of text": (
        lambda: _model(
            helper.make_node("Constant", [], ["c"], name="culprit", value_string="text"),
            helper.make_node("Identity", ["c"], ["y"]),
            outputs=[_value("y", elem=TensorProto.STRING)],
        ),
        "a constant that is no dense tensor of numbers",
    ),
    "bits of another width": (
        lambda: _node("BitCast", opset=26, to=DOUBLE, out=DOUBLE),
        "reinterpreting f32 as f64",
    ),
    "an unknown element type": (
        lambda: _node("Cast", to=TensorProto.STRING, out=TensorProto.STRING),
        "string",
    ),
    "a sparse constant": (
        lambda: _model(
            helper.make_node("Constant", [], ["c"], name="culprit", sparse_value=_sparse("c")), RELU
        ),
        "the attribute 'sparse_value' is of the kind sparse_tensor",
    ),
}


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_what_cannot_be_compiled_names_the_node(what):
    make, message = UNSUPPORTED[what]
    refused(make(), UnsupportedOperatorError, message, "'culprit'")


# ---- models that are not well formed ----


def test_sparse_weights_are_named():
    model = _model(RELU)
    model.graph.sparse_initializer.append(_sparse("thin"))
    refused(model, UnsupportedOperatorError, "the sparse initializer 'thin' is not supported")


def test_names_that_are_no_text():
    data = _model(RELU).SerializeToString().replace(b"relu", b"\xff\xfe\xff\xfe")
    refused(data, ModelError, "it holds a name that is not UTF-8 text")


def test_an_input_of_negative_size():
    refused(_model(RELU, inputs=[_value("x", -2, 3)]), ModelError, "the input 'x' has a negative size")


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places_in_axes_without_elements(op):
    for keep in (0, 1):
        model = _node(op, shape=(3, 0), axis=1, keepdims=keep, out=INT64)
        with pytest.raises(ModelError, match=r"'culprit'.*the axis 1 that it searches has no elements"):
            tilewright.compile(model)
    nothing = tilewright.compile(_node(op, shape=(0, 0), axis=1, out=INT64))
    assert nothing(np.zeros((0, 0), np.float32))[0].shape == (0, 1)


def test_attributes_that_are_no_text():
    node = helper.make_node("DepthToSpace", ["x"], ["y"], name="culprit", blocksize=1)
    node.attribute.add(name="mode", type=AttributeProto.STRING, s=b"\xff\xfe")
    refused(
        _model(node, inputs=[_value("x", 1, 1, 2, 2)]), ModelError, "'culprit'", "'mode' is not valid text"
    )


def test_tensors_whose_data_does_not_fit():
    # the onnx package's checker finds these in whole models; what reads tensors does not rely on it
    with pytest.raises(ModelError, match=r"the weight 'w' has a negative size: \[-1\]"):
        tensor_array(TensorProto(name="w", data_type=FLOAT, dims=[-1]), None, 1 << 20, "weight")
    short = TensorProto(name="w", data_type=FLOAT, dims=[4], float_data=[1.0])
    with pytest.raises(
        ModelError, match=r"the weight 'w' has the shape \[4\] and 1 elements of data instead of 4"
    ):
        tensor_array(short, None, 1 << 20, "weight")


def test_a_function_that_calls_itself_directly():
    model = _model(helper.make_node("F", ["x"], ["y"], domain="custom"))
    model.opset_import.append(helper.make_opsetid("custom", 1))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("custom", 1)]
    call = helper.make_node("F", ["a"], ["b"], domain="custom")
    model.functions.append(helper.make_function("custom", "F", ["a"], ["b"], [call], opsets))
    refused(model, ModelError, "the function 'F' calls itself")


def test_functions_that_the_onnx_package_cannot_expand(monkeypatch):
    model = _model(helper.make_node("F", ["x"], ["y"], domain="custom"))
    model.opset_import.append(helper.make_opsetid("custom", 1))
    body = helper.make_node("Neg", ["a"], ["b"])
    opsets = [helper.make_opsetid("", 21)]
    model.functions.append(helper.make_function("custom", "F", ["a"], ["b"], [body], opsets))

    def fails(*args):
        raise RuntimeError("no\nway")

    monkeypatch.setattr("tilewright.frontend.onnx.functions.inliner.inline_local_functions", fails)
    refused(model, ModelError, "the functions of", "cannot be expanded: no")


def test_a_model_that_expands_without_end(monkeypatch):
    monkeypatch.setattr("tilewright.frontend.onnx.importer.MAX_NODES", 0)
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["y"], name="culprit")
    inputs = [_value("x", 4, 5), _value("labels", 4, elem=INT64)]
    model = _model(node, inputs=inputs, outputs=[_value("y")])
    refused(model, ResourceError, "'culprit'", "the model expands to more than 0 nodes")


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"x")

    def denied(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", denied)
    refused(path, ModelError, "model.onnx", "cannot be read: Permission denied")


def test_external_data_that_ends_while_it_is_read(tmp_path, monkeypatch):
    (tmp_path / "w.bin").write_bytes(bytes(48))
    weight = TensorProto(name="w", data_type=FLOAT, dims=[3, 4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="w.bin")
    path = tmp_path / "model.onnx"
    path.write_bytes(
        _model(helper.make_node("MatMul", ["x", "w"], ["y"]), weights=[weight]).SerializeToString()
    )

    class Short:
        def __enter__(self):
            return self

        def __exit__(self, *args):
            return None

        def seek(self, offset):
            return offset

        def read(self, length):
            return bytes(length - 1)

    monkeypatch.setattr("tilewright.frontend.onnx.tensors.os.fdopen", lambda *args, **kwargs: Short())
    refused(path, ModelError, "'w.bin'", "ended while it was read")


# ---- graphs built by hand ----

X = TensorType("f32", (2, 3))


def _typed(*nodes, **constants):
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    return typed_graph({"x": X}, ["y"], nodes, arrays)


def test_a_value_that_is_there_already():
    with pytest.raises(ModelError, match=r"node 'again' \(Neg\): makes 'x', which is there already"):
        _typed(Node("Neg", ("x",), ("x",), name="again"), Node("Neg", ("x",), ("y",)))


def test_branches_and_bodies_that_are_not_there():
    yes = {"c": np.array(True)}
    with pytest.raises(ModelError, match=r"node 'fork' \(If\): a branch is missing"):
        _typed(Node("If", ("c",), ("y",), name="fork"), **yes)
    with pytest.raises(ModelError, match=r"node 'loop' \(Loop\): its body is missing"):
        _typed(Node("Loop", ("n", "c", "x"), ("y",), name="loop"), n=np.int64(2), **yes)
    body = Subgraph(("s", "e"), ("s", "o"), (Node("Add", ("s", "e"), ("o",)),), {})
    with pytest.raises(
        ModelError, match="its body takes 2 values and makes 2; the node gives it 3 and wants 2"
    ):
        _typed(Node("Loop", ("n", "c", "x"), ("y",), {"body": body}, name="loop"), n=np.int64(2), **yes)
    attributes = {"body": body, "num_scan_inputs": 1}
    with pytest.raises(
        ModelError, match="its body takes 2 values and makes 2; the node gives it 1 and wants 1"
    ):
        _typed(Node("Scan", ("x",), ("y",), attributes, name="scan", version=21))
    attributes = {"body": body, "num_scan_inputs": 1, "scan_input_axes": (0, 1)}
    with pytest.raises(ModelError, match="the attribute scan_input_axes must have 1 entries"):
        _typed(Node("Scan", ("x", "x"), ("z", "y"), attributes, name="scan", version=21))


def _hand_made(**changes):
    fields = {
        "inputs": ("x",),
        "outputs": ("y",),
        "nodes": (Node("Relu", ("x",), ("y",)),),
        "constants": {},
        "types": {"x": X, "y": X},
    }
    return Graph(**{**fields, **changes})


def test_inputs_and_constants_have_names_of_their_own():
    with pytest.raises(ModelError, match="two inputs of the model have the same name"):
        _hand_made(inputs=("x", "x")).check()
    with pytest.raises(ModelError, match="the value 'x' is both an input and a constant"):
        _hand_made(constants={"x": np.zeros((2, 3), np.float32)}).check()


def test_the_evaluator_names_the_input():
    graph = import_onnx(_model(RELU))
    with pytest.raises(InputError, match="the input 'x' is missing"):
        evaluate_graph(graph, {})
    with pytest.raises(InputError, match=r"the input 'x' is f32\[3\] and should be f32\[2, 3\]"):
        evaluate_graph(graph, {"x": np.zeros(3, np.float32)})


def test_a_definition_that_stumbles_names_the_node():
    refused(_node("Transpose", perm=[0, 5]), ModelError, "node 'culprit' (Transpose)")
    blocks = Node("DepthToSpace", ("x",), ("y",), {"blocksize": 2}, name="deep", version=21)
    with pytest.raises(
        ModelError, match=r"node 'deep' .*: its attributes, or the shapes of its inputs, do not"
    ):
        _typed(blocks)
    with pytest.raises(ModelError, match=r"node 'both' \(And\): `&` on values of type f32"):
        _typed(Node("And", ("x", "x"), ("y",), name="both", version=21))


def test_outputs_and_types_that_an_operator_does_not_give():
    with pytest.raises(UnsupportedOperatorError, match=r"node 'act' \(Relu\): its output 1 is not supported"):
        _typed(Node("Relu", ("x",), ("y", "z"), name="act"))
    node = Node("QuantizeLinear", ("x", "s"), ("y",), {"output_dtype": "f16"}, name="coarse", version=21)
    with pytest.raises(UnsupportedOperatorError, match=r"node 'coarse' .*: quantisation to f16"):
        _typed(node, s=np.float32(1))
