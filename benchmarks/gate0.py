"""Gate 0: one thread's share of the peak on a GEMM of 512x512x512 and a 3x3 convolution 64 to 64 at 56x56.

    python benchmarks/gate0.py [--seconds 1] [--json]

Both are written in `tilewright.lang`, scheduled by primitives (by hand, and by the default strategy) and
compiled through LLVM. For each: the share of the measured peak (`peak.py`), the milliseconds of scheduling,
emitting and compiling, the spilled vector registers in the assembly, and the largest error in units of the
bound of `support.numerics`. The schedules by hand also run on the interpreter at small odd sizes. Wanted:
85 %, 150 ms, none, 1. The convolution's share counts the terms of its padding, which it leaves out.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tilewright import lang
from tilewright.build import flops, pack, unpack
from tilewright.codegen import assembly, compile_ir, count_vector_spills, emit_kernel, load_object
from tilewright.cost import Machine
from tilewright.driver import peak_gflops
from tilewright.ir import CONST, F32, Index, Program, run_function
from tilewright.lower import lower
from tilewright.plan import EXACT
from tilewright.runtime import PlanBuilder, PoolOptions, shared_pool
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule
from tilewright.support import Comparison, compare, read_settings
from tilewright.target import Target, detect

ROWS, VECTORS = 14, 2
"""The register tile: rows of A (or pixels of a line) times vectors along n (or output channels)."""


@dataclass(frozen=True)
class Workload:
    """A program, how it is scheduled, and the reference of its only output."""

    name: str
    program: Program
    schedule: Callable[[Program, Target], Schedule]
    terms: int


def gemm(m: int, n: int, k: int) -> Program:
    """`C = A B`."""
    a, b = lang.placeholder((m, k), "f32", "A"), lang.placeholder((k, n), "f32", "B")
    axis = lang.reduce_axis(k, "k")
    c = lang.compute((m, n), lambda i, j: lang.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return lang.program([a, b], [c], name="gemm")


def gemm_by_hand(program: Program, target: Target) -> Schedule:
    """Panels of B staged for each tile of columns, a register tile of C below, four steps of k a turn."""
    width = VECTORS * target.lanes(F32)
    s = Schedule(program)
    s = s.split("i", ROWS, names=("i_0", "i_1")).split("j", width, names=("j_0", "j_1"))
    s = s.reorder("j_0", "i_0", "k", "i_1", "j_1")
    s = s.cache("B", at="j_0", scope="local", layout=(f"j//{width}", "k", f"j%{width}"), name="panel")
    s = s.vectorize(s.loops("panel")[-1])
    s = s.cache("C", at="i_0", scope="register", mode="write", name="acc")
    s = s.decompose_init("C", "k").annotate("k", "unroll", "4")
    s = s.unroll("i_1").vectorize("j_1").unroll("i_1_init").vectorize("j_1_init")
    s = s.unroll("acc_out_i").vectorize("acc_out_j").annotate("i_0", "outline")
    return _peeled(s, ("i_0", ROWS, program.outputs[0].shape[0]), ("j_0", width, program.outputs[0].shape[1]))


def conv(channels_in: int, channels_out: int, height: int, width: int) -> Program:
    """3x3, padding 1, activations in blocks of 16 channels, weights known when compiling."""
    x = lang.placeholder((1, channels_in, height, width), "f32", "X")
    w = lang.placeholder((channels_out, channels_in, 3, 3), "f32", "W")
    y = lang.ops.conv(x, w, padding=1, name="Y")
    program = constant(lang.program([x, w], [y], name="conv"), "W")
    return stored(program, ("X", "Y"), ("d0", "d1//16", "d2", "d3", "d1%16"))


def conv_by_hand(program: Program, target: Target) -> Schedule:
    """A register tile of pixels times channels; terms of the padding left out, its border tiles apart."""
    s = Schedule(program).inline_stage("X_pad").skip_padding("Y")
    s = s.set_layout("W", ("d0//32", "d1//16", "d2", "d3", "d1%16", "d0%32"))
    s = s.split("ow", ROWS, names=("ow_0", "ow_1")).split("oc", (2, 16), names=("oc_0", "oc_1", "oc_2"))
    s = s.split("ic", 16, names=("ic_0", "ic_1"))
    s = s.reorder("oc_0", "n", "oh", "ow_0", "ic_0", "kh", "kw", "ic_1", "ow_1", "oc_1", "oc_2")
    s = s.cache("Y", at="ow_0", scope="register", mode="write", name="acc")
    s = s.decompose_init("Y", "ic_0").unroll("kw").annotate("ic_1", "unroll", "2")
    for loop in ("ow_1", "oc_1", "ow_1_init", "oc_1_init", "acc_out_n", "acc_out_oh", "acc_out_ow"):
        s = s.unroll(loop)
    s = s.reorder("acc_out_n", "acc_out_oh", "acc_out_ow", "acc_out_oc")
    s = s.vectorize("oc_2").vectorize("oc_2_init").vectorize("acc_out_oc").annotate("ow_0", "outline")
    tiles = s.loop("ow_0").extent.as_int()
    if tiles > 1:
        s = s.partition("ow_0", 1)
    return s.partition("ow_0_1", -1) if tiles > 2 else s


def _peeled(s: Schedule, *tiled: tuple[str, int, Index]) -> Schedule:
    """The last iteration apart, of each loop over tiles that do not divide their extent."""
    for loop, size, extent in tiled:
        if extent.as_int() % size and s.loop(loop).extent.as_int() > 1:
            s = s.partition(loop, -1)
    return s


def by_default(program: Program, target: Target) -> Schedule:
    """What the default strategy does for one thread, but for Winograd's method."""
    return default_schedule(program, Machine(target, 1), accuracy=EXACT)


