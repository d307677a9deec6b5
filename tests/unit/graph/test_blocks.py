"""Products with weights of few bits: kept packed, whatever form a model has them in, and right."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from native_kernel import HOST
from tilewright.frontend import import_onnx
from tilewright.graph import INTEGER_PASSES, PASSES, BytesInBlocks, simplify
from tilewright.graph.ops.blocks import PANEL, as_bytes, in_panels, packed
from tilewright.graph.passes.block_bytes import MOST_BLOCK
from tilewright.support import assert_close

KINDS = {
    "i4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "i2": ml_dtypes.int2,
    "u2": ml_dtypes.uint2,
    "i8": np.int8,
    "u8": np.uint8,
}


def _model(x_shape, columns, kind, block, *, form="matmul", zeros=False, dims=None, seed=0):
    """A model whose weights are dequantised, and the weights; blocks of 0 are whole columns."""
    rng, bits = np.random.default_rng(seed), int(kind[1])
    depth, low = x_shape[-1], 0 if kind[0] == "u" else -(1 << bits - 1)
    numbers = rng.integers(low, low + (1 << bits), (depth, columns))
    shape = (-(-depth // block), columns) if block else (columns,)
    scale = rng.random(shape).astype(np.float32) + 0.5
    zero = rng.integers(low, low + (1 << bits), shape) if zeros else np.zeros(shape, np.int64)

    def spread(values):
        return np.repeat(values, block, 0)[:depth] if block else values

    weights = (numbers - spread(zero)) * spread(scale)
    turned = form != "matmul"

    def stored(values, name, dtype):
        values = np.ascontiguousarray(values.T) if turned and values.ndim == 2 else values
        return numpy_helper.from_array(values.astype(dtype), name)

    constants = [stored(numbers, "q", KINDS[kind]), stored(scale, "s", np.float32)]
    constants += [stored(zero, "z", KINDS[kind])] if zeros else []
    attributes = {"axis": int(turned), "block_size": block} if block else {"axis": int(not turned)}
    names = [c.name for c in constants]
    nodes = [helper.make_node("DequantizeLinear", names, ["w"], **attributes)]
    if form == "gemm":
        nodes.append(helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1))
        constants.append(numpy_helper.from_array(np.arange(columns, dtype=np.float32), "b"))
    elif form == "transposed":
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", ["x", "t"], ["y"]))
    else:
        nodes.append(helper.make_node("MatMul", ["x", "w"], ["y"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims or x_shape)]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12), weights


def _check(model, x, weights, bias=0.0):
    (got,) = model.run(None, {"x": x})
    magnitude = np.abs(x) @ np.abs(weights) + np.abs(bias)
    # zero points are taken off sums: numbers as large as weights are on both sides
    assert_close(got, x @ weights + bias, magnitude=4 * magnitude + 100, dtype="f32", terms=x.shape[-1])


def _draw(*shape):
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


CASES = [
    ((1, 96), 64, "i4", 32, "matmul", False),
    ((3, 128), 40, "u4", 64, "transposed", True),
    ((7, 80), 33, "u4", 16, "gemm", True),
    ((2, 3, 64), 32, "i2", 16, "matmul", False),
    ((1, 1, 100), 48, "i4", 32, "transposed", True),
    ((2, 96), 32, "u8", 24, "matmul", True),
    ((5, 64), 32, "u2", 0, "gemm", True),
    ((1, 160), 32, "i4", 0, "matmul", False),
]


@pytest.mark.parametrize(("shape", "columns", "kind", "block", "form", "zeros"), CASES)
def test_products_are_right_and_their_weights_stay_packed(shape, columns, kind, block, form, zeros):
    model, weights = _model(shape, columns, kind, block, form=form, zeros=zeros)
    graph = simplify(import_onnx(model))
    assert "BlockProduct" in [node.op for node in graph.nodes]
    words = next(array for array in graph.constants.values() if array.dtype == np.int32)
    filled = -(-columns // PANEL) * PANEL * -(-shape[-1] // (block or 1)) * (block or 1)
    assert words.nbytes == filled * int(kind[1]) // 8
    bias = np.arange(columns, dtype=np.float32) if form == "gemm" else np.float32(0)
    _check(tilewright.compile(model, threads=1), _draw(*shape), weights, bias)


@pytest.mark.skipif("avx512vnni" not in HOST.features, reason="products of bytes are for machines with dots")
@pytest.mark.parametrize(("shape", "columns", "kind", "block", "form", "zeros"), CASES)
def test_activations_are_bytes_where_that_is_exact_enough(shape, columns, kind, block, form, zeros, caplog):
    model, weights = _model(shape, columns, kind, block, form=form, zeros=zeros)
    with caplog.at_level("INFO", logger="tilewright"):
        compiled = tilewright.compile(model, threads=1, accuracy=0.03)
    held = "activations are bytes in blocks" in caplog.text
    block = block or shape[-1]
    # a scale for so much of a row is left to f32
    assert held == (block <= MOST_BLOCK)
    x, bias = _draw(*shape), np.arange(columns, dtype=np.float32) if form == "gemm" else np.float32(0)
    (got,) = compiled.run(None, {"x": x})
    exact = x @ weights + bias
    error = np.abs(got - exact).max() / np.abs(exact).max()
    assert (1e-4 < error < 0.03) if held else error < 1e-5
    # by the steps of bytes alone
    blocks = -(-shape[-1] // block)
    filled = np.zeros((*shape[:-1], blocks * block), np.float32)
    filled[..., : shape[-1]] = x
    if held:
        apart = filled.reshape(*shape[:-1], blocks, block)
        step = np.abs(apart).max(-1, keepdims=True) / np.float32(127)
        rounded = (np.rint(apart / step) * step).reshape(filled.shape)[..., : shape[-1]]
        assert np.abs(got - (rounded @ weights + bias)).max() < 1e-4 * np.abs(exact).max()


@pytest.mark.skipif("avx512vnni" not in HOST.features, reason="products of bytes are for machines with dots")
def test_what_reads_one_value_shares_its_bytes_and_plans_are_kept():
    model, _ = _model((2, 64), 32, "i4", 32)
    graph = simplify(import_onnx(model), (*PASSES, BytesInBlocks(0.03)))
    assert sorted(node.op for node in graph.nodes) == ["BlockProduct", "BlockQuantize"]
    twice = helper.make_node("MatMul", ["x", "w"], ["y2"])
    model.graph.node.append(twice)
    model.graph.output.append(helper.make_tensor_value_info("y2", TensorProto.FLOAT, None))
    del model.graph.node[1].input[:]
    model.graph.node[1].input.extend(["x", "w"])
    x = _draw(2, 64)
    compiled = tilewright.compile(model, threads=1, accuracy=0.03)
    again = tilewright.compile(model, threads=1, accuracy=0.03, plan=compiled.plan().to_json())
    np.testing.assert_array_equal(again.run(None, {"x": x})[0], compiled.run(None, {"x": x})[0])


def test_bytes_are_refused_where_they_err_too_much():
    model, _ = _model((2, 64), 32, "i4", 32)
    graph = simplify(import_onnx(model), (*PASSES, BytesInBlocks(1e-4)))
    assert [node.op for node in graph.nodes] == ["BlockProduct"]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_bytes_of_words_keep_neighbours_together(bits):
    numbers = np.random.default_rng(bits).integers(-(1 << bits - 1), 1 << bits - 1, (40, 64)).astype(np.int8)
    held = as_bytes(packed(numbers, bits), bits)
    assert held.shape == (2, 64 * bits // 32, 4 * PANEL)
    for column, k in ((0, 0), (3, 5), (39, 63), (17, 30)):
        group, n = divmod(k, 32 // bits)
        byte = held[column // PANEL, group, 4 * (column % PANEL) + n % 4]
        assert (byte >> (n // 4 * bits)) & ((1 << bits) - 1) == int(numbers[column, k]) + (1 << bits - 1)


def test_numbers_that_are_none_and_blocks_of_nothing_stay_what_they_are():
    """Zeros, subnormal and infinite numbers and NaN: no row harms another."""
    model, weights = _model((6, 64), 32, "i4", 32)
    x = _draw(6, 64)
    x[0, :32], x[1, 3], x[2, 40], x[3, :32], x[4] = 0, np.inf, np.nan, 1e-41, 0
    with np.errstate(invalid="ignore"):
        want = x @ weights
    got = tilewright.compile(model, threads=1, accuracy=0.03).run(None, {"x": x})[0]
    for row in (0, 3, 4, 5):
        assert np.abs(got[row] - want[row]).max() <= 0.03 * np.abs(want[5]).max()
    assert not np.isfinite(got[1]).any() and np.isnan(got[2]).all() and not got[4].any()


@pytest.mark.parametrize("bits", [4, 8])
def test_zero_points_between_numbers_stay_packed(bits):
    rng = np.random.default_rng(bits)
    numbers = rng.integers(0, 1 << bits, (40, 64)).astype(np.uint8)
    scale, zero = rng.random((40, 4)).astype(np.float32), rng.standard_normal((40, 4)).astype(np.float32) * 9
    bytes_ = numbers if bits == 8 else numbers[:, ::2] | numbers[:, 1::2] << 4
    named = {"w": bytes_.reshape(40, 4, -1), "s": scale, "z": zero}
    node = helper.make_node(
        "MatMulNBits", ["x", *named], ["y"], domain="com.microsoft", N=40, K=64, bits=bits, block_size=16
    )
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, size)) for n, size in (("x", 64), ("y", 40))
    )
    constants = [numpy_helper.from_array(array, name) for name, array in named.items()]
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph([node], "g", [x], [y], constants), opset_imports=versions, ir_version=10
    )
    assert "BlockProduct" in [node.op for node in simplify(import_onnx(model)).nodes]
    weights = (numbers - np.repeat(zero, 16, 1)) * np.repeat(scale, 16, 1)
    _check(tilewright.compile(model, threads=1), _draw(2, 64), weights.T)


def test_open_numbers_of_rows_are_one_plan():
    model, weights = _model((4, 64), 64, "i4", 32, dims=("n", 64))
    compiled = tilewright.compile(model, threads=1, dynamic={"n": (1, 9)})
    for rows in (1, 4, 6, 9):
        _check(compiled, _draw(rows, 64), weights)


def test_saved_models_keep_them_packed(tmp_path):
    model, weights = _model((1, 512), 256, "i4", 128)
    compiled = tilewright.compile(model, threads=1)
    assert compiled.constant_bytes == 512 * 256 // 2 + 4 * 256 * 4
    path = tmp_path / "m.tw"
    compiled.save(path)
    assert path.stat().st_size < 2 * compiled.constant_bytes
    _check(tilewright.load(path), _draw(1, 512), weights)


@pytest.mark.parametrize(
    ("kind", "block"), [("i8", 0), ("i4", 36)], ids=["bytes without blocks", "blocks that are no whole words"]
)
def test_others_are_folded(kind, block):
    model, weights = _model((2, 72), 32, kind, block)
    for passes in (PASSES, INTEGER_PASSES):
        graph = simplify(import_onnx(model), passes)
        assert [node.op for node in graph.nodes] == ["MatMul"]
    _check(tilewright.compile(model, threads=1), _draw(2, 72), weights)


def test_words_hold_the_first_number_lowest():
    numbers = np.arange(-8, 8).reshape(2, 8).astype(np.int8)
    words = packed(numbers, 4)
    assert words.shape == (1, 1, PANEL)
    assert words.view(np.uint32)[0, 0, :3].tolist() == [0xFEDCBA98, 0x76543210, 0]
    assert in_panels(np.array([[1, 2], [3, 4]]))[0, :, :3].tolist() == [[1, 3, 0], [2, 4, 0]]
