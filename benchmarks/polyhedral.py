"""Loop nests and pipelines of the polyhedral strategy beside other compilers, in turns.

    python benchmarks/polyhedral.py --json                           every part
    python benchmarks/polyhedral.py --part nests gemm 2mm lu --json
    python benchmarks/polyhedral.py --part pipelines harris --size 1536 2560
    python benchmarks/polyhedral.py --part nests --store rows.jsonl   (again, where it was ended)
    python benchmarks/polyhedral.py --part compile
    python benchmarks/polyhedral.py --part variants | equake
    python benchmarks/polyhedral.py --polybench FOLDER --json        PolyBench/C's own files, unchanged

``nests``: PolyBench's structures, written from their mathematics, at its LARGE sizes in f64: ours, the same
nests as C by ``gcc -O3`` and by ``clang -O3`` with Polly, where these are there (Debian: ``clang`` and
``libpolly-14-dev``). Polly's own matrix products are off, since with threads their results are wrong.
``ratio`` is the time of the faster of these over ours. Arrays are restored before each run, which is not
timed; results are compared. ``pipelines``: the six applications of PolyMage, under the default plan, the
strategy's by its model alone, as C, stage by stage, by gcc on one thread, and in Halide (``pip install
halide==21.0.0``; all but the camera pipeline) under each of its autoschedulers. ``compile``: seconds from a
program to code for chains of stencils and a pyramid, beside isl's schedulers. ``variants``: products whose
loops are written in other orders. ``equake``: loops around a sparse product, which gcc compiles for both.
Times are the least of all turns, in milliseconds; on a shared machine
run it under ``chrt -f 10``.
"""

import argparse
import ctypes
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from polyhedral_equake import equake
from polyhedral_nests import GCC, KERNELS, Array, Call, interleaved, nests, originals, peer, variants

from pipelines import AUTOSCHEDULERS, IN_HALIDE, Halide, failing
from tilewright import lang
from tilewright.build import build
from tilewright.codegen import ALL_CALLS, emit_c
from tilewright.cost import Machine
from tilewright.ir import Program, to_function
from tilewright.lower import lower
from tilewright.plan import plan_unit
from tilewright.poly import Dependences, compose, conservative_fusion, extract_model, fuse, isl_schedule
from tilewright.runtime import aligned_copy
from tilewright.schedule import Schedule
from tilewright.strategies import Task, best_by_model, find_strategy
from tilewright.support import ResourceError
from tilewright.target import detect

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "pipelines"))

from run import application

PIPELINES = ("harris", "unsharp", "bilateral_grid", "camera_pipe", "interpolate", "local_laplacian")


def _prepared(schedule: Schedule, arrays: dict[str, Array], threads: int) -> tuple[Call, Array]:
    """A call that runs a schedule on its own copies of arrays, and where the result lies."""
    kernel = build(schedule, threads=threads)
    table = [
        aligned_copy(arrays.get(b.name, np.zeros([n.as_int() for n in b.shape], b.dtype.numpy)))
        for b in kernel.func.buffers
    ]
    plan = kernel.plan(table)
    return lambda: plan.run([], []), table[
        [b.name for b in kernel.func.buffers].index(kernel.func.outputs[0])
    ]


def _by_gcc(program: Program, arrays: dict[str, Array], folder: Path) -> tuple[Call, Array] | None:
    """A program's stages one after another on one thread by gcc, and where the result lies."""
    func = Schedule(program).func
    path = folder / "pipeline.c"
    path.write_text(emit_c(replace(lower(func, native=ALL_CALLS, one_by_one=True), name="pipeline")).text)
    library = peer(GCC, path)
    if library is None:
        return None
    table = [
        aligned_copy(arrays.get(b.name, np.zeros([n.as_int() for n in b.shape], b.dtype.numpy)))
        for b in func.buffers
    ]
    at = [ctypes.c_void_p(a.ctypes.data) for a in table]
    return lambda: library.pipeline(*at), table[[b.name for b in func.buffers].index(func.outputs[0])]


