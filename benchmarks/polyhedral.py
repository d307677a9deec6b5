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
strategy's by its model alone, that written by hand where there is one, as C, stage by stage, by gcc on one
thread, and in Halide (``pip install halide==21.0.0``) under each of its autoschedulers, each peer in a child
that is ended after ``--ended`` seconds. ``compile``: seconds from a program to code for chains of stencils
and a pyramid, beside isl's schedulers. ``variants``: products whose loops are written in other orders.
``equake``: loops around a sparse product, which gcc compiles for both. Times are the least of all turns, in
milliseconds; on a shared machine run it under ``chrt -f 10``.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from polyhedral_equake import equake
from polyhedral_nests import KERNELS, nests, originals, variants
from polyhedral_pipelines import PIPELINES, pipelines

from tilewright import lang
from tilewright.build import build
from tilewright.cost import Machine
from tilewright.ir import Program, to_function
from tilewright.plan import plan_unit
from tilewright.poly import Dependences, compose, conservative_fusion, extract_model, fuse, isl_schedule
from tilewright.support import ResourceError
from tilewright.target import detect


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
    parser.add_argument("--ended", type=float, default=60.0, help="seconds for each peer of a pipeline")
    parser.add_argument("--store", type=Path, metavar="FILE", help="rows go there; known ones are not run")
    parser.add_argument("--json", action="store_true", help="one JSON line a row")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    size = tuple(options.size) if options.size else None
    known: list[dict[str, Any]] = []
    if options.store is not None and options.store.exists():
        known = [json.loads(line) for line in options.store.read_text().splitlines()]
    pieces = {row["name"]: row for row in known if row["part"] == "pieces"}
    parts = {
        "nests": lambda: nests(options.names, options.threads, options.turns, options.limit),
        "pipelines": lambda: pipelines(
            options.names, size, options.threads, options.turns, options.limit, options.ended, pieces
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
