"""Recurrent layers as steps: the same numbers as the layer as one node, and one program for all steps."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import onnx_models as tiny
import tilewright
from tilewright.graph import Graph, Node, TensorType, evaluate_graph, typed_graph
from tilewright.support import ModelError

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


@pytest.mark.parametrize(("op", "present", "attributes"), CASES, ids=str)
def test_steps_compute_what_the_whole_layer_does(op, present, attributes):
    node, arrays, outputs = _layer(op, present, **attributes)
    whole = _graph(node, arrays, outputs, set(arrays))
    steps = _graph(node, arrays, outputs, {"X", "h", "c"})
    assert [n.op for n in whole.nodes] == [op]
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    made = [n for n in steps.nodes if n.op == f"{op}Step"]
    assert len(made) == STEPS * directions and not any(n.op == op for n in steps.nodes)
    assert {n.location.name for n in made} == {"layer"}
    expected = evaluate_graph(whole, arrays)
    found = evaluate_graph(steps, {name: arrays[name] for name in steps.inputs})
    for name in outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5)


def test_one_step_and_weights_that_are_computed_stay_one_node():
    node, arrays, outputs = _layer("LSTM", ("B",), steps=1)
    assert [n.op for n in _graph(node, arrays, outputs, {"X"}).nodes] == ["LSTM"]
    node, arrays, outputs = _layer("LSTM", ("B",))
    assert [n.op for n in _graph(node, arrays, outputs, {"X", "B"}).nodes] == ["LSTM"]


def test_what_is_wrong_with_a_layer_is_said_of_the_layer():
    node, arrays, outputs = _layer("GRU", ())
    with pytest.raises(ModelError, match=r"node 'layer' \(GRU\): .*do not fit the input"):
        _graph(node, arrays | {"R": arrays["R"][:, :-1]}, outputs, {"X"})


@pytest.mark.parametrize(
    ("op", "more"), [("LSTM", {}), ("GRU", {"linear_before_reset": 1}), ("GRU", {}), ("RNN", {})]
)
def test_long_sequences_compile_one_step(op, more):
    node, arrays, outputs = _layer(op, ("B",), steps=40, **more)
    inputs = [tiny.tensor("X", arrays["X"].shape)]
    made = helper.make_node(op, node.inputs[:4], outputs, "layer", hidden_size=HIDDEN, **more)
    shapes = [(40, 1, BATCH, HIDDEN), (1, BATCH, HIDDEN), (1, BATCH, HIDDEN)]
    results = [tiny.tensor(name, shape) for name, shape in zip(outputs, shapes, strict=False)]
    weights = {name: arrays[name] for name in "WRB"}
    model = tiny.model([made], inputs, results, weights)
    compiled = tilewright.compile(model, threads=1)
    steps = [g for g in compiled.groups() if g.operators == f"{op}Step"]
    # The first state is a constant of its own, and the last step's may be laid out as the model gives it.
    assert len(steps) == 40 and len({str(g.kernel.schedule) for g in steps}) <= 3
    feeds = {"X": arrays["X"]}
    for found, expected in zip(
        compiled.run(None, feeds), ReferenceEvaluator(model).run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
