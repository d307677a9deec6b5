"""Single operators, several engines in one process taking turns; what the benchmarks of operators share.

Memory that is freed stays with the process, for all engines alike: otherwise each run of an operator with a
large result would mostly wait for fresh pages.
"""

import argparse
import contextlib
import ctypes
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.driver import peak_gflops, reading
from tilewright.driver.bench import ENGINES, OURS
from tilewright.runtime import aligned_copy
from tilewright.support import available_cpus
from tilewright.target import Target, detect

Array = npt.NDArray[Any]

#: Seconds between two engines' turns, for idle threads to fall asleep.
PAUSE = 0.05
#: Bytes whose reading is timed, at most.
MOST_READ = 1 << 28
_READING = "reading"
_M_MMAP_MAX, _M_TRIM_THRESHOLD = -4, -1


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


@dataclass(frozen=True, slots=True)
class Plan:
    """``rounds`` turns an engine, each of ``seconds`` or one run, whichever is longer.

    ``gflops`` is the peak of all threads.
    """

    engines: tuple[str, ...]
    threads: int
    target: Target
    gflops: float
    rounds: int = 3
    seconds: float = 0.1


def keep_memory() -> None:
    """Have the C library keep freed memory instead of returning it to the system (glibc)."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what decides the plan: engines, threads, turns and their length; and ``--json``."""
    parser.add_argument(
        "--against", default="onnxruntime,openvino,torch", help="engines, by commas; may be empty"
    )
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--rounds", type=int, default=3, help="turns an engine")
    parser.add_argument("--seconds", type=float, default=0.1, help="seconds a turn")
    parser.add_argument("--json", action="store_true", help="one JSON line an operator")


def plan_of(arguments: argparse.Namespace) -> Plan:
    """The plan of the options that `add_options` adds; measures the peak of this machine (a second)."""
    engines = (OURS, *(name for name in arguments.against.split(",") if name))
    target = detect()
    gflops = peak_gflops(target) * arguments.threads
    return Plan(engines, arguments.threads, target, gflops, arguments.rounds, arguments.seconds)


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


def measure(case: Case, plan: Plan) -> dict[str, Any]:
    """One line of results: each engine's times, and our fraction of the limit.

    Reading as many bytes as the operator reads and writes takes its turns as the engines do: its fastest run,
    for more bytes than MOST_READ so much of it, is the limit of memory.
    """
    engines: dict[str, dict[str, Any]] = {}
    running: dict[str, Callable[[], object]] = {}
    made: dict[str, Array] = {}
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        path = Path(folder, "model.onnx")
        onnx.save(case.model, path)
        for name in plan.engines:
            with _Failures(engines, name):
                start = time.perf_counter()
                engine = ENGINES[name](str(path), case.feeds, plan.threads)
                loaded = time.perf_counter() - start
                made[name] = engine.outputs()[0]
                running[name] = engine.run
                engines[name] = {"load_s": round(loaded, 3)}
    nbytes = int(min(case.nbytes, MOST_READ))
    running[_READING] = reading(plan.target, plan.threads, nbytes)
    times: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(plan.rounds):
        for name, run in running.items():
            time.sleep(PAUSE)
            times[name] += turn(run, plan.seconds)
    memory = min(times.pop(_READING)) * case.nbytes / nbytes
    compute = case.flops / (plan.gflops * 1e9)
    limit = max(memory, compute)
    for name, seen in times.items():
        engines[name] |= {
            "median_ms": statistics.median(seen) * 1e3,
            "min_ms": min(seen) * 1e3,
            "runs": len(seen),
        }
        if OURS in made and name != OURS:
            engines[name]["max_difference"] = _difference(made[OURS], made[name])
    line: dict[str, Any] = {
        "operator": case.name,
        "flops": case.flops,
        "bytes": case.nbytes,
        "bound": "compute" if compute >= memory else "memory",
        "limit_ms": limit * 1e3,
        "read_gb_s": case.nbytes / memory / 1e9,
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


class _Failures:
    """An engine that cannot run an operator is reported so; the others go on."""

    def __init__(self, engines: dict[str, dict[str, Any]], name: str) -> None:
        self._engines, self._name = engines, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._engines[self._name] = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(f"{self._name}: {error}"[:300], file=sys.stderr)
        return True


def _difference(ours: Array, theirs: Array) -> float | None:
    """The largest difference as a part of the largest element."""
    if ours.shape != theirs.shape:
        return None
    scale = float(np.abs(theirs).max()) or 1.0
    return float(np.abs(ours - theirs).max()) / scale
