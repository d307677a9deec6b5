"""Passes over quantised models: the same values, by the reference evaluation."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright
from onnx_models import model, tensor
from tilewright.frontend import import_onnx
from tilewright.graph import INTEGER_PASSES, PASSES, evaluate_graph, simplify
from tilewright.graph.passes import FoldRequantised, SinkDequantised
from unit.driver.test_quantised import CASES, OTHERS


@pytest.mark.parametrize("name", [*CASES, *OTHERS])
def test_integers_compute_what_floats_do(name):
    case = {**CASES, **OTHERS}[name]
    graph = import_onnx(case.model(case.expected().shape))
    assert "DequantizeLinear" in {n.op for n in graph.nodes if n.inputs[0] == "w"}, (
        "weights are not folded yet"
    )
    floats, integers = simplify(graph, PASSES), simplify(graph, INTEGER_PASSES)
    assert not any(n.inputs[0] in g.constants for g in (floats, integers) for n in g.nodes if "Deq" in n.op)
    assert any("Integer" in n.op for n in integers.nodes) == (name in CASES)
    assert not any("Integer" in n.op for n in floats.nodes)
    integers.check()
    (want,) = evaluate_graph(floats, {"x": case.x}).values()
    (made,) = evaluate_graph(integers, {"x": case.x}).values()
    np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
    np.testing.assert_allclose(made, case.expected(), rtol=4e-7, atol=4e-7 * np.abs(want).max())


def test_signed_activations_become_unsigned():
    case = CASES["gemm, transposed"]
    graph = simplify(import_onnx(case.model(case.expected().shape)), INTEGER_PASSES)
    quantised = next(n for n in graph.nodes if n.op == "QuantizeLinear")
    assert graph.types[quantised.outputs[0]].dtype == "u8"
    assert int(graph.constants[quantised.inputs[2]]) == case.zero + 128


def moved(op, *, scale=0.5, again=None, shape=(1, 2, 4, 4), **attributes):
    """A model that quantises, selects elements, and quantises the same way ``again`` (or by other scales)."""
    constants = {
        "s": np.float32(scale), "z": np.uint8(7), "s2": np.float32(again or scale), "z2": np.uint8(7)
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node(op, ["d"], ["m"], **attributes),
        helper.make_node("QuantizeLinear", ["m", "s2", "z2"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s2", "z2"], ["y"]),
    ]
    made = {"Transpose": (1, 2, 4, 4), "MaxPool": (1, 2, 3, 3), "Flatten": (1, 32)}[op]
    return import_onnx(model(nodes, [tensor("x", shape)], [tensor("y", made)], constants))


@pytest.mark.parametrize(
    ("op", "attributes"),
    [("Transpose", {"perm": (0, 1, 3, 2)}), ("MaxPool", {"kernel_shape": (2, 2)}), ("Flatten", {})],
)
def test_selections_are_of_bytes(op, attributes):
    graph = moved(op, **attributes)
    (found,) = SinkDequantised()(graph).nodes[1:-1]
    assert found.op == op and SinkDequantised()(graph).types[found.outputs[0]].dtype == "u8"
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32) * 9
    (want,) = evaluate_graph(graph, {"x": x}).values()
    (made,) = evaluate_graph(SinkDequantised()(graph), {"x": x}).values()
    np.testing.assert_array_equal(made, want)


def test_other_scales_are_another_quantisation():
    graph = SinkDequantised()(moved("Flatten", again=0.25))
    assert [n.op for n in graph.nodes] == [
        "QuantizeLinear", "Flatten", "DequantizeLinear", "QuantizeLinear", "DequantizeLinear",
    ]  # fmt: skip


def test_elements_of_negative_scales_are_left_alone():
    graph = moved("MaxPool", scale=-0.5, kernel_shape=(2, 2))
    assert SinkDequantised()(graph) is graph


def scaled_bytes(*further, outputs, kind=TensorProto.INT32, **constants):
    """A graph that makes numbers `t` of x, of i32 or floats, and quantises `u` to `y`."""
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["n", "a"], ["t"]),
        *further,
        helper.make_node("QuantizeLinear", ["u", "s", "z"], ["y"]),
    ]
    known = {"a": np.float32([2, 3]), "b": np.float32([0.5, -1]), "s": np.float32(0.25), "z": np.uint8(100)}
    known |= constants
    return import_onnx(model(nodes, [tensor("x", (5, 2), kind)], outputs, known))


QUANTISED = tensor("y", (5, 2), TensorProto.UINT8)
SUM = helper.make_node("Add", ["t", "b"], ["u"])


def same_bytes(graph, folded, dtype=np.int32):
    x = np.random.default_rng(0).integers(-20, 20, (5, 2)).astype(dtype)
    want, made = (evaluate_graph(each, {"x": x}) for each in (graph, folded))
    for name in want:
        np.testing.assert_array_equal(made[name], want[name])


def test_scales_join_the_product_and_the_sum_before():
    graph = scaled_bytes(SUM, outputs=[QUANTISED])
    folded = FoldRequantised()(graph)
    assert [n.op for n in folded.nodes] == ["Cast", "Mul", "Add", "QuantizeLinear"]
    constant = [folded.constants[v] for n in folded.nodes for v in n.inputs if v in folded.constants]
    np.testing.assert_array_equal(constant[0], [8, 12])
    np.testing.assert_array_equal(constant[1], [2, -4])
    assert constant[2] == 1
    same_bytes(graph, folded)


def test_of_what_others_read_or_what_is_no_integer_scales_stay():
    """The quotient of a number is that of the standard: a product in its place may be a rounding away."""
    once = helper.make_node("Identity", ["t"], ["u"])
    for graph in (
        scaled_bytes(SUM, helper.make_node("Neg", ["t"], ["m"]), outputs=[QUANTISED, tensor("m", (5, 2))]),
        scaled_bytes(SUM, outputs=[QUANTISED, tensor("t", (5, 2))]),
        scaled_bytes(SUM, outputs=[QUANTISED], kind=TensorProto.INT16),
        scaled_bytes(once, outputs=[QUANTISED]),
        scaled_bytes(SUM, outputs=[QUANTISED], s=np.float32(1)),
    ):
        assert FoldRequantised()(graph) is graph


@pytest.mark.parametrize(
    ("dtype", "zero"), [("u1", None), ("u1", 100), ("i1", 0), ("i1", -3), ("i2", -3), ("u2", 9000)]
)
def test_quotients_are_exact_at_the_middle_between_two(dtype, zero):
    """Quotients by the rounded reciprocal of a scale often are a rounding away from it."""
    random = np.random.default_rng(3)
    middles = np.concatenate([np.arange(-300, 300), random.integers(-40000, 40000, 100)]) + 0.5
    known = [0.02, 1 / 3, 1.7, 1 / 127, 1 - 2**-24, 1 + 2**-23, 2.0**-90, 1e-35, 1e32]
    for at, scale in enumerate(np.float32([*known, *random.uniform(1e-3, 3, 9)])):
        x = (middles * np.float64(scale)).astype(np.float32)
        ends = np.float32([np.inf, -np.inf, 0])
        x = np.concatenate([x, np.nextafter(x, np.float32(0)), np.nextafter(x, 2 * x), ends])
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        constants = {"s": scale} | ({} if zero is None else {"z": np.array(zero, dtype)})
        node = helper.make_node("QuantizeLinear", ["x", *constants], ["y"])
        made = model([node], [tensor("x", x.shape)], [tensor("y", x.shape, kind)], constants)
        limits = np.iinfo(dtype)
        want = np.clip(np.rint(x / scale).astype(np.float64) + (zero or 0), limits.min, limits.max)
        np.testing.assert_array_equal(evaluate_graph(import_onnx(made), {"x": x})["y"], want)
        if at < 3:
            np.testing.assert_array_equal(tilewright.compile(made, threads=1)(x)[0], want)


@pytest.mark.parametrize(
    ("channels", "window", "along"), [(130, 3, True), (130, 1, True), (3, 3, False), (33, 3, False)]
)
def test_groups_are_taken_where_fewer_zeros_fill_them(channels, window, along):
    """Along channels, up to blocks of 16, or along the last taps, up to fours."""
    random = np.random.default_rng(7)
    constants = {
        "s": np.float32(0.1), "z": np.uint8(7), "ws": np.float32(0.01), "wz": np.int8(0),
        "w": random.integers(-127, 128, (8, channels, window, window)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
        helper.make_node("Conv", ["d", "v"], ["y"], pads=[window // 2] * 4),
    ]
    x = tensor("x", (1, channels, 6, 7), TensorProto.UINT8)
    graph = import_onnx(model(nodes, [x], [tensor("y", (1, 8, 6, 7))], constants))
    changed = simplify(graph, INTEGER_PASSES)
    (product,) = (node for node in changed.nodes if node.op == "ConvInteger")
    assert changed.constants[product.inputs[1]].shape[3] == (window if along else 4)
    feeds = {"x": random.integers(0, 256, (1, channels, 6, 7)).astype(np.uint8)}
    made, want = (evaluate_graph(g, feeds)["y"] for g in (changed, graph))
    np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-4 * np.abs(want).max())
