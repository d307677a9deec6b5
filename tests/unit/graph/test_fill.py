"""FillBlocks: channels of zeros after those that fill no whole blocks, where that saves time."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper

import tilewright
from onnx_models import model, tensor
from tilewright.driver import verify_model
from tilewright.frontend import import_onnx
from tilewright.graph import FILLED, FillBlocks, evaluate_graph
from tilewright.target import detect

LANES = 16
PASS = FillBlocks(LANES, 0.5)
#: Half blocks cost so much that they are filled wherever they can be.
EAGER = FillBlocks(LANES, 1e-6)
CHANNELS = (8, 24, 40)


@dataclass
class Net:
    """A model in the making: each method adds a node and returns its result, of so many channels."""

    channels: int = 3
    size: tuple[int, ...] = (5, 6)
    seed: int = 0
    nodes: list = field(default_factory=list)
    weights: dict = field(default_factory=dict)
    count: dict = field(default_factory=dict)

    def __post_init__(self):
        self.random = np.random.default_rng(self.seed)
        self.count["x"] = self.channels

    def constant(self, *shape):
        name = f"c{len(self.weights)}"
        self.weights[name] = self.random.normal(size=shape).astype(np.float32) * 0.5
        return name

    def node(self, op, *inputs, channels=None, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        self.count[name] = self.count[inputs[0]] if channels is None else channels
        return name

    def conv(self, x, channels, window=1, group=1, op="Conv"):
        depth = self.count[x] // group
        shape = (self.count[x], channels) if op == "ConvTranspose" else (channels, depth)
        w = self.constant(*shape, *[window] * len(self.size))
        pads = [window // 2] * 2 * len(self.size)
        return self.node(op, x, w, self.constant(channels), channels=channels, group=group, pads=pads)

    def build(self, *outputs, rank=None):
        shape = (2, self.channels, *self.size)
        results = [tensor(y, (None,) * (rank or len(shape))) for y in outputs]
        return model(self.nodes, [tensor("x", shape)], results, self.weights)


def sizes(graph):
    return {v.removesuffix(FILLED): t.sizes[1] for v, t in graph.types.items() if v.endswith(FILLED)}


def check(step, onnx_model):
    """The pass's result, which computes the same."""
    graph = import_onnx(onnx_model)
    changed = step(graph)
    changed.check()
    feeds = {"x": np.random.default_rng(1).normal(size=graph.types["x"].sizes).astype(np.float32)}
    made, want = (evaluate_graph(g, feeds) for g in (changed, graph))
    for name, array in want.items():
        assert made[name].shape == array.shape
        scale = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(made[name], array, rtol=0, atol=1e-4 * scale)
    return changed


def test_channels_between_convolutions():
    net = Net()
    h = net.conv("x", 40, 3)
    r = net.node("Relu", h)
    y = net.conv(r, 32)
    changed = check(PASS, net.build(y))
    assert sizes(changed) == {h: 48, r: 48}
    maker, _, reader = changed.nodes
    assert changed.constants[maker.inputs[1]].shape == (48, 3, 3, 3)
    assert changed.constants[maker.inputs[2]].shape == (48,)
    assert changed.constants[reader.inputs[1]].shape == (32, 48, 1, 1)
    assert reader.outputs == (y,)


def test_what_has_the_same_channels_is_filled_together():
    net = Net()
    h = net.node("Relu", net.conv("x", 40, 3))
    d = net.node("HardSwish", net.conv(h, 40, 3, group=40))
    scale = net.node("Sigmoid", net.conv(net.node("GlobalAveragePool", d), 40))
    m = net.node("Add", net.node("Mul", d, scale), h)
    y = net.conv(m, 64)
    changed = check(PASS, net.build(y))
    assert set(sizes(changed).values()) == {48} and len(sizes(changed)) == len(net.nodes) - 1
    assert [n.attributes.get("group", 1) for n in changed.nodes if n.op == "Conv"] == [1, 48, 1, 1]


