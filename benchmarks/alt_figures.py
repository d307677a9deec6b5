"""ALT's smaller experiments: what layouts are worth to loops, prefetching, propagation, templates.

    python benchmarks/alt_figures.py --only figure1,figure11 --trials 64 --json
    python benchmarks/alt_figures.py --only figure1 --trials 8

figure1   loops of convolutions tuned under NOHW, NHWO and HWON: the latency of each
figure2   the same with overlapping tiles of rows: ht = H/2, input unfolded, against the whole image
figure11  3x3 and 1x1 convolution: layouts of each alone, forwards (FP), backwards (BP), without propagation
          (WP), and the assignment: microseconds of kernels, added up
figure12  one-level and two-level templates for the same trials, and two levels for half as many again
table2    reading a block that lies together, and one in rows 4 KB apart: nanoseconds a line
table3    the first layer of R18 under four layouts, loops tuned: latency; and millions of instructions,
          reads, misses of the first level and writes of the default loops for AVX2 on one thread, counted by
          callgrind (which knows no AVX-512) where that is installed: counters of virtual machines are barred
overhead  what a search itself takes of tuning a small product and a small convolution: trials a second, and
          the part of the time in which nothing is built or measured
conversions  images brought from one layout into another, beside copying them as they are

One line each. Trials are a layout's; the paper's budgets are far larger (``--trials 300``).
"""

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from alt_common import as_data, freed, single_task, strategies, tuned
from alt_operators import configurations
from arguments import add_turns, names, parser_of
from convolutions import convolution
from onnx import helper
from operators import matmul
from sidebyside import chain, draw

from tilewright import lang
from tilewright.analysis import find_operator
from tilewright.build import build
from tilewright.cost import Machine
from tilewright.driver import (
    LocalMeasurer,
    find_tuner,
    graph_units,
    independent_layouts,
    maker_of,
    tune_layouts,
)
from tilewright.frontend import import_onnx
from tilewright.ir import F32
from tilewright.schedule import Schedule, Step
from tilewright.strategies import Candidate, Task, Trial
from tilewright.target import X86_AVX2, detect
from tilewright.tune import Budget, Database, tune_task

#: The orders of Fig. 1 for results and data of rank 4, and of weights.
ORDERS = {
    "NOHW": ("d0", "d1", "d2", "d3"),
    "NHWO": ("d0", "d2", "d3", "d1"),
    "HWON": ("d2", "d3", "d1", "d0"),
}


def placed(task: Task, texts: tuple[str, ...], result: tuple[str, ...] | None = None) -> Task:
    """The task with its data stored as ``texts`` say and its result as ``result``, else alike."""
    found = find_operator(task.program)
    assert found is not None
    arguments = {b.name for b in (*task.program.inputs, *task.program.outputs)}
    temps = {b.name for b in task.program.temps if b.layout is not None}
    s = Schedule(task.program)
    for name in dict.fromkeys((found.data.tensor, *([found.source] if found.source else []))):
        s = s.layout_place(name, texts) if name in arguments else s
    for name in found.results:
        s = s.layout_place(name, result or texts) if name in arguments else s
        s = s.layout_place(name, ()) if name in temps else s
    return replace(task, program=s.require_program())


def loops(task: Task, arguments: Any, measurer: LocalMeasurer) -> float:
    """Microseconds with loops tuned alone."""
    search = strategies(arguments.trials)["loop-only"]
    return tuned(task, search, arguments.trials, measurer).best * 1e6


def figure1(arguments: Any, measurer: LocalMeasurer) -> Iterator[dict[str, Any]]:
    """Convolutions of the configurations of `alt_operators.py` under three orders."""
    for name, operator in configurations():
        if not name.startswith("C2D") or int(name.partition(":")[2]) >= arguments.count:
            continue
        task = single_task(operator.make(operator.name).model, arguments.threads)
        times = {order: loops(placed(task, texts), arguments, measurer) for order, texts in ORDERS.items()}
        yield {"operator": operator.name, "us": times, "best": min(times, key=times.__getitem__)}