def pipelines(
    names: list[str], size: tuple[int, int] | None, threads: int, turns: int, limit: float, ended: float
) -> Iterator[dict[str, Any]]:
    """A row of times for each application: default, the strategy's, naive C, and Halide's autoschedulers.

    ``ratio`` is naive C's time over ours, ``halide_ratio`` that of the fastest autoscheduler. One that fails,
    or does not end within ``ended`` seconds in a child, has no time; the row says so.
    """
    target = detect()
    halide = Halide(threads) if find_spec("halide") is not None else None
    strategy = find_strategy("polyhedral")
    assert strategy is not None
    for name in names or PIPELINES:
        app = application(name)
        shape = size or app.large
        program, arrays = app.program(*shape), app.inputs(*shape)
        found = best_by_model(strategy, Task(program, Machine(target, threads)), count=2).schedule
        calls: dict[str, tuple[Call, Call]] = {}
        results: dict[str, Array] = {}
        with tempfile.TemporaryDirectory() as folder:
            made = {
                "default": _prepared(plan_unit(program, Machine(target, threads)).schedule, arrays, threads),
                "polyhedral": _prepared(found, arrays, threads),
                "gcc": _by_gcc(program, arrays, Path(folder)),
            }
            row: dict[str, Any] = {"part": "pipelines", "name": name, "size": list(shape)}
            for scheduler in AUTOSCHEDULERS if halide is not None and name in IN_HALIDE else ():
                assert halide is not None
                if fault := failing(name, shape, scheduler, ended):
                    row[f"{scheduler}_error"] = fault
                    continue
                call, _ = halide.compiled(name, arrays, results_shape(program), scheduler)
                made[scheduler] = call, call()
            for kind, pair in made.items():
                if pair is not None:
                    pair[0]()
                    calls[kind], results[kind] = (lambda: None, pair[0]), pair[1]
            times = interleaved(calls, turns, limit)
        row |= {k: v * 1e3 for k, v in times.items()}
        for kind, a in results.items():
            row |= {"fault": f"{kind}: {fault}"} if (fault := app.check(a, results["default"])) else {}
        if "gcc" in times:
            row["ratio"] = times["gcc"] / times["default"]
        others = [times[k] for k in AUTOSCHEDULERS if k in times]
        if others:
            row["halide_ratio"] = min(others) / times["default"]
        yield row


def results_shape(program: Program) -> tuple[int, ...]:
    """The shape of a program's first result."""
    shapes = {b.name: b.shape for b in to_function(program).buffers}
    return tuple(n.as_int() for n in shapes[to_function(program).outputs[0]])


