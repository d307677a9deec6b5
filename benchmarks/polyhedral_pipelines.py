"""Image pipelines beside C and Halide, in pieces: what ``polyhedral.py`` runs of applications.

    python benchmarks/polyhedral_pipelines.py interpolate Adams2019 --size 1536 2560

runs one piece, which is what :func:`pipelines` starts in a child with a limit: an application under the
default plan and under one peer, in turns. The peer is ``C``, then also under the strategy's plan by its model
alone and that by hand, or one of Halide's autoschedulers, some of which do not end, or end the process.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from polyhedral_nests import GCC, Array, Call, interleaved, peer

from pipelines import AUTOSCHEDULERS, IN_HALIDE, Halide
from tilewright.build import build
from tilewright.codegen import ALL_CALLS, emit_c
from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.lower import lower
from tilewright.plan import plan_unit
from tilewright.runtime import aligned_copy
from tilewright.schedule import Schedule
from tilewright.strategies import Task, best_by_model, find_strategy
from tilewright.target import detect

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "pipelines"))

from run import application

PIPELINES = ("harris", "unsharp", "bilateral_grid", "camera_pipe", "interpolate", "local_laplacian")
C = "C"


def pieces(name: str) -> tuple[str, ...]:
    """The peers of an application, one a piece."""
    written = name in IN_HALIDE and find_spec("halide") is not None
    return (C, *AUTOSCHEDULERS) if written else (C,)


def pipelines(
    names: list[str],
    size: tuple[int, int] | None,
    threads: int,
    turns: int,
    limit: float,
    ended: float,
    known: Mapping[str, dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """A row for each piece, in a child that is ended after ``ended`` seconds, and one for an application.

    ``ratio`` is naive C's time over the default plan's beside it, ``halide_ratio`` that of the fastest
    autoscheduler; a piece that does not end has an ``error``. Pieces that are ``known`` by name are not run.
    """
    for name in names or PIPELINES:
        row: dict[str, Any] = {"part": "pipelines", "name": name}
        for at in pieces(name):
            piece = known.get(f"{name} {at}") or _in_child(name, at, size, threads, turns, limit, ended)
            if piece["name"] not in known:
                yield piece
            if "error" in piece:
                row[f"{at}_error"] = piece["error"]
                continue
            row["size"] = piece["size"]
            row |= {k: piece[k] for k in ("polyhedral", "hand", "fault") if k in piece}
            row[at] = piece[at]
            # of several pieces the default of the fastest
            row["default"] = min(piece["default"], row.get("default", piece["default"]))
            ratio = "ratio" if at == C else "halide_ratio"
            row[ratio] = min(piece[at] / piece["default"], row.get(ratio, np.inf))
        yield row


def _in_child(
    name: str, at: str, size: tuple[int, int] | None, threads: int, turns: int, limit: float, ended: float
) -> dict[str, Any]:
    row: dict[str, Any] = {"part": "pieces", "name": f"{name} {at}"}
    command = [sys.executable, __file__, name, at, "--threads", str(threads), "--turns", str(turns)]
    command += ["--limit", str(limit), *(("--size", *map(str, size)) if size else ())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ended)
    except subprocess.TimeoutExpired:
        return row | {"error": f"not within {ended:.0f} s"}
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return row | {"error": (said[-1] if said else f"ended by signal {-done.returncode}")[:200]}
    return row | json.loads(done.stdout.splitlines()[-1])


def piece(
    name: str, at: str, size: tuple[int, int] | None, threads: int, turns: int, limit: float
) -> dict[str, Any]:
    """Milliseconds of an application under the default plan and under one peer, in turns."""
    app = application(name)
    shape = size or app.large
    program, arrays = app.program(*shape), app.inputs(*shape)
    machine = Machine(detect(), threads)
    made = {"default": _prepared(plan_unit(program, machine).schedule, arrays, threads)}
    with tempfile.TemporaryDirectory() as folder:
        if at == C:
            strategy = find_strategy("polyhedral")
            assert strategy is not None
            found = best_by_model(strategy, Task(program, machine), count=2).schedule
            made |= {"polyhedral": _prepared(found, arrays, threads)}
            if app.schedule is not None:
                made |= {"hand": _prepared(app.schedule(program), arrays, threads)}
            by_gcc = _by_gcc(program, arrays, Path(folder))
            made |= {C: by_gcc} if by_gcc is not None else {}
        else:
            out = made["default"][1]
            call, _ = Halide(threads).compiled(name, arrays, out.shape, at)
            made[at] = call, call()
        calls: dict[str, tuple[Call, Call]] = {}
        for kind, (call, _) in made.items():
            call()
            calls[kind] = (lambda: None, call)
        times = interleaved(calls, turns, limit)
    row: dict[str, Any] = {"size": list(shape), **{k: v * 1e3 for k, v in times.items()}}
    for kind, (_, result) in made.items():
        row |= {"fault": f"{kind}: {fault}"} if (fault := app.check(result, made["default"][1])) else {}
    return row


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

    def call() -> None:
        library.pipeline(*(ctypes.c_void_p(a.ctypes.data) for a in table))

    return call, table[[b.name for b in func.buffers].index(func.outputs[0])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PIPELINES)
    parser.add_argument("peer", choices=[C, *AUTOSCHEDULERS])
    parser.add_argument("--size", nargs=2, type=int, metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for the turns")
    options = parser.parse_args()
    size = tuple(options.size) if options.size else None
    print(json.dumps(piece(options.name, options.peer, size, options.threads, options.turns, options.limit)))


if __name__ == "__main__":
    main()