def figure2(arguments: Any, measurer: LocalMeasurer) -> Iterator[dict[str, Any]]:
    """A 3x3 convolution whose rows are cut in two, its input in overlapping tiles."""
    operator = convolution("C2D", 1, (32, 32), (58, 58), (3, 3))
    task = single_task(operator.make(operator.name).model, arguments.threads)
    found = find_operator(task.program)
    assert found is not None
    rows = found.extents[2]
    whole = placed(task, ORDERS["NHWO"])
    s = Schedule(whole.program).layout_place(found.data.tensor, ())
    steps = [
        Step("layout_unfold", (found.data.tensor, 2, rows // 2 + 2, rows // 2)),
        Step("layout_place", (found.data.tensor, ("d0", "d2", "d3", "d4", "d1"))),
    ]
    tiled = replace(whole, program=s.replay(steps).require_program())
    times = {"whole": loops(whole, arguments, measurer), "two tiles": loops(tiled, arguments, measurer)}
    yield {"operator": operator.name, "us": times}


def figure11(arguments: Any, measurer: LocalMeasurer) -> Iterator[dict[str, Any]]:
    """Sub-graphs 1 and 2 of the paper, at ``--width`` channels instead of 512."""
    machine = Machine(detect(), arguments.threads)
    for number, (size, last) in enumerate(((7, 1), (14, 4)), start=1):
        width = arguments.width
        weights = {
            "w": draw(width, width, 3, 3) / width,
            "v": draw(width * last, width, 1, 1, seed=1) / width,
        }
        nodes = [
            helper.make_node("Relu", ["X"], ["x"], name="before"),
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4, name="three"),
            helper.make_node("Conv", ["c", "v"], ["d"], name="one"),
            helper.make_node("Relu", ["d"], ["Y"], name="after"),
        ]
        shape = (1, width * last, size, size)
        graph = import_onnx(
            chain(nodes, {"X": draw(1, width, size, size)}, shape, weights).SerializeToString()
        )
        plan = graph_units(graph, detect(), arguments.threads).plan
        maker = maker_of(graph, plan)
        whole = tune_layouts(maker, plan, machine, measurer)
        row: dict[str, Any] = {
            "sub-graph": number,
            "default": whole.untuned * 1e6,
            "assignment": whole.best * 1e6,
        }
        for which, how in {
            "ALT": {},
            "ALT-WP": {"variant": "none"},
            "ALT-FP": {"forwards": True},
            "ALT-BP": {"backwards": True},
        }.items():
            made = independent_layouts(maker, plan, machine, measurer, **how)  # type: ignore[arg-type]
            row[which] = tune_layouts(maker, made, machine, measurer).untuned * 1e6
        yield row


def figure12(arguments: Any, measurer: LocalMeasurer) -> Iterator[dict[str, Any]]:
    """Templates of one and two levels at equal trials, and two levels with half as many again."""
    operator = convolution("C2D", 1, (64, 64), (28, 28), (3, 3), pad=1)
    task = freed(single_task(operator.make(operator.name).model, arguments.threads))
    more = arguments.trials * 3 // 2
    for name, trials, levels in (
        ("one level", arguments.trials, 1),
        ("two levels", arguments.trials, 2),
        ("two levels, 1.5 trials", more, 2),
    ):
        search = strategies(trials, levels)["joint"]
        yield {"setting": name} | as_data(tuned(task, search, trials, measurer))


def table2(arguments: Any, measurer: LocalMeasurer) -> Iterator[dict[str, Any]]:
    """Blocks of 512 rows, once contiguous and once rows apart, read with cold caches."""
    rng = np.random.default_rng(0)
    rows, apart = 512, 1024
    cold = rng.random(1 << 24, np.float32)
    for columns in (4, 16, 64, 256):
        together = rng.random((rows, columns), np.float32)
        spread = rng.random((rows, apart), np.float32)[:, :columns]
        times = {}
        for name, block in (("together", together), ("rows apart", spread)):
            found = []
            for _ in range(5):
                cold.sum()
                begin = time.perf_counter_ns()
                block.sum()
                found.append(time.perf_counter_ns() - begin)
            times[name] = min(found) / (rows * max(1, columns // 16))
        yield {"tile": f"{rows}x{columns}", "ns a line": times}


def table3(arguments: Any, measurer: LocalMeasurer) -> Iterator[dict[str, Any]]:
    """7x7, stride 2, 3 to 64 channels of 224x224: four layouts of the result and the data."""
    operator = convolution("C2D", 1, (3, 64), (224, 224), (7, 7), 2, 3)
    task = single_task(operator.make(operator.name).model, arguments.threads)
    blocked = ("d0", "d1//16", "d2", "d3", "d1%16")
    tiles = ("d0", "d2//4", "d3//16", "d1//16", "d2%4", "d3%16", "d1%16")
    for name, data, result in (
        ("NHWO", ORDERS["NHWO"], ORDERS["NHWO"]),
        ("NOHW", (), ()),
        ("NO/16HW16", (), blocked),
        ("NH/4W/16O/16 4 16 16", (), tiles),
    ):
        made = placed(task, data, result)
        yield {"layout": name, "us": loops(made, arguments, measurer), **counted(made)}


#: Sizes of workspace and scratch memory that a kernel under callgrind gets.
MEMORY = 1 << 26
#: What callgrind counts by its names, and by those of the paper's table.
COUNTS = {"Ir": "instructions", "Dr": "L1 loads", "D1mr": "L1 misses of loads", "Dw": "L1 stores"}


def counted(task: Task) -> dict[str, Any]:
    """Millions of what callgrind counts in a task's default kernel for AVX2; empty where it is not there."""
    if shutil.which("valgrind") is None or shutil.which("cc") is None:
        return {}
    machine = Machine(X86_AVX2, 1)
    func = replace(replace(task, machine=machine).default().schedule.func, name="layer")
    sizes = [b.dtype.bytes * prod(n.as_int() for n in b.physical_shape) for b in func.buffers]
    calls = "\n".join(f"  b[{n}] = aligned_alloc(64, {-(-size // 64) * 64});" for n, size in enumerate(sizes))
    text = (
        "#include <stdlib.h>\n#include <string.h>\n"
        "int layer(void *, void **, long *, void *, void *);\nint main(void) {\n"
        f"  void *b[{len(sizes)}]; long params[1] = {{0}};\n{calls}\n"
        + "\n".join(f"  memset(b[{n}], 0, {size});" for n, size in enumerate(sizes))
        + f"\n  void *w = aligned_alloc(4096, {MEMORY}), *s = aligned_alloc(4096, {MEMORY});\n"
        "  layer(0, b, params, w, s);\n  return layer(0, b, params, w, s);\n}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "main.c").write_text(text)
        (path / "layer.s").write_text(build(func, target=X86_AVX2, threads=1).assembly())
        compiler = ("cc", "-O1", "main.c", "layer.s", "-lm", "-o", "run")
        subprocess.run(compiler, cwd=path, check=True, capture_output=True)
        tool = ("valgrind", "--tool=callgrind", "--cache-sim=yes", "--D1=32768,8,64")
        command = (*tool, "--toggle-collect=layer", "--callgrind-out-file=out", "./run")
        done = subprocess.run(command, cwd=path, check=True, capture_output=True, text=True)
    events = re.search(r"Events\s*: (.*)", done.stderr)
    numbers = re.search(r"Collected\s*: (.*)", done.stderr)
    assert events is not None and numbers is not None
    found = dict(zip(events[1].split(), map(int, numbers[1].split()), strict=False))
    # two calls: the second finds caches as the first left them
    return {"counted": {shown: round(found[name] / 2e6, 2) for name, shown in COUNTS.items()}}


def conversions(arguments: Any, measurer: LocalMeasurer) -> Iterator[dict[str, Any]]:
    """Images of a residual network between three layouts, by default plans."""
    lanes = detect().lanes(F32)
    layouts = {
        "NOHW": (),
        "NHWO": ORDERS["NHWO"],
        "blocks": ("d0", f"d1//{lanes}", "d2", "d3", f"d1%{lanes}"),
    }
    for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        x = lang.placeholder((1, channels, size, size), name="X")
        program = lang.program([x], [lang.compute(x.shape, lambda n, o, h, w, x=x: x[n, o, h, w], name="Y")])
        times = {}
        for (a, read), (b, written) in product(layouts.items(), repeat=2):
            s = Schedule(program).layout_place("X", read).layout_place("Y", written)
            task = Task(s.require_program(), Machine(detect(), arguments.threads))
            (trial,) = measurer.measure(task, [Candidate("copy", task.default().plan)])
            times[f"{a} -> {b}"] = round(trial.best * 1e6, 2)
        yield {"image": f"{channels}x{size}x{size}", "us": times}


class Watched:
    """A measurer, and the seconds that it worked."""

    def __init__(self, measurer: LocalMeasurer) -> None:
        self._measurer, self.seconds = measurer, 0.0

    def measure(self, *given: Any, **named: Any) -> list[Trial]:
        """As the measurer does it."""
        begin = time.monotonic()
        found = self._measurer.measure(*given, **named)
        self.seconds += time.monotonic() - begin
        return found


def overhead(arguments: Any, measurer: LocalMeasurer) -> Iterator[dict[str, Any]]:
    """Tuning by three searches: what of it is neither building nor running candidates."""
    small = {
        "GMM 64x64x64": matmul("GMM", 64, 64, 64, weight=True),
        "C2D 16-32 14x14": convolution("C2D", 1, (16, 32), (14, 14), (3, 3), pad=1),
    }
    for name, operator in small.items():
        task = single_task(operator.make(operator.name).model, arguments.threads)
        for search in ("random", "joint", "auto"):
            watched = Watched(measurer)
            begin = time.monotonic()
            given, limits = freed(task) if search == "joint" else task, Budget(arguments.trials, begin + 600)
            with Database(":memory:") as records:
                done = tune_task(given, search, find_tuner(search), watched, records, limits)
            seconds = time.monotonic() - begin
            yield {
                "operator": name,
                "search": search,
                "trials": done.trials,
                "trials a second": round(done.trials / seconds, 2),
                "overhead": round(1 - watched.seconds / seconds, 4),
            }


FIGURES: dict[str, Callable[[Any, LocalMeasurer], Iterator[dict[str, Any]]]] = {
    each.__name__: each
    for each in (figure1, figure2, figure11, figure12, table2, table3, overhead, conversions)
}


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", default=",".join(FIGURES), help="which, by commas")
    parser.add_argument("--trials", type=int, default=64, help="of each layout")
    parser.add_argument("--count", type=int, default=10, help="configurations of figure1")
    parser.add_argument("--width", type=int, default=512, help="channels of figure11")
    add_turns(parser, rounds=3, seconds=0.1)
    arguments = parser.parse_args()
    with LocalMeasurer() as measurer:
        for name in names(arguments.only):
            for row in FIGURES[name](arguments, measurer):
                line = {"figure": name} | row
                print(json.dumps(line) if arguments.json else line, flush=True)


if __name__ == "__main__":
    main()