def check_small(target: Target) -> float:
    """The schedules by hand at small odd sizes on the interpreter: the largest error against its bound."""
    cases = [(gemm(m, n, k), gemm_by_hand, k) for m, n, k in ((1, 1, 1), (15, 33, 5), (29, 65, 7))]
    cases += [(conv(16, 32, h, w), conv_by_hand, 16 * 9) for h, w in ((1, 17), (3, 5))]
    worst = 0.0
    for program, schedule, terms in cases:
        func = schedule(program, target).func
        feeds = _feeds(program)
        given = {b.name: pack(feeds[b.name], b) for b in func.buffers if b.name in feeds}
        (output,) = program.outputs
        actual = unpack(run_function(func, given)[output.name], func.buffer(output.name))
        worst = max(worst, _compared(program, feeds, actual, terms).ratio)
    return worst


def _feeds(program: Program) -> dict[str, npt.NDArray[np.float32]]:
    random = np.random.default_rng(0)
    return {
        b.name: random.standard_normal(tuple(e.as_int() for e in b.shape), dtype=np.float32)
        for b in program.inputs
    }


def _compared(
    program: Program, feeds: dict[str, npt.NDArray[np.float32]], actual: npt.NDArray[np.float32], terms: int
) -> Comparison:
    (output,) = program.outputs
    expected = lang.evaluate(program, {k: v.astype(np.float64) for k, v in feeds.items()})[output.name]
    magnitude = lang.evaluate(program, {k: np.abs(v) for k, v in feeds.items()})[output.name]
    return compare(actual, expected, magnitude=magnitude, terms=terms)


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
    feeds = _feeds(work.program)
    shapes = {b.name: tuple(e.as_int() for e in b.shape) for b in work.program.outputs}
    table = [
        pack(feeds[b.name] if b.name in feeds else np.zeros(shapes[b.name], np.float32), b)
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
    at = [b.name for b in schedule.func.buffers].index(output.name)
    place = schedule.func.buffers[at]
    outcome = _compared(work.program, feeds, unpack(table[at], place), work.terms)
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
    small = check_small(target)
    whole, image = gemm(512, 512, 512), conv(64, 64, 56, 56)
    for work in (
        Workload("gemm 512x512x512, by hand", whole, gemm_by_hand, 512),
        Workload("conv 3x3 64-64 56x56, by hand", image, conv_by_hand, 64 * 9),
        Workload("gemm 512x512x512, default", constant(whole, "B"), by_default, 512),
        Workload("conv 3x3 64-64 56x56, default", image, by_default, 64 * 9),
    ):
        row = measure(work, target, peak, arguments.seconds)
        row["small_error_ratio"] = round(small, 4)
        if arguments.json:
            print(json.dumps(row))
        else:
            print(
                f"{row['workload']:<30} {row['share']:.0%} of {row['peak_gflops']} GFLOP/s, "
                f"{row['total_ms']} ms to compile, {row['spills']} spills, "
                f"{'correct' if row['correct'] else 'WRONG'} (error {row['error_ratio']} of the bound)"
            )


if __name__ == "__main__":
    main()
