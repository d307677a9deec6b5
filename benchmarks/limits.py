"""What this machine can do at most: multiply-adds in registers, and reading, by the size of what is read.

    python benchmarks/limits.py [--threads 2]

Prints one JSON line. The benchmarks of operators measure these limits in the same run, and state an
operator's time as a fraction of its limit: the larger of FLOPs over the peak and bytes over the bandwidth.
"""

import argparse
import json
import time
from dataclasses import dataclass, field

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
SIZES = (1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24, 3 << 23, 1 << 25, 3 << 24, 1 << 26, 1 << 28)
#: Vectors that one turn of the reading loop loads, each added to a sum of its own.
STREAMS = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """``gflops`` of f32 on all threads; ``read`` GB/s by the bytes of what is read again and again."""

    threads: int
    gflops: float
    read: dict[int, float] = field(default_factory=dict)

    def seconds(self, flops: float, nbytes: float) -> float:
        """The least time for so many operations and so many bytes of operands and results."""
        return max(flops / (self.gflops * 1e9), nbytes / self.bandwidth(nbytes))

    def bound(self, flops: float, nbytes: float) -> str:
        """What sets the limit: ``compute`` or ``memory``."""
        return "compute" if flops / (self.gflops * 1e9) >= nbytes / self.bandwidth(nbytes) else "memory"

    def bandwidth(self, nbytes: float) -> float:
        """Bytes a second for a working set of ``nbytes``: the rate of the next larger size measured."""
        return 1e9 * next(
            (rate for size, rate in sorted(self.read.items()) if size >= nbytes), min(self.read.values())
        )


def measure_limits(target: Target, threads: int, seconds: float = 0.3) -> Limits:
    """The peak and the bandwidths, each the best of as many runs as fit into so many seconds."""
    gflops = peak_gflops(target, seconds) * threads
    return Limits(threads, gflops, {size: read_rate(target, threads, size, seconds) for size in SIZES})


def read_rate(target: Target, threads: int, nbytes: int, seconds: float) -> float:
    """GB/s of adding up ``nbytes`` of f32 on all threads, each its own part from first to last."""
    lanes = target.lanes(F32)
    turns = nbytes // (4 * threads * STREAMS * lanes)
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
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        best = min(best, float(plan.measure([], [], repeats=3).min()))
    return table[0].nbytes / best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds for each figure")
    arguments = parser.parse_args()
    target = detect()
    found = measure_limits(target, arguments.threads, arguments.seconds)
    rates = {str(size): round(rate, 1) for size, rate in found.read.items()}
    line = {"benchmark": "limits", "cpu": target.llvm_cpu, "threads": found.threads}
    print(json.dumps({**line, "gflops": round(found.gflops, 1), "read_gb_s": rates}))


if __name__ == "__main__":
    main()
