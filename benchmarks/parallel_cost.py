"""What a parallel loop costs besides its work: ``fork_seconds`` of targets.

    python benchmarks/parallel_cost.py --json --seconds 25

Two rows of so many f32 each are doubled, in turns by one thread and by two, a row each. What two take longer
than half of what one takes is the cost: starting, waiting, and what a core gets of the other's caches.
One line a size, in microseconds: the minima, and the cost of minima and of medians.
"""

import argparse
import json
import time
from statistics import median

import numpy as np

from tilewright import lang
from tilewright.driver import build
from tilewright.runtime import aligned_copy
from tilewright.schedule import Schedule
from tilewright.target import detect

SIZES = (64, 1024, 4096, 16384, 65536, 131072)
#: Runs of one before its turn ends.
TURN = 20


def doubling(count: int, threads: int):
    """A function that doubles two rows of so many numbers."""
    x = lang.placeholder((2, count), name="X")
    s = Schedule(lang.program([x], [lang.compute((2, count), lambda i, j: x[i, j] * 2 + 1, name="Y")]))
    row, column = s.loops("Y")
    s = s.vectorize(column)
    kernel = build(s.parallel(row) if threads > 1 else s, target=detect(), threads=threads)
    plan = kernel.plan([aligned_copy(np.ones((2, count), np.float32)) for _ in range(2)])
    return plan.bind([], []).run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=25.0)
    options = parser.parse_args()
    runs = {(n, threads): doubling(n, threads) for n in SIZES for threads in (1, 2)}
    times = {key: [] for key in runs}
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end:
        for key, run in runs.items():
            for _ in range(TURN):
                begin = time.perf_counter()
                run()
                times[key].append(time.perf_counter() - begin)
    for n in SIZES:
        one, two = times[n, 1], times[n, 2]
        row = {
            "count": n,
            "one": 1e6 * min(one),
            "two": 1e6 * min(two),
            "cost": 1e6 * (min(two) - min(one) / 2),
            "cost_of_medians": 1e6 * (median(two) - median(one) / 2),
        }
        shown = {k: v if k == "count" else round(v, 2) for k, v in row.items()}
        print(json.dumps(shown) if options.json else shown)


if __name__ == "__main__":
    main()
