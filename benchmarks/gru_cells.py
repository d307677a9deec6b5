"""DeepBench's gated recurrent units on this CPU, f32, beside onnxruntime and torch.

A part of `benchmarks/mapping.py` (`--only cells`): hidden sizes and batches of DeepBench with fewer steps,
two threads. All run in turns with a rest between them, until threads that spin have gone to sleep; the best
of each is shown, and how many times longer the others take.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

import tilewright

CELLS = ((1, 1024), (1, 2048), (32, 512), (32, 1024), (32, 1536))
"""Batch and hidden size, which is the size of the inputs as well."""
STEPS, THREADS, ROUNDS, REST, SECONDS = 8, 2, 3, 0.1, 0.4


def rows() -> Iterator[dict[str, Any]]:
    """One row a cell."""
    torch.set_num_threads(THREADS)
    for batch, hidden in CELLS:
        yield row(batch, hidden)


def row(batch: int, hidden: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shape = 3 * hidden, hidden
    w, r = (rng.standard_normal((1, *shape), np.float32) / hidden**0.5 for _ in range(2))
    x = rng.standard_normal((STEPS, batch, hidden), np.float32)
    model = _model(batch, hidden, w, r)
    ours = tilewright.compile(model, threads=THREADS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    cell, given = _torch(w[0], r[0], hidden), torch.from_numpy(x)

    def in_torch() -> Any:
        with torch.inference_mode():
            return cell(given)[0]

    calls: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours.run(None, {"X": x})[0],
        "onnxruntime": lambda: session.run(None, {"X": x})[0],
        "torch": in_torch,
    }
    results = {name: np.asarray(call()).reshape(STEPS, batch, hidden) for name, call in calls.items()}
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            time.sleep(REST)
            end = time.perf_counter() + SECONDS
            while time.perf_counter() < end:
                start = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - start)
    difference = max(float(np.abs(results[n] - results["ours"]).max()) for n in calls)
    return {
        "kernel": f"gru {batch}x{hidden}, {STEPS} steps",
        "difference": float(f"{difference:.1e}"),
        **{f"{name}_ms": round(seconds * 1e3, 3) for name, seconds in best.items()},
        **{f"against_{name}": round(best[name] / best["ours"], 2) for name in calls if name != "ours"},
    }


def _model(batch: int, hidden: int, w: Any, r: Any) -> onnx.ModelProto:
    node = helper.make_node(
        "GRU", ["X", "W", "R"], ["Y"], hidden_size=hidden, linear_before_reset=1, name="gru"
    )
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, (STEPS, batch, hidden))
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, (STEPS, 1, batch, hidden))
    weights = [numpy_helper.from_array(w, "W"), numpy_helper.from_array(r, "R")]
    graph = helper.make_graph([node], "gru", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _torch(w: Any, r: Any, hidden: int) -> torch.nn.GRU:
    """The same cell: torch has its gates as reset, update, new; ONNX as update, reset, new."""
    cell = torch.nn.GRU(hidden, hidden, bias=False)

    def turned(a: Any) -> torch.Tensor:
        z, reset, n = np.split(a, 3)
        return torch.from_numpy(np.concatenate([reset, z, n]))

    with torch.no_grad():
        cell.weight_ih_l0.copy_(turned(w))
        cell.weight_hh_l0.copy_(turned(r))
    return cell
