"""Gate 0: one thread's share of the peak on a GEMM of 512x512x512 and a 3x3 convolution 64 to 64 at 56x56.

    python benchmarks/gate0.py [--seconds 1] [--json]

Both are written in `tilewright.lang`, scheduled by primitives, compiled through LLVM. For each: the share of
the measured peak (`peak.py`), the milliseconds of scheduling, emitting and compiling, the spilled vector
registers in the assembly, and the largest error in units of the bound of `support.numerics`. Wanted: 85 %,
150 ms, none, 1.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from peak import peak_gflops

from tilewright import lang
from tilewright.codegen import assembly, compile_ir, count_vector_spills, emit_kernel, load_object
from tilewright.driver import flops, pack, unpack
from tilewright.ir import CONST, Program
from tilewright.lower import lower
from tilewright.runtime import PlanBuilder, PoolOptions, shared_pool
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule
from tilewright.support import compare, read_settings
from tilewright.target import Target, detect


@dataclass(frozen=True)
class Workload:
    """A program, how it is scheduled, and the reference of its only output."""

    name: str
    program: Program
    schedule: Callable[[Program, Target], Schedule]
    terms: int


def gemm() -> Workload:
    """`C = A B`, all 512x512; B is a weight."""
    a, b = lang.placeholder((512, 512), "f32", "A"), lang.placeholder((512, 512), "f32", "B")
    c = lang.ops.matmul(a, b, name="C")
    program = constant(lang.program([a, b], [c], name="gemm"), "B")
    return Workload("gemm 512x512x512", program, lambda p, target: default_schedule(p, target, 1), 512)


def conv() -> Workload:
    """3x3, 64 to 64 channels at 56x56, padding 1; activations in blocks of 16 channels."""
    x, w = lang.placeholder((1, 64, 56, 56), "f32", "X"), lang.placeholder((64, 64, 3, 3), "f32", "W")
    y = lang.ops.conv(x, w, padding=1, name="Y")
    program = constant(lang.program([x, w], [y], name="conv"), "W")
    program = stored(program, ("X", "Y"), ("d0", "d1//16", "d2", "d3", "d1%16"))
    return Workload("conv 3x3 64-64 56x56", program, lambda p, target: default_schedule(p, target, 1), 64 * 9)


def constant(program: Program, name: str) -> Program:
    """The program with an input whose contents are known when compiling."""
    inputs = tuple(b.with_(scope=CONST) if b.name == name else b for b in program.inputs)
    return replace(program, inputs=inputs)


def stored(program: Program, names: Sequence[str], layout: Sequence[str]) -> Program:
    """The program with arguments in a layout: dimensions d0, d1 ... as `set_layout` takes them."""
    schedule = Schedule(program)
    for name in names:
        schedule = schedule.set_layout(name, layout)
    placed = {b.name: b.layout for b in schedule.func.buffers}
    inputs, outputs = (
        tuple(b.with_(layout=placed[b.name]) for b in buffers)
        for buffers in (program.inputs, program.outputs)
    )
    return replace(program, inputs=inputs, outputs=outputs)


def measure(work: Workload, target: Target, peak: float, seconds: float) -> dict[str, object]:
    """Compile, check and time one workload on one thread."""
    begin = time.perf_counter()
    schedule = work.schedule(work.program, target)
    scheduled = time.perf_counter()
    text = emit_kernel(
        lower(schedule.func), triple=target.llvm_triple, vector_bits=target.preferred_vector_bits
    )
    emitted = time.perf_counter()
    code = load_object(compile_ir(text.text, target))
    compiled = time.perf_counter()
    random = np.random.default_rng(0)
    feeds = {
        b.name: random.standard_normal(tuple(e.as_int() for e in b.shape), dtype=np.float32)
        for b in work.program.inputs
    }
    shapes = {b.name: tuple(e.as_int() for e in b.shape) for b in work.program.outputs}
    table = [
        pack(feeds.get(b.name, np.zeros(shapes.get(b.name, ()), np.float32)), b)
        for b in schedule.func.buffers
    ]
    builder = PlanBuilder(shared_pool(PoolOptions.of(read_settings(), 1)))
    builder.step(
        code.address(text.symbol),
        [builder.constant(array) for array in table],
        workspace_bytes=text.memory.workspace,
        scratch_bytes=text.memory.scratch,
    )
    plan = builder.build([code])
    plan.run([], [])
    (output,) = work.program.outputs
    expected = lang.evaluate(work.program, {k: v.astype(np.float64) for k, v in feeds.items()})[output.name]
    magnitude = lang.evaluate(work.program, {k: np.abs(v) for k, v in feeds.items()})[output.name]
    at = [b.name for b in schedule.func.buffers].index(output.name)
    place = schedule.func.buffers[at]
    outcome = compare(unpack(table[at], place), expected, magnitude=magnitude, terms=work.terms)
    times: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        times.extend(plan.measure([], [], repeats=20).ravel())
    rate = flops(work.program) / float(np.median(times))
    best = flops(work.program) / min(times)
    spills = sum(count_vector_spills(assembly(text.text, target)).values())
    return {
        "benchmark": "gate0",
        "workload": work.name,
        "gflops": round(rate, 1),
        "best_gflops": round(best, 1),
        "peak_gflops": round(peak, 1),
        "share": round(rate / peak, 3),
        "best_share": round(best / peak, 3),
        "schedule_ms": round((scheduled - begin) * 1e3, 1),
        "emit_ms": round((emitted - scheduled) * 1e3, 1),
        "compile_ms": round((compiled - emitted) * 1e3, 1),
        "total_ms": round((compiled - begin) * 1e3, 1),
        "spills": spills,
        "error_ratio": round(outcome.ratio, 4),
        "correct": bool(outcome),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds a workload")
    parser.add_argument("--json", action="store_true", help="one JSON line a workload")
    arguments = parser.parse_args()
    target = detect()
    peak = peak_gflops(target)
    for work in (gemm(), conv()):
        row = measure(work, target, peak, arguments.seconds)
        if arguments.json:
            print(json.dumps(row))
        else:
            print(
                f"{row['workload']:<22} {row['share']:.0%} of {row['peak_gflops']} GFLOP/s, "
                f"{row['total_ms']} ms to compile, {row['spills']} spills, "
                f"{'correct' if row['correct'] else 'WRONG'} (error {row['error_ratio']} of the bound)"
            )


if __name__ == "__main__":
    main()
