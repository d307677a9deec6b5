"""Verification: it passes what is right, and names the first tensor that is wrong."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_models as tiny
import tilewright
from tilewright import lang
from tilewright.driver import verify_model, verify_program
from tilewright.support import InputError


def test_a_right_model_passes():
    model = tiny.mlp()
    compiled = tilewright.compile(model)
    outcome = verify_model(compiled, model, compiled.sample_feeds(), "onnx")
    assert outcome.ok and outcome.first_difference is None
    assert [check.name for check in outcome.checks if check.output] == ["y"]
    assert outcome.worst <= 1


def test_the_first_tensor_that_differs_is_named():
    compiled = tilewright.compile(tiny.mlp())
    other = tiny.mlp()
    wrong = numpy_helper.to_array(other.graph.initializer[2]).copy()
    wrong[3, 5] += 0.5
    other.graph.initializer[2].CopyFrom(numpy_helper.from_array(wrong, "c"))
    outcome = verify_model(compiled, other, compiled.sample_feeds(), "onnx")
    assert not outcome.ok
    first = outcome.first_difference
    assert first is not None and first.name in ("p", "y")
    assert "second" in first.made_by
    assert first.comparison.index == (0, 5)


def test_a_tensor_of_another_shape_is_wrong_however_many_of_its_elements_are_right(monkeypatch):
    model = tiny.mlp()
    compiled = tilewright.compile(model)
    feeds = compiled.sample_feeds()
    assert verify_model(compiled, model, feeds, "onnx").ok
    found = compiled.intermediates(feeds)
    assert found
    larger = {name: np.pad(array, [(0, 0), (0, 1)]) for name, array in found.items()}
    monkeypatch.setattr(type(compiled), "intermediates", lambda *_: larger)
    assert not verify_model(compiled, model, feeds, "onnx").ok


def test_an_unknown_reference_is_refused():
    compiled = tilewright.compile(tiny.relu())
    with pytest.raises(InputError, match="no reference 'guess'"):
        verify_model(compiled, tiny.relu(), compiled.sample_feeds(), "guess")


def test_a_reference_that_cannot_run_the_model_says_so():
    compiled = tilewright.compile(tiny.relu())
    with pytest.raises(InputError, match="cannot run the model"):
        verify_model(compiled, tiny.mlp(), {"x": np.zeros((2, 3), np.float32)}, "onnx")


def test_a_program_is_compared_with_its_evaluation():
    x = lang.placeholder((40, 70), name="X")
    k = lang.reduce_axis(70, name="k")
    total = lang.compute((40,), lambda i: lang.sum(x[i, k] * x[i, k], k), name="total")
    program = lang.program([x], [total])
    compiled = tilewright.compile(program, threads=1)
    feeds = compiled.sample_feeds(0)
    good = verify_program(compiled, program, feeds)
    assert good.ok and [check.name for check in good.checks] == ["total"]
    other = lang.compute((40,), lambda i: lang.sum(x[i, k] * x[i, k] * 1.001, k), name="total")
    wrong = verify_program(compiled, lang.program([x], [other]), feeds)
    assert wrong.first_difference is not None and wrong.first_difference.name == "total"


def test_sums_of_lengths_of_their_own_are_compared_by_the_longest():
    x = lang.placeholder((30, 7), name="X")

    def running(i, j):
        r = lang.reduce_axis(i + 1, "r")
        return lang.sum(x[r, j], axis=r)

    program = lang.program([x], [lang.compute((30, 7), running, name="sums")])
    compiled = tilewright.compile(program, threads=1)
    assert verify_program(compiled, program, compiled.sample_feeds(0)).ok


def _quantised(shift):
    nodes = [
        helper.make_node("Add", ["x", "shift"], ["moved"]),
        helper.make_node("QuantizeLinear", ["moved", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (8,))],
        [helper.make_tensor_value_info("q", TensorProto.UINT8, (8,)), tiny.tensor("y", (8,))],
        [
            numpy_helper.from_array(np.float32(shift), "shift"),
            numpy_helper.from_array(np.float32(0.1), "scale"),
            numpy_helper.from_array(np.uint8(128), "zero"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize(("shift", "ok"), [(0.0, True), (0.1, True), (0.5, False)])
def test_what_follows_from_quantisation_is_compared_in_steps(shift, ok):
    """A number between two steps may become either, whatever the rounding of its type allows."""
    compiled = tilewright.compile(_quantised(0.0), threads=1)
    outcome = verify_model(
        compiled, _quantised(shift), {"x": np.linspace(-9, 9, 8, dtype=np.float32)}, "onnx"
    )
    q = next(check for check in outcome.checks if check.name == "q")
    assert outcome.ok == ok
    assert q.comparison.ratio == pytest.approx(shift * 10 / 2)


def test_bytes_that_become_unsigned_are_not_the_models():
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    weights = {"s": np.float32(0.02), "z": np.int8(3), "w": np.ones((8, 4), np.float32)}
    model = tiny.model(nodes, [tiny.tensor("x", (2, 8))], [tiny.tensor("y", (2, 4))], weights)
    outcome = verify_model(tilewright.compile(model), model, {"x": np.eye(2, 8, dtype=np.float32)})
    assert outcome.ok and "q" not in {check.name for check in outcome.checks}
