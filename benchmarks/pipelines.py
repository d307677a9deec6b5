"""Image pipelines side by side with Halide: applications of ``examples/pipelines``, in turns.

    pip install halide==21.0.0
    python benchmarks/pipelines.py --against halide --json
    python benchmarks/pipelines.py --against halide --beam 60s --json
    python benchmarks/pipelines.py harris unsharp --hand --size 384 640
    python benchmarks/pipelines.py --against halide --store rows.jsonl      (again, where it was ended)

Both compute the same from the same arrays; results are compared. Ours run under the default schedule, or that
written by hand; with ``--beam`` also under the beam search's, by its model alone (``one_shot``) and measured
within a budget (``beam``). Halide's run under each of its autoschedulers for CPUs, of which the fastest
counts; not all applications are written in it. Some schedulers do not end, or take all memory: each is tried
in a child first, and left out where that has not ended within ``--limit`` seconds. A turn times every
schedule once, after a pause in which threads of the others go to sleep; what is printed is the least of all
turns.
"""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import ir, lang
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

from halide_camera import camera_pipeline

import bilateral_grid
import interpolate
import local_laplacian
import stencil_chain
import unsharp
from application import Application
from max_filter import RADIUS, half_height
from pyramids import levels_for
from run import NAMES, application as example, scheduled

