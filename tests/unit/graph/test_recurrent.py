"""Recurrent layers as steps: the same numbers as the layer as one node, and one program for all steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from devices import LANGUAGES
from tilewright import lang
from tilewright.graph import Graph, Node, TensorType, WriteOutLoops, evaluate_graph, typed_graph
from tilewright.graph.operand import placeholder
from tilewright.graph.program import apply, context_of
from tilewright.graph.registry import find_operator
from tilewright.ir import dtype_of
from tilewright.support import InputError, ModelError

STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DIRECTIONS = ("forward", "reverse", "bidirectional")
OPTIONAL = {
    "B": lambda gates, d: (d, 2 * gates * HIDDEN),
    "h": lambda gates, d: (d, BATCH, HIDDEN),
    "c": lambda gates, d: (d, BATCH, HIDDEN),
    "P": lambda gates, d: (d, 3 * HIDDEN),
}


def _layer(op: str, present: tuple[str, ...], steps: int = STEPS, **attributes: object):
    """A node, its arrays by name, and its outputs."""
    gates, d = GATES[op], 2 if attributes.get("direction") == "bidirectional" else 1
    first = bool(attributes.get("layout", 0))
    shapes: dict[str, tuple[int, ...]] = {
        "X": (BATCH, steps, WIDTH) if first else (steps, BATCH, WIDTH),
        "W": (d, gates * HIDDEN, WIDTH),
        "R": (d, gates * HIDDEN, HIDDEN),
    }
    for name in present:
        shape = OPTIONAL[name](gates, d)
        shapes[name] = (shape[1], shape[0], shape[2]) if first and name in "hc" else shape
    random = np.random.default_rng(7)
    arrays = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    last = ["h", "c", "P"] if op == "LSTM" else ["h"]
    inputs = ("X", "W", "R", *(name if name in present else "" for name in ["B", "", *last]))
    outputs = ("y", "y_h", "y_c") if op == "LSTM" else ("y", "y_h")
    node = Node(op, inputs, outputs, {"hidden_size": HIDDEN, **attributes}, name="layer", version=21)
    return node, arrays, outputs


def _graph(node: Node, arrays: dict[str, np.ndarray], outputs: tuple[str, ...], given: set[str]) -> Graph:
    types = {name: TensorType("f32", arrays[name].shape) for name in arrays if name in given}
    constants = {name: array for name, array in arrays.items() if name not in given}
    return typed_graph(types, outputs, [node], constants)


def _unrolled(node: Node, arrays: dict[str, np.ndarray], outputs: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The layer as one program of all its steps."""
    types = {name: TensorType(dtype_of(array.dtype).name, array.shape) for name, array in arrays.items()}
    operator = find_operator(node)
    operands = [placeholder(types[v], f"x{at}") if v else None for at, v in enumerate(node.inputs)]
    made = apply(operator, context_of(node, types, {}), operands)
    program = lang.program([o.tensor for o in operands if o], [o.tensor for o in made])
    found = lang.evaluate(program, [arrays[v] for v in node.inputs if v])
    return dict(zip(outputs, found.values(), strict=True))


