"""Models quantised with QuantizeLinear and DequantizeLinear: sums in integers, exact at any size."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from onnx_models import model, tensor
from tilewright.codegen import link_shared
from tilewright.target import X86_AVX512, detect

HAS_INSTRUCTION = any(i.name == "vpdpbusd" for i in detect().instructions)
needs_instruction = pytest.mark.skipif(not HAS_INSTRUCTION, reason="this machine has no products of bytes")
DTYPES = {"u8": (np.uint8, TensorProto.UINT8), "i8": (np.int8, TensorProto.INT8)}


def qdq(value, activation, scale, zero):
    """Nodes that quantise ``value`` to ``<value>_q`` and back to ``<value>_d``, and their constants."""
    names = [f"{value}_scale", f"{value}_zero"]
    constants = {names[0]: np.float32(scale), names[1]: np.array(zero, DTYPES[activation][0])}
    nodes = [
        helper.make_node("QuantizeLinear", [value, *names], [f"{value}_q"]),
        helper.make_node("DequantizeLinear", [f"{value}_q", *names], [f"{value}_d"]),
    ]
    return nodes, constants


def quantise(x, activation, scale, zero):
    """What QuantizeLinear gives, as integers."""
    limits = np.iinfo(DTYPES[activation][0])
    return np.clip(np.round(x.astype(np.float32) / np.float32(scale)) + zero, limits.min, limits.max).astype(
        int
    )


def uses_instruction(compiled):
    return instructions_used(compiled) > 0


def instructions_used(compiled):
    """Groups whose products of bytes an instruction does, by lanes or by tiles."""
    found = [str(group.kernel.schedule) for group in compiled.groups()]
    return sum("vpdpbusd(" in text or "tdpbusd(" in text for text in found)


class Case:
    """One contraction between quantised tensors, and what it should give."""

    def __init__(
        self,
        op,
        x_shape,
        w_shape,
        *,
        activation="u8",
        zero=0,
        channels=True,
        bias=True,
        around=None,
        most=127,
        **attributes,
    ):
        """``around``: the zero point of weights stored as u8, which are up to ``most`` away from it."""
        rng = np.random.default_rng(3)
        self.x = rng.normal(size=x_shape).astype(np.float32)
        out = w_shape[0] if op == "Conv" or attributes.get("transB") else w_shape[1]
        self.axis = 0 if op == "Conv" or attributes.get("transB") else 1
        w = rng.integers(-127, 128, w_shape).astype(np.int8)
        w_scale = rng.uniform(0.01, 0.02, out if channels else 1).astype(np.float32)
        w_scale = w_scale if channels else w_scale.reshape(())
        b = rng.normal(size=out).astype(np.float32) if bias and op != "MatMul" else None
        self.zero, self.scale, self.activation, self.attributes, self.op = (
            zero,
            0.03,
            activation,
            attributes,
            op,
        )
        nodes, constants = qdq("x", activation, self.scale, zero)
        constants |= {"w": w, "w_scale": w_scale}
        read = ["w", "w_scale"]
        if around is not None:
            zeros = np.broadcast_to(np.asarray(around, np.uint8), w_scale.shape).copy()
            apart = [-1 if axis == self.axis and channels else 1 for axis in range(w.ndim)]
            moved = zeros.astype(np.int64).reshape(apart)
            w = np.clip(rng.integers(-most, most + 1, w_shape) + moved, 0, 255)
            constants |= {"w": w.astype(np.uint8), "w_zero": zeros}
            w = w - moved
            read.append("w_zero")
        kind = {"axis": self.axis} if channels else {}
        nodes.append(helper.make_node("DequantizeLinear", read, ["w_d"], **kind))
        inputs = ["x_d", "w_d"]
        if b is not None:
            constants["b"] = b
            inputs.append("b")
        nodes.append(helper.make_node(op, inputs, ["y"], **attributes))
        self.w, self.w_scale, self.b = w, w_scale, b
        self.nodes, self.constants = nodes, constants

    def model(self, y_shape):
        return model(self.nodes, [tensor("x", self.x.shape)], [tensor("y", y_shape)], self.constants)

    def expected(self):
        """In integers, then in double precision."""
        q = quantise(self.x, self.activation, self.scale, self.zero) - self.zero
        w = self.w.astype(np.int64)
        if self.op == "Conv":
            total = convolve(q, w, **self.attributes)
        else:
            total = q @ (w.T if self.attributes.get("transB") else w)
        spread = (1, -1, *(1,) * (total.ndim - 2)) if self.op == "Conv" else (-1,)
        factor = np.float32(self.scale) * np.asarray(self.w_scale).astype(np.float64)
        y = total * (factor.reshape(spread) if factor.size > 1 else factor)
        return y if self.b is None else y + self.b.reshape(spread)


def convolve(x, w, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1):
    """A convolution of integers, tap by tap."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    kh, kw = w.shape[2:]
    oh = (x.shape[2] - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    ow = (x.shape[3] - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    out = np.zeros((x.shape[0], w.shape[0], oh, ow), np.int64)
    per, made = x.shape[1] // group, w.shape[0] // group
    for g in range(group):
        for i in range(kh):
            for j in range(kw):
                rows = slice(i * dilations[0], i * dilations[0] + (oh - 1) * strides[0] + 1, strides[0])
                cols = slice(j * dilations[1], j * dilations[1] + (ow - 1) * strides[1] + 1, strides[1])
                part = x[:, g * per : (g + 1) * per, rows, cols]
                out[:, g * made : (g + 1) * made] += np.einsum(
                    "nchw,oc->nohw", part, w[g * made : (g + 1) * made, :, i, j]
                )
    return out


PADDED = {"pads": (1, 1, 1, 1)}
CASES = {
    "matmul": Case("MatMul", (5, 12), (12, 19)),
    "matmul, one scale": Case("MatMul", (3, 8), (8, 32), channels=False),
    "matmul of a batch": Case("MatMul", (2, 3, 16), (16, 10), zero=113),
    "matmul, signed": Case("MatMul", (7, 20), (20, 33), activation="i8", zero=-5),
    "gemm": Case("Gemm", (4, 16), (16, 17), zero=7),
    "gemm, transposed": Case("Gemm", (4, 16), (17, 16), activation="i8", zero=3, transB=1),
    "matmul, unsigned weights": Case("MatMul", (6, 16), (16, 35), zero=99, around=128, channels=False),
    "matmul, unsigned weights of channels": Case(
        "MatMul", (6, 16), (16, 20), around=[128, 117, 130, 101] * 5, most=100
    ),
    "gemm, unsigned weights, transposed": Case("Gemm", (4, 16), (17, 16), zero=3, transB=1, around=128),
    "conv, unsigned weights": Case("Conv", (1, 16, 7, 6), (24, 16, 3, 3), zero=128, around=128, **PADDED),
    "three channels, unsigned weights": Case("Conv", (1, 3, 6, 6), (8, 3, 3, 3), zero=90, around=128),
    "depthwise, unsigned weights": Case(
        "Conv", (1, 8, 6, 6), (8, 1, 3, 3), group=8, zero=100, around=120, most=110, **PADDED
    ),
    "conv": Case("Conv", (1, 16, 7, 6), (24, 16, 1, 1), zero=128),
    "conv, padded": Case("Conv", (1, 8, 5, 9), (16, 8, 3, 3), **PADDED),
    "conv, padded, zero point": Case("Conv", (1, 16, 5, 4), (40, 16, 3, 3), zero=120, **PADDED),
    "conv, signed, strides": Case(
        "Conv", (2, 4, 9, 8), (16, 4, 3, 3), activation="i8", zero=9, strides=(2, 2), **PADDED
    ),
    "conv, dilations": Case(
        "Conv", (1, 12, 9, 9), (8, 12, 3, 2), zero=77, dilations=(2, 3), pads=(2, 0, 1, 3)
    ),
    "conv, no bias, one scale": Case("Conv", (1, 32, 4, 4), (16, 32, 2, 2), bias=False, channels=False),
    "three channels": Case("Conv", (1, 3, 6, 6), (8, 3, 3, 3), zero=100, **PADDED),
    "three channels, strides": Case(
        "Conv", (2, 3, 23, 21), (32, 3, 7, 7), zero=127, strides=(2, 2), pads=(3, 3, 3, 3)
    ),
    "three channels, no padding": Case("Conv", (1, 3, 9, 11), (16, 3, 2, 3), strides=(1, 3)),
    "one channel": Case("Conv", (1, 1, 12, 13), (16, 1, 5, 5), zero=3, pads=(2, 2, 2, 2)),
    "depthwise": Case("Conv", (1, 8, 6, 6), (8, 1, 3, 3), group=8, zero=100, **PADDED),
    "depthwise, signed, strides": Case(
        "Conv", (2, 32, 9, 8), (32, 1, 3, 3), activation="i8", zero=-7, group=32, strides=(2, 2), **PADDED
    ),
}


@pytest.mark.few(24)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_sums_are_exact(name, threads):
    case = CASES[name]
    wanted = case.expected()
    compiled = tilewright.compile(case.model(wanted.shape), threads=threads)
    (made,) = compiled.run(None, {"x": case.x})
    # the sum is exact: what is left is a product and a sum in f32
    np.testing.assert_allclose(made, wanted, rtol=4e-7, atol=4e-7 * np.abs(wanted).max())
    if HAS_INSTRUCTION:
        assert any("Integer" in group.operators for group in compiled.groups())
        # a lone convolution reads and writes channels first: no neighbours along the reduction
        assert case.op == "Conv" or uses_instruction(compiled)


OTHERS = {
    "three channels, one tap": Case("Conv", (1, 3, 6, 6), (8, 3, 1, 1), zero=100),
    "three channels, taps apart": Case("Conv", (1, 3, 9, 9), (8, 3, 3, 3), zero=100, dilations=(2, 2)),
    "groups": Case("Conv", (1, 8, 6, 6), (8, 2, 3, 3), group=4, zero=100, **PADDED),
    "odd sums": Case("MatMul", (3, 9), (9, 16), zero=4),
    "weights that i8 does not hold": Case("MatMul", (3, 16), (16, 16), around=10, most=240, channels=False),
    "beta": Case("Gemm", (4, 16), (16, 17), beta=0.5, bias=False),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_in_floats(name):
    case = OTHERS[name]
    wanted = case.expected()
    compiled = tilewright.compile(case.model(wanted.shape))
    (made,) = compiled.run(None, {"x": case.x})
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    assert not any("Integer" in group.operators for group in compiled.groups())


@needs_instruction
def test_a_residual_block_passes_bytes_between_kernels():
    """Two convolutions and a sum, every value quantised: kernels read and write bytes, the sum is fused."""
    rng = np.random.default_rng(0)
    nodes, constants = qdq("x", "u8", 0.04, 110)
    for n, (source, result) in enumerate((("x", "h"), ("h", "t"))):
        w = f"w{n}"
        constants |= {w: rng.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8), f"{w}_s": np.float32(0.005)}
        nodes.append(helper.make_node("DequantizeLinear", [w, f"{w}_s"], [f"{w}_d"]))
        nodes.append(helper.make_node("Conv", [f"{source}_d", f"{w}_d"], [result], pads=(1, 1, 1, 1)))
        more, scales = qdq(result, "u8", 0.1, 128)
        nodes += more
        constants |= scales
    nodes.append(helper.make_node("Add", ["t_d", "x_d"], ["s"]))
    nodes.append(helper.make_node("Relu", ["s"], ["r"]))
    more, scales = qdq("r", "u8", 0.1, 0)
    constants |= scales | {"w2": np.ones((16, 16, 1, 1), np.int8), "w2_s": np.float32(0.01)}
    nodes += more
    nodes.append(helper.make_node("DequantizeLinear", ["w2", "w2_s"], ["w2_d"]))
    nodes.append(helper.make_node("Conv", ["r_d", "w2_d"], ["y"]))
    proto = model(nodes, [tensor("x", (1, 16, 5, 5))], [tensor("y", (1, 16, 5, 5))], constants)
    compiled = tilewright.compile(proto)
    x = rng.normal(size=(1, 16, 5, 5)).astype(np.float32)
    made = compiled.intermediates({"x": x})["r_q"]
    weights = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}

    def layer(q, zero, scale, w):
        y = convolve(q - zero, w.astype(np.int64), pads=(1, 1, 1, 1)) * (
            np.float32(scale) * np.float32(0.005)
        )
        return quantise(y, "u8", 0.1, 128)

    q = quantise(x, "u8", 0.04, 110)
    t = layer(layer(q, 110, 0.04, weights["w0"]), 128, 0.1, weights["w1"])
    total = (t - 128) * np.float32(0.1) + (q - 110) * np.float32(0.04)
    wanted = quantise(np.maximum(total, 0), "u8", 0.1, 0)
    # at ties the last bit of f32 decides
    assert np.abs(made.astype(int) - wanted).max() <= 1 and (made == wanted).mean() > 0.98
    between = [b.dtype.name for g in compiled.groups() for b in g.kernel.program.outputs]
    assert between == ["u8"] * 3 + ["f32"]
    assert uses_instruction(compiled) == HAS_INSTRUCTION


def test_values_that_others_read_keep_their_type():
    """An i8 value that the model returns is not made unsigned."""
    nodes, constants = qdq("x", "i8", 0.05, 2)
    constants |= {"w": np.ones((4, 8), np.int8), "w_s": np.float32(0.5)}
    nodes += [
        helper.make_node("DequantizeLinear", ["w", "w_s"], ["w_d"]),
        helper.make_node("MatMul", ["x_d", "w_d"], ["y"]),
    ]
    outputs = [tensor("y", (2, 8)), tensor("x_q", (2, 4), TensorProto.INT8)]
    compiled = tilewright.compile(model(nodes, [tensor("x", (2, 4))], outputs, constants))
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    y, q = compiled.run(None, {"x": x})
    np.testing.assert_array_equal(q, quantise(x, "i8", 0.05, 2))
    np.testing.assert_allclose(
        y, ((q.astype(int) - 2) * 0.05).sum(1, keepdims=True) * 0.5 + np.zeros(8), rtol=1e-5, atol=1e-6
    )


def test_layers_of_a_mobile_network_pass_bytes():
    """Few channels, depthwise, pooling and 1x1, all quantised: sums in integers, bytes between."""
    rng = np.random.default_rng(5)
    nodes, constants = qdq("x", "u8", 0.02, 121)
    layers = (
        ("c", "x", (32, 3, 3, 3), 1, {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
        ("d", "p", (32, 1, 3, 3), 32, {"pads": (1, 1, 1, 1)}),
        ("e", "d", (48, 32, 1, 1), 1, {}),
    )
    for name, source, shape, group, attributes in layers:
        if source == "p":
            nodes.append(helper.make_node("MaxPool", ["c_d"], ["p"], kernel_shape=(3, 3), pads=(1, 1, 1, 1)))
            same = [f"c_{each}" for each in ("scale", "zero")]
            nodes.append(helper.make_node("QuantizeLinear", ["p", *same], ["p_q"]))
            nodes.append(helper.make_node("DequantizeLinear", ["p_q", *same], ["p_d"]))
        w = f"w_{name}"
        constants |= {w: rng.integers(-127, 128, shape).astype(np.int8), f"{w}_s": np.float32(0.0103)}
        nodes.append(helper.make_node("DequantizeLinear", [w, f"{w}_s"], [f"{w}_d"]))
        nodes.append(helper.make_node("Conv", [f"{source}_d", f"{w}_d"], [name], group=group, **attributes))
        more, scales = qdq(name, "u8", 0.0517, 0)
        nodes += more
        constants |= scales
    proto = model(nodes, [tensor("x", (1, 3, 21, 21))], [tensor("e_d", (1, 48, 11, 11))], constants)
    compiled = tilewright.compile(proto)
    x = rng.normal(size=(1, 3, 21, 21)).astype(np.float32)

    def layer(q, scale, name, **attributes):
        y = convolve(q, constants[f"w_{name}"].astype(np.int64), **attributes)
        return quantise(y * (scale * 0.0103), "u8", 0.0517, 0)

    q = quantise(x, "u8", 0.02, 121) - 121
    c = layer(q, 0.02, "c", strides=(2, 2), pads=(1, 1, 1, 1))
    wide = np.pad(c, ((0, 0), (0, 0), (1, 1), (1, 1)))
    p = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3)).max((-2, -1))
    d = layer(p, 0.0517, "d", pads=(1, 1, 1, 1), group=32)
    wanted = layer(d, 0.0517, "e")
    (made,) = compiled.run(None, {"x": x})
    off = np.abs(np.round(made / np.float32(0.0517)) - wanted)
    assert off.max() <= 1 and (off == 0).mean() > 0.98
    if HAS_INSTRUCTION:
        programs = [g.kernel.program for g in compiled.groups()]
        assert {b.dtype.name for p in programs[:-1] for b in p.outputs} == {"u8"}
        assert instructions_used(compiled) == 2


@pytest.mark.parametrize(("dtype", "zero"), [("u8", 0), ("u8", 7), ("i8", -3), ("i8", 0)])
def test_quantisation_rounds_to_even_and_saturates(dtype, zero):
    """Ties, the ends of the range, and values that no i32 holds."""
    nodes, constants = qdq("x", dtype, 0.5, zero)
    x = np.concatenate(
        [np.arange(-300, 300, 0.25), [1e9, -1e9, 3e38, -3e38, np.inf, -np.inf, 2.0**31, -(2.0**31)]]
    ).astype(np.float32)
    output = tensor("x_q", x.shape, DTYPES[dtype][1])
    compiled = tilewright.compile(model(nodes[:1], [tensor("x", x.shape)], [output], constants))
    limits = np.iinfo(DTYPES[dtype][0])
    wanted = np.clip(np.round(x.astype(np.float64) * 2) + zero, limits.min, limits.max)
    np.testing.assert_array_equal(compiled.run(None, {"x": x})[0], wanted)


@pytest.mark.skipif(not X86_AVX512.features <= detect().features, reason="this machine has no AVX-512")
def test_kernels_of_instructions_as_c(tmp_path):
    """C has no instructions: their loops stand there, and the text compiles."""
    case = Case("Conv", (1, 16, 6, 6), (32, 16, 3, 3), pads=(1, 1, 1, 1))
    compiled = tilewright.compile(case.model(case.expected().shape), target="x86_avx512")
    assert instructions_used(compiled)
    text = compiled.c_source()
    assert "vpdpbusd" not in text
    flags = [
        "-std=c99",
        "-Wall",
        "-Werror",
        "-Wno-unknown-pragmas",
        "-Wno-unused-variable",
        "-fvisibility=default",
    ]
    link_shared([], tmp_path / "kernels.so", files={"kernels.c": [text.encode()]}, flags=flags)
