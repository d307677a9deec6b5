"""Two 3x3 blurs: fused with overlapping tiles against each stage on its own, interleaved.

    python benchmarks/stencil.py [--size 2048] [--threads 2] [--repeats 41] [--json]

Rows: ``unfused`` (each stage parallel and vectorised), ``unfused_rows`` (several rows at a time too, which is
the strongest form without fusion), ``fused`` (overlapping tiles) and ``sliding`` (overlapping bands with a
rolling buffer). Where the arrays fit into the last cache, as 2048 does on large servers, fusion gains over
the first only; from there on over both. All share the arrays of input, intermediate and output, whose
pages exist before. Times are in milliseconds; ``speedup`` is the ratio of medians to ``unfused``. For
steady numbers on a shared machine
run it under ``chrt -f 10``.
"""

import argparse
import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from tilewright.build import build
from tilewright.runtime import aligned_copy


def example():
    """The module ``examples/stencil.py``."""
    spec = importlib.util.spec_from_file_location(
        "stencil", Path(__file__).parents[1] / "examples" / "stencil.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(size: int, threads: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of every run, one of each schedule in turn."""
    stencil = example()
    schedules = {
        "unfused": stencil.unfused(keep_first=True),
        "unfused_rows": stencil.unfused(rows=4, keep_first=True),
        "fused": stencil.fused(),
        "sliding": stencil.sliding(),
    }
    X = aligned_copy(np.random.default_rng(0).standard_normal((size + 4, size + 4), np.float32))
    arrays = {
        "X": X,
        "T": aligned_copy(np.zeros((size + 2, size + 2), np.float32)),
        "C": aligned_copy(np.zeros((size, size), np.float32)),
    }
    expected = stencil.reference(X)
    plans = {}
    for name, schedule in schedules.items():
        kernel = build(schedule, threads=threads)
        plans[name] = kernel.plan([arrays[b.name] for b in kernel.func.buffers], [size, size])
        arrays["C"][...] = np.nan
        plans[name].run([], [])
        if not np.allclose(arrays["C"], expected, rtol=1e-5, atol=1e-5):
            sys.exit(f"{name} computes something else")
    seconds: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(repeats):
        for name, plan in plans.items():
            begin = time.perf_counter()
            plan.run([], [])
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    seconds = measure(args.size, args.threads, args.repeats)
    base = statistics.median(seconds["unfused"])
    for name, values in seconds.items():
        median = statistics.median(values)
        row = {
            "schedule": name,
            "size": args.size,
            "threads": args.threads,
            "median_ms": round(1e3 * median, 4),
            "min_ms": round(1e3 * min(values), 4),
            "speedup": round(base / median, 3),
        }
        if args.json:
            print(json.dumps(row))
        else:
            print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