CASES = [
    (op, present, {"direction": direction, "layout": layout, **more})
    for op, more in (("RNN", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("LSTM", {}))
    for present in ((), ("B", "h", "c", "P") if op == "LSTM" else ("B", "h"))
    for direction in DIRECTIONS
    for layout in (0, 1)
] + [
    ("LSTM", ("B", "P"), {"input_forget": 1, "clip": 0.5}),
    ("RNN", ("B",), {"activations": ("relu", "softsign"), "direction": "bidirectional"}),
]


@pytest.mark.few(22)
@pytest.mark.parametrize(("op", "present", "attributes"), CASES, ids=str)
def test_steps_compute_what_the_whole_layer_does(op, present, attributes):
    node, arrays, outputs = _layer(op, present, **attributes)
    steps = _graph(node, arrays, outputs, {"X", "h", "c"})
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    made = [n for n in steps.nodes if n.op == f"{op}Step"]
    assert len(made) == directions and not any(n.op == op for n in steps.nodes)
    assert {n.location.name for n in made} == {"layer"} and {n.repeat.count for n in made} == {STEPS}
    expected = _unrolled(node, arrays, outputs)
    found = evaluate_graph(steps, {name: arrays[name] for name in steps.inputs})
    for name in outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("initial", [(), ("B", "h", "c")])
def test_sequences_end_when_they_are_said_to(op, direction, initial):
    present = tuple(name for name in initial if op == "LSTM" or name != "c")
    node, arrays, outputs = _layer(op, present, direction=direction)
    inputs = [*node.inputs, *[""] * 5][: max(5, len(node.inputs))]
    inputs[4] = "lengths"
    node = replace(node, inputs=tuple(inputs))
    arrays["lengths"] = np.array([2, STEPS, 0], np.int32)
    given = {
        name: TensorType(dtype_of(arrays[name].dtype).name, arrays[name].shape) for name in ("X", "lengths")
    }
    graph = typed_graph(given, outputs, [node], {k: v for k, v in arrays.items() if k not in given})
    expected = _unrolled(node, arrays, outputs)
    found = evaluate_graph(graph, {name: arrays[name] for name in given})
    for name in outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5)
    assert not found["y"][2:, :, 0].any() or direction != "forward"
    with pytest.raises(InputError, match="'lengths' holds 6"):
        evaluate_graph(graph, {"X": arrays["X"], "lengths": np.array([2, 6, 0], np.int32)})


@pytest.mark.parametrize(("op", "more"), [("LSTM", {}), ("GRU", {"linear_before_reset": 1})])
def test_weights_may_be_computed_in_each_run(op, more):
    node, arrays, outputs = _layer(op, ("B",), **more)
    graph = _graph(node, arrays, outputs, {"X", "W", "R", "B"})
    assert [n.op for n in graph.nodes if n.repeat] == [f"{op}Step"]
    expected = _unrolled(node, arrays, outputs)
    found = evaluate_graph(graph, {name: arrays[name] for name in graph.inputs})
    for name in outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5)


def test_one_step_stays_one_node():
    node, arrays, outputs = _layer("LSTM", ("B",), steps=1)
    assert [n.op for n in _graph(node, arrays, outputs, {"X"}).nodes] == ["LSTM"]


def test_what_is_wrong_with_a_layer_is_said_of_the_layer():
    node, arrays, outputs = _layer("GRU", ())
    with pytest.raises(ModelError, match=r"node 'layer' \(GRU\): .*do not fit the input"):
        _graph(node, arrays | {"R": arrays["R"][:, :-1]}, outputs, {"X"})


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("op", "more", "precision"),
    [
        ("LSTM", {}, "f32"),
        ("LSTM", {"direction": "bidirectional"}, "f32"),
        ("LSTM", {}, "bf16"),
        ("GRU", {"linear_before_reset": 1, "direction": "reverse"}, "f32"),
        ("GRU", {}, "f32"),
        ("RNN", {}, "f32"),
    ],
)
def test_long_sequences_compile_one_step(tmp_path, op, more, precision):
    long = 300
    d = 2 if more.get("direction") == "bidirectional" else 1
    node, arrays, outputs = _layer(op, ("B",), steps=long, **more)
    arrays = {name: array * (0.3 if name in "WR" else 1) for name, array in arrays.items()}
    inputs = [tiny.tensor("X", arrays["X"].shape)]
    made = helper.make_node(op, node.inputs[:4], outputs, "layer", hidden_size=HIDDEN, **more)
    shapes = [(long, d, BATCH, HIDDEN), (d, BATCH, HIDDEN), (d, BATCH, HIDDEN)]
    results = [tiny.tensor(name, shape) for name, shape in zip(outputs, shapes, strict=False)]
    weights = {name: arrays[name] for name in "WRB"}
    model = tiny.model([made], inputs, results, weights)
    compiled = tilewright.compile(model, threads=1, precision=precision)
    steps = [g for g in compiled.groups() if g.operators == f"{op}Step"]
    assert len(steps) == d and {g.parts for g in steps} == {long}
    feeds = {"X": arrays["X"]}
    found = compiled.run(None, feeds)
    reference = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    error = 1e-4 if precision == "f32" else 0.05
    for got, expected in zip(found, reference.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=error, atol=error)
    row = next(row for row in compiled.profile(feeds, 1).rows if row.operators == f"{op}Step")
    assert row.flops > long * 2 * GATES[op] * HIDDEN * HIDDEN * BATCH
    compiled.save(tmp_path / "layer.tw")
    for got, want in zip(tilewright.load(tmp_path / "layer.tw").run(None, feeds), found, strict=True):
        assert np.array_equal(got, want)
    compiled.export_c(tmp_path / "layer.h")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_loops_written_out_compute_the_same(direction):
    node, arrays, outputs = _layer("LSTM", ("B", "h", "c"), direction=direction)
    graph = _graph(node, arrays, outputs, {"X", "h", "c"})
    written = WriteOutLoops()(graph)
    written.check()
    steps = [n for n in written.nodes if n.op == "LSTMStep"]
    assert len(steps) == STEPS * (2 if direction == "bidirectional" else 1)
    assert all(n.repeat is None for n in written.nodes)
    feeds = {name: arrays[name] for name in graph.inputs}
    for name, found in evaluate_graph(written, feeds).items():
        np.testing.assert_array_equal(found, evaluate_graph(graph, feeds)[name])
    assert WriteOutLoops()(written) is written


