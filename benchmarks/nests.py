"""Loop nests in C beside gcc: ``python benchmarks/nests.py [KIND ...] [--threads 1 2] [--scale 1 2]``.

The twelve kinds of ``nests.c`` and any ``FILE.c:NAME`` with sizes n and m, compiled here and by ``gcc -O3
-march=native``, on the same arrays, where they lie, in turns: the ratio is gcc's shortest time over ours,
both without what a call takes.
"""

import argparse
import ctypes
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tilewright.driver.nests import Nest, names_c
from tilewright.frontend.c import CNest, c_nest
from tilewright.runtime import aligned_copy
from tilewright.target import detect

SOURCE = Path(__file__).with_name("nests.c")
KINDS = (
    "local_rows", "triangle", "downwards", "scatter_gather", "csr", "min_max", "periodic", "histogram",
    "grey", "int_sums", "limited", "flat_steps",
)  # fmt: skip
CALL = "nothing"
SIZES = {"n": 500, "m": 400}
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC", "-w")
ROUNDS, SECONDS = 15, 0.02


def drawn(nest: Nest, source: CNest, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Arguments: real numbers around 1, indices within rows, rows of a sparse matrix of even lengths."""
    rng = np.random.default_rng(0)
    out = {}
    for b in nest.at(sizes).buffers:
        shape = tuple(e.as_int() for e in b.shape)
        if b.name == "first":
            out[b.name] = (np.arange(shape[0]) * sizes["m"] // 8).astype(np.int32)
        elif b.dtype.is_float:
            out[b.name] = np.asarray(rng.uniform(0.5, 1.5, shape)).astype(b.dtype.numpy)
        else:
            out[b.name] = rng.integers(0, min(sizes["n"], 127), shape).astype(b.dtype.numpy)
    return {name: aligned_copy(a) for name, a in out.items()}


def by_gcc(path: Path, source: CNest, folder: Path):
    """The function as gcc makes it, called on arrays in place; without the cost of a call from Python."""
    library = folder / f"{source.arguments.name}.so"
    subprocess.run(["gcc", *FLAGS, str(path), "-o", str(library), "-lm"], check=True)
    function = getattr(ctypes.CDLL(str(library)), source.arguments.name)

    def bound(arrays: dict[str, np.ndarray], sizes: dict[str, int]):
        given: list[object] = []
        for name in source.order:
            if name not in arrays:
                given.append(ctypes.c_int64(sizes[name]))
            elif arrays[name].shape:
                given.append(ctypes.c_void_p(arrays[name].ctypes.data))
            else:
                kind = ctypes.c_double if arrays[name].dtype == np.float64 else ctypes.c_float
                given.append(kind(float(arrays[name])))
        return lambda: function(*given)

    return bound


def shortest(call) -> float:
    """Seconds of the shortest run in some time."""
    best, begun = math.inf, time.perf_counter()
    while best == math.inf or time.perf_counter() - begun < SECONDS:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def compared(path: Path, name: str, sizes: dict[str, int], threads: int, folder: Path) -> dict[str, object]:
    """One nest: times of both, their ratio, and how ours came about."""
    source = c_nest(path, name)
    nest = Nest(source, detect(), threads, sizes=sizes)
    arrays = drawn(nest, source, sizes)
    kernel = nest.kernel({})
    ours = kernel.plan([arrays[b.name] for b in kernel.func.buffers])
    theirs = by_gcc(path, source, folder)(arrays, sizes)
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        times[0].append(shortest(theirs))
        times[1].append(shortest(lambda: ours.run([], [])))
    gcc, own = (min(each) for each in times)
    if name != CALL:
        # what Python needs for a call of either kind
        empty = compared(SOURCE, CALL, SIZES, threads, folder)
        gcc, own = gcc - empty["gcc_ms"] / 1e3, own - empty["ms"] / 1e3
    notes = nest.scheduled({}).notes
    return {
        "nest": name, "sizes": sizes, "threads": threads, "gcc_ms": gcc * 1e3, "ms": own * 1e3,
        "ratio": gcc / own, "notes": list(notes),
    }  # fmt: skip


def main() -> int:
    """Compare what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nests", nargs="*", default=KINDS)
    parser.add_argument("--threads", type=int, nargs="*", default=[1])
    parser.add_argument("--scale", type=int, nargs="*", default=[1], help="times as large in each dimension")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for threads in options.threads:
        for scale in options.scale:
            sizes = {name: scale * size for name, size in SIZES.items()}
            ratios = []
            with tempfile.TemporaryDirectory() as folder:
                for text in options.nests:
                    path, name = names_c(text) or (SOURCE, text)
                    row = compared(Path(path), name or text, sizes, threads, Path(folder))
                    ratios.append(row["ratio"])
                    told = f"{row['nest']:16} {threads} {scale}  gcc {row['gcc_ms']:9.3f} ms"
                    told += f"  here {row['ms']:9.3f} ms  {row['ratio']:5.2f}  {row['notes'][-1]}"
                    print(json.dumps(row) if options.json else told, flush=True)
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            if not options.json:
                print(f"geometric mean {mean:.2f}, least {min(ratios):.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
