"""Image pipelines side by side with Halide: applications of ``examples/pipelines``, in turns.

    pip install halide==21.0.0
    python benchmarks/pipelines.py --against halide --json
    python benchmarks/pipelines.py --against halide --beam 60s --json
    python benchmarks/pipelines.py harris unsharp --hand --size 384 640

Both compute the same from the same arrays; results are compared. Ours run under the default schedule, or that
written by hand; with ``--beam`` also under the beam search's, by its model alone (``one_shot``) and measured
within a budget (``beam``). Halide's run under each of its autoschedulers for CPUs, of which the fastest
counts; not all applications are written in it. A turn times every schedule once, after a pause in which
threads of the others go to sleep; what is printed is the least of all turns.
"""

import argparse
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.build import build
from tilewright.cost import Machine
from tilewright.driver import LocalMeasurer, seconds_of
from tilewright.plan import build_unit
from tilewright.runtime import aligned_copy
from tilewright.schedule import Schedule
from tilewright.strategies import Task, best_by_model, find_strategy
from tilewright.target import detect
from tilewright.tune import Budget, Database, tune_task

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "pipelines"))

import unsharp
from max_filter import RADIUS, half_height
from run import NAMES, application, scheduled

Array = npt.NDArray[Any]
AUTOSCHEDULERS = ("Mullapudi2016", "Adams2019", "Li2018")
#: Seconds between two runs: spinning threads of the one before have gone to sleep by then.
PAUSE = 0.05
#: Ratios of which the geometric means are printed.
AGAINST = ("ahead", "one_shot_ahead", "beam_ahead", "one_shot_gain_by_default", "beam_gain_by_default")


