"""The 17 applications of Anderson et al. (OOPSLA 2021), written in the language, beside numpy.

python examples/pipelines/run.py --all --check              at small sizes
python examples/pipelines/run.py harris unsharp --size 480 640 --png pictures
python examples/pipelines/run.py harris --hand              with the schedule written by hand
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from pathlib import Path

import numpy as np

from application import Application, Array
from photo import write_png
from tilewright import lang
from tilewright.build import build
from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule
from tilewright.target import detect

NAMES = (
    "bilateral_grid", "local_laplacian", "nl_means", "lens_blur", "camera_pipe", "stencil_chain", "harris",
    "histogram_equalization", "max_filter", "unsharp", "interpolate", "conv_layer", "matmul", "iir_blur",
    "guided_upsampling", "depthwise_separable", "learned_demosaic",
)  # fmt: skip


def application(name: str) -> Application:
    """The application of that name."""
    found: Application = importlib.import_module(name).APPLICATION
    return found


def scheduled(app: Application, program: Program, hand: bool, threads: int) -> Schedule:
    """The program with its schedule: the default one, or that written by hand."""
    if hand and app.schedule is not None:
        return app.schedule(program)
    return default_schedule(program, Machine(detect(), threads))


def run(app: Application, size: tuple[int, int], hand: bool = False) -> tuple[Array, Array, float]:
    """The result as compiled, the reference's, and the seconds of the fastest of three runs."""
    threads = len(os.sched_getaffinity(0))
    arrays = app.inputs(*size)
    kernel = build(scheduled(app, app.program(*size), hand, threads), threads=threads)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        (found,) = kernel(**arrays)
        seconds.append(time.perf_counter() - start)
    return found, app.reference(arrays), min(seconds)


def evaluated(app: Application, size: tuple[int, int]) -> tuple[Array, Array]:
    """The result of the language's evaluator, and the reference's."""
    arrays = app.inputs(*size)
    (found,) = lang.evaluate(app.program(*size), arrays).values()
    return np.asarray(found), app.reference(arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--check", action="store_true", help="fail where a result is not that of numpy")
    parser.add_argument(
        "--hand", action="store_true", help="the schedule written by hand, where there is one"
    )
    parser.add_argument("--size", nargs=2, type=int, metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--png", type=Path, metavar="FOLDER", help="write a picture of each result")
    options = parser.parse_args()
    wrong = []
    for name in NAMES if options.all else options.names:
        app = application(name)
        size = tuple(options.size) if options.size else app.small
        found, want, seconds = run(app, size, options.hand)
        fault = app.check(found, want)
        if fault:
            wrong.append(name)
        print(
            f"{name:24} {size[0]:5} x {size[1]:<5} {seconds * 1e3:9.3f} ms  {fault or 'as numpy'}", flush=True
        )
        if options.png is not None and app.picture is not None:
            options.png.mkdir(parents=True, exist_ok=True)
            write_png(options.png / f"{name}.png", app.picture(found))
    if options.check and wrong:
        raise SystemExit(f"not as numpy: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
