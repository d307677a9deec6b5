"""Managed machines: DeepBench's GEMMs and GRU cells on the machine `clusters`, in simulated cycles.

    python benchmarks/mapping.py --json > results.jsonl
    python benchmarks/mapping.py --only /10
    python benchmarks/mapping.py --only products    # on this machine, beside onnxruntime: sign_pairs.py
    python benchmarks/mapping.py --only kernels     # the papers' kernels mapped: mapped_kernels.py
    python benchmarks/mapping.py --only layers      # networks on `gemmini`: accelerator_layers.py
    python benchmarks/mapping.py --only resnet50 --before ../before    # by another version: mapped_layers.py
    python benchmarks/mapping.py --only cells       # GRUs on this machine, beside others: gru_cells.py

One line a kernel: cycles, the fraction of the roofline (matrix units or high-bandwidth memory, whichever
allows less), the use of each, seconds of scheduling, and the cycles of a hand-scheduled baseline beside.
The last line: the peak of memory.

The baseline of a GEMM is a stream written by hand: rows divided among the clusters, blocks of 256 x 256
results, operands in two buffers, sizes padded to whole blocks. That of a GRU are operators one after
another, each from memory to memory: one product for the inputs of all steps, then in each step a product
and the element-wise operators.
"""

import json
import resource
import time
from typing import Any

import accelerator_layers
import gru_cells
import mapped_kernels
import mapped_layers
import sign_pairs
from arguments import parser_of

from tilewright import lang
from tilewright.ir import BF16, F32, Index, Param, Program, mod, var
from tilewright.mapping import system
from tilewright.mapping.system.stream import Box, Call, Item, Move, Region, Repeat, StreamTensor

SHAPES: tuple[tuple[int, int, int], ...] = (
    *((m, n, k) for m in (5124, 35) for k in (2048, 2560) for n in (700, 1500)),
    *((m, n, k) for m, k in ((7680, 2560), (3072, 1024)) for n in (1, 2, 4, 1500, 3000, 6000)),
    *((m, n, 500000) for m in (512, 1024) for n in (1, 2, 4)),
    (1024, 700, 512),
    *((m, n, k) for m, k in ((6144, 2048), (4608, 1536), (8448, 2816)) for n in (1, 2, 4, 1500, 3000, 6000)),
    *((m, n, k) for m in (512, 1024) for k in (2816, 2048, 2560, 1536) for n in (1500, 3000, 6000)),
    *((m, n, 512) for m in (512, 1024) for n in (1, 2, 4)),
)
"""DeepBench's M, N, K."""
CELLS = ((32, 512, 128), (32, 1024, 128), (32, 1536, 128))
"""Batch, hidden size, steps, after DeepBench's GRUs."""
SETTLED = (8, 16)
"""Steps that are timed one by one: each further one takes as long as these on average."""
TILE, BLOCK = 64, 4
"""Of the machine's matrix instruction, and tiles of the baseline's blocks."""


def gemm(M: int, N: int, K: int) -> Program:
    a, b = lang.placeholder((M, K), "bf16", name="A"), lang.placeholder((K, N), "bf16", name="B")
    return lang.program([a, b], [product(a, b, M, N, K, "C")], name="gemm")


def product(a: lang.Tensor, b: lang.Tensor, M: int, N: int, K: int, name: str) -> lang.Tensor:
    k = lang.reduce_axis(K, "k")
    return lang.compute(
        (M, N),
        lambda i, j: lang.sum(lang.cast(a[i, k], "f32") * lang.cast(b[k, j], "f32"), axis=k),
        name=name,
    )


