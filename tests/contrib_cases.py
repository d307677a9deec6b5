"""Operators of onnxruntime's own domain: one model an operator, and what it computes, by numpy.

`tests/unit/graph/test_decompositions.py` compares with these formulas, `benchmarks/contrib.py` with
onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Contrib:
    """A node, its inputs in order (None for one that is absent), and its outputs by numpy.

    `constant` names the inputs that are known when compiling, `outputs` says which outputs the node has.
    """

    op: str
    inputs: dict[str, np.ndarray | None]
    expected: Callable[..., Sequence[np.ndarray]]
    attributes: dict[str, object] = field(default_factory=dict)
    constant: tuple[str, ...] = ()
    outputs: tuple[bool, ...] = (True,)
    domain: str = MICROSOFT
    opset: int = 17

    @property
    def feeds(self) -> Arrays:
        """The inputs given at run time."""
        return {k: v for k, v in self.inputs.items() if v is not None and k not in self.constant}

    def results(self) -> list[np.ndarray]:
        """The outputs that the model has."""
        made = self.expected(**self.inputs)
        arrays = [np.asarray(m) for m, wanted in zip(made, self.outputs, strict=False) if wanted]
        return [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]

    def model(self) -> ModelProto:
        """The model of one node."""
        names = [name if array is not None else "" for name, array in self.inputs.items()]
        outputs = [f"out{at}" if wanted else "" for at, wanted in enumerate(self.outputs)]
        node = helper.make_node(self.op, names, outputs, "node", domain=self.domain, **self.attributes)
        inputs = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in self.feeds.items()
        ]
        made = [name for name in outputs if name]
        results = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(made, self.results(), strict=True)
        ]
        constants = [numpy_helper.from_array(self.inputs[k], k) for k in self.constant]
        graph = helper.make_graph([node], "contrib", inputs, results, constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def _bytes(*shape: int, dtype: type = np.uint8, seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng([seed, 9, *shape]).integers(info.min, info.max + 1, shape).astype(dtype)


def _f32(value: float) -> np.ndarray:
    return np.float32(value).reshape(())


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _tanh_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _layer_norm(x, gamma, beta=0.0, epsilon=1e-12):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + (0.0 if beta is None else beta)


def _rms_norm(x, gamma, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gamma


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _numbers(x, scale, zero):
    return (x.astype(np.int32) - (0 if zero is None else zero.astype(np.int32))) * scale


def _integers(value, scale, zero, dtype):
    info = np.iinfo(dtype)
    shift = 0 if zero is None else int(zero)
    return np.clip(np.rint(value / scale) + shift, info.min, info.max).astype(dtype)


def _conv(x, w, pad, stride):
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, w)


def _rotate(x, position, cosines, sines, interleaved=False):
    """`x` is [batch, heads, length, depth], `position` [batch, length]."""
    c, s = cosines[position][:, None], sines[position][:, None]
    half = cosines.shape[1]
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half : 2 * half])
    turned = (a * c - b * s, a * s + b * c)
    if interleaved:
        return np.stack(turned, -1).reshape(x.shape)
    return np.concatenate([*turned, x[..., 2 * half :]], -1)


def _heads(x, count):
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def _attend(q, k, v, scale=None, mask=0.0, cap=0.0):
    scores = q @ k.swapaxes(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if cap:
        scores = cap * np.tanh(scores / cap)
    weights = _softmax(scores + mask)
    made = weights @ v
    return made.transpose(0, 2, 1, 3).reshape(made.shape[0], made.shape[2], -1), weights


def _after(queries, keys):
    return np.where(np.arange(keys) > np.arange(queries)[:, None] + keys - queries, -1e30, 0.0)


def _normalisations() -> dict[str, Contrib]:
    x, skip, gamma, beta, bias = (
        _draw(2, 5, 16),
        _draw(2, 5, 16, seed=1),
        *(_draw(16, seed=k) for k in (2, 3, 4)),
    )
    words, places, kinds = _draw(30, 16), _draw(8, 16, seed=5), _draw(2, 16, seed=6)
    ids = np.random.default_rng(3).integers(0, 30, (2, 5)).astype(np.int32)
    segments = (ids % 2).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)

    def skipped(x, skip, gamma, beta, bias):
        total = x + skip + (0 if bias is None else bias)
        return _layer_norm(total, gamma, beta, 1e-5), None, None, total

    def embedded(ids, segments, words, places, kinds, gamma, beta, mask):
        total = words[ids] + places[np.arange(5)] + (0 if segments is None else kinds[segments])
        counts = np.zeros(2, np.int32) if mask is None else mask.sum(1).astype(np.int32)
        return _layer_norm(total, gamma, beta), counts, total

    every = {"x": x, "skip": skip, "gamma": gamma, "beta": beta, "bias": bias}
    embeds = {
        "ids": ids,
        "segments": segments,
        "words": words,
        "places": places,
        "kinds": kinds,
        "gamma": gamma,
        "beta": beta,
        "mask": mask,
    }
    sums = (True, False, False, True)
    return {
        "skip": Contrib("SkipLayerNormalization", every, skipped, {"epsilon": 1e-5}, ("gamma",), sums),
        "skip, no bias": Contrib(
            "SkipLayerNormalization",
            every | {"bias": None, "beta": None, "skip": skip[:1]},
            skipped,
            {"epsilon": 1e-5},
        ),
        "skip, root mean square": Contrib(
            "SkipSimplifiedLayerNormalization",
            {"x": x, "skip": skip, "gamma": gamma, "bias": bias},
            lambda x, skip, gamma, bias: (
                _rms_norm(x + skip + bias, gamma, 1e-5),
                None,
                None,
                x + skip + bias,
            ),
            {"epsilon": 1e-5},
            ("gamma",),
            sums,
        ),
        "root mean square": Contrib(
            "SimplifiedLayerNormalization",
            {"x": x, "gamma": gamma},
            lambda x, gamma: (_rms_norm(x, gamma, 1e-6),),
            {"epsilon": 1e-6},
            domain="",
        ),
        "embedding": Contrib(
            "EmbedLayerNormalization", embeds, embedded, {}, ("words", "places", "kinds"), (True, True, True)
        ),
        "embedding of words alone": Contrib(
            "EmbedLayerNormalization",
            embeds | {"segments": None, "kinds": None, "mask": None},
            embedded,
            {},
            ("words",),
        ),
    }


def _activations() -> dict[str, Contrib]:
    x, bias = _draw(3, 8), _draw(8, seed=1)
    return {
        "gelu": Contrib("Gelu", {"x": x}, lambda x: (_gelu(x),)),
        "gelu with bias": Contrib("BiasGelu", {"x": x, "b": bias}, lambda x, b: (_gelu(x + b),)),
        "gelu by tanh": Contrib("FastGelu", {"x": x, "b": bias}, lambda x, b: (_tanh_gelu(x + b),)),
        "gelu by sigmoid": Contrib(
            "QuickGelu", {"x": x}, lambda x: (x / (1 + np.exp(-1.5 * x)),), {"alpha": 1.5}
        ),
    }


def _products() -> dict[str, Contrib]:
    a, b = _draw(2, 3, 4, 5), _draw(2, 3, 6, 5, seed=1)
    made = {
        "product, transposed": Contrib(
            "FusedMatMul",
            {"a": a, "b": b},
            lambda a, b: (0.5 * a @ b.swapaxes(-1, -2),),
            {"transB": 1, "alpha": 0.5},
        ),
        "product, batch last": Contrib(
            "FusedMatMul",
            {"a": a.transpose(2, 0, 1, 3).copy(), "b": b},
            lambda a, b: (a.transpose(1, 2, 0, 3) @ b.swapaxes(-1, -2),),
            {"transBatchA": 1, "transB": 1},
        ),
        "gemm and an activation": Contrib(
            "FusedGemm",
            {"a": a[0, 0], "b": b[0, 0], "c": _draw(6)},
            lambda a, b, c: ((lambda t: np.where(t < 0, 0.1 * t, t))(a @ b.T + 2 * c),),
            {"transB": 1, "beta": 2.0, "activation": "LeakyRelu", "activation_alpha": 0.1},
            ("b", "c"),
        ),
    }
    for bits, zeros, block, depth in (
        (4, False, 16, 32),
        (4, True, 32, 80),
        (8, True, 16, 48),
        (2, True, 32, 64),
    ):
        if bits == 2 and zeros:
            zeros = False
        rows, blocks = 12, -(-depth // block)
        packed, scales = _bytes(rows, blocks, block * bits // 8), np.abs(_draw(rows, blocks)) + 0.1
        zero = _bytes(rows, -(-blocks * bits // 8), seed=2) if zeros else None

        def product(x, w, scales, zeros, bits=bits, blocks=blocks, block=block, depth=depth):
            split = 8 // bits

            def numbers(p, count):
                parts = [(p >> (bits * at)) & ((1 << bits) - 1) for at in range(split)]
                return np.stack(parts, -1).reshape(p.shape[0], -1)[:, :count].astype(np.int32)

            middle = (
                1 << (bits - 1) if zeros is None else np.repeat(numbers(zeros, blocks), block, 1)[:, :depth]
            )
            wide = (numbers(w.reshape(12, -1), blocks * block)[:, :depth] - middle) * np.repeat(
                scales, block, 1
            )[:, :depth]
            return (x @ wide.T,)

        attributes = {"bits": bits, "block_size": block, "N": rows, "K": depth}
        fed = {"x": _draw(3, depth), "w": packed, "scales": scales, "zeros": zero}
        constant = ("w", "scales", "zeros")[: 3 if zeros else 2]
        made[f"{bits} bits, {'zeros' if zeros else 'middles'}"] = Contrib(
            "MatMulNBits", fed, product, attributes, constant
        )
    return made


def _convolutions() -> dict[str, Contrib]:
    x, w, b, z = _draw(2, 8, 6, 6), _draw(4, 8, 3, 3, seed=1), _draw(4, seed=2), _draw(2, 4, 6, 6, seed=3)
    window = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    last = {"x": x.transpose(0, 2, 3, 1).copy(), "w": w, "b": b}
    return {
        "convolution, sum, relu": Contrib(
            "FusedConv",
            {"x": x, "w": w, "b": b, "z": z},
            lambda x, w, b, z: (np.maximum(_conv(x, w, 1, 1) + b[:, None, None] + z, 0),),
            {"activation": "Relu", **window},
            ("w", "b"),
        ),
        "convolution, clip": Contrib(
            "FusedConv",
            {"x": x, "w": w, "b": b},
            lambda x, w, b: (np.clip(_conv(x, w, 1, 1) + b[:, None, None], -0.5, 1.5),),
            {"activation": "Clip", "activation_params": [-0.5, 1.5], **window},
            ("w", "b"),
        ),
        "convolution, channels last": Contrib(
            "NhwcConv",
            last,
            lambda x, w, b: (
                (_conv(x.transpose(0, 3, 1, 2), w, 1, 2) + b[:, None, None]).transpose(0, 2, 3, 1),
            ),
            {"strides": [2, 2], **window},
            ("w", "b"),
        ),
    }


def _dynamic_lstm(x, w, r, b, lengths, h, c, p, ws, wz, rs, rz):
    """An LSTM of one or two directions, inputs and states in bytes; gates in the order i, o, f, c."""

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    def product(v, matrix, scale, zero):
        low, high = min(0, v.min()), max(0, v.max())
        step = np.float32(high - low) / np.float32(255) or np.float32(1)
        shift = np.rint(-low / step)
        held = np.clip(np.rint(v / step) + shift, 0, 255)
        return (held - shift) @ (matrix.astype(np.int64) - zero) * (step * scale)

    ends, series = [], []
    for d in range(len(w)):
        outside, inside = np.split(b[d], 2)
        from_inputs = product(x, w[d], ws[d], wz[d])
        hidden, cell, rows = h[d], np.zeros_like(h[d]), []
        for step in from_inputs[::-1] if d else from_inputs:
            total = step + product(hidden, r[d], rs[d], rz[d]) + outside + inside
            i, o, f, g = np.split(total.astype(np.float32), 4, axis=-1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
            rows.append(hidden)
        series.append(np.stack(rows[::-1] if d else rows))
        ends.append((hidden, cell))
    return np.stack(series, 1), np.stack([e[0] for e in ends]), np.stack([e[1] for e in ends])


def _quantised() -> dict[str, Contrib]:
    u8, i8 = np.uint8, np.int8
    x, y = _bytes(2, 6), _bytes(2, 6, seed=1)
    pair = {
        "x": x,
        "xs": _f32(0.05),
        "xz": u8(120),
        "y": y,
        "ys": _f32(0.03),
        "yz": u8(99),
        "s": _f32(0.1),
        "z": u8(100),
    }
    one = {"x": x, "xs": _f32(0.05), "xz": u8(120), "s": _f32(0.01), "z": u8(3)}
    image, weights = _bytes(1, 4, 6, 6), _bytes(8, 4, 3, 3, dtype=i8)
    scales, bias = np.abs(_draw(8)) * 0.01 + 0.01, np.arange(-400, 400, 100).astype(np.int32)
    conv = {"x": image, "xs": _f32(0.02), "xz": u8(7), "w": weights, "ws": scales, "wz": np.zeros(8, i8)}
    conv |= {"s": _f32(2.0), "z": u8(110), "b": bias}
    a, b = _bytes(3, 16), _bytes(16, 8, dtype=i8)
    gemm = {"a": a, "as_": _f32(0.02), "az": u8(9), "b": b, "bs": scales, "bz": np.zeros(8, i8), "c": bias}

    def binary(fn):
        return lambda x, xs, xz, y, ys, yz, s, z: (
            _integers(fn(_numbers(x, xs, xz), _numbers(y, ys, yz)), s, z, x.dtype),
        )

    def unary(fn):
        return lambda x, xs, xz, s, z: (_integers(fn(_numbers(x, xs, xz)), s, z, x.dtype),)

    def convolved(x, xs, xz, w, ws, wz, s, z, b):
        total = _conv(x.astype(np.int32) - int(xz), w.astype(np.int32), 0, 1) + b[:, None, None]
        return (_integers(total * (xs * ws)[:, None, None], s, z, np.uint8),)

    def product(a, as_, az, b, bs, bz, c, s=None, z=None):
        total = (a.astype(np.int32) - int(az)) @ b.astype(np.int32) + c
        value = total * (as_ * bs)
        return (value.astype(np.float32) if s is None else _integers(value, s, z, np.uint8),)

    def dynamic(x, w, ws, wz, b):
        low, high = min(0.0, x.min()), max(0.0, x.max())
        scale = np.float32((high - low) / 255)
        zero = np.clip(np.rint(-low / scale), 0, 255)
        q = np.clip(np.rint(x / scale) + zero, 0, 255)
        centred = w.astype(np.int32) - (0 if wz is None else wz.astype(np.int32))
        return ((q - zero) @ centred * scale * ws + (0 if b is None else b),)

    def to_float(a, b, as_, bs, az, bz, c):
        total = (a.astype(np.int32) - int(az)) @ (b.astype(np.int32) - bz.astype(np.int32))
        return (total * as_ * bs + c,)

    floats = _draw(3, 16, seed=7)
    known = ("w", "ws", "wz", "b", "c", "bs", "bz", "xs", "xz", "s", "z", "as_", "az", "ys", "yz")

    def case(op, fed, expected, **attributes):
        constant = tuple(
            k for k in fed if k in known and fed[k] is not None and not (k == "b" and op == "none")
        )
        return Contrib(op, fed, expected, attributes, constant)

    pool = lambda v: np.lib.stride_tricks.sliding_window_view(v, (2, 2), (2, 3)).mean((-1, -2))  # noqa: E731
    image_one = one | {"x": image, "s": _f32(0.04), "z": u8(120)}
    relu = unary(lambda v: np.where(v < 0, 0.1 * v, v))
    concat = {
        "s": _f32(0.05),
        "z": u8(120),
        "x": x,
        "xs": _f32(0.05),
        "xz": u8(120),
        "y": y,
        "ys": _f32(0.03),
        "yz": u8(99),
    }
    made = {
        "sum": case("QLinearAdd", pair, binary(np.add)),
        "product": case("QLinearMul", pair, binary(np.multiply)),
        "sigmoid": case("QLinearSigmoid", one, unary(lambda v: 1 / (1 + np.exp(-v)))),
        "leaky relu": case("QLinearLeakyRelu", one | {"s": _f32(0.04), "z": u8(50)}, relu, alpha=0.1),
        "softmax": case("QLinearSoftmax", one | {"z": u8(0)}, unary(_softmax), axis=-1, opset=13),
        "average": case("QLinearAveragePool", image_one, unary(pool), kernel_shape=[2, 2]),
        "mean": case("QLinearGlobalAveragePool", image_one, unary(lambda v: v.mean((2, 3), keepdims=True))),
        "concatenation": case(
            "QLinearConcat",
            concat,
            lambda s, z, x, xs, xz, y, ys, yz: (
                _integers(np.concatenate([_numbers(x, xs, xz), _numbers(y, ys, yz)], 1), s, z, np.uint8),
            ),
            axis=1,
        ),
        "where": case(
            "QLinearWhere",
            {"condition": np.array([[True], [False]]), **pair},
            lambda condition, x, xs, xz, y, ys, yz, s, z: (
                _integers(np.where(condition, _numbers(x, xs, xz), _numbers(y, ys, yz)), s, z, np.uint8),
            ),
        ),
        "gemm": case("QGemm", gemm | {"s": _f32(0.5), "z": u8(120)}, product),
        "gemm, in numbers": case("QGemm", gemm, product),
        "dynamic product": case(
            "DynamicQuantizeMatMul", {"x": floats, "w": b, "ws": scales, "wz": None, "b": _draw(8)}, dynamic
        ),
        "dynamic product, u8 weights": case(
            "DynamicQuantizeMatMul",
            {
                "x": floats,
                "w": _bytes(16, 8),
                "ws": np.full(1, 0.02, np.float32),
                "wz": u8(130).reshape(1),
                "b": None,
            },
            dynamic,
        ),
        "conversion to integers": case(
            "QuantizeLinear",
            {
                "x": floats,
                "s": np.array([5e-5, 2e-4, 1e-4], np.float32),
                "z": np.array([9, -3, 700], np.int16),
            },
            lambda x, s, z: (np.clip(np.rint(x / s[:, None]) + z[:, None], -32768, 32767).astype(np.int16),),
            axis=0,
        ),
        "conversion to numbers": case(
            "DequantizeLinear",
            {"x": x.astype(np.uint16) * 250, "s": _f32(0.05), "z": np.array(30000, np.uint16)},
            lambda x, s, z: (_numbers(x, s, z),),
        ),
        "product, in numbers": case(
            "MatMulIntegerToFloat",
            {
                "a": a,
                "b": b,
                "as_": _f32(0.02),
                "bs": scales,
                "az": u8(9),
                "bz": np.zeros(8, i8),
                "c": _draw(8),
            },
            to_float,
        ),
    }
    for directions, whole in ((1, False), (2, True)):
        steps, batch, width, hidden = 5, 2, 7, 8
        shape = (directions, 4 * hidden) if whole else (directions,)
        made[f"dynamic LSTM, {directions}"] = Contrib(
            "DynamicQuantizeLSTM",
            {
                "x": _draw(steps, batch, width),
                "w": _bytes(directions, width, 4 * hidden, dtype=i8),
                "r": _bytes(directions, hidden, 4 * hidden, dtype=i8, seed=1),
                "b": _draw(directions, 8 * hidden),
                "lengths": None,
                "h": _draw(directions, batch, hidden),
                "c": None,
                "p": None,
                "ws": np.full(shape, 0.004, np.float32) * (1 + np.arange(shape[-1], dtype=np.float32) / 64),
                "wz": np.zeros(shape, i8),
                "rs": np.full(shape, 0.003, np.float32),
                "rz": np.full(shape, 0 if whole else 4, i8),  # onnxruntime takes no others of gates
            },
            _dynamic_lstm,
            constant=("w", "r", "b", "ws", "wz", "rs", "rz"),
            outputs=(True, True, True),
            attributes={
                "hidden_size": hidden,
                "direction": "bidirectional" if directions > 1 else "forward",
            },
        )
    made["quantised convolution"] = Contrib(
        "QLinearConv", conv, convolved, {}, tuple(k for k in conv if k != "x"), domain=""
    )
    return made


def _attentions() -> dict[str, Contrib]:
    batch, length, heads, depth = 2, 5, 4, 8
    hidden = heads * depth
    q, k, v = (_draw(batch, length, hidden, seed=s) for s in (1, 2, 3))
    bias = _draw(3 * hidden, seed=4)
    past_k, past_v = (_draw(batch, heads, 3, depth, seed=s) for s in (5, 6))
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
    added = _draw(1, heads, length, length, seed=8)

    def multi_head(q, k, v, bias=None, mask=None, added=None, past_k=None, past_v=None, causal=False):
        if k is None:
            q, k, v = (q[:, :, :, at].reshape(batch, length, hidden) for at in range(3))
        if bias is not None:
            q, k, v = (value + part for value, part in zip((q, k, v), np.split(bias, 3), strict=True))
        q, k, v = (_heads(value, heads) for value in (q, k, v))
        if past_k is not None:
            k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
        total = 0.0 if mask is None else np.where(mask[:, None, None] != 0, 0.0, -10000.0)
        total = total + (0.0 if added is None else added)
        total = total + (_after(length, k.shape[2]) if causal else 0.0)
        return _attend(q, k, v, mask=total)[0], k, v

    w = _draw(hidden, 3 * hidden, seed=9) * 0.2
    counts = np.array([3, 5], np.int32)

    def attention(x, w, bias, mask=None, past=None, causal=True):
        q, k, v = (_heads(part, heads) for part in np.split(x @ w + bias, 3, -1))
        if past is not None:
            k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
        total = _after(length, k.shape[2]) if causal else 0.0
        if mask is not None:
            kept = mask[:, None, None] if mask.ndim == 2 else np.arange(length) < mask[:, None, None, None]
            total = total + np.where(kept, 0.0, -10000.0)
        return _attend(q, k, v, mask=total)[0], np.stack([k, v])

    every = {"q": q, "k": k, "v": v, "bias": bias, "mask": mask, "added": added}
    cached = {
        "q": q,
        "k": k,
        "v": v,
        "bias": None,
        "mask": None,
        "added": None,
        "past_k": past_k,
        "past_v": past_v,
    }
    one = {"x": q, "w": w, "bias": bias}
    packed = {"q": _draw(batch, length, heads, 3, depth, seed=11), "k": None, "v": None}

    angles = np.arange(16)[:, None] * np.array([1.0, 0.5, 0.2, 0.1])
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    where = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], np.int64)
    made = {
        "attention of given parts": Contrib(
            "MultiHeadAttention", every, multi_head, {"num_heads": heads}, ("bias",)
        ),
        "attention with a cache": Contrib(
            "MultiHeadAttention", cached, multi_head, {"num_heads": heads}, outputs=(True, True, True)
        ),
        "attention of packed parts": Contrib(
            "MultiHeadAttention", packed, lambda q, k, v: multi_head(q, k, v), {"num_heads": heads}
        ),
        "attention and its projections": Contrib(
            "Attention", one, attention, {"num_heads": heads, "unidirectional": 1}, ("w", "bias")
        ),
        "attention, masked": Contrib(
            "Attention",
            one | {"mask": mask},
            lambda **given: attention(**given, causal=False),
            {"num_heads": heads},
            ("w", "bias"),
        ),
        "attention, lengths": Contrib(
            "Attention",
            one | {"mask": counts},
            lambda **given: attention(**given, causal=False),
            {"num_heads": heads},
            ("w", "bias"),
        ),
        "attention, past and present": Contrib(
            "Attention",
            one | {"mask": None, "past": np.stack([past_k, past_v])},
            attention,
            {"num_heads": heads, "unidirectional": 1},
            ("w", "bias"),
            (True, True),
        ),
        "rotary": Contrib(
            "RotaryEmbedding",
            {"x": q, "where": where, "cosines": cosines, "sines": sines},
            lambda x, where, cosines, sines: (
                _rotate(_heads(x, heads), where, cosines, sines).transpose(0, 2, 1, 3).reshape(x.shape),
            ),
        ),
        "rotary, interleaved, from a place on": Contrib(
            "RotaryEmbedding",
            {
                "x": _heads(q, heads).copy(),
                "where": np.array([4], np.int64),
                "cosines": cosines,
                "sines": sines,
            },
            lambda x, where, cosines, sines: (
                _rotate(x, np.broadcast_to(where + np.arange(length), (batch, length)), cosines, sines, True),
            ),
            {"interleaved": 1},
        ),
        "rotary of a part": Contrib(
            "RotaryEmbedding",
            {"x": _heads(q, heads).copy(), "where": where, "cosines": cosines[:, :2], "sines": sines[:, :2]},
            lambda x, where, cosines, sines: (_rotate(x, where, cosines, sines),),
            {"rotary_embedding_dim": 4, "num_heads": heads},
        ),
    }

    def grouped(q, k, v, past_k, past_v, last, total, cosines=None, sines=None, window=0, cap=0.0):
        kv, new, count = 2, q.shape[1], int(total)
        q, k, v = _heads(q, heads), _heads(k, kv), _heads(v, kv)
        keys = max(count, 0 if past_k is None else past_k.shape[2])
        k_all, v_all = np.zeros((batch, kv, keys, depth)), np.zeros((batch, kv, keys, depth))
        if past_k is not None:
            k_all[:, :, : past_k.shape[2]], v_all[:, :, : past_k.shape[2]] = past_k, past_v
        mask = np.full((batch, 1, new, keys), -1e30)
        places = np.zeros((batch, new), int)
        for b in range(batch):
            start = 0 if new == count else int(last.reshape(-1)[b]) + 1 - new
            places[b] = start + np.arange(new)
            for i, at in enumerate(places[b]):
                mask[b, 0, i, max(0, at - window + 1) if window else 0 : at + 1] = 0.0
        if cosines is not None:
            q, k = _rotate(q, places, cosines, sines), _rotate(k, places, cosines, sines)
        for b in range(batch):
            k_all[b, :, places[b]], v_all[b, :, places[b]] = k[b].swapaxes(0, 1), v[b].swapaxes(0, 1)
        made = _attend(q, k_all.repeat(heads // kv, 1), v_all.repeat(heads // kv, 1), mask=mask, cap=cap)[0]
        return made, k_all, v_all

    # rotary embeddings inside are of heads of a multiple of 16 elements
    depth = 16
    q = _draw(batch, length, heads * depth, seed=1)
    angles = np.arange(16)[:, None] * 0.8 ** np.arange(8)
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    kv_k, kv_v = (_draw(batch, length, 2 * depth, seed=s) for s in (12, 13))
    fresh = {"q": q, "k": kv_k, "v": kv_v, "past_k": None, "past_v": None}
    fresh |= {"last": np.full(batch, length - 1, np.int32), "total": np.array(length, np.int32)}
    cache_k, cache_v = (_draw(batch, 2, 7, depth, seed=s) for s in (14, 15))
    step = {"q": q[:, :1], "k": kv_k[:, :1], "v": kv_v[:, :1], "past_k": cache_k, "past_v": cache_v}
    turning = {"cosines": cosines, "sines": sines}
    groups = {"num_heads": heads, "kv_num_heads": 2}
    made["groups, first"] = Contrib(
        "GroupQueryAttention",
        fresh | turning,
        grouped,
        groups | {"do_rotary": 1},
        ("total",),
        (True, True, True),
    )
    made["groups, a step"] = Contrib(
        "GroupQueryAttention",
        step | {"last": np.full(batch, 7, np.int32), "total": np.array(8, np.int32)} | turning,
        grouped,
        groups | {"do_rotary": 1},
        ("total",),
        (True, True, True),
    )
    made["groups, a step in a window"] = Contrib(
        "GroupQueryAttention",
        step | {"last": np.full(batch, 7, np.int32), "total": np.array(8, np.int32)},
        lambda **given: grouped(**given, window=4, cap=5.0),
        groups | {"local_window_size": 4, "softcap": 5.0},
        ("total",),
        (True, True, True),
    )
    made["groups, different lengths"] = Contrib(
        "GroupQueryAttention",
        step | {"last": np.array([4, 7], np.int32), "total": np.array(8, np.int32)},
        lambda **given: grouped(**given),
        groups,
        ("total",),
    )
    return made


CASES: dict[str, Contrib] = {
    **_normalisations(),
    **_activations(),
    **_products(),
    **_convolutions(),
    **_quantised(),
    **_attentions(),
}
