"""Single operators, each engine in a process of its own: what the benchmarks of operators share."""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import onnx
from arguments import add_engines, add_turns, engine_names
from onnx import TensorProto, helper, numpy_helper

from tilewright.driver import OURS, Bench, BenchPlan, copying, peak_meter, reading
from tilewright.runtime import aligned_copy
from tilewright.target import detect

Array = npt.NDArray[Any]

#: Bytes whose reading is timed, at most.
MOST_READ = 1 << 28
#: Runs of a few milliseconds of which the best is the peak of a turn.
PEAK_RUNS = 3
_SHOWN = ("load_s", "runs", "median_ms", "min_ms", "max_difference", "error")


@dataclass(frozen=True, slots=True)
class Case:
    """One operator: its model, inputs, operations, and bytes that it must read and write."""

    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, Array]
    flops: float
    nbytes: float


@dataclass(frozen=True, slots=True)
class Operator:
    """A name, a group for `--only`, and how to make its case (called when it is measured)."""

    group: str
    name: str
    make: Callable[[str], Case]


class SideBySide:
    """Measures operators one after another; the engines' processes have ended when the ``with`` does."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.threads: int = arguments.threads
        self._target = detect()
        self._peak = peak_meter(self._target)
        self._peaks: list[float] = []
        self._seconds: float = arguments.seconds
        self._bench = Bench(
            BenchPlan(
                engines=engine_names(arguments),
                threads=self.threads,
                rounds=arguments.rounds,
                seconds=self._seconds,
                least=1,
                warmup=0.0,
                uncounted=1,
                pause=0.1,
                keep_memory=True,
            )
        )

    def __enter__(self) -> Self:
        self._bench.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bench.__exit__(kind, error, trace)

    @property
    def gflops(self) -> float:
        """The middle of the peaks of all threads that were measured with the operators."""
        return statistics.median(self._peaks)

    def measure(self, case: Case) -> dict[str, Any]:
        """One line of results: each engine's times, and our fraction of the limit.

        Reading as many bytes as the operator reads and writes takes its turns as the engines do: its fastest
        run, for more bytes than MOST_READ so much of it, is the limit of memory. Of a result that the caches
        cannot hold, copying as many bytes is a limit as well: writing memory takes longer than reading it.
        The peak, too, is the best of what is measured in turns: clocks change while a benchmark runs.
        """
        nbytes = int(min(case.nbytes, MOST_READ))
        read = reading(self._target, self.threads, nbytes)
        written = _bytes_written(case)
        fastest: list[float] = []
        copied: list[float] = []
        peaks: list[float] = []
        kept = max(level.size or 0 for level in self._target.memory)
        copy = copying(self._target, self.threads, written) if written > kept else None

        def bounds() -> None:
            peaks.append(max(self._peak() for _ in range(PEAK_RUNS)) * self.threads)
            fastest.append(min(turn(read, self._seconds)))
            if copy is not None:
                copied.append(min(turn(copy, self._seconds)))

        with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
            path = Path(folder, "model.onnx")
            onnx.save(case.model, path)
            result = self._bench.measure(case.name, path, case.feeds, each_round=bounds)
        reads = min(fastest) * case.nbytes / nbytes
        memory = max(reads, min(copied, default=0.0))
        self._peaks.append(max(peaks))
        compute = case.flops / (max(peaks) * 1e9)
        limit = max(memory, compute)
        engines: dict[str, dict[str, Any]] = {}
        for each in result.engines:
            shown = each.as_data(result.ours)
            engines[each.engine] = {key: shown[key] for key in _SHOWN if shown.get(key) is not None}
        line: dict[str, Any] = {
            "operator": case.name,
            "flops": case.flops,
            "bytes": case.nbytes,
            "bound": "compute" if compute >= memory else "memory",
            "limit_ms": limit * 1e3,
            "peak_gflops": max(peaks),
            "read_gb_s": case.nbytes / reads / 1e9,
            **({"copy_gb_s": 2 * written / min(copied) / 1e9} if copied else {}),
            "engines": engines,
        }
        ours = engines.get(OURS, {}).get("median_ms")
        others = [e["median_ms"] for name, e in engines.items() if name != OURS and "median_ms" in e]
        if ours is not None:
            line["of_limit"] = round(limit * 1e3 / ours, 3)
            line["of_limit_best_run"] = round(limit * 1e3 / engines[OURS]["min_ms"], 3)
            if others:
                line["best_peer_to_ours"] = round(min(others) / ours, 3)
        return line


def _bytes_written(case: Case) -> int:
    """Bytes of the result that are written for as many that are read, at most."""
    dims = (d.dim_value for d in case.model.graph.output[0].type.tensor_type.shape.dim)
    result = 4 * prod(dims)
    return min(result, int(case.nbytes) - result)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what decides the plan: engines, threads, turns and their length; and ``--json``."""
    add_engines(parser, "onnxruntime,openvino,torch")
    add_turns(parser, rounds=3, seconds=0.1)


def text(row: Mapping[str, Any]) -> str:
    """A line of `measure` for reading."""
    times = " ".join(f"{name} {e.get('median_ms', float('nan')):9.3f}" for name, e in row["engines"].items())
    fraction, ratio = row.get("of_limit", 0), row.get("best_peer_to_ours", 0)
    found = f"{fraction:6.1%} of {row['bound']:7s} best peer/ours {ratio:5.2f}"
    return f"{row['operator']:36s} {found}  ms: limit {row['limit_ms']:9.3f} {times}"


def single(
    op: str,
    inputs: Mapping[str, Array],
    output: Sequence[int],
    constants: Mapping[str, Array],
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node, and what to feed it. Its operands are ``inputs``, then ``constants``."""
    node = helper.make_node(op, [*inputs, *constants], ["Y"], name="operator", **attributes)
    return chain([node], inputs, output, constants), dict(inputs)


def chain(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    output: Sequence[int],
    constants: Mapping[str, Array],
) -> onnx.ModelProto:
    """A model of several nodes, its result called ``Y``."""

    def info(name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))

    graph = helper.make_graph(
        list(nodes),
        "operator",
        [info(name, array.shape) for name, array in inputs.items()],
        [info("Y", output)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 9
    return model


def draw(*shape: int, seed: int = 0) -> Array:
    """Random numbers between -1 and 1, in memory aligned as every engine likes it."""
    rng = np.random.default_rng(seed)
    array = rng.random(shape, np.float32)
    array *= 2
    array -= 1
    return aligned_copy(array)


def turn(run: Callable[[], object], seconds: float) -> list[float]:
    """The seconds of each run of one turn; the first run, which wakes threads, does not count."""
    begin = time.perf_counter()
    run()
    now = time.perf_counter()
    times: list[float] = []
    while not times or now - begin < seconds:
        run()
        before, now = now, time.perf_counter()
        times.append(now - before)
    return times


def geomean(values: Sequence[float]) -> float | None:
    """The geometric mean, ``None`` of nothing."""
    return round(statistics.geometric_mean(values), 3) if values else None