def hand_written(M: int, N: int, K: int, machine: system.SystemGraph) -> system.StreamProgram:
    """The baseline of a GEMM."""
    side = TILE * BLOCK
    rows, columns, depth = (-(-x // y) for x, y in ((M, side), (N, side), (K, TILE)))
    narrow, wide = TILE * TILE * BF16.bytes, TILE * TILE * F32.bytes
    tensors = (
        StreamTensor("A", (Index(rows * side), Index(depth * TILE)), BF16),
        StreamTensor("B", (Index(depth * TILE), Index(columns * side)), BF16),
        StreamTensor("C", (Index(rows * side), Index(columns * side)), F32, output=True),
    )
    streams: dict[str, tuple[Item, ...]] = {}
    for n, name in enumerate(machine.streams):
        mine = len(range(n, rows, len(machine.streams)))
        i, j, k = var("i") * (side * len(machine.streams)) + n * side, var("j") * side, var("k")

        def tile(file: str, at: Index, dtype: Any, c: str = name) -> Region:
            return Region(f"{c}.{file}", at, (TILE, TILE), dtype)

        def fetch(step: Index, i: Index = i, j: Index = j, c: str = name, tile: Any = tile) -> list[Item]:
            out: list[Item] = []
            for t in range(BLOCK):
                at = mod(step, 2) * (BLOCK * narrow) + t * narrow
                a = Box("A", (i + t * TILE, step * TILE), (TILE, TILE), (0, 1))
                b = Box("B", (step * TILE, j + t * TILE), (TILE, TILE), (0, 1))
                out.append(Move(f"{c}.hbm_ra", a, tile("ra", at, BF16)))
                out.append(Move(f"{c}.hbm_rb", b, tile("rb", at, BF16)))
            return out

        def multiply(step: Index, instruction: str, c: str = name, tile: Any = tile) -> list[Item]:
            out: list[Item] = []
            for s in range(BLOCK):
                for t in range(BLOCK):
                    at = mod(step, 2) * (BLOCK * narrow)
                    sum_at = mod(var("j"), 2) * (BLOCK * BLOCK * wide) + (s * BLOCK + t) * wide
                    operands = (
                        ("A", tile("ra", at + s * narrow, BF16)),
                        ("B", tile("rb", at + t * narrow, BF16)),
                        ("C", tile("rc", sum_at, F32)),
                    )
                    sizes = (("m", TILE), ("n", TILE), ("k", TILE))
                    out.append(Call(f"{c}.mxu{t % 2}", instruction, sizes, operands))
            return out

        body = fetch(Index(0))
        if depth > 1:
            body += fetch(Index(1))
        body += multiply(Index(0), "matmul")
        if depth > 2:
            going_on = (*fetch(k + 1), *multiply(k, "matmul_add"))
            body.append(Repeat("k", Index(1), Index(depth - 1), going_on))
        if depth > 1:
            body += multiply(Index(depth - 1), "matmul_add")
        for s in range(BLOCK):
            for t in range(BLOCK):
                at = mod(var("j"), 2) * (BLOCK * BLOCK * wide) + (s * BLOCK + t) * wide
                c = Box("C", (i + s * TILE, j + t * TILE), (TILE, TILE), (0, 1))
                body.append(Move(f"{name}.rc_hbm", tile("rc", at, F32), c))
        if mine:
            inner = Repeat("j", Index(0), Index(columns), tuple(body))
            streams[name] = (Repeat("i", Index(0), Index(mine), (inner,)),)
    return system.StreamProgram(machine.name, machine.fingerprint, tensors, streams)


def gemm_row(M: int, N: int, K: int, machine: system.SystemGraph) -> dict[str, Any]:
    start = time.perf_counter()
    streams = system.schedule(gemm(M, N, K), machine)
    scheduled = time.perf_counter() - start
    timing = system.time_streams(streams, machine)
    baseline = system.time_streams(hand_written(M, N, K, machine), machine).cycles
    units = [u for u in machine.units if ".mxu" in u]
    compute = M * N * K / (len(units) * TILE * TILE)
    memory = (2 * (M * K + K * N) + 4 * M * N) / machine.channels["hbm"].bytes_per_cycle
    return {
        "kernel": f"gemm {M}x{N}x{K}",
        "cycles": timing.cycles,
        "bound": "compute" if compute > memory else "memory",
        "roofline": round(max(compute, memory) / timing.cycles, 3),
        "units": [round(timing.use(u), 3) for u in units],
        "bandwidth": round(sum(timing.bytes.values()) / timing.cycles / 1024, 3),
        "baseline": baseline,
        "against_baseline": round(baseline / timing.cycles, 3),
        "items": streams.size,
        "schedule_s": round(scheduled, 2),
    }


def gru(batch: int, hidden: int) -> tuple[Program, list[Program]]:
    """A step, and its operators one by one."""
    shape = batch, hidden
    x, h = lang.placeholder(shape, "bf16", name="x"), lang.placeholder(shape, "f32", name="h")
    W = {g: lang.placeholder((hidden, hidden), "bf16", name=f"W{g}") for g in "zrn"}
    U = {g: lang.placeholder((hidden, hidden), "bf16", name=f"U{g}") for g in "zrn"}
    b = {g: lang.placeholder((hidden,), "f32", name=f"b{g}") for g in "zrn"}
    narrow = lang.compute(shape, lambda i, j: lang.cast(h[i, j], "bf16"), name="state")
    xs = {g: product(x, W[g], batch, hidden, hidden, f"x{g}") for g in "zrn"}
    hs = {g: product(narrow, U[g], batch, hidden, hidden, f"h{g}") for g in "zrn"}

    def gate(g: str) -> lang.Tensor:
        return lang.compute(shape, lambda i, j: lang.sigmoid(xs[g][i, j] + hs[g][i, j] + b[g][j]), name=g)

    z, r = gate("z"), gate("r")
    n = lang.compute(
        shape, lambda i, j: lang.tanh(xs["n"][i, j] + r[i, j] * (hs["n"][i, j] + b["n"][j])), name="n"
    )
    new = lang.compute(shape, lambda i, j: n[i, j] + z[i, j] * (h[i, j] - n[i, j]), name="h2")
    step = lang.program([x, h, *W.values(), *U.values(), *b.values()], [new], name="gru")
    wide = batch, 3 * hidden
    p, q = lang.placeholder(wide, "f32", name="p"), lang.placeholder(wide, "f32", name="q")
    bias = lang.placeholder((3 * hidden,), "f32", name="bias")
    s, t = lang.placeholder(shape, "f32", name="s"), lang.placeholder(shape, "f32", name="t")
    operators = [
        lang.program([h], [lang.compute(shape, lambda i, j: lang.cast(h[i, j], "bf16"), name="o")]),
        gemm(batch, 3 * hidden, hidden),
        lang.program([q, bias], [lang.compute(wide, lambda i, j: q[i, j] + bias[j], name="o")]),
        lang.program(
            [p, q],
            [lang.compute((batch, 2 * hidden), lambda i, j: lang.sigmoid(p[i, j] + q[i, j]), name="o")],
        ),
        lang.program([s, t], [lang.compute(shape, lambda i, j: s[i, j] * t[i, j], name="o")]),
        lang.program([s, t], [lang.compute(shape, lambda i, j: lang.tanh(s[i, j] + t[i, j]), name="o")]),
        lang.program(
            [h, s, t], [lang.compute(shape, lambda i, j: s[i, j] + t[i, j] * (h[i, j] - s[i, j]), name="o")]
        ),
    ]
    return step, operators


def gru_row(batch: int, hidden: int, steps: int, machine: system.SystemGraph) -> dict[str, Any]:
    step, operators = gru(batch, hidden)
    start = time.perf_counter()
    recurrence = system.Recurrence(step, Param("T", 1, 4096), {"h2": "h"}, ("x",))
    streams = system.schedule_recurrence(recurrence, machine)
    scheduled = time.perf_counter() - start
    some, timing = (system.time_streams(streams, machine, {"T": n}) for n in SETTLED)
    settled = (timing.cycles - some.cycles) / (SETTLED[1] - SETTLED[0])
    total = round(timing.cycles + settled * (steps - SETTLED[1]))

    def cycles(program: Program) -> int:
        return system.time_streams(system.schedule(program, machine), machine).cycles

    each = sum(map(cycles, operators))
    baseline = cycles(gemm(batch * steps, 3 * hidden, hidden)) + steps * each
    return {
        "kernel": f"gru {batch}x{hidden}, {steps} steps",
        "cycles": total,
        "use": {n: round(timing.use(n), 3) for n in sorted(timing.busy) if n.startswith("c0")},
        "streams": len(streams.streams),
        "baseline": baseline,
        "against_baseline": round(baseline / total, 3),
        "items": streams.size,
        "schedule_s": round(scheduled, 2),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--json", action="store_true", help="a JSON document a line")
    parser.add_argument("--only", default="all", help="all, gemm, gru, a part above, or /N: every Nth GEMM")
    parser.add_argument("--before", help="of resnet50: a checkout of the other version")
    options = parser.parse_args()
    if options.only == "resnet50" and not options.before:
        parser.error("--only resnet50 compares with the checkout that --before names")
    parts = {
        "products": sign_pairs.rows,
        "kernels": mapped_kernels.rows,
        "layers": accelerator_layers.rows,
        "cells": gru_cells.rows,
        "resnet50": lambda: mapped_layers.rows(options.before),
    }
    if options.only in parts:
        for found in parts[options.only]():
            show(found, options.json)
        return
    machine = system.load_machine("clusters")
    shapes = SHAPES[:: int(options.only[1:])] if options.only.startswith("/") else SHAPES
    rows = []
    for shape in shapes if options.only != "gru" else ():
        rows.append(gemm_row(*shape, machine))
        show(rows[-1], options.json)
    for cell in CELLS if options.only in ("all", "gru") else ():
        rows.append(gru_row(*cell, machine))
        show(rows[-1], options.json)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    summary: dict[str, Any] = {
        "peak_mib": round(peak),
        "slowest_schedule_s": max(r["schedule_s"] for r in rows),
    }
    for bound in ("compute", "memory"):
        found = sorted(r["roofline"] for r in rows if r.get("bound") == bound)
        if found:
            summary[bound] = {"least": found[0], "median": found[len(found) // 2], "kernels": len(found)}
    show(summary, options.json)


def show(row: dict[str, Any], as_json: bool) -> None:
    text = json.dumps(row) if as_json else "  ".join(f"{k} {v}" for k, v in row.items())
    print(text, flush=True)


if __name__ == "__main__":
    main()
