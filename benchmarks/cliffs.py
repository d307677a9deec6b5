"""What users once fell over, each beside onnxruntime: issue by issue one line, with what it should be.

    python benchmarks/cliffs.py --threads 2 --json
    python benchmarks/cliffs.py --models lstm_400,dft_1024 --rounds 3 --seconds 0.05

Engines take turns, each in a process of its own, on bound inputs. A line has the shortest and the median
time of a call of each, their ratio (of the shortest), the aim, and the largest difference from onnxruntime
relative to the largest result. Besides: ``passive``, ours against itself while two other processes spin;
``stencil_call``, a compiled program's call against the bound one; ``run_time_...``, products of two matrices
given at run time against those with a constant one; ``graph_20000``, compiling a large graph, milliseconds a
node. Exit status 1 where a result differs.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from arguments import add_models, add_turns, names, parser_of
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright import lang
from tilewright.driver import OURS, BenchPlan, run_benchmark

RNG: Final = np.random.default_rng(17)
TOLERANCE: Final = 1e-3
"""The largest difference, in parts of the largest result."""
PAUSE: Final = 0.3
"""Seconds between two turns: longer than any engine lets its idle threads spin."""
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Cliff:
    """A model of one node or few, its inputs, and the ratio to onnxruntime that it should have at most.

    ``exact`` is the result where onnxruntime's own is not always right.
    """

    make: Callable[[], tuple[list[onnx.NodeProto], Arrays, Arrays]]
    aim: float
    opset: int = 21
    exact: Callable[[Arrays], np.ndarray] | None = None
    most_compile_seconds: float | None = None


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Normal numbers."""
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def small(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    """Any bytes."""
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def node(op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[onnx.NodeProto]:
    """One node that makes y."""
    return [helper.make_node(op, list(inputs), ["y", *(f"y{n}" for n in range(1, outputs))], **attributes)]


def top(k: int, *shape: int) -> Callable[[], tuple[list[onnx.NodeProto], Arrays, Arrays]]:
    """The k largest along the last axis."""
    return lambda: (node("TopK", "x", "k", outputs=2), {"x": normal(*shape)}, {"k": np.array([k])})


def recurrent(op: str, steps: int, hidden: int, batch: int = 1, **attributes: Any) -> Any:
    """A recurrent layer with weights."""
    gates = {"LSTM": 4, "GRU": 3}[op]
    count = 2 if attributes.get("direction") == "bidirectional" else 1

    def make() -> tuple[list[onnx.NodeProto], Arrays, Arrays]:
        weights = {
            "w": normal(count, gates * hidden, hidden, scale=0.1),
            "r": normal(count, gates * hidden, hidden, scale=0.1),
            "b": normal(count, 2 * gates * hidden, scale=0.1),
        }
        made = node(op, "x", "w", "r", "b", outputs=2, hidden_size=hidden, **attributes)
        return made, {"x": normal(steps, batch, hidden)}, weights

    return make


def attention(heads: int, queries: int, keys: int, window: int = 0) -> Any:
    """Attention written out, with a mask of windows."""

    def make() -> tuple[list[onnx.NodeProto], Arrays, Arrays]:
        nodes = [helper.make_node("MatMul", ["q", "k"], ["s"]), helper.make_node("Mul", ["s", "f"], ["m"])]
        constants = {"f": np.float32(0.125).reshape(1)}
        last = "m"
        if window:
            far = np.abs(np.arange(queries)[:, None] - np.arange(keys)) > window
            constants["mask"] = np.where(far, np.float32(-1e9), np.float32(0))
            nodes.append(helper.make_node("Add", ["m", "mask"], ["a"]))
            last = "a"
        nodes += [
            helper.make_node("Softmax", [last], ["p"], axis=-1),
            helper.make_node("MatMul", ["p", "v"], ["y"]),
        ]
        return (
            nodes,
            {"q": normal(heads, queries, 64), "k": normal(heads, 64, keys), "v": normal(heads, keys, 64)},
            constants,
        )

    return make


def integer_product(constant: bool, signed: bool = False) -> Any:
    """Bytes times bytes, with a zero point."""

    def make() -> tuple[list[onnx.NodeProto], Arrays, Arrays]:
        a, b = small(512, 512), small(512, 512, dtype=np.int8)
        if signed:
            a = small(512, 512, dtype=np.int8)
        zero = np.array(3, a.dtype)
        given = {"a": a} if constant else {"a": a, "b": b}
        return node("MatMulInteger", "a", "b", "z"), given, {"z": zero, **({"b": b} if constant else {})}

    return make


def quantised_product() -> tuple[list[onnx.NodeProto], Arrays, Arrays]:
    """QLinearMatMul."""
    scale, zero = np.float32(0.02), np.uint8(128)
    constants = {"as": scale, "az": zero, "b": small(512, 512), "bs": scale, "bz": zero}
    constants |= {"ys": np.float32(4), "yz": zero}
    return (
        node("QLinearMatMul", "a", "as", "az", "b", "bs", "bz", "ys", "yz"),
        {"a": small(128, 512)},
        {name: np.asarray(value) for name, value in constants.items()},
    )


def scatter_add() -> tuple[list[onnx.NodeProto], Arrays, Arrays]:
    """Messages along edges, as graph networks export them."""
    places = RNG.integers(0, 2000, (12000, 1)).astype(np.int64)
    made = node("ScatterND", "x", "i", "u", reduction="add")
    return made, {"x": normal(2000, 64), "u": normal(12000, 64), "i": places}, {}


def added(given: Arrays) -> np.ndarray:
    """What :func:`scatter_add` comes to."""
    out = given["x"].copy()
    np.add.at(out, given["i"][:, 0], given["u"])
    return out


def fourier(size: int) -> Any:
    """Real Fourier transforms of rows."""
    return lambda: (
        node("DFT", "x", "", "axis", onesided=1),
        {"x": normal(64, size, 1)},
        {"axis": np.array(1, np.int64)},
    )


def depthwise() -> tuple[list[onnx.NodeProto], Arrays, Arrays]:
    """A filter of 7x7 for each channel."""
    made = node("Conv", "x", "w", group=96, pads=[3, 3, 3, 3])
    return made, {"x": normal(1, 96, 56, 56)}, {"w": normal(96, 1, 7, 7)}


CLIFFS: Final[dict[str, Cliff]] = {
    "topk_300_of_81900": Cliff(top(300, 1, 81900), 1.0),
    "topk_50_of_50257": Cliff(top(50, 1, 50257), 1.0),
    "topk_5_of_64x1000": Cliff(top(5, 64, 1000), 1.0),
    "sort_32000": Cliff(top(32000, 1, 32000), 1.0),
    "matmul_integer": Cliff(integer_product(True), 0.8),
    "matmul_integer_run_time": Cliff(integer_product(False), 0.8),
    "matmul_integer_i8_i8": Cliff(integer_product(False, True), 0.8),
    "qlinear_matmul": Cliff(quantised_product, 0.8),
    "attention_4_of_1000": Cliff(attention(8, 4, 1000), 0.8),
    "attention_windows": Cliff(attention(8, 256, 256, 32), 0.8),
    # with several threads onnxruntime loses updates of one row now and then
    "scatter_add": Cliff(scatter_add, 0.9, exact=added),
    "dft_400": Cliff(fourier(400), 0.9, opset=20),
    "dft_1024": Cliff(fourier(1024), 1.0, opset=20),
    "lstm_50": Cliff(recurrent("LSTM", 50, 128), 0.9, most_compile_seconds=2),
    "lstm_400": Cliff(recurrent("LSTM", 400, 128), 0.9, most_compile_seconds=2),
    "gru_400_both": Cliff(recurrent("GRU", 400, 128, direction="bidirectional"), 0.9, most_compile_seconds=2),
    "hardmax": Cliff(lambda: (node("Hardmax", "x"), {"x": normal(256, 1000)}, {}), 1.0),
    "pad_reflect": Cliff(
        lambda: (
            node("Pad", "x", "p", mode="reflect"),
            {"x": normal(1, 16, 224, 224)},
            {"p": np.array([0, 0, 3, 3, 0, 0, 3, 3])},
        ),
        1.0,
    ),
    "depthwise_7x7": Cliff(depthwise, 1.0),
    "gemm_8x4096x4096": Cliff(
        lambda: (node("MatMul", "x", "w"), {"x": normal(8, 4096)}, {"w": normal(4096, 4096)}), 1.0
    ),
}


def model_of(cliff: Cliff) -> tuple[onnx.ModelProto, Arrays]:
    """The model of a case, and its inputs."""
    nodes, given, constants = cliff.make()
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in given.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], a.shape) for name, a in given.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in nodes[-1].output]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "cliff", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", cliff.opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnx.shape_inference.infer_shapes(model), given


