"""A fixed sample of the sweep of single operators, against the evaluator of the onnx package.

The whole of it, against onnxruntime, is `benchmarks/sweep.py`.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tilewright.frontend import import_onnx
from tilewright.graph import evaluate_graph
from tilewright.support import UnsupportedOperatorError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
#: Every so many cases one is tried: about three hundred.
STRIDE = 29
#: Operators where the evaluator does something else than the text and the runtimes, or does not do all: one
#: direction of recurrent layers, ties in another order; for Resize see decision 0080.
EVALUATOR = frozenset({"LSTM", "GRU", "RNN", "Resize", "TopK"})
#: The evaluator has no rows of several axes, and computes variances of its own.
NEWER = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13, "BatchNormalization": 14}


@cache
def _cases() -> tuple[object, ...]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from sweep_cases import all_cases  # noqa: PLC0415 - beside the benchmarks
    finally:
        sys.path.remove(str(BENCHMARKS))
    return tuple(
        case
        for case in all_cases()[::STRIDE]
        if not case.excuse
        and case.op not in EVALUATOR
        and case.opset >= NEWER.get(case.op, 0)
        # the evaluator pads after the input
        and case.attributes.get("auto_pad") != "SAME_LOWER"
    )


def test_the_sweep_is_as_large_as_it_should_be() -> None:
    assert len(_cases()) * STRIDE >= 3000
    names = [case.name for case in _cases()]
    assert len({case.op for case in _cases()}) >= 60
    assert len(set(names)) >= len(names) * 0.98


@pytest.mark.parametrize("part", range(6))
def test_a_sample_computes_what_the_evaluator_computes(part: int) -> None:
    compared = 0
    for case in _cases()[part::6]:
        model = case.model()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wanted = ReferenceEvaluator(model).run(None, case.feeds)
        except Exception:  # noqa: BLE001 - it raises whatever its numpy code stumbles over
            continue
        try:
            graph = import_onnx(model)
        except UnsupportedOperatorError:
            continue
        with np.errstate(all="ignore"):
            found = evaluate_graph(graph, case.feeds)
        for name, other in zip(found, wanted, strict=True):
            made, expected = found[name], np.asarray(other)
            assert (made.shape, made.dtype) == (expected.shape, expected.dtype), case.name
            if made.dtype.kind != "f":
                apart = np.abs(made.astype(np.float64) - expected.astype(np.float64))
                assert not made.size or apart.max() <= case.steps, case.name
                continue
            tolerance = max(case.tolerance, 4e-3 if made.dtype == np.float16 else 0.0)
            a, b = made.astype(np.float64), expected.astype(np.float64)
            finite = np.abs(b[np.isfinite(b)])
            scale = float(finite.mean()) if finite.size else 0.0
            np.testing.assert_allclose(
                a, b, rtol=tolerance, atol=tolerance * scale + 1e-30, err_msg=case.name
            )
        compared += 1
    assert compared >= 30
