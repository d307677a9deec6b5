"""Products of bytes of all pairs of signs, constant or given at run time, beside onnxruntime.

A part of `benchmarks/mapping.py` (`--only products`): MatMulInteger of a few sizes, both runtimes in turns
with two threads; the best of each is compared, results with exact ones.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tilewright

SIZES = ((1, 512, 512), (16, 768, 768), (64, 256, 256), (128, 768, 3072), (512, 512, 512))
"""Rows, columns, the reduction."""
TYPES = {"u8": (TensorProto.UINT8, np.uint8), "i8": (TensorProto.INT8, np.int8)}
ROUNDS, SECONDS, THREADS = 5, 0.03, 2
REST = 0.1
"""Seconds between turns: threads of the other runtime that spin have gone to sleep by then."""


def rows() -> Iterator[dict[str, Any]]:
    """One row a size, pair of types and kind of second operand."""
    for size in SIZES:
        for left in TYPES:
            for right in TYPES:
                for constant in (True, False):
                    yield row(size, left, right, constant)


def row(size: tuple[int, int, int], left: str, right: str, constant: bool) -> dict[str, Any]:
    """Microseconds of both, and how many times longer onnxruntime takes."""
    m, n, k = size
    rng = np.random.default_rng(0)
    a, b = (_bytes(rng, t, shape) for t, shape in ((left, (m, k)), (right, (k, n))))
    model = _model(size, left, right, b if constant else None)
    feeds = {"A": a} if constant else {"A": a, "B": b}
    ours = tilewright.compile(model, threads=THREADS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = np.asarray(ours.run(None, feeds)[0])
    calls: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours.run(None, feeds),
        "onnxruntime": lambda: session.run(None, feeds),
    }
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            time.sleep(REST)
            best[name] = min(best[name], _best(call))
    return {
        "kernel": "x".join(map(str, size)),
        "pair": f"{left} x {right}",
        "second": "constant" if constant else "given",
        "exact": bool(np.array_equal(found, a.astype(np.int32) @ b.astype(np.int32))),
        "us": round(best["ours"] * 1e6, 1),
        "onnxruntime_us": round(best["onnxruntime"] * 1e6, 1),
        "against_onnxruntime": round(best["onnxruntime"] / best["ours"], 2),
    }


def _best(call: Callable[[], Any]) -> float:
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def _bytes(rng: np.random.Generator, name: str, shape: tuple[int, int]) -> Any:
    limits = np.iinfo(TYPES[name][1])
    return rng.integers(limits.min, limits.max + 1, shape).astype(TYPES[name][1])


def _model(size: tuple[int, int, int], left: str, right: str, b: Any | None) -> onnx.ModelProto:
    m, n, k = size
    given = [helper.make_tensor_value_info("A", TYPES[left][0], (m, k))]
    if b is None:
        given.append(helper.make_tensor_value_info("B", TYPES[right][0], (k, n)))
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["A", "B"], ["Y"])],
        "products",
        given,
        [helper.make_tensor_value_info("Y", TensorProto.INT32, (m, n))],
        [] if b is None else [numpy_helper.from_array(b, "B")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