@pytest.mark.parametrize("target", LANGUAGES)
def test_loops_over_time_run_on_devices(target):
    node, arrays, outputs = _layer("GRU", ("B",), direction="bidirectional")
    made = helper.make_node("GRU", node.inputs[:4], outputs, hidden_size=HIDDEN, direction="bidirectional")
    results = [tiny.tensor("y", (STEPS, 2, BATCH, HIDDEN)), tiny.tensor("y_h", (2, BATCH, HIDDEN))]
    model = tiny.model([made], [tiny.tensor("X", arrays["X"].shape)], results, {n: arrays[n] for n in "WRB"})
    want = tilewright.compile(model, threads=1)(arrays["X"])
    for got, expected in zip(tilewright.compile(model, target=target)(arrays["X"]), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", [0, 1])
def test_sequences_of_no_steps_leave_states_as_they_are(op, direction, layout):
    present = ("h", "c") if op == "LSTM" else ("h",)
    node, arrays, outputs = _layer(op, present, 0, direction=direction, layout=layout)
    found = evaluate_graph(_graph(node, arrays, outputs, {"X", *present}), arrays)
    directions = 2 if direction == "bidirectional" else 1
    assert found["y"].shape == ((BATCH, 0, directions, HIDDEN) if layout else (0, directions, BATCH, HIDDEN))
    for name in present:
        np.testing.assert_array_equal(found[f"y_{name}"], arrays[name])


NAMES = (
    *("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu"),
    *("ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"),
)
#: Values for those that have them, in the order in which activations take them.
VALUES = {
    "Affine": "ab",
    "LeakyRelu": "a",
    "ThresholdedRelu": "a",
    "ScaledTanh": "ab",
    "HardSigmoid": "ab",
    "Elu": "a",
}


@pytest.mark.few(22)
@pytest.mark.parametrize("steps", [1, STEPS])
@pytest.mark.parametrize("at", range(len(NAMES)))
@pytest.mark.parametrize("op", GATES)
def test_activations_take_their_parameters_in_order(op, at, steps):
    count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op] * 2
    names = [NAMES[(at + 3 * n) % len(NAMES)] for n in range(count)]
    random = np.random.default_rng(at)
    alphas, betas = (
        [
            float(v)
            for v in random.uniform(0.2, 0.9, sum(which in VALUES.get(n, "") for n in names)).astype("f")
        ]
        for which in "ab"
    )
    more = {"activations": tuple(names)}
    more |= {f"activation_{key}": tuple(v) for key, v in (("alpha", alphas), ("beta", betas)) if v}
    node, arrays, outputs = _layer(op, ("B",), steps, direction="bidirectional", **more)
    arrays = {name: array * np.float32(0.3) for name, array in arrays.items()}
    given = {name: list(array.shape) for name, array in arrays.items()}
    made = helper.make_node(op, node.inputs, outputs, **node.attributes)
    model = tiny.model(
        [made], [tiny.tensor(n, s) for n, s in given.items()], [tiny.tensor(o, None) for o in outputs]
    )
    want = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, arrays
    )
    for got, wanted in zip(tilewright.compile(model, threads=1).run(None, arrays), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
