"""Small types as inputs and outputs of models: arrays of their own types, a byte an element."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.driver import verify_model
from tilewright.support import InputError

X = np.array([[-9, -8, -1.5, 0], [1.5, 3, 7, 15]], np.float32)
INTEGERS = ("INT4", "UINT4", "INT2", "UINT2")
FLOATS = {
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
}
KINDS = (*INTEGERS, *FLOATS)


def _model(kind, nodes, inputs=(("x", TensorProto.FLOAT),)):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, type_, (2, 4)) for name, type_ in inputs],
        [helper.make_tensor_value_info("y", getattr(TensorProto, kind), (2, 4))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)


def _cast(kind):
    return _model(kind, [helper.make_node("Cast", ["x"], ["y"], to=getattr(TensorProto, kind))])


def _right(kind):
    if kind in FLOATS:
        return X.astype(FLOATS[kind])
    narrow = np.dtype(getattr(ml_dtypes, kind.lower()))
    return X.astype(np.int64).astype(narrow)


def _same(got, kind):
    assert got.dtype == _right(kind).dtype
    np.testing.assert_array_equal(got.astype(np.float32), _right(kind).astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_results_have_the_type_that_the_model_says(kind, tmp_path):
    model = tw.compile(_cast(kind), threads=1)
    assert model.outputs[0].dtype == _right(kind).dtype
    _same(model.run(None, {"x": X})[0], kind)
    _same(model.run(["y"], {"x": X})[0], kind)
    _same(model.bind({"x": X}).run()[0], kind)
    out = np.zeros((2, 4), _right(kind).dtype)
    _same(model.run(None, {"x": X}, out=[out])[0], kind)
    _same(out, kind)
    model.save(tmp_path / "m.tw")
    _same(tw.load(tmp_path / "m.tw").run(None, {"x": X})[0], kind)


def test_results_of_branches_and_constants_have_it_too():
    branches = {
        name: helper.make_graph(
            [helper.make_node("Cast", [value], ["b"], to=TensorProto.INT4)],
            name,
            [],
            [helper.make_tensor_value_info("b", TensorProto.INT4, (2, 4))],
        )
        for name, value in (("then_branch", "x"), ("else_branch", "n"))
    }
    model = _model(
        "INT4", [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("If", ["c"], ["y"], **branches)]
    )
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, ()))
    compiled = tw.compile(model, threads=1, constants={"c": np.array(True)})
    _same(compiled.run(None, {"x": X})[0], "INT4")
    _same(tw.compile(_cast("INT4"), threads=1, constants={"x": X}).run(None, {})[0], "INT4")


def _bytes_of(kind):
    return np.int8 if kind.startswith("I") else np.uint8


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_are_quantised_moved_looked_up_and_dequantised(kind):
    """By blocks of four, with scales of their own."""
    type_, x = getattr(TensorProto, kind), np.random.default_rng(3).standard_normal((6, 8)).astype(np.float32)
    scale = np.abs(x.reshape(6, 2, 4)).max(axis=2) / 4
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], axis=1, block_size=4, output_dtype=type_),
        helper.make_node("Gather", ["q", "i"], ["g"]),
        helper.make_node("Gather", ["s", "i"], ["t"]),
        helper.make_node("DequantizeLinear", ["g", "t"], ["y"], axis=1, block_size=4),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (6, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 8))],
        [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(np.array([4, 0, 5]), "i")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    wide = np.repeat(scale, 4, axis=1)
    want = ((x / wide).astype(FLOATS[kind]).astype(np.float32) * wide)[[4, 0, 5]]
    np.testing.assert_allclose(tw.compile(model, threads=1)(x)[0], want, rtol=1e-6)


@pytest.mark.parametrize("kind", INTEGERS)
def test_inputs_are_arrays_of_the_type_or_of_bytes(kind, tmp_path):
    nodes = [helper.make_node("Transpose", ["q"], ["t"]), helper.make_node("Transpose", ["t"], ["y"])]
    model = tw.compile(_model(kind, nodes, [("q", getattr(TensorProto, kind))]), threads=1)
    model.save(tmp_path / "m.tw")
    for run in (model, tw.load(tmp_path / "m.tw")):
        for given in (_right(kind), np.asfortranarray(_right(kind)), _right(kind).astype(_bytes_of(kind))):
            _same(run.run(None, {"q": given})[0], kind)
    assert model.sample_feeds()["q"].dtype == _right(kind).dtype
    with pytest.raises(InputError, match="got elements of float32"):
        model.run(None, {"q": X})


@pytest.mark.parametrize("reference", ["onnx", "onnxruntime"])
def test_small_floats_are_verified(reference):
    model = _cast("FLOAT8E4M3FN")
    model.opset_import[0].version, model.ir_version = 21, 10
    assert verify_model(tw.compile(model, threads=1), model, {"x": X}, reference).ok


def test_saved_models_give_bf16(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 4))],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, (2, 4))],
    )
    model = tw.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    model.save(tmp_path / "m.tw")
    for run in (model, tw.load(tmp_path / "m.tw")):
        (y,) = run.run(None, {"x": X})
        assert y.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(y.astype(np.float32), X)


def test_inputs_may_be_fixed_when_compiling():
    nodes = [helper.make_node("Transpose", ["q"], ["t"]), helper.make_node("Transpose", ["t"], ["y"])]
    model = _model("INT4", nodes, [("q", TensorProto.INT4)])
    for given in (_right("INT4"), _right("INT4").astype(np.int8)):
        _same(tw.compile(model, threads=1, constants={"q": given}).run(None, {})[0], "INT4")
