"""Matrix products of bf16 and of bytes by dot-product instructions, untuned, beside f32.

    python benchmarks/dots.py [--sizes 512,1024,2048] [--threads 1] [--json]

Square products with a constant right operand, as the default strategy schedules them. Each line has the rate
in GOP/s (two operations a product) and the part of the instruction's peak, measured in the same run.
"""

import argparse
import json
import time
from typing import Any

import ml_dtypes
import numpy as np

from tilewright import lang
from tilewright.build import build, pack
from tilewright.cost import Machine
from tilewright.driver import dot_gops, peak_gflops
from tilewright.ir import DType, Program
from tilewright.runtime import aligned_copy
from tilewright.strategies import default_schedule
from tilewright.target import Target, detect

#: Element types of the factors and of the sums, and the instruction; none for f32.
KINDS = {"f32": ("f32", "f32", "f32", ""), "bf16": ("bf16", "bf16", "f32", "vdpbf16ps")}
KINDS["u8s8"] = ("u8", "i8", "i32", "vpdpbusd")


def product(n: int, left: str, right: str, total: str) -> Program:
    """``C = A B`` for square matrices."""
    A, B = lang.placeholder((n, n), left, name="A"), lang.placeholder((n, n), right, name="B")
    k = lang.reduce_axis(n, "k")
    C = lang.compute(
        (n, n), lambda i, j: lang.sum(lang.cast(A[i, k], total) * lang.cast(B[k, j], total), k), name="C"
    )
    return lang.program([A, B], [C])


def measure(kind: str, n: int, target: Target, threads: int, seconds: float = 0.4) -> dict[str, Any]:
    """The best rate of one kind of product, checked against a product in double precision."""
    left, right, total, _ = KINDS[kind]
    program = product(n, left, right, total)
    s = default_schedule(program, Machine(target, threads), constants=("B",))
    rng = np.random.default_rng(0)
    a, b = (_numbers(rng, n, program.buffer(name).dtype) for name in "AB")
    out = aligned_copy(np.zeros((n, n), program.buffer("C").dtype.numpy))
    plan = build(s, target=target, threads=threads).plan([aligned_copy(a), pack(b, s.func.buffer("B")), out])
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        plan.run([], [])
        best = min(best, time.perf_counter() - start)
    want = a.astype(np.float64) @ b.astype(np.float64)
    error = float(np.abs(out - want).max() / np.abs(want).max())
    return {"kind": kind, "size": n, "threads": threads, "gops": 2 * n**3 / best / 1e9, "max_error": error}


def _numbers(rng: np.random.Generator, n: int, dtype: DType) -> Any:
    if dtype.is_float:
        return rng.normal(size=(n, n)).astype(ml_dtypes.bfloat16).astype(dtype.numpy)
    return rng.integers(int(dtype.min_value), int(dtype.max_value) + 1, (n, n)).astype(dtype.numpy)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="512,1024,2048")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON line a product")
    arguments = parser.parse_args()
    target = detect()
    known = {i.name for i in target.instructions}
    for kind, (*_, instruction) in KINDS.items():
        if instruction and instruction not in known:
            continue
        peak = dot_gops(instruction, target) if instruction else peak_gflops(target)
        for n in map(int, arguments.sizes.split(",")):
            row = measure(kind, n, target, arguments.threads)
            row["of_peak"] = row["gops"] / (peak * arguments.threads)
            if arguments.json:
                print(json.dumps({"benchmark": "dots", **row}), flush=True)
            else:
                print(f"{kind} {n}: {row['gops']:.0f} GOP/s, {row['of_peak']:.1%} of peak")


if __name__ == "__main__":
    main()
