"""Latency of an empty parallel loop: the native thread pool, and libgomp where a C compiler is at hand.

    python benchmarks/forkjoin.py [--threads 2] [--rounds 20000] [--repeats 15]

Prints one JSON line an engine: median and minimum over the repeats, in nanoseconds a loop, interleaved.
`after_sleep` lines: the first loop after a rest, when the workers sleep. There is a rest before every
measurement, as libgomp's workers spin for 7 ms after their last loop, and under `chrt -f` keep others from
their CPU.
"""

import argparse
import ctypes
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tilewright.runtime import PoolOptions, ThreadPool
from tilewright.support import available_cpus

REST = 0.03  # seconds
OPENMP_SOURCE = """
#include <omp.h>
#include <stdint.h>
#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * t.tv_sec + t.tv_nsec;
}
double fork_join_ns(int threads, int rounds) {
    static volatile int64_t sink[64 * 1024];
    double begin = now();
    for (int i = 0; i < rounds; i++) {
        _Pragma("omp parallel num_threads(threads)") { sink[8 * omp_get_thread_num()]++; }
    }
    return (now() - begin) / rounds;
}
"""


def libgomp(folder: Path, threads: int) -> Callable[[int], float] | None:
    """The same measurement through libgomp, or None."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    source, library = folder / "forkjoin.c", folder / "forkjoin.so"
    source.write_text(OPENMP_SOURCE)
    command = [compiler, "-O2", "-fopenmp", "-shared", "-fPIC", str(source), "-o", str(library)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        return None
    function = ctypes.CDLL(str(library)).fork_join_ns
    function.restype = ctypes.c_double
    return lambda rounds: float(function(threads, rounds))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--rounds", type=int, default=20_000, help="loops back to back")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="the default, and the only format")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPool(PoolOptions(arguments.threads)) as pool:
        engines: dict[str, Callable[[int], float]] = {"tilewright": pool.fork_join_ns}
        if (peer := libgomp(Path(folder), arguments.threads)) is not None:
            engines["libgomp"] = peer
        times: dict[str, list[float]] = {name: [] for name in engines}
        rested: dict[str, list[float]] = {name: [] for name in engines}
        for engine in engines.values():
            engine(arguments.rounds)
        for _ in range(arguments.repeats):
            for name, engine in engines.items():
                time.sleep(REST)
                engine(100)
                times[name].append(engine(arguments.rounds))
        for _ in range(arguments.repeats):
            for name, engine in engines.items():
                time.sleep(REST)
                rested[name].append(engine(1))
    for kind, found in (("back_to_back", times), ("after_sleep", rested)):
        for name, samples in found.items():
            line = {
                "benchmark": "forkjoin",
                "kind": kind,
                "engine": name,
                "threads": arguments.threads,
                "median_ns": round(statistics.median(samples), 1),
                "min_ns": round(min(samples), 1),
            }
            print(json.dumps(line))


if __name__ == "__main__":
    main()
