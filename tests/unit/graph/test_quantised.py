"""Passes over quantised models: the same values, by the reference evaluation."""

import numpy as np
import pytest

from tilewright.frontend import import_onnx
from tilewright.graph import INTEGER_PASSES, PASSES, evaluate_graph, simplify
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