Array = npt.NDArray[Any]
AUTOSCHEDULERS = ("Mullapudi2016", "Adams2019", "Li2018")
#: Seconds between two runs: spinning threads of the one before have gone to sleep by then.
PAUSE = 0.05
#: Seconds that scheduling and compiling may take in Halide.
LIMIT = 90.0
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
        out = np.empty(shape, dtype_of(f))
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
        return self._chain(image, stencil_chain.STAGES)

    def _chain(self, image: Any, stages: int) -> Any:
        hl = self.hl
        x, y = hl.Var("x"), hl.Var("y")
        f = hl.BoundaryConditions.repeat_edge(image)
        for n in range(stages):
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

    def bilateral_grid(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y, z, k = (hl.Var(v) for v in "xyzk")
        cell, bins = bilateral_grid.CELL, bilateral_grid.BINS
        near = hl.BoundaryConditions.repeat_edge(image)
        grid, sliced, out = hl.Func("grid"), hl.Func("sliced"), hl.Func("out")
        r = hl.RDom([(0, cell), (0, cell)])
        value = near[x * cell + r.x - cell // 2, y * cell + r.y - cell // 2]
        at = hl.clamp(hl.i32(value * hl.f32(bins) + hl.f32(0.5)), 0, bins)
        grid[x, y, z, k] = hl.f32(0)
        grid[x, y, at, k] += hl.select(k == 0, value, hl.f32(1))

        def blurred(f: Any, along: int) -> Any:
            g = hl.Func()
            terms = []
            for d, c in bilateral_grid.TAPS:
                place = [x, y, z, k]
                place[along] = place[along] + d
                terms.append(f[tuple(place)] * hl.f32(c))
            g[x, y, z, k] = sum(terms[1:], terms[0])
            return g

        blurred_y = blurred(blurred(blurred(grid, 2), 0), 1)
        level = image[x, y] * hl.f32(bins)
        zi = hl.clamp(hl.i32(level), 0, bins)
        zf = level - hl.f32(zi)
        xf, yf = (hl.f32(v % cell) * hl.f32(1 / cell) for v in (x, y))

        def plane(a: int) -> Any:
            c = [[blurred_y[x // cell + i, y // cell + j, zi + a, k] for i in (0, 1)] for j in (0, 1)]
            return hl.lerp(hl.lerp(*c[0], xf), hl.lerp(*c[1], xf), yf)

        sliced[x, y, k] = hl.lerp(plane(0), plane(1), zf)
        out[x, y] = sliced[x, y, 0] / sliced[x, y, 1]
        return out

    def histogram_equalization(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y, c, b = (hl.Var(v) for v in "xycb")
        h, w = shape[1:]
        red, green, blue = (hl.i32(image[x, y, n]) for n in range(3))
        luma, cb, cr, count, upto, equal, out = (
            hl.Func(n) for n in ("luma", "cb", "cr", "count", "upto", "equal", "out")
        )
        luma[x, y] = hl.u8((77 * red + 150 * green + 29 * blue + 128) >> 8)
        cb[x, y] = (-43 * red - 85 * green + 128 * blue + 128) >> 8
        cr[x, y] = (128 * red - 107 * green - 21 * blue + 128) >> 8
        r, s = hl.RDom([(0, w), (0, h)]), hl.RDom([(1, 255)])
        count[b] = 0
        count[hl.i32(luma[r.x, r.y])] += 1
        upto[b] = count[b]
        upto[s.x] = upto[s.x - 1] + count[s.x]
        equal[x, y] = upto[hl.i32(luma[x, y])] * 255 // (h * w)
        v, p, q = equal[x, y], cb[x, y], cr[x, y]
        mixed = hl.mux(c, [v + (359 * q >> 8), v - ((88 * p + 183 * q) >> 8), v + (454 * p >> 8)])
        out[x, y, c] = hl.u8(hl.clamp(mixed, 0, 255))
        return out

    def interpolate(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
        near = hl.BoundaryConditions.repeat_edge(image)
        known, out = hl.Func("known"), hl.Func("out")
        alpha = near[x, y, 3]
        known[x, y, c] = hl.select(c < 3, near[x, y, hl.min(c, 2)] * alpha, alpha)
        down = [known]
        for _ in range(1, interpolate.LEVELS):
            across, below, f = hl.Func(), hl.Func(), down[-1]
            across[x, y, c] = (f[2 * x - 1, y, c] + hl.f32(2) * f[2 * x, y, c] + f[2 * x + 1, y, c]) * hl.f32(
                0.25
            )
            below[x, y, c] = (
                across[x, 2 * y - 1, c] + hl.f32(2) * across[x, 2 * y, c] + across[x, 2 * y + 1, c]
            ) * hl.f32(0.25)
            down.append(below)
        filled = down[-1]
        for f in reversed(down[:-1]):
            wider, up, new = hl.Func(), hl.Func(), hl.Func()
            wider[x, y, c] = (filled[x // 2, y, c] + filled[(x + 1) // 2, y, c]) * hl.f32(0.5)
            up[x, y, c] = (wider[x, y // 2, c] + wider[x, (y + 1) // 2, c]) * hl.f32(0.5)
            new[x, y, c] = f[x, y, c] + (hl.f32(1) - f[x, y, 3]) * up[x, y, c]
            filled = new
        out[x, y, c] = filled[x, y, c] / filled[x, y, 3]
        return out

    def depthwise_separable(
        self, image: Any, depthwise: Any, pointwise: Any, bias: Any, shape: tuple[int, ...]
    ) -> Any:
        hl = self.hl
        x, y, c, n = (hl.Var(v) for v in "xycn")
        near = hl.BoundaryConditions.constant_exterior(image, hl.f32(0))
        own, joined, out = hl.Func("own"), hl.Func("joined"), hl.Func("out")
        r, s = hl.RDom([(0, 3), (0, 3)]), hl.RDom([(0, image.dim(2).extent())])
        own[x, y, c, n] = hl.f32(0)
        own[x, y, c, n] += near[x + r.x - 1, y + r.y - 1, c, n] * depthwise[r.x, r.y, c]
        joined[x, y, c, n] = hl.f32(0)
        joined[x, y, c, n] += own[x, y, s.x, n] * pointwise[s.x, c]
        out[x, y, c, n] = hl.max(joined[x, y, c, n] + bias[c], hl.f32(0))
        return out

    def local_laplacian(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y, c, k, i = (hl.Var(v) for v in "xycki")
        tones, steps = local_laplacian.TONES, local_laplacian.STEPS
        levels = levels_for(shape[1], shape[2], local_laplacian.LEVELS)
        gray = self._gray(hl.BoundaryConditions.repeat_edge(image))
        remap, first, colour = hl.Func("remap"), hl.Func("tones0"), hl.Func("local_laplacian")
        t = hl.f32(i) / hl.f32(steps)
        remap[i] = hl.f32(local_laplacian.ALPHA) * t * hl.exp(hl.f32(-0.5) * t * t)
        step = hl.clamp(hl.i32(gray[x, y] * hl.f32((tones - 1) * steps)), 0, (tones - 1) * steps)
        tone = hl.f32(k) * hl.f32(1 / (tones - 1))
        beta = hl.f32(local_laplacian.BETA)
        first[x, y, k] = beta * (gray[x, y] - tone) + tone + remap[step - steps * k]

        def along_x(f: Any, taps: Any, more: tuple[Any, ...]) -> Any:
            g = hl.Func()
            g[(x, y, *more)] = taps(lambda j: f[(j, y, *more)], x)
            return g

        def along_y(f: Any, taps: Any, more: tuple[Any, ...]) -> Any:
            g = hl.Func()
            g[(x, y, *more)] = taps(lambda j: f[(x, j, *more)], y)
            return g

        def halved(at: Any, v: Any) -> Any:
            return (at(2 * v - 1) + hl.f32(3) * (at(2 * v) + at(2 * v + 1)) + at(2 * v + 2)) * hl.f32(0.125)

        def doubled(at: Any, v: Any) -> Any:
            return hl.f32(0.25) * at(v // 2 - 1 + 2 * (v % 2)) + hl.f32(0.75) * at(v // 2)

        def resized(f: Any, taps: Any, *more: Any) -> Any:
            return along_y(along_x(f, taps, more), taps, more)

        stack, plain = [first], [gray]
        for _ in range(1, levels):
            stack.append(resized(stack[-1], halved, k))
            plain.append(resized(plain[-1], halved))
        whole = None
        for n in reversed(range(levels)):
            detail = stack[n]
            if n < levels - 1:
                coarse, detail = resized(stack[n + 1], doubled, k), hl.Func()
                detail[x, y, k] = stack[n][x, y, k] - coarse[x, y, k]
            level = plain[n][x, y] * hl.f32(tones - 1)
            at = hl.clamp(hl.i32(level), 0, tones - 2)
            wanted = hl.Func()
            wanted[x, y] = hl.lerp(detail[x, y, at], detail[x, y, at + 1], level - hl.f32(at))
            if whole is not None:
                coarse, new = resized(whole, doubled), hl.Func()
                new[x, y] = wanted[x, y] + coarse[x, y]
                wanted = new
            whole = wanted
        eps = hl.f32(local_laplacian.EPS)
        assert whole is not None
        colour[x, y, c] = whole[x, y] * (image[x, y, c] + eps) / (gray[x, y] + eps)
        return colour

    def camera_pipe(self, raw: Any, tones: Any, shape: tuple[int, ...]) -> Any:
        return camera_pipeline(self.hl, raw, tones)

    def blur(self, image: Any, shape: tuple[int, ...]) -> Any:
        hl = self.hl
        x, y = hl.Var("x"), hl.Var("y")
        rows, out = hl.Func("rows"), hl.Func("blur")
        rows[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) // hl.u16(3)
        out[x, y] = (rows[x, y] + rows[x, y + 1] + rows[x, y + 2]) // hl.u16(3)
        return out

    def chain8(self, image: Any, shape: tuple[int, ...]) -> Any:
        return self._chain(image, 8)


def dtype_of(f: Any) -> str:
    """The element type of a function of Halide, as numpy names it."""
    t = f.types()[0] if hasattr(f, "types") else f.output_types()[0]
    return f"{'float' if t.is_float() else 'uint' if t.is_uint() else 'int'}{t.bits()}"


#: Pipelines written in both.
IN_HALIDE = (
    "harris", "unsharp", "stencil_chain", "max_filter", "nl_means", "iir_blur", "matmul", "conv_layer",
    "bilateral_grid", "histogram_equalization", "interpolate", "depthwise_separable", "local_laplacian",
    "blur", "chain8", "camera_pipe",
)  # fmt: skip


def _blur(h: int, w: int) -> ir.Program:
    image = lang.placeholder((h, w), "u16", name="image")
    rows = lang.stage(lambda y, x: (image[y, x] + image[y, x + 1] + image[y, x + 2]) // 3, name="rows")
    out = lang.stage(lambda y, x: (rows[y, x] + rows[y + 1, x] + rows[y + 2, x]) // 3, name="blur")
    return lang.program([image], out, name="blur", region=[h - 2, w - 2])


#: Pipelines that are no applications: a blur of 16-bit integers, and a chain of eight stencils.
OWN = {
    "blur": replace(stencil_chain.APPLICATION, name="blur", program=_blur, schedule=None),
    "chain8": replace(
        stencil_chain.APPLICATION, name="chain8", program=lambda h, w: stencil_chain.program(h, w, 8)
    ),
}


def application(name: str) -> Application:
    """A pipeline of this benchmark, or an application of the examples."""
    return OWN[name] if name in OWN else example(name)


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


def failing(name: str, size: tuple[int, int], scheduler: str, limit: float) -> str:
    """How one of Halide's autoschedulers fails with a pipeline in a child; nothing where it does not."""
    command = [sys.executable, __file__, "--try", name, scheduler, "--size", *map(str, size)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"no schedule within {limit:.0f} s"
    said = done.stderr.strip().splitlines()
    return (said[-1] if said else f"ended by signal {-done.returncode}")[:200] if done.returncode else ""


def measure(
    name: str,
    size: tuple[int, int],
    hand: bool,
    turns: int,
    halide: Halide | None,
    budget: str | None = None,
    trials: int = 64,
    schedulers: Sequence[str] = AUTOSCHEDULERS,
    limit: float = LIMIT,
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
    for scheduler in schedulers if halide is not None and name in IN_HALIDE else ():
        assert halide is not None
        if fault := failing(name, size, scheduler, limit):
            line[f"{scheduler}_error"] = fault
            continue
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
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join((*NAMES, *OWN)))
    parser.add_argument("--beam", metavar="BUDGET", help="also the beam search's, measured so long: 60s, 5m")
    parser.add_argument("--trials", type=int, default=64, help="candidates of it that are measured, at most")
    parser.add_argument("--against", choices=["halide"])
    parser.add_argument("--schedulers", nargs="+", choices=AUTOSCHEDULERS, default=AUTOSCHEDULERS)
    parser.add_argument(
        "--hand", action="store_true", help="our schedules written by hand, where there are some"
    )
    parser.add_argument("--size", nargs=2, type=int, metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each of Halide's schedulers")
    parser.add_argument("--try", nargs=2, dest="tried", metavar=("NAME", "SCHEDULER"), help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--store", type=Path, metavar="FILE", help="rows go there; known ones are not run")
    parser.add_argument("--json", action="store_true", help="one JSON line a pipeline")
    options = parser.parse_args()
    halide = Halide(len(os.sched_getaffinity(0))) if options.against or options.tried else None
    if options.tried:
        assert halide is not None
        name, scheduler = options.tried
        arrays = application(name).inputs(*options.size)
        shape = [n.as_int() for n in application(name).program(*options.size).outputs[0].shape]
        halide.compiled(name, arrays, tuple(shape), scheduler)
        return
    gains: dict[str, list[float]] = {}
    asked = {
        "hand": options.hand, "beam": options.beam, "against": options.against, "limit": options.limit,
        "schedulers": [*options.schedulers], "turns": options.turns,
    }  # fmt: skip
    known: list[dict[str, Any]] = []
    if options.store is not None and options.store.exists():
        known = [json.loads(line) for line in options.store.read_text().splitlines()]
    for name in options.names or (IN_HALIDE if options.beam is None else (*NAMES, *OWN)):
        size = tuple(options.size) if options.size else application(name).large
        # rows of other options are other rows
        row = {"name": name, "size": [*size], **asked}
        line = next((each["line"] for each in known if each["row"] == row), None)
        if line is None:
            line = measure(
                name,
                size,
                options.hand,
                options.turns,
                halide,
                options.beam,
                options.trials,
                options.schedulers,
                options.limit,
            )
            if options.store is not None:
                with options.store.open("a") as file:
                    file.write(json.dumps({"row": row, "line": line}) + "\n")
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