def _chain(stages: int) -> Program:
    """Means of 3x3 elements, one of the other."""
    image = f = lang.placeholder((1024 + 2 * stages, 1024 + 2 * stages), name="image")
    for n in range(stages):
        side = 1024 + 2 * (stages - 1 - n)

        def mean(y: Any, x: Any, g: Any = f) -> Any:
            return sum((g[y + n // 3, x + n % 3] for n in range(1, 9)), g[y, x]) * (1 / 9)

        f = lang.compute((side, side), mean, name=f"s{n}")
    return lang.program([image], [f])


def _pyramid(levels: int) -> Program:
    """Down by two along each axis, level by level, and up again, adding what was there: 5 stages a level."""
    side = 2048
    image = f = lang.placeholder((side, side), name="image")
    kept = [f]
    for n in range(levels):
        side //= 2
        g = lang.compute((2 * side, side), lambda y, x, f=f: f[y, 2 * x] + f[y, 2 * x + 1], name=f"dx{n}")
        f = lang.compute((side, side), lambda y, x, g=g: (g[2 * y, x] + g[2 * y + 1, x]) / 4, name=f"dy{n}")
        kept.append(f)
    for n in reversed(range(levels)):
        old = kept[n]
        g = lang.compute((2 * side, side), lambda y, x, f=f: f[y // 2, x], name=f"uy{n}")
        side *= 2
        h = lang.compute((side, side), lambda y, x, g=g: g[y, x // 2], name=f"ux{n}")
        f = lang.compute((side, side), lambda y, x, h=h, old=old: (h[y, x] + old[y, x]) / 2, name=f"m{n}")
    scaled = lang.compute((side, side), lambda y, x: f[y, x] * 2, name="scaled")
    return lang.program([image], [lang.compute((side, side), lambda y, x: scaled[y, x] - 1, name="out")])


def compiling(threads: int, limit: float) -> Iterator[dict[str, Any]]:
    """Seconds from pipelines to code, by their number of stages; and those of isl's schedulers.

    ``sets``: Algorithms 1 to 3 on exact sets, in tiles of 32x256. An entry is ``null`` where isl was ended
    after ``limit`` seconds.
    """
    programs = {f"chain {n}": _chain(n) for n in (4, 12, 30, 100)} | {"pyramid 47": _pyramid(9)}
    for name, program in programs.items():
        row: dict[str, Any] = {"part": "compile", "name": name, "stages": len(program.stages)}
        begin = time.perf_counter()
        schedule = plan_unit(program, Machine(detect(), threads)).schedule
        row["plan"] = time.perf_counter() - begin
        build(schedule, threads=threads)
        row["all"] = time.perf_counter() - begin
        dependences = Dependences(extract_model(to_function(program)))
        begin = time.perf_counter()
        fuse(dependences.model, compose(dependences, conservative_fusion(dependences), (32, 256)))
        row["sets"] = time.perf_counter() - begin
        for fusion in ("min", "smart", "max"):
            begin = time.perf_counter()
            try:
                isl_schedule(dependences, fusion, operations=1 << 60, seconds=max(1, int(limit)))
                row[fusion] = time.perf_counter() - begin
            except ResourceError:
                row[fusion] = None
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="kernels or applications of one part")
    parser.add_argument("--part", choices=["nests", "pipelines", "compile", "equake", "variants"])
    parser.add_argument("--polybench", type=Path, metavar="FOLDER", help="of PolyBench/C: run its files")
    parser.add_argument("--dataset", default="large", help="of --polybench: mini, small, medium, large ...")
    parser.add_argument("--size", nargs=2, type=int, metavar=("HEIGHT", "WIDTH"), help="of pipelines")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for the turns of one row")
    parser.add_argument("--ended", type=float, default=60.0, help="seconds for each of Halide's schedulers")
    parser.add_argument("--store", type=Path, metavar="FILE", help="rows go there; known ones are not run")
    parser.add_argument("--json", action="store_true", help="one JSON line a row")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    size = tuple(options.size) if options.size else None
    parts = {
        "nests": lambda: nests(options.names, options.threads, options.turns, options.limit),
        "pipelines": lambda: pipelines(
            options.names, size, options.threads, options.turns, options.limit, options.ended
        ),
        "compile": lambda: compiling(options.threads, options.limit),
        "equake": lambda: equake(options.threads, options.turns, options.limit),
        "variants": lambda: variants(options.threads, options.turns, options.limit),
    }
    if options.polybench:
        parts = {
            "polybench": lambda: originals(
                options.polybench,
                options.dataset,
                options.names,
                options.threads,
                options.turns,
                options.limit,
            )
        }
    ratios: dict[str, list[float]] = {}
    known: list[dict[str, Any]] = []
    if options.store is not None and options.store.exists():
        known = [json.loads(line) for line in options.store.read_text().splitlines()]
    every = {"nests": list(KERNELS), "pipelines": list(PIPELINES)}
    for part in [options.part] if options.part and not options.polybench else parts:
        there = {row["name"]: row for row in known if row["part"] == part}
        if part in every and options.store is not None:
            # one kernel after another, so that a run that is ended can be taken up again
            ratios[part] = [row["ratio"] for row in there.values() if "ratio" in row]
            options.names = [n for n in options.names or every[part] if n not in there]
            if not options.names:
                continue
        for row in parts[part]():
            shown = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
            text = json.dumps(shown) if options.json else "  ".join(f"{k} {v}" for k, v in shown.items())
            print(text, flush=True)
            if options.store is not None:
                with options.store.open("a") as file:
                    file.write(json.dumps(shown) + "\n")
            if "ratio" in row:
                ratios.setdefault(part, []).append(row["ratio"])
    for part, values in ratios.items():
        mean = prod(values) ** (1 / len(values))
        print(json.dumps({"part": part, "geomean_ratio": round(mean, 3), "of": len(values)}), flush=True)


if __name__ == "__main__":
    main()
