"""What becomes of a damaged model: refused by us, or the result that onnxruntime gives."""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError

import tilewright
from model_damage import damaged
from tilewright.driver.engines import have_module, onnxruntime_errors, optional_module
from tilewright.frontend import import_onnx
from tilewright.graph import evaluate_graph
from tilewright.support import UserError

#: Sums in another order, over hardly more than a hundred terms.
TOLERANCE = 1e-3


def judge(seed: int, *, native: bool = False) -> tuple[str, str]:
    """How it went, and what there is to say: `refused`, `ok`, `wrong` or `broken`.

    By the reference evaluation of the imported graph, or compiled with `native`.
    """
    case = damaged(seed)
    try:
        if native:
            model = tilewright.compile(case.content, threads=1)
            feeds = model.sample_feeds()
            names = [info.name for info in model.outputs]
            found = dict(zip(names, model.run(None, feeds), strict=True))
        else:
            graph = import_onnx(case.content)
            random = np.random.default_rng(0)
            feeds = {
                name: random.standard_normal(graph.types[name].sizes).astype(np.float32)
                for name in graph.inputs
            }
            found = evaluate_graph(graph, feeds)
    except UserError as error:
        return "refused", f"{case.story}: {' '.join(str(error).split())[:160]}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return "broken", f"{case.story}: {type(error).__name__}: {str(error)[:160]}"
    return _compared(case.content, case.story, feeds, found)


def _compared(
    content: bytes, story: str, feeds: dict[str, np.ndarray], found: dict[str, np.ndarray]
) -> tuple[str, str]:
    if not have_module("onnxruntime"):
        return "ok", ""
    ort = optional_module("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        expected = session.run(names, feeds)
    except (*onnxruntime_errors(ort), DecodeError, ValueError, RuntimeError):
        return "ok", "which onnxruntime refuses"
    for name, wanted in zip(names, expected, strict=True):
        made = found.get(name)
        if made is None or made.shape != np.shape(wanted):
            shape = None if made is None else list(made.shape)
            return "wrong", f"{story}: {name} is {shape} instead of {list(np.shape(wanted))}"
        close = np.isclose(
            made.astype(np.float64), np.asarray(wanted, np.float64), TOLERANCE, TOLERANCE, equal_nan=True
        )
        if not close.all():
            return "wrong", f"{story}: {int((~close).sum())} of {close.size} elements of {name} differ"
    return "ok", ""