@pytest.mark.parametrize(("channels", "depth", "filled"), [(104, 8, 112), (40, 4, 48), (24, 12, None)])
def test_groups_are_added_whole(channels, depth, filled):
    net = Net()
    h = net.conv("x", channels, 3)
    g = net.conv(h, channels, 3, group=channels // depth)
    y = net.conv(g, 64)
    changed = check(PASS, net.build(y))
    assert sizes(changed) == ({} if filled is None else {h: filled, g: filled})
    if filled is not None:
        assert changed.nodes[1].attributes["group"] == filled // depth


def test_what_others_read_is_cropped():
    net = Net(size=(40, 40))
    h = net.conv("x", 232, 3)
    p = net.node("GlobalAveragePool", h)
    flat = net.node("Flatten", p)
    y = net.node("Gemm", flat, net.constant(232, 10))
    changed = check(PASS, net.build(y, rank=2))
    assert sizes(changed) == {h: 240, p: 240}
    (crop,) = [n for n in changed.nodes if n.op == "Slice"]
    assert crop.inputs[0] == p + FILLED and crop.outputs == (p,)
    assert changed.types[p].sizes == (2, 232, 1, 1)


def whole():
    net = Net()
    return net.build(net.conv(net.conv("x", 32, 3), 16))


def given_by_the_user():
    net = Net(channels=24)
    return net.build(net.conv(net.node("Add", net.conv("x", 24), "x"), 16))


def returned():
    net = Net()
    return net.build(net.conv("x", 24, 3))


def joined():
    net = Net()
    parts = [net.conv("x", 24, 3) for _ in range(2)]
    return net.build(net.conv(net.node("Concat", *parts, axis=1, channels=48), 16))


def too_few():
    net = Net()
    return net.build(net.conv(net.conv("x", 8), 64))


def divided_by_zeros():
    net = Net()
    parts = [net.conv("x", 40, 3) for _ in range(2)]
    return net.build(net.conv(net.node("Div", *parts), 64))


def without_epsilon():
    net = Net()
    h = net.conv("x", 40, 3)
    n = net.node("InstanceNormalization", h, net.constant(40), net.constant(40), epsilon=0.0)
    return net.build(net.conv(n, 64))


def masked():
    net = Net()
    mask = net.constant(1)
    net.weights[mask][:] = -np.inf
    return net.build(net.conv(net.node("Max", net.conv("x", 40, 3), mask), 64))


@pytest.mark.parametrize(
    "make",
    [whole, given_by_the_user, returned, joined, too_few, divided_by_zeros, without_epsilon, masked],
    ids=lambda f: f.__name__,
)
def test_what_stays_as_it_is(make):
    graph = import_onnx(make())
    assert PASS(graph) is graph


@pytest.mark.parametrize("operators", [("Exp",) * 5, ("Sqrt",)])
def test_zeros_that_would_become_infinite_or_no_numbers_go_no_further(operators):
    """Five exponentials of 0 overflow, and 0 - 1 has no root, where the model's own channels are fine."""
    net = Net()
    h = net.conv("x", 40, 3)
    net.weights["c0"] *= 0
    one = net.constant(1)
    # the model's channels are -5 before the exponentials, and 4 before the root
    net.weights["c1"][:] = -5 if operators[0] == "Exp" else 4
    net.weights[one][:] = 1 if operators[0] == "Sqrt" else 0
    v = net.node("Sub", h, one)
    for op in operators:
        v = net.node(op, v)
    graph = check(EAGER, net.build(net.conv(v, 64)))
    assert all(n.op not in ("Exp", "Sqrt") or not n.outputs[0].endswith(FILLED) for n in graph.nodes)


def test_half_vectors_that_are_as_fast_are_left():
    net = Net()
    graph = import_onnx(net.build(net.conv(net.conv("x", 40, 5), 64)))
    assert PASS(graph) is not graph
    assert FillBlocks(LANES, 1.0)(graph) is graph


def test_winograd_is_worth_more_products():
    net = Net(channels=48, size=(20, 20))
    graph = import_onnx(net.build(net.conv(net.conv("x", 36, 3), 48, 3)))
    assert FillBlocks(LANES, 0.5, winograd=False)(graph) is graph
    assert set(sizes(FillBlocks(LANES, 0.5)(graph)).values()) == {48}


def test_names_that_are_taken():
    net = Net()
    y = net.conv(net.conv("x", 40, 3), 64)
    onnx_model = net.build(y)
    for node in onnx_model.graph.node:
        node.output[:] = ["v0.filled" if v == y else v for v in node.output]
    onnx_model.graph.output[0].name = "v0.filled"
    changed = check(PASS, onnx_model)
    assert changed.types["v0.filled.1"].sizes[1] == 48


@st.composite
def networks(draw):
    net = Net(seed=draw(st.integers(0, 100)), size=draw(st.sampled_from([(4,), (3, 5), (2, 3, 3)])))
    flat = [1] * len(net.size)
    values = [net.conv("x", draw(st.sampled_from(CHANNELS)), 3)]
    for _ in range(draw(st.integers(1, 8))):
        x = draw(st.sampled_from(values))
        c = net.count[x]
        same = [v for v in values if net.count[v] == c]
        match draw(st.integers(0, 11)):
            case 0 | 1:
                y = net.conv(x, draw(st.sampled_from((*CHANNELS, 16))), draw(st.sampled_from((1, 3))))
            case 2:
                y = net.conv(x, c, 3, group=draw(st.sampled_from([g for g in (2, 4, 8) if c % g == 0] + [c])))
            case 3:
                y = net.conv(x, draw(st.sampled_from(CHANNELS)), op="ConvTranspose")
            case 4:
                y = net.node(draw(st.sampled_from(("Relu", "Sigmoid", "Tanh", "HardSwish", "Softplus"))), x)
            case 5:
                y = net.node(
                    draw(st.sampled_from(("Add", "Mul", "Sub", "Max"))), x, draw(st.sampled_from(same))
                )
            case 6:
                y = net.node("PRelu", x, net.constant(c, *flat))
            case 7:
                divisor = net.constant(1, c, *flat)
                net.weights[divisor] = np.abs(net.weights[divisor]) + 1
                y = net.node("Div", x, divisor)
            case 8:
                y = net.node("Mul", x, net.node("GlobalAveragePool", x))
            case 9:
                y = net.node("InstanceNormalization", x, net.constant(c), net.constant(c))
            case 10:
                parts = [net.constant(c) for _ in range(4)]
                net.weights[parts[3]] = np.abs(net.weights[parts[3]]) + 1
                y = net.node("BatchNormalization", x, *parts)
            case _:
                y = net.node("Concat", x, draw(st.sampled_from(same)), axis=1, channels=2 * c)
        values.append(y)
    outputs = {values[-1], net.conv(values[-1], 16), *draw(st.sets(st.sampled_from(values), max_size=1))}
    return net.build(*sorted(outputs))


@given(networks())
@settings(deadline=None)
def test_networks_compute_the_same(onnx_model):
    check(EAGER, onnx_model)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_compiled_and_verified(precision):
    net = Net(size=(12, 12))
    h = net.node("Relu", net.conv("x", 40, 3))
    g = net.node("Relu", net.conv(h, 40, 3, group=5))
    y = net.conv(net.node("Add", g, h), 64)
    onnx_model = net.build(y)
    compiled = tilewright.compile(onnx_model, threads=2, precision=precision)
    outcome = verify_model(compiled, onnx_model, compiled.sample_feeds(), "onnx")
    assert outcome.ok, outcome.first_difference
    # values with zeros after their channels are compared under the names that the model has for them
    assert {check.name for check in outcome.checks} > {h}
    if detect().lanes(tilewright.ir.F32) == LANES and detect().fma_per_cycle >= 2:
        made = {value for group in compiled.groups() for value in group.outputs}
        assert h + FILLED in made


def quantised(channels, zero_point=3, *, group=1):
    """A convolution of bytes, its sums made numbers and bytes again."""
    random = np.random.default_rng(2)
    depth = 16 // group
    constants = {
        "w": random.integers(-127, 128, (channels, depth, 3, 3)).astype(np.int8),
        "sums": random.integers(-900, 900, (channels, 1, 1)).astype(np.int32) * zero_point,
        "factor": random.uniform(1e-3, 2e-3, (channels, 1, 1)).astype(np.float32),
        "bias": random.normal(size=(channels, 1, 1)).astype(np.float32),
        "scale": np.float32(0.5),
        "zero": np.uint8(120),
    }
    nodes = [
        helper.make_node("ConvInteger", ["x", "w"], ["v0"], pads=[1] * 4, group=group),
        helper.make_node("Sub", ["v0", "sums"], ["v1"]),
        helper.make_node("Cast", ["v1"], ["v2"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["v2", "factor"], ["v3"]),
        helper.make_node("Add", ["v3", "bias"], ["v4"]),
        helper.make_node("QuantizeLinear", ["v4", "scale", "zero"], ["v5"]),
        helper.make_node("Transpose", ["v5"], ["y"], perm=[0, 2, 3, 1]),
    ]
    x = tensor("x", (1, 16, 30, 30), TensorProto.UINT8)
    return import_onnx(model(nodes, [x], [tensor("y", (None,) * 4, TensorProto.UINT8)], constants))


BYTES = FillBlocks(LANES, 0.5, sums_bytes=True)


@pytest.mark.parametrize(("channels", "filled"), [(20, 32), (1, 16), (24, 32), (32, None)])
def test_sums_of_bytes_by_instructions(channels, filled):
    """Half blocks take as long; what quantises the sums has the zeros too, what moves its result not.

    What one channel is combined with may be meant for all of them: there only the sums are filled.
    """
    graph = quantised(channels)
    changed = BYTES(graph)
    changed.check()
    with_zeros = 0 if filled is None else 1 if channels == 1 else 6
    assert sizes(changed) == {f"v{n}": filled for n in range(with_zeros)}
    x = np.random.default_rng(1).integers(0, 256, (1, 16, 30, 30)).astype(np.uint8)
    made, want = (evaluate_graph(g, {"x": x})["y"] for g in (changed, graph))
    np.testing.assert_array_equal(made, want)


@pytest.mark.parametrize(("step", "group"), [(PASS, 1), (BYTES, 2)])
def test_sums_of_bytes_without_instructions_and_by_groups(step, group):
    graph = quantised(20, group=group)
    assert step(graph) is graph


def test_half_blocks_of_bytes_that_are_as_fast_are_left():
    graph = quantised(24)
    assert FillBlocks(LANES, 1.0, sums_bytes=True)(graph) is graph


@pytest.mark.parametrize(
    ("channels", "window", "filled"), [(130, 3, 144), (130, 1, 144), (128, 3, None), (33, 4, None)]
)
def test_bytes_of_others_get_their_zeros_by_a_copy(channels, window, filled):
    """But not where instructions sum taps."""
    random = np.random.default_rng(5)
    w = random.integers(-127, 128, (32, channels, window, window)).astype(np.int8)
    nodes = [helper.make_node("ConvInteger", ["x", "w"], ["y"], auto_pad="SAME_UPPER")]
    x = tensor("x", (1, channels, 9, 9), TensorProto.UINT8)
    graph = import_onnx(model(nodes, [x], [tensor("y", (None,) * 4, TensorProto.INT32)], {"w": w}))
    changed = BYTES(graph)
    changed.check()
    assert [node.op for node in changed.nodes] == [*(["Pad"] if filled else []), "ConvInteger"]
    assert sizes(changed) == ({"x": filled} if filled else {})
    feeds = {"x": random.integers(0, 256, (1, channels, 9, 9)).astype(np.uint8)}
    made, want = (evaluate_graph(g, feeds)["y"] for g in (changed, graph))
    np.testing.assert_array_equal(made, want)


def test_compiled_sums_of_bytes():
    """Bytes in blocks that a convolution of one channel reads as well: once it had them stored in rows."""
    random = np.random.default_rng(3)
    constants = {f"w{n}": random.integers(-99, 99, (n, 32, 3, 3)).astype(np.int8) for n in (1, 21, 32)}
    nodes = [
        helper.make_node("ConvInteger", ["x", f"w{n}", "z"], [f"y{n}"], pads=[1] * 4) for n in (1, 21, 32)
    ]
    outputs = [tensor(f"y{n}", (1, n, 20, 20), TensorProto.INT32) for n in (1, 21, 32)]
    onnx_model = model(
        nodes, [tensor("x", (1, 32, 20, 20), TensorProto.UINT8)], outputs, {**constants, "z": np.uint8(7)}
    )
    x = random.integers(0, 256, (1, 32, 20, 20)).astype(np.uint8)
    want = evaluate_graph(import_onnx(onnx_model), {"x": x})
    compiled = tilewright.compile(onnx_model, threads=2)
    for n, made in zip((1, 21, 32), compiled.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(made, want[f"y{n}"])


@pytest.mark.parametrize("fixed", [True, False])
def test_bytes_that_are_summed_get_channels_of_zeros(fixed):
    """Where fours of channels leave a rest; the scale of what quantises them may be a run's own."""
    random = np.random.default_rng(4)
    constants = {
        "w": random.integers(-127, 128, (66, 16, 3, 3)).astype(np.int8),
        "v": random.integers(-127, 128, (32, 66, 3, 3)).astype(np.int8),
        "factor": random.uniform(1e-3, 2e-3, (66, 1, 1)).astype(np.float32),
        "zero": np.uint8(120),
        **({"scale": np.float32(0.5)} if fixed else {}),
    }
    nodes = [
        helper.make_node("ConvInteger", ["x", "w"], ["v0"], pads=[1] * 4),
        helper.make_node("Cast", ["v0"], ["v1"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["v1", "factor"], ["v2"]),
        helper.make_node("QuantizeLinear", ["v2", "scale", "zero"], ["v3"]),
        helper.make_node("ConvInteger", ["v3", "v"], ["y"], pads=[1] * 4),
    ]
    x = tensor("x", (1, 16, 30, 30), TensorProto.UINT8)
    given = [x] if fixed else [x, tensor("scale", ())]
    graph = import_onnx(model(nodes, given, [tensor("y", (None,) * 4, TensorProto.INT32)], constants))
    changed = BYTES(graph)
    changed.check()
    assert sizes(changed) == {f"v{n}": 80 for n in range(4)}
    feeds = {"x": random.integers(0, 256, (1, 16, 30, 30)).astype(np.uint8)}
    feeds |= {} if fixed else {"scale": np.float32(0.25)}
    made, want = (evaluate_graph(g, feeds)["y"] for g in (changed, graph))
    np.testing.assert_array_equal(made, want)