class Halide:
    """The pipelines in Halide; indices stand in its order, the innermost first."""

    def __init__(self, threads: int) -> None:
        os.environ["HL_NUM_THREADS"] = str(threads)
        # an optional peer, which reads the number of threads when it is loaded
        halide: Any = importlib.import_module("halide")

        self.hl = halide
        self.threads = threads
        folder = Path(halide.__file__).parent
        for name in AUTOSCHEDULERS:
            (found,) = folder.glob(f"lib*/libautoschedule_{name.lower()}.so")
            halide.load_plugin(str(found))

    def compiled(
        self, name: str, arrays: Mapping[str, Array], shape: tuple[int, ...], scheduler: str
    ) -> tuple[Callable[[], Array], float]:
        """A call that runs the pipeline, and the seconds that scheduling and compiling took."""
        hl = self.hl
        start = time.perf_counter()
        make: Callable[..., Any] = getattr(self, name)
        f = make(**{k: hl.Buffer(a) for k, a in arrays.items()}, shape=shape)
        f.set_estimates([hl.Range(0, n) for n in reversed(shape)])
        target = hl.get_host_target()
        pipeline = hl.Pipeline([f])
        parameters = {"parallelism": str(self.threads)}
        pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(scheduler, parameters))
        pipeline.compile_jit(target)
        out = np.empty(shape, _dtype(f))
        buffer = hl.Buffer(out)
        seconds = time.perf_counter() - start

        def call() -> Array:
            pipeline.realize(buffer)
            return out

        # some of Halide's schedules read outside of their inputs, which is seen when they run
        call()
        return call, seconds

    def _gray(self, image: Any) -> Any:
        hl = self.hl
        x, y = hl.Var("x"), hl.Var("y")
        gray = hl.Func("gray")
        gray[x, y] = (
            hl.f32(0.299) * image[x, y, 0] + hl.f32(0.587) * image[x, y, 1] + hl.f32(0.114) * image[x, y, 2]
        )
        return gray

    def harris(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y = hl.Var("x"), hl.Var("y")
        gray, ix, iy, out = self._gray(image), hl.Func("ix"), hl.Func("iy"), hl.Func("harris")

        def gradient(f: Callable[[int, int], Any]) -> Any:
            return (f(-1, 1) - f(-1, -1) + (f(0, 1) - f(0, -1)) * hl.f32(2) + f(1, 1) - f(1, -1)) * hl.f32(
                1 / 12
            )

        ix[x, y] = gradient(lambda a, b: gray[x + b, y + a])
        iy[x, y] = gradient(lambda a, b: gray[x + a, y + b])

        def summed(a: Any, b: Any) -> Any:
            product, total = hl.Func(), hl.Func()
            product[x, y] = a[x, y] * b[x, y]
            total[x, y] = sum(
                (product[x + dx, y + dy] for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (-1, -1)),
                product[x - 1, y - 1],
            )
            return total

        sxx, sxy, syy = summed(ix, ix), summed(ix, iy), summed(iy, iy)
        det = sxx[x + 2, y + 2] * syy[x + 2, y + 2] - sxy[x + 2, y + 2] * sxy[x + 2, y + 2]
        trace = sxx[x + 2, y + 2] + syy[x + 2, y + 2]
        out[x, y] = det - hl.f32(0.04) * trace * trace
        return out

    def unsharp(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
        gray = self._gray(hl.BoundaryConditions.repeat_edge(image))
        blur_y, blur_x, ratio, out = (hl.Func(n) for n in ("blur_y", "blur_x", "ratio", "unsharp"))
        k = [hl.f32(v) for v in unsharp.KERNEL]
        blur_y[x, y] = sum((k[d] * (gray[x, y - d] + gray[x, y + d]) for d in (1, 2, 3)), k[0] * gray[x, y])
        blur_x[x, y] = sum(
            (k[d] * (blur_y[x - d, y] + blur_y[x + d, y]) for d in (1, 2, 3)), k[0] * blur_y[x, y]
        )
        ratio[x, y] = (hl.f32(2) * gray[x, y] - blur_x[x, y]) / hl.max(gray[x, y], hl.f32(0.01))
        out[x, y, c] = ratio[x, y] * image[x, y, c]
        return out

    def stencil_chain(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y = hl.Var("x"), hl.Var("y")
        f = hl.BoundaryConditions.repeat_edge(image)
        for n in range(32):
            g = hl.Func(f"f{n + 1}")
            terms = [
                f[x + dx, y + dy] * hl.u16((dy + 3) * (dx + 3)) for dy in range(-2, 3) for dx in range(-2, 3)
            ]
            g[x, y] = sum(terms[1:], terms[0])
            f = g
        return f

    def max_filter(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
        powers = [hl.BoundaryConditions.repeat_edge(image)]
        while 2 ** len(powers) <= 2 * RADIUS + 1:
            f, below = hl.Func(), powers[-1]
            f[x, y, c] = hl.max(below[x, y, c], below[x, y + 2 ** (len(powers) - 1), c])
            powers.append(f)
        out, best = hl.Func("max_filter"), None
        for dx in range(-RADIUS, RADIUS + 1):
            t = half_height(dx, RADIUS)
            k = (2 * t + 1).bit_length() - 1
            column = hl.max(powers[k][x + dx, y - t, c], powers[k][x + dx, y + t + 1 - 2**k, c])
            best = column if best is None else hl.max(best, column)
        out[x, y, c] = best
        return out

    def nl_means(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y, c, dx, dy = (hl.Var(n) for n in ("x", "y", "c", "dx", "dy"))
        near = hl.BoundaryConditions.repeat_edge(image)
        different, rows, patch, weight, out = (
            hl.Func(n) for n in ("different", "rows", "patch", "weight", "out")
        )
        d = [near[x, y, k] - near[x + dx, y + dy, k] for k in range(3)]
        different[x, y, dx, dy] = d[0] * d[0] + d[1] * d[1] + d[2] * d[2]
        rows[x, y, dx, dy] = sum(
            (different[x, y + p, dx, dy] for p in range(-2, 4)), different[x, y - 3, dx, dy]
        )
        patch[x, y, dx, dy] = sum((rows[x + p, y, dx, dy] for p in range(-2, 4)), rows[x - 3, y, dx, dy])
        weight[x, y, dx, dy] = hl.exp(patch[x, y, dx, dy] * hl.f32(-1 / (0.12 * 0.12 * 49)))
        r = hl.RDom([(-3, 7), (-3, 7)])
        colour, total = hl.Func("colour"), hl.Func("total")
        colour[x, y, c] = hl.f32(0)
        colour[x, y, c] += weight[x, y, r.x, r.y] * near[x + r.x, y + r.y, c]
        total[x, y] = hl.f32(0)
        total[x, y] += weight[x, y, r.x, r.y]
        out[x, y, c] = hl.clamp(colour[x, y, c] / total[x, y], hl.f32(0), hl.f32(1))
        return out

    def iir_blur(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
        a = hl.f32(0.25)

        def down_and_up(f: Any, n: int) -> Any:
            g = hl.Func()
            g[x, y, c] = f[x, y, c]
            r = hl.RDom([(1, n - 1)])
            g[x, r.x, c] = (hl.f32(1) - a) * g[x, r.x - 1, c] + a * g[x, r.x, c]
            up = n - 1 - r.x
            g[x, up, c] = (hl.f32(1) - a) * g[x, up + 1, c] + a * g[x, up, c]
            turned = hl.Func()
            turned[x, y, c] = g[y, x, c]
            return turned

        return down_and_up(down_and_up(image, shape[1]), shape[2])

    def matmul(self, A: Any, B: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y = hl.Var("x"), hl.Var("y")
        k = hl.RDom([(0, A.width())])
        product, out = hl.Func("product"), hl.Func("matmul")
        product[x, y] = hl.f32(0)
        product[x, y] += A[k.x, y] * B[x, k.x]
        out[x, y] = product[x, y]
        return out

    def conv_layer(self, image: Any, weight: Any, bias: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y, c, n = (hl.Var(v) for v in "xycn")
        r = hl.RDom([(0, 3), (0, 3), (0, shape[1])])
        conv, out = hl.Func("conv"), hl.Func("conv_layer")
        conv[x, y, c, n] = bias[c]
        conv[x, y, c, n] += weight[r.x, r.y, r.z, c] * image[x + r.x, y + r.y, r.z, n]
        out[x, y, c, n] = hl.max(conv[x, y, c, n], hl.f32(0))
        return out


def _dtype(f: Any) -> str:
    t = f.types()[0] if hasattr(f, "types") else f.output_types()[0]
    return f"{'float' if t.is_float() else 'uint' if t.is_uint() else 'int'}{t.bits()}"


#: Pipelines written in both.
IN_HALIDE = (
    "harris", "unsharp", "stencil_chain", "max_filter", "nl_means", "iir_blur", "matmul", "conv_layer",
)  # fmt: skip


def prepared(schedule: Schedule, arrays: Mapping[str, Array], threads: int) -> Callable[[], Array]:
    """A call that runs a schedule on its own copies of the arrays."""
    kernel = build(schedule, threads=threads)
    func = kernel.func
    table = [
        aligned_copy(
            arrays[b.name] if b.name in arrays else np.zeros([n.as_int() for n in b.shape], b.dtype.numpy)
        )
        for b in func.buffers
    ]
    plan = kernel.plan(table)
    out = table[[b.name for b in func.buffers].index(func.outputs[0])]

    def call() -> Array:
        plan.run([], [])
        return out

    return call


def found_by_beam(task: Task, budget: str, trials: int, line: dict[str, Any]) -> dict[str, Schedule]:
    """The schedules of a beam search, by its model and measured; with the seconds that they took."""
    strategy = find_strategy("beam")
    assert strategy is not None
    start = time.perf_counter()
    out = {"one_shot": best_by_model(strategy, task, count=2).schedule}
    line["one_shot_s"] = time.perf_counter() - start
    start = time.perf_counter()
    with Database(":memory:") as records, LocalMeasurer() as measurer:
        limit = Budget(trials, time.monotonic() + seconds_of(budget))
        done = tune_task(task, task.program.name, strategy, measurer, records, limit)
    line |= {"beam_s": time.perf_counter() - start, "beam_trials": done.trials, "beam_gain": done.gain}
    if done.plan is not None:
        out["beam"] = build_unit(task.program, done.plan, task.machine)
    return out


def measure(
    name: str,
    size: tuple[int, int],
    hand: bool,
    turns: int,
    halide: Halide | None,
    budget: str | None = None,
    trials: int = 64,
) -> dict[str, Any]:
    """One pipeline: milliseconds of each schedule, seconds of scheduling, and how results differ."""
    app = application(name)
    arrays = app.inputs(*size)
    threads = len(os.sched_getaffinity(0))
    program = app.program(*size)
    start = time.perf_counter()
    ours = prepared(scheduled(app, program, hand, threads), arrays, threads)
    line: dict[str, Any] = {"pipeline": name, "size": list(size), "build_s": time.perf_counter() - start}
    mine = {"tilewright": ours}
    out = ours()
    if budget is not None:
        task = Task(program, Machine(detect(), threads))
        for kind, schedule in found_by_beam(task, budget, trials, line).items():
            mine[kind] = prepared(schedule, arrays, threads)
            if fault := app.check(mine[kind](), out):
                line[f"{kind}_fault"] = fault
    calls = dict(mine)
    for scheduler in AUTOSCHEDULERS if halide is not None and name in IN_HALIDE else ():
        assert halide is not None
        try:
            calls[scheduler], line[f"{scheduler}_build_s"] = halide.compiled(
                name, arrays, out.shape, scheduler
            )
        except halide.hl.HalideError as error:
            line[f"{scheduler}_error"] = str(error).strip().splitlines()[-1][:200]
    times: dict[str, list[float]] = {k: [] for k in calls}
    for _ in range(turns):
        for k, call in calls.items():
            time.sleep(PAUSE)
            call()
            start = time.perf_counter()
            call()
            times[k].append(time.perf_counter() - start)
    for k, call in calls.items():
        line[f"{k}_ms"] = 1e3 * min(times[k])
        if k not in mine:
            difference = np.abs(call().astype(np.float64) - ours()).max() / max(np.abs(out).max(), 1e-30)
            line[f"{k}_difference"] = float(difference)
    # the default is a candidate of the search: where nothing beats it, it stays
    least = {k: line[f"{k}_ms"] for k in mine} | {"beam": line.get("beam_ms", line["tilewright_ms"])}
    for kind in ("one_shot", "beam") if budget is not None else ():
        line[f"{kind}_gain_by_default"] = line["tilewright_ms"] / least[kind]
    others = [line[f"{k}_ms"] for k in calls if k not in mine]
    if others:
        line["ahead"] = min(others) / line["tilewright_ms"]
        for kind in ("one_shot", "beam") if budget is not None else ():
            line[f"{kind}_ahead"] = min(others) / least[kind]
    line["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--beam", metavar="BUDGET", help="also the beam search's, measured so long: 60s, 5m")
    parser.add_argument("--trials", type=int, default=64, help="candidates of it that are measured, at most")
    parser.add_argument("--against", choices=["halide"])
    parser.add_argument(
        "--hand", action="store_true", help="our schedules written by hand, where there are some"
    )
    parser.add_argument("--size", nargs=2, type=int, metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="one JSON line a pipeline")
    options = parser.parse_args()
    halide = Halide(len(os.sched_getaffinity(0))) if options.against else None
    gains: dict[str, list[float]] = {}
    for name in options.names or (IN_HALIDE if options.beam is None else NAMES):
        size = tuple(options.size) if options.size else application(name).large
        line = measure(name, size, options.hand, options.turns, halide, options.beam, options.trials)
        for key in AGAINST:
            gains.setdefault(key, []).extend([line[key]] if key in line else [])
        shown = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in line.items()}
        print(
            json.dumps(shown) if options.json else "  ".join(f"{k} {v}" for k, v in shown.items()), flush=True
        )
    for key, values in gains.items():
        if values:
            mean = prod(values) ** (1 / len(values))
            print(json.dumps({f"geomean_{key}": round(mean, 3), "pipelines": len(values)}), flush=True)


if __name__ == "__main__":
    main()
