"""What this machine can do at most: multiply-adds in registers, and reading, by the size of what is read.

    python benchmarks/limits.py [--threads 2]

Prints one JSON line. The benchmarks of operators measure these limits in the same run, the reading of as many
bytes as an operator has in turns with the engines, and state its time as a fraction of its limit: the larger of
FLOPs over the peak and the time to read the bytes.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
from peak import peak_gflops

from tilewright import lang
from tilewright.driver import build
from tilewright.ir import F32
from tilewright.runtime import aligned_copy
from tilewright.schedule import Schedule
from tilewright.support import available_cpus
from tilewright.target import Target, detect

#: Working sets whose reading is timed, in bytes: from the second cache level to main memory.
SIZES = (1 << 19, 1 << 20, 1 << 22, 1 << 24, 1 << 25, 1 << 26, 1 << 28)
#: Vectors that one turn of the reading loop loads, each added to a sum of its own.
STREAMS = 8


def reading(target: Target, threads: int, nbytes: int) -> Callable[[], object]:
    """A function that reads about so many bytes of f32 once, each thread its own part from first to last."""
    lanes = target.lanes(F32)
    turns = max(1, nbytes // (4 * threads * STREAMS * lanes))
    X = lang.placeholder((threads, turns, STREAMS, lanes), "f32", name="X")
    t = lang.reduce_axis(turns, "t")
    S = lang.compute((threads, STREAMS, lanes), lambda p, u, v: lang.sum(X[p, t, u, v], axis=t), name="S")
    s = Schedule(lang.program([X], [S]))
    p, u, v, t_ = s.loops("S")
    s = s.stage("S", at=p, scope="register", mode="write", name="acc")
    s = s.reorder(t_, u, v).decompose_init("S", t_)
    for block in ("S", "S_init", "acc_out"):
        *_, streams, vector = s.loops(block)
        s = s.unroll(streams).vectorize(vector)
    kernel = build(s.parallel(p) if threads > 1 else s, target=target, threads=threads)
    table = [aligned_copy(np.ones((threads, turns, STREAMS, lanes), np.float32))]
    table.append(aligned_copy(np.zeros((threads, STREAMS, lanes), np.float32)))
    plan = kernel.plan(table)
    return lambda: plan.run([], [])


def read_rate(target: Target, threads: int, nbytes: int, seconds: float) -> float:
    """GB/s of reading ``nbytes`` again and again, the best of as many times as fit into so many seconds."""
    run = reading(target, threads, nbytes)
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return nbytes / best / 1e9


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds for each figure")
    arguments = parser.parse_args()
    target = detect()
    threads, seconds = arguments.threads, arguments.seconds
    gflops = peak_gflops(target, seconds) * threads
    rates = {str(size): round(read_rate(target, threads, size, seconds), 1) for size in SIZES}
    line = {"benchmark": "limits", "cpu": target.llvm_cpu, "threads": threads}
    print(json.dumps({**line, "gflops": round(gflops, 1), "read_gb_s": rates}))


if __name__ == "__main__":
    main()