def turns(runs: list[Callable[[], object]], rounds: int, seconds: float) -> list[list[float]]:
    """Seconds of calls, the engines in turns."""
    taken: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, times in zip(runs, taken, strict=True):
            time.sleep(PAUSE)
            run()
            end = time.perf_counter() + seconds
            while not times or time.perf_counter() < end:
                start = time.perf_counter()
                run()
                times.append(time.perf_counter() - start)
    return taken


def measure(name: str, cliff: Cliff, threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """The line of a case."""
    model, feeds = model_of(cliff)
    engines = (OURS, "onnxruntime")
    plan = BenchPlan(engines=engines, threads=threads, rounds=rounds, seconds=seconds, pause=PAUSE)
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        ours, theirs = run_benchmark(name, path, feeds, plan).engines
    for engine in (ours, theirs):
        if not engine.times:
            raise SystemExit(f"{name}: {engine.engine} failed: {engine.error}")
    ratio = min(ours.times) / min(theirs.times)
    slow = cliff.most_compile_seconds is not None and ours.load_seconds > cliff.most_compile_seconds
    return {
        "benchmark": "cliffs",
        "case": name,
        "threads": threads,
        "ours_ms": [min(ours.times) * 1e3, statistics.median(ours.times) * 1e3],
        "onnxruntime_ms": [min(theirs.times) * 1e3, statistics.median(theirs.times) * 1e3],
        "ratio": ratio,
        "aim": cliff.aim,
        "compile_seconds": ours.load_seconds,
        "met": bool(ratio <= cliff.aim and not slow),
        "difference": difference(cliff, model, feeds, threads),
    }


def difference(cliff: Cliff, model: onnx.ModelProto, feeds: Arrays, threads: int) -> float:
    """The largest difference from onnxruntime's result, or the exact one, in parts of the largest element."""
    found = tilewright.compile(model, threads=threads).run(None, feeds)[0]
    if cliff.exact is not None:
        wanted = cliff.exact(feeds)
    else:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        wanted = session.run(None, feeds)[0]
    wrong = float(np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max())
    if wanted.dtype == np.uint8:
        # a quantised number halfway between two is rounded as the product of the scales was
        wrong = max(0.0, wrong - 1)
    return wrong / max(1e-9, float(np.abs(wanted.astype(np.float64)).max()))


def _spin(until: float) -> None:
    while time.perf_counter() < until:
        pass


def passive(threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Threads that sleep, threads that spin and one thread, while two processes spin."""
    model, feeds = model_of(
        Cliff(lambda: (node("MatMul", "x", "w"), {"x": normal(128, 512)}, {"w": normal(512, 512)}), 1.3)
    )
    made = {
        "passive": tilewright.compile(model, threads=threads, wait_policy="passive"),
        "active": tilewright.compile(model, threads=threads, wait_policy="active"),
        "one": tilewright.compile(model, threads=1),
    }
    until = time.perf_counter() + rounds * seconds * 6 + 2
    others = [multiprocessing.Process(target=_spin, args=(until,)) for _ in range(2)]
    for other in others:
        other.start()
    taken = turns([lambda c=c: c.run(None, feeds) for c in made.values()], rounds, seconds)
    for other in others:
        other.terminate()
        other.join()
    # means: of calls that wait for a thread that others keep from its CPU, there are few
    means = {name: statistics.fmean(times) * 1e3 for name, times in zip(made, taken, strict=True)}
    medians = {name: statistics.median(times) * 1e3 for name, times in zip(made, taken, strict=True)}
    ratio = means["passive"] / min(means["active"], means["one"])
    figures = {"mean_ms": means, "median_ms": medians}
    return {"benchmark": "cliffs", "case": "passive", **figures, "ratio": ratio, "aim": 1.3}


def stencil_call(threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """What a call of a compiled program costs beyond the bound one."""
    x = lang.placeholder((1026, 1026), name="X")
    y = lang.compute((1024, 1024), lambda i, j: (x[i, j] + x[i + 1, j + 1] + x[i + 2, j + 2]) / 3, name="Y")
    made = tilewright.compile(lang.program([x], [y]), threads=threads)
    given = normal(1026, 1026)
    bound, out = made.bind({"X": given}), [np.empty((1024, 1024), np.float32)]
    called, into, run = turns([lambda: made(given), lambda: made(given, out=out), bound.run], rounds, seconds)
    shortest = {"call_ms": min(called) * 1e3, "out_ms": min(into) * 1e3, "bound_ms": min(run) * 1e3}
    ratio = min(called) / min(run)
    return {"benchmark": "cliffs", "case": "stencil_call", **shortest, "ratio": ratio, "aim": 1.1}


def run_time_product(left: str, right: str, threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """A product of two matrices given at run time beside the same with a constant one."""
    a, b = (lang.placeholder((512, 512), kind, name=name) for kind, name in ((left, "A"), (right, "B")))
    wide, k = "f32" if left == "bf16" else "i32", lang.reduce_axis(512, "k")
    c = lang.compute(
        (512, 512),
        lambda i, j: lang.sum(lang.cast(a[i, k], wide) * lang.cast(b[k, j], wide), axis=k),
        name="C",
    )
    program = lang.program([a, b], [c])
    given = {each.name: normal(512, 512, scale=9.0).astype(each.dtype.numpy) for each in program.inputs}
    open_, fixed = (
        tilewright.compile(program, threads=threads, constants=known).bind(feeds)
        for known, feeds in (({}, given), ({"B": given["B"]}, {"A": given["A"]}))
    )
    wrong = float(np.abs(open_.run()[0].astype(np.float64) - fixed.run()[0]).max())
    found, wanted = turns([open_.run, fixed.run], rounds, seconds)
    figures = {"ours_ms": min(found) * 1e3, "constant_ms": min(wanted) * 1e3, "difference": wrong}
    case = f"run_time_{left}_{right}"
    return {"benchmark": "cliffs", "case": case, **figures, "ratio": min(found) / min(wanted), "aim": 1.5}


def graph_20000() -> dict[str, Any]:
    """Compiling 20,000 nodes."""
    nodes, value = [], "x"
    for at in range(5000):
        names_of = [f"{what}{at}" for what in "mart"]
        nodes += [
            helper.make_node("MatMul", [value, "w"], [names_of[0]]),
            helper.make_node("Add", [names_of[0], "b"], [names_of[1]]),
            helper.make_node("Relu", [names_of[1]], [names_of[2]]),
            helper.make_node("Transpose", [names_of[2]], [names_of[3]], perm=[1, 0]),
        ]
        value = names_of[3]
    shape = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (8, 8)) for name in ("x", value)]
    weights = [numpy_helper.from_array(normal(8, 8, scale=0.1), "w"), numpy_helper.from_array(normal(8), "b")]
    graph = helper.make_graph(nodes, "large", shape[:1], shape[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    start = time.perf_counter()
    tilewright.compile(model, threads=1)
    taken = time.perf_counter() - start
    each = taken / len(nodes) * 1e3
    return {"benchmark": "cliffs", "case": "graph_20000", "seconds": taken, "ms_a_node": each, "aim": 0.3}


def main() -> int:
    """Measure and print; 1 if a result is wrong."""
    parser = parser_of(__doc__)
    own: dict[str, Callable[[int, int, float], dict[str, Any]]] = {
        "passive": passive,
        "stencil_call": stencil_call,
        "run_time_u8_i8": partial(run_time_product, "u8", "i8"),
        "run_time_i8_i8": partial(run_time_product, "i8", "i8"),
        "run_time_bf16": partial(run_time_product, "bf16", "bf16"),
    }
    add_models(parser, [*CLIFFS, *own, "graph_20000"])
    add_turns(parser, rounds=5, seconds=0.2)
    arguments = parser.parse_args()
    threads, rounds, seconds = arguments.threads, arguments.rounds, arguments.seconds
    wrong = False
    for name in names(arguments.models):
        if name == "graph_20000":
            row = graph_20000()
        elif name in own:
            row = own[name](threads, rounds, seconds)
        else:
            row = measure(name, CLIFFS[name], threads, rounds, seconds)
            wrong |= not row["difference"] <= TOLERANCE
        if arguments.json:
            print(json.dumps(row), flush=True)
        else:
            figures = {key: value for key, value in row.items() if key not in ("benchmark", "case")}
            print(f"{name}: {figures}", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
