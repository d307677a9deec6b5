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

from tilewright.driver import OURS, Bench, BenchPlan, BenchResult, copying, peak_meter, reading
from tilewright.runtime import aligned_copy
from tilewright.target import Target, detect

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
        self._peak = best_peak(self._target, self.threads)
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

        After each of our turns, the limits are measured: the peak, and reading as many bytes as the operator
        reads and writes; for more than MOST_READ, so much of it. Of a result that the caches cannot hold,
        copying as many bytes is a limit as well: writing memory takes longer than reading it. Where others
        use the same cores, peaks halve from one second to the next: so fractions and ratios are taken round
        by round, of medians of each turn's times, and their median counts. ``of_limit_best_run`` is that of
        our fastest run and of the fastest runs of the limits.
        """
        nbytes = int(min(case.nbytes, MOST_READ))
        read = reading(self._target, self.threads, nbytes)
        written = _bytes_written(case)
        kept = max(level.size or 0 for level in self._target.memory)
        copy = copying(self._target, self.threads, written) if written > kept else None
        limits: list[_Limits] = []

        def bounds() -> None:
            peak = self._peak()
            reads = [t * case.nbytes / nbytes for t in turn(read, self._seconds)]
            copies = turn(copy, self._seconds) if copy is not None else [0.0]
            limits.append(_Limits(peak, case.flops / (peak * 1e9), tuple(reads), tuple(copies)))

        with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
            path = Path(folder, "model.onnx")
            onnx.save(case.model, path)
            result = self._bench.measure(case.name, path, case.feeds, each_round=bounds)
        self._peaks += [each.gflops for each in limits]
        limit = statistics.median(each.seconds for each in limits)
        engines: dict[str, dict[str, Any]] = {}
        for engine in result.engines:
            shown = engine.as_data(result.ours)
            engines[engine.engine] = {key: shown[key] for key in _SHOWN if shown.get(key) is not None}
        compute = statistics.median(each.compute for each in limits)
        reads = statistics.median(t for each in limits for t in each.reads)
        copies = statistics.median(t for each in limits for t in each.copies)
        line: dict[str, Any] = {
            "operator": case.name,
            "flops": case.flops,
            "bytes": case.nbytes,
            "bound": "compute" if compute >= max(reads, copies) else "memory",
            "limit_ms": limit * 1e3,
            "peak_gflops": statistics.median(each.gflops for each in limits),
            "read_gb_s": case.nbytes / reads / 1e9,
            **({"copy_gb_s": 2 * written / copies / 1e9} if copies else {}),
            "engines": engines,
        }
        return line | _ratios(result, limits)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What the machine does at most in one round: GFLOP/s, and seconds for what an operator has of each."""

    gflops: float
    compute: float
    reads: tuple[float, ...]
    copies: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The limit: medians, as our time is one."""
        return max(self.compute, statistics.median(self.reads), statistics.median(self.copies))

    @property
    def best(self) -> float:
        """The limit of the fastest run."""
        return max(self.compute, min(self.reads), min(self.copies))


def _ratios(result: BenchResult, limits: Sequence[_Limits]) -> dict[str, float]:
    """Our fractions of the limits and the best peer's time over ours: medians of the rounds' ratios."""
    found = result.ours
    if found is None or found.minimum is None:
        return {}
    ours = [statistics.median(turn) for turn in found.rounds]
    best = min(each.best for each in limits)
    ratios = {
        "of_limit": statistics.median(each.seconds / t for each, t in zip(limits, ours, strict=True)),
        "of_limit_best_run": best / found.minimum,
    }
    peers = [each for each in result.engines if each.engine != OURS and len(each.rounds) == len(ours)]
    if peers:
        fastest = [min(statistics.median(each.rounds[at]) for each in peers) for at in range(len(ours))]
        ratios["best_peer_to_ours"] = statistics.median(
            peer / t for peer, t in zip(fastest, ours, strict=True)
        )
    return {name: round(ratio, 3) for name, ratio in ratios.items()}


def _bytes_written(case: Case) -> int:
    """Bytes of the result that are written for as many that are read, at most."""
    dims = (d.dim_value for d in case.model.graph.output[0].type.tensor_type.shape.dim)
    result = 4 * prod(dims)
    return min(result, int(case.nbytes) - result)


def best_peak(target: Target, threads: int) -> Callable[[], float]:
    """A function that measures the peak of all threads at once, in GFLOP/s: the best of PEAK_RUNS runs."""
    meter = peak_meter(target, threads)
    return lambda: max(meter() for _ in range(PEAK_RUNS))


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
