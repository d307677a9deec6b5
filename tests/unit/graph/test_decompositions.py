"""Operators of onnxruntime's own domain, taken apart: what they compute, and what they become."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, save_model

import onnx_models as tiny
import tilewright
from contrib_cases import CASES, MICROSOFT
from tilewright.frontend import import_onnx
from tilewright.graph import (
    INTEGER_PASSES,
    PASSES,
    Graph,
    Node,
    TensorType,
    evaluate_graph,
    simplify,
    typed_graph,
)
from tilewright.support import ModelError, UnsupportedOperatorError

#: Compiled as well: one operator of each kind that needs more than what other tests compile.
COMPILED = (
    "skip",
    "4 bits, zeros",
    "rotary, interleaved, from a place on",
    "groups, a step",
    "quantised convolution",
)


def _compare(found, wanted):
    for made, expected in zip(found, wanted, strict=True):
        assert made.shape == expected.shape and made.dtype == expected.dtype
        if made.dtype.kind == "f":
            largest = max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5 * largest)
        else:
            # Halves are rounded up or down by how the quotient was computed.
            assert np.abs(made.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("passes", [PASSES, INTEGER_PASSES], ids=["floats", "integers"])
@pytest.mark.parametrize("name", CASES)
def test_operators_compute_their_formulas(name, passes):
    case = CASES[name]
    graph = simplify(import_onnx(case.model()), passes)
    graph.check()
    assert not any(node.domain == MICROSOFT and node.op != "RotaryEmbedding" for node in graph.nodes)
    _compare(evaluate_graph(graph, case.feeds).values(), case.results())


@pytest.mark.parametrize("name", COMPILED)
def test_operators_compile(name):
    case = CASES[name]
    _compare(tilewright.compile(case.model(), threads=1).run(None, case.feeds), case.results())


def _graph(node: Node, **inputs: tuple[str, tuple[int, ...]]) -> Graph:
    types = {name: TensorType(*described) for name, described in inputs.items()}
    return typed_graph(types, ["y"], [node], {})


def test_quantised_operators_become_pairs_of_conversions():
    case = CASES["quantised convolution"]
    ops = [node.op for node in import_onnx(case.model()).nodes]
    assert ops.count("DequantizeLinear") == 2 and ops[-2:] == ["QuantizeLinear", "Identity"] and "Conv" in ops
    integers = simplify(import_onnx(case.model()), INTEGER_PASSES)
    assert "ConvInteger" in {node.op for node in integers.nodes}


def test_parts_carry_the_name_of_the_users_node():
    node = Node("BiasGelu", ("x", "b"), ("y",), name="mine", domain=MICROSOFT)
    graph = _graph(node, x=("f32", (2, 3)), b=("f32", (3,)))
    assert {part.location.name for part in graph.nodes} == {"mine"}
    with pytest.raises(ModelError, match=r"node 'mine' .*do not broadcast"):
        _graph(node, x=("f32", (2, 3)), b=("f32", (4,)))
    with pytest.raises(ModelError, match=r"node 'mine' .*it has 1 inputs, which is not what it takes"):
        _graph(Node("BiasGelu", ("x",), ("y",), name="mine", domain=MICROSOFT), x=("f32", (2, 3)))


def test_layer_normalisations_that_onnxruntime_files_under_the_standard():
    scale = np.arange(1, 4, dtype=np.float32)
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"], epsilon=1e-5)
    model = tiny.model([node], [tiny.tensor("x", (2, 3))], [tiny.tensor("y", (2, 3))], {"s": scale})
    model.opset_import[0].version = 12
    x = np.array([[1, 2, 4], [0, -1, 5]], np.float32)
    (made,) = evaluate_graph(import_onnx(model), {"x": x}).values()
    wanted = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


#: Nodes that are refused: attributes, inputs' types, and what is said.
REFUSED = {
    "another activation": (
        Node("FusedConv", ("x", "w"), ("y",), {"activation": "Affine"}, domain=MICROSOFT),
        {"x": ("f32", (1, 2, 4, 4)), "w": ("f32", (2, 2, 3, 3))},
        "the activation 'Affine'",
    ),
    "statistics": (
        Node("SkipLayerNormalization", ("x", "x", "g"), ("y", "mean"), domain=MICROSOFT),
        {"x": ("f32", (1, 2, 4)), "g": ("f32", (4,))},
        "its output 1 is not supported",
    ),
    "weights that a run computes": (
        Node("MatMulNBits", ("x", "w", "s"), ("y",), {"N": 2, "K": 16, "block_size": 16}, domain=MICROSOFT),
        {"x": ("f32", (1, 16)), "w": ("u8", (2, 1, 8)), "s": ("f32", (2, 1))},
        r"its input 1 \('w'\) must be known when the model is compiled",
    ),
    "weights in another order": (
        Node(
            "MatMulNBits",
            ("x", "w", "s", "", "g"),
            ("y",),
            {"N": 2, "K": 16, "block_size": 16},
            domain=MICROSOFT,
        ),
        {"x": ("f32", (1, 16)), "w": ("u8", (2, 1, 8)), "s": ("f32", (2, 1)), "g": ("i32", (16,))},
        "weights in another order than that of their numbers",
    ),
    "a mask of another shape": (
        Node("MultiHeadAttention", ("x", "x", "x", "", "m"), ("y",), {"num_heads": 2}, domain=MICROSOFT),
        {"x": ("f32", (1, 3, 4)), "m": ("i32", (5,))},
        r"a mask of the shape \[5\]",
    ),
    "shared caches": (
        Node(
            "Attention",
            ("x", "w"),
            ("y",),
            {"num_heads": 2, "past_present_share_buffer": 1},
            domain=MICROSOFT,
        ),
        {"x": ("f32", (1, 3, 4)), "w": ("f32", (4, 12))},
        "caches that past and present share",
    ),
    "beams": (
        Node(
            "MultiHeadAttention", ("x", "x", "x", *[""] * 6, "i"), ("y",), {"num_heads": 2}, domain=MICROSOFT
        ),
        {"x": ("f32", (1, 3, 4)), "i": ("i32", (1, 1, 3))},
        "caches that past and present share, and beams",
    ),
    "smooth softmax": (
        Node(
            "GroupQueryAttention",
            ("x", "x", "x", "", "", "l", "t"),
            ("y",),
            {"num_heads": 2, "kv_num_heads": 2, "smooth_softmax": 1},
            domain=MICROSOFT,
        ),
        {"x": ("f32", (1, 3, 4)), "l": ("i32", (1,)), "t": ("i32", ())},
        "head sinks, smooth softmax",
    ),
    "packed sequences": (
        Node("RotaryEmbedding", ("x", "p", "c", "c"), ("y",), {"is_packed_batching": 1}, domain=MICROSOFT),
        {"x": ("f32", (1, 3, 4)), "p": ("i64", (1,)), "c": ("f32", (8, 2))},
        "sequences packed into a batch",
    ),
    "a layer without scales": (
        Node("DynamicQuantizeLSTM", ("x", "w", "w", "", "", "", "", "", "s", ""), ("y",), domain=MICROSOFT),
        {"x": ("f32", (1, 1, 2)), "w": ("i8", (1, 2, 8)), "s": ("f32", (1,))},
        "weights without scales and zero points",
    ),
    "scales of another shape": (
        Node(
            "DynamicQuantizeLSTM",
            ("x", "w", "w", *[""] * 5, "s", "", "s", "z"),
            ("y",),
            domain=MICROSOFT,
        ),
        {"x": ("f32", (1, 1, 2)), "w": ("i8", (1, 2, 8)), "s": ("f32", (3,)), "z": ("i8", (3,))},
        r"weights of the shape \[1, 2, 8\] with scales of \[3\]",
    ),
    "scales of a matrix": (
        Node("QLinearAdd", ("x", "s", "", "x", "s", "", "s"), ("y",), domain=MICROSOFT),
        {"x": ("u8", (2, 3)), "s": ("f32", (2, 3))},
        "scales that are not one number",
    ),
    "scales of a matrix, of one operand": (
        Node("QLinearSigmoid", ("x", "s", "", "t", ""), ("y",), domain=MICROSOFT),
        {"x": ("u8", (2, 3)), "s": ("f32", (2, 3)), "t": ("f32", ())},
        "scales that are not one number",
    ),
    "scales of a matrix, where": (
        Node("QLinearWhere", ("c", "x", "s", "z", "x", "t", "z", "t", "z"), ("y",), domain=MICROSOFT),
        {
            "c": ("bool", (2, 3)),
            "x": ("u8", (2, 3)),
            "s": ("f32", (2, 3)),
            "t": ("f32", ()),
            "z": ("u8", ()),
        },
        "scales that are not one number",
    ),
    "scales of a matrix, joined": (
        Node("QLinearConcat", ("t", "z", "x", "s", "z"), ("y",), {"axis": 0}, domain=MICROSOFT),
        {"x": ("u8", (2, 3)), "s": ("f32", (2, 3)), "t": ("f32", ()), "z": ("u8", ())},
        "scales that are not one number",
    ),
    "scales of a matrix, in a product": (
        Node("QGemm", ("x", "s", "z", "w", "t", "z"), ("y",), domain=MICROSOFT),
        {
            "x": ("u8", (2, 3)),
            "s": ("f32", (2, 3)),
            "w": ("u8", (3, 4)),
            "t": ("f32", ()),
            "z": ("u8", ()),
        },
        "scales that are neither one number nor one a column",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_apart_says_why(name):
    node, inputs, message = REFUSED[name]
    with pytest.raises(UnsupportedOperatorError, match=message):
        _graph(node, **inputs)


@pytest.mark.parametrize("known", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize("zeros", [(None, None), (7, None), (7, 3), ("row", "column")], ids=str)
@pytest.mark.parametrize(
    "dtypes", [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8")], ids=str
)
def test_products_of_integers_less_their_zero_points(dtypes, zeros, known):
    random = np.random.default_rng(1)
    shapes = {"a": (2, 3, 5), "b": (5, 4)}
    arrays = {}
    for (name, shape), dtype in zip(shapes.items(), dtypes, strict=True):
        info = np.iinfo(dtype)
        arrays[name] = random.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    for name, zero, dtype, count in zip(("za", "zb"), zeros, dtypes, (3, 4), strict=True):
        if zero is not None:
            spread = random.integers(-9 if dtype == "int8" else 0, 9, count)
            arrays[name] = np.array(spread if isinstance(zero, str) else zero, dtype)
    inputs = [name for name in ("a", "b", "za", "zb") if name in arrays]
    given = {"a"} if known else set(arrays)
    types = {
        k: TensorType({"u": "u8", "i": "i8"}[v.dtype.kind], v.shape) for k, v in arrays.items() if k in given
    }
    constants = {k: v for k, v in arrays.items() if k not in given}
    graph = typed_graph(types, ["y"], [Node("MatMulInteger", tuple(inputs), ("y",), version=10)], constants)
    for node in graph.nodes:
        if node.op == "MatMulInteger":
            assert [graph.types[value].dtype for value in node.used_inputs] == ["u8", "i8"]
    (made,) = evaluate_graph(graph, {k: v for k, v in arrays.items() if k in given}).values()
    wide = {k: v.astype(np.int64) for k, v in arrays.items()}
    rows = wide.get("za", np.array(0))
    wanted = (wide["a"] - rows.reshape(-1, 1)) @ (wide["b"] - wide.get("zb", 0))
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("elem", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("external", [False, True], ids=["inside", "beside"])
def test_weights_of_four_bits(elem, external, tmp_path):
    low = -8 if elem == TensorProto.INT4 else 0
    numbers = np.random.default_rng(0).integers(low, low + 16, (5, 3)).astype(np.int32)
    weights = helper.make_tensor("w", elem, numbers.shape, numbers.reshape(-1))
    zero = helper.make_tensor("z", elem, (3,), [low + 1, low + 7, low + 15])
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    scale = np.array([0.5, 2, 1], np.float32)
    model = tiny.model(nodes, [tiny.tensor("x", (2, 5))], [tiny.tensor("y", (2, 3))], {"s": scale})
    model.graph.initializer.extend([weights, zero])
    path = tmp_path / "model.onnx"
    save_model(model, path, save_as_external_data=external, size_threshold=0)
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    (made,) = evaluate_graph(simplify(import_onnx(path)), {"x": x}).values()
    np.testing.assert_allclose(made, x @ ((numbers - [low + 1, low + 7, low + 15]) * scale), rtol=1e-6)


def test_weights_of_four_bits_do_not_saturate_as_bytes():
    nodes = [
        helper.make_node("Identity", ["z"], ["same"]),
        helper.make_node("QuantizeLinear", ["x", "s", "same"], ["q"], name="culprit"),
        helper.make_node("DequantizeLinear", ["q", "s", "same"], ["y"]),
    ]
    model = tiny.model(nodes, [tiny.tensor("x", (3,))], [tiny.tensor("y", (3,))], {"s": np.float32(1)})
    model.graph.initializer.append(helper.make_tensor("z", TensorProto.INT4, (), [0]))
    x = np.array([-100, 3, 100], np.float32)
    (made,) = evaluate_graph(simplify(import_onnx(model)), {"x": x}).values()
    np.testing.assert_array_equal(made, [-8, 3, 7])


@pytest.mark.parametrize("known", [False, True], ids=["zero of the run", "known zero"])
@pytest.mark.parametrize("window", [{"pads": [1, 0, 2, 1]}, {"strides": [2, 1], "group": 2}])
@pytest.mark.parametrize(("x", "w", "zero"), [("u8", "i8", None), ("i8", "i8", 5), ("u8", "u8", 128)])
@pytest.mark.parametrize("beyond", [0, 35, -40], ids=["fit", "too large", "too small"])
def test_convolutions_less_zero_points_are_of_unsigned_with_signed_bytes(x, w, zero, window, known, beyond):
    rng = np.random.default_rng(3)
    types = {"u8": (np.uint8, TensorProto.UINT8, 0), "i8": (np.int8, TensorProto.INT8, -128)}
    (numpy_x, onnx_x, low), numpy_w = types[x], types[w][0]
    image = rng.integers(low, low + 256, (1, 4, 6, 7)).astype(numpy_x)
    weights = (rng.integers(-90, 90, (6, 4 // window.get("group", 1), 3, 2)) + (zero or 0)).astype(numpy_w)
    if zero is not None and beyond:
        # less this zero point some channels do not fit signed bytes
        zero -= beyond
        weights[::2, 0, 0, 0] = np.iinfo(numpy_w).max if beyond > 0 else np.iinfo(numpy_w).min
    point = np.array(low + 100, numpy_x)
    given, constants = {"x": image, "xz": point}, {"w": weights}
    if zero is not None:
        constants["wz"] = np.array(zero, numpy_w)
    if known:
        constants["xz"] = given.pop("xz")
    node = helper.make_node(
        "ConvInteger", ["x", "w", "xz", *(["wz"] if zero is not None else [])], ["y"], **window
    )
    inputs = [helper.make_tensor_value_info(name, onnx_x, array.shape) for name, array in given.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT32, None)]
    graph = simplify(import_onnx(tiny.model([node], inputs, outputs, constants)), INTEGER_PASSES)
    (product,) = (each for each in graph.nodes if each.op == "ConvInteger")
    assert [graph.types[name].dtype for name in product.inputs] == ["u8", "i8"]
    assert ("Conv" in {each.op for each in graph.nodes}) == bool(zero is not None and beyond)
    # the same sums in f64, which are exact
    less = [image.astype(np.float64) - float(point), weights.astype(np.float64) - (zero or 0)]
    conv = helper.make_node("Conv", ["x", "w"], ["y"], **window)
    shapes = [
        helper.make_tensor_value_info(n, TensorProto.DOUBLE, a.shape) for n, a in zip("xw", less, strict=True)
    ]
    plain = tiny.model([conv], shapes, [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)], {})
    (wanted,) = evaluate_graph(import_onnx(plain), dict(zip("xw", less, strict=True))).values()
    (found,) = evaluate_graph(graph, given).values()
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, wanted)
