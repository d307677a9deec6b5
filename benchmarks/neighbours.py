"""Times of a model while other processes want the same CPUs: waiting policies beside other engines, in turns.

    python benchmarks/neighbours.py [--model resnet18] [--threads 2] [--seconds 3] [--rounds 3] [--json]

Neighbours are processes that only count: 0, 1, 2 and 4 of them; then 0 and 1 with one CPU for all.
Each engine has a process of its own, which waits (asleep) until it is its turn, so that only the neighbours
compete with it. A row is the median and the mean of a run's time in ms over all of an engine's turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import onnx
from memory import feeds

import tilewright
from tilewright.frontend import zoo

ENGINES: Final = ("active", "passive", "onnxruntime")
NEIGHBOURS: Final = (0, 1, 2, 4)
COUNTING: Final = "while True: pass"


def serve(engine: str, file: Path, threads: int) -> None:
    """Load the model, then run it for as many seconds as each line of the input says."""
    given = feeds(file)
    if engine == "onnxruntime":
        import onnxruntime  # noqa: PLC0415  # only in the process of this engine

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        model = onnxruntime.InferenceSession(str(file), options)
    else:
        model = tilewright.compile(file, threads=threads, wait_policy=engine)
    model.run(None, given)
    print("ready", flush=True)
    for line in sys.stdin:
        end, times = time.perf_counter() + float(line), []
        while not times or time.perf_counter() < end:
            begun = time.perf_counter()
            model.run(None, given)
            times.append((time.perf_counter() - begun) * 1e3)
        print(json.dumps(times), flush=True)


class Engine:
    """The process of one engine."""

    def __init__(self, name: str, file: Path, threads: int) -> None:
        command = [sys.executable, __file__, "--serve", name, "--file", str(file), "--threads", str(threads)]
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def times(self, seconds: float) -> list[float]:
        """Milliseconds of each run for so long."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return list(json.loads(self.process.stdout.readline()))


def measured(engines: list[Engine], neighbours: int, seconds: float, rounds: int) -> dict[str, list[float]]:
    """The times of each engine, in turns, beside so many neighbours."""
    others = [subprocess.Popen([sys.executable, "-c", COUNTING]) for _ in range(neighbours)]
    times: dict[str, list[float]] = {engine.name: [] for engine in engines}
    try:
        for _ in range(rounds):
            for engine in engines:
                times[engine.name] += engine.times(seconds)
    finally:
        for other in others:
            other.kill()
            other.wait()
    return times


def main() -> None:
    """Measure, and print a line for each engine and situation."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--model", default="resnet18")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    options.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    options.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        serve(given.serve, given.file, given.threads)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{given.model}.onnx"
        onnx.save(zoo.FULL[given.model](), file)
        cpus = os.sched_getaffinity(0)
        for allowed in (cpus, {min(cpus)}):
            os.sched_setaffinity(0, allowed)  # for the engines, which find their CPUs when they begin
            engines = [Engine(name, file, given.threads) for name in ENGINES]
            for neighbours in NEIGHBOURS if allowed == cpus else NEIGHBOURS[:2]:
                found = measured(engines, neighbours, given.seconds, given.rounds)
                for name, times in found.items():
                    row = {"engine": name, "neighbours": neighbours, "cpus": len(allowed)}
                    row |= {"median_ms": statistics.median(times), "mean_ms": statistics.mean(times)}
                    words = (f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
                    print(json.dumps(row) if given.json else "  ".join(words), flush=True)
            for engine in engines:
                engine.process.kill()
                engine.process.wait()


if __name__ == "__main__":
    main()
