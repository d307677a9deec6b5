"""A fixed sample of the sweep of single operators, against the evaluator of the onnx package.

The whole of it, against onnxruntime, is `benchmarks/sweep.py`.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from onnx import shape_inference
from onnx.checker import check_model
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
def _beside(module: str) -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return import_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))


@cache
def _cases() -> tuple[object, ...]:
    all_cases = _beside("sweep_cases").all_cases
    return tuple(
        case
        for case in all_cases()[::STRIDE]
        if not case.excuse
        and case.op not in EVALUATOR
        and case.opset >= NEWER.get(case.op, 0)
        # the evaluator pads after the input
        and case.attributes.get("auto_pad") != "SAME_LOWER"
        # and forgets the padding where it rounds sizes up
        and not (case.op == "MaxPool" and case.attributes.get("ceil_mode"))
    )


def test_the_sweep_is_as_large_as_it_should_be() -> None:
    assert len(_cases()) * STRIDE >= 3000
    names = [case.name for case in _cases()]
    assert len({case.op for case in _cases()}) >= 60
    assert len(set(names)) >= len(names) * 0.98


def test_drawn_cases_are_found_again_by_their_names() -> None:
    drawn = _beside("sweep_random")
    found = list(islice(drawn.drawn_cases(3), 60))
    assert {name.split(":")[1] for name, _ in found} == set(drawn.KINDS)
    assert len({case.name for _, case in found}) >= 55
    for name, case in found:
        seed, kind, number = name.split(":")
        again = drawn.drawn_case(int(seed), kind, int(number))
        assert again.name == case.name
        assert again.model().SerializeToString() == case.model().SerializeToString()
        assert all(np.array_equal(again.feeds[each], case.feeds[each]) for each in case.feeds)
        if not case.domain:
            check_model(shape_inference.infer_shapes(case.model(), strict_mode=True))


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
