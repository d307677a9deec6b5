"""What one core can do: fused multiply-adds of full vectors, as many as start, all operands in registers.

    python benchmarks/peak.py [--seconds 0.5]

Prints one JSON line: the highest rate seen, in GFLOP/s of f32. Other benchmarks divide by it.
"""

import argparse
import json
import time

import numpy as np

from tilewright.codegen import compile_ir, load_object
from tilewright.ir import F32
from tilewright.runtime import PlanBuilder, PoolOptions, aligned_copy, shared_pool
from tilewright.support import read_settings
from tilewright.target import Target, detect

CHAINS = 12
"""Independent sums: more than latency times throughput of any unit, and within 16 registers."""
ITERATIONS = 2_000_000


def peak_gflops(target: Target | None = None, seconds: float = 0.5) -> float:
    """The best rate of one core, in GFLOP/s, from as many short runs as fit into so many seconds."""
    machine = target or detect()
    lanes = machine.lanes(F32)
    code = load_object(compile_ir(_module(machine.llvm_triple, lanes), machine))
    pool = shared_pool(PoolOptions.of(read_settings(), 1))
    builder = PlanBuilder(pool)
    factors = np.concatenate([np.full(lanes, 0.999, np.float32), np.full(lanes, 0.001, np.float32)])
    sums = builder.constant(aligned_copy(np.zeros(CHAINS * lanes, np.float32)))
    builder.step(code.address("peak"), [builder.constant(aligned_copy(factors)), sums], [ITERATIONS])
    plan = builder.build([code])
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        best = min(best, float(plan.measure([], []).min()))
    return 2.0 * CHAINS * lanes * ITERATIONS / best


def _module(triple: str, lanes: int) -> str:
    vector = f"<{lanes} x float>"
    phis = "\n".join(
        f"  %a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in range(CHAINS)
    )
    sums = "\n".join(
        f"  %b{k} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{k}, {vector} %x, {vector} %y)"
        for k in range(CHAINS)
    )
    stores = "\n".join(
        f"  %p{k} = getelementptr {vector}, ptr %out, i64 {k}\n  store {vector} %b{k}, ptr %p{k}, align 4"
        for k in range(CHAINS)
    )
    return f"""
target triple = "{triple}"
declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})
define i32 @peak(ptr %context, ptr %buffers, ptr %params, ptr %workspace, ptr %scratch) {{
entry:
  %n = load i64, ptr %params
  %in = load ptr, ptr %buffers
  %second = getelementptr ptr, ptr %buffers, i64 1
  %out = load ptr, ptr %second
  %x = load {vector}, ptr %in, align 4
  %next = getelementptr {vector}, ptr %in, i64 1
  %y = load {vector}, ptr %next, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{phis}
{sums}
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %done
done:
{stores}
  ret i32 0
}}
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.5)
    arguments = parser.parse_args()
    target = detect()
    rate = peak_gflops(target, arguments.seconds)
    print(json.dumps({"benchmark": "peak", "cpu": target.llvm_cpu, "gflops": round(rate, 1)}))


if __name__ == "__main__":
    main()
