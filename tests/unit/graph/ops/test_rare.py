"""Operators that few models have: determinants, deformable convolutions, seeded numbers, narrow integers."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnx_models as tiny
import tilewright
from tilewright.support import ModelError, UnsupportedOperatorError

RNG = np.random.default_rng(11)


def _one(op, inputs, output, elem=TensorProto.FLOAT, **attributes):
    node = helper.make_node(op, list(inputs), ["y"], name="culprit", **attributes)
    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
    given = [helper.make_tensor_value_info(n, kinds[a.dtype.name], a.shape) for n, a in inputs.items()]
    made = [helper.make_tensor_value_info("y", elem, output)]
    graph = helper.make_graph([node], "g", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_determinants(size):
    x = RNG.standard_normal((5, size, size)).astype(np.float32)
    x[1] = 0
    x[2, 0, 0] = 0
    x[3] = np.eye(size)[::-1]
    (y,) = tilewright.compile(_one("Det", {"x": x}, (5,)), threads=1)(x)
    np.testing.assert_allclose(y, np.linalg.det(x.astype(np.float64)), rtol=1e-4, atol=1e-4)


def test_determinants_that_are_refused():
    with pytest.raises(ModelError, match="are not square"):
        tilewright.compile(_one("Det", {"x": np.zeros((3, 4), np.float32)}, ()))
    with pytest.raises(UnsupportedOperatorError, match="determinants of 65 rows"):
        tilewright.compile(_one("Det", {"x": np.zeros((65, 65), np.float32)}, ()))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("group", "moved", "masked", "attributes"),
    [
        (1, 1, False, {}),
        (2, 1, True, {"pads": [1, 1, 1, 1]}),
        (1, 2, True, {"strides": [2, 1], "dilations": [1, 2]}),
    ],
)
def test_convolutions_moved_by_data(group, moved, masked, attributes):
    x = RNG.standard_normal((2, 4, 8, 9)).astype(np.float32)
    w = RNG.standard_normal((6, 4 // group, 3, 3)).astype(np.float32)
    plain = helper.make_node("Conv", ["x", "w"], ["y"], group=group, **attributes)
    graph = helper.make_graph(
        [plain], "g", [tiny.tensor("x", x.shape), tiny.tensor("w", w.shape)], [tiny.tensor("y", None)]
    )
    shape = ReferenceEvaluator(helper.make_model(graph)).run(None, {"x": x, "w": w})[0].shape
    inputs = {
        "x": x,
        "w": w,
        "o": (RNG.standard_normal((2, moved * 18, *shape[2:])) * 2).astype(np.float32),
        "b": RNG.standard_normal(6).astype(np.float32),
    }
    if masked:
        inputs["m"] = RNG.random((2, moved * 9, *shape[2:]), np.float32)
    model = _one("DeformConv", inputs, shape, group=group, offset_group=moved, **attributes)
    (want,) = ReferenceEvaluator(model).run(None, inputs)
    (got,) = tilewright.compile(model, threads=1).run(None, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"o": (1, 17, 6, 6)}, r"offsets \[1, 17, 6, 6\] must be \[1, 18, 6, 6\]"),
        ({"m": (1, 8, 6, 6)}, r"a mask \[1, 8, 6, 6\] must be"),
        ({"b": (5,)}, r"a bias \[5\] for 3 channels"),
        ({"w": (3, 3, 3, 3)}, "in 1 groups do not fit"),
        ({"x": (1, 2, 8)}, "are those of images"),
    ],
)
def test_convolutions_moved_by_data_that_are_refused(change, message):
    shapes = {"x": (1, 2, 8, 8), "w": (3, 2, 3, 3), "o": (1, 18, 6, 6), "b": (3,), "m": (1, 9, 6, 6)} | change
    inputs = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(ModelError, match=message):
        tilewright.compile(_one("DeformConv", inputs, (1, 3, 6, 6)))
    inputs["o"] = np.zeros((1, 36, 6, 6), np.float32)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_with_as_many_samples_as_pixels(mode):
    x = RNG.standard_normal((2, 3, 20, 24)).astype(np.float32)
    rois = np.array([[0, 0, 23, 19], [2, 3, 9, 5], [-4, 1, 30, 12], [5, 5, 5.5, 6]], np.float32)
    images = np.array([0, 1, 1, 0], np.int64)
    inputs = {"x": x, "rois": rois, "images": images}
    model = _one(
        "RoiAlign", inputs, (4, 3, 4, 5), output_height=4, output_width=5, sampling_ratio=0, mode=mode
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, inputs)
    (got,) = tilewright.compile(model, threads=1).run(None, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def _random(op, **attributes):
    inputs = {"x": np.zeros((300, 40), np.float32)}
    node = helper.make_node(op, ["x"] if op.endswith("Like") else [], ["r"], name="culprit", **attributes)
    add = helper.make_node("Add", ["x", "r"], ["y"])
    model = tiny.model([node, add], [tiny.tensor("x", (300, 40))], [tiny.tensor("y", (300, 40))], {})
    return tilewright.compile(model, threads=1).run(None, inputs)[0]


@pytest.mark.parametrize("like", [False, True])
def test_numbers_with_a_seed_are_drawn_once(like):
    shape = {} if like else {"shape": [300, 40]}
    suffix = "Like" if like else ""
    normal = _random(f"RandomNormal{suffix}", seed=3.0, mean=2.0, scale=0.5, **shape)
    assert abs(normal.mean() - 2) < 0.05 and abs(normal.std() - 0.5) < 0.05
    uniform = _random(f"RandomUniform{suffix}", seed=3.0, low=-1.0, high=3.0, **shape)
    assert uniform.min() >= -1 and uniform.max() < 3 and abs(uniform.mean() - 1) < 0.1
    assert np.array_equal(uniform, _random(f"RandomUniform{suffix}", seed=3.0, low=-1.0, high=3.0, **shape))
    assert not np.array_equal(
        uniform, _random(f"RandomUniform{suffix}", seed=4.0, low=-1.0, high=3.0, **shape)
    )
    with pytest.raises(UnsupportedOperatorError, match="random numbers that differ from run to run"):
        _random(f"RandomUniform{suffix}", **shape)


@pytest.mark.parametrize(
    ("kind", "domain", "opset"),
    [
        ("INT4", "", 25),
        ("UINT4", "", 25),
        ("INT2", "", 25),
        ("UINT2", "", 25),
        ("INT4", "com.microsoft", 17),
        ("UINT4", "com.microsoft", 17),
    ],
)
def test_narrow_integers_are_quantised_moved_and_dequantised(kind, domain, opset):
    elem = getattr(TensorProto, kind)
    x = (RNG.standard_normal((6, 8)) * 4).astype(np.float32)
    zero = helper.make_tensor("zero", elem, [], [1])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], domain=domain),
        helper.make_node("Transpose", ["q"], ["t"], perm=[1, 0]),
        helper.make_node("DequantizeLinear", ["t", "scale", "zero"], ["y"], domain=domain),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [tiny.tensor("x", x.shape)],
        [tiny.tensor("y", (8, 6))],
        [numpy_helper.from_array(np.float32(0.7), "scale"), zero],
    )
    versions = {"": opset} | ({domain: 1} if domain else {})
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in versions.items()])
    bits, signed = int(kind[-1]), kind.startswith("I")
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    want = ((np.clip(np.rint(x / np.float32(0.7)) + 1, low, high) - 1) * np.float32(0.7)).T
    if not domain:
        onnx.checker.check_model(model)
    np.testing.assert_allclose(tilewright.compile(model, threads=1)(x)[0], want, rtol=1e-6)


def test_arithmetic_of_narrow_integers_is_refused():
    zero = helper.make_tensor("zero", TensorProto.INT4, [], [0])
    nodes = [
        helper.make_node("Cast", ["x"], ["q"], to=TensorProto.INT4),
        helper.make_node("Abs", ["q"], ["y"], name="culprit"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [tiny.tensor("x", (3,))],
        [helper.make_tensor_value_info("y", TensorProto.INT4, (3,))],
        [zero],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    with pytest.raises(UnsupportedOperatorError, match="arithmetic on values of type i4"):
        tilewright.compile(model)
