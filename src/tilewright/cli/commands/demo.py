"""``tilewright demo``: the whole way on a real architecture, checked against the reference evaluator."""

from __future__ import annotations

import time

import click
import numpy as np

from tilewright.cli.commands.verify import as_data, report
from tilewright.cli.models import ZOO, compile_for, open_model
from tilewright.cli.options import CompileOptions, common_options
from tilewright.cli.progress import ProgressBar
from tilewright.cli.state import FAILED, State
from tilewright.driver import verify_model
from tilewright.frontend import zoo
from tilewright.support import counted, format_bytes, quoted

_TIMED_SECONDS = 10.0
"""No further run is timed after so many seconds."""


@click.command()
@click.option(
    "--model",
    "name",
    type=click.Choice(tuple(zoo.FULL)),
    default="resnet18",
    show_default=True,
    help="Which architecture.",
)
@click.option("--small", is_flag=True, help="The version made small: under a second.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of a run. Default: one a CPU.")
@click.option(
    "--repeats", default=30, show_default=True, type=click.IntRange(min=1), help="Timed runs, at most."
)
@common_options
@click.pass_context
def demo(
    context: click.Context, state: State, name: str, small: bool, threads: int | None, repeats: int
) -> None:
    """Build ResNet-18 with random weights, compile it, run it, time it, and check every value it computes."""
    if not state.json:
        state.say(f"building {name}{' (small)' if small else ''} with random weights as an ONNX model")
    model = open_model(f"{ZOO}{name}{':small' if small else ''}")
    assert not isinstance(model, str)
    compiled = compile_for(state, model, CompileOptions(threads=threads))
    groups = compiled.groups()
    flops = sum(group.kernel.flops for group in groups)
    state.say(
        f"compiled {counted(len(model.graph.node), 'node')} to {counted(len(groups), 'kernel call')} in "
        f"{compiled.compile_seconds['total']:.2f} s for {compiled.target.name}, "
        f"{counted(compiled.threads, 'thread')}; {format_bytes(compiled.constant_bytes)} of weights"
    )
    feeds = compiled.sample_feeds()
    result = compiled.run(None, feeds)
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < _TIMED_SECONDS:
        start = time.perf_counter()
        compiled.run(None, feeds)
        seconds.append(time.perf_counter() - start)
    median, fastest = float(np.median(seconds)), min(seconds)
    for info, array in zip(compiled.outputs, result, strict=True):
        best = int(np.argmax(array))
        state.say(
            f"result: {info}, the largest of {array.size} elements is number {best}: {array.flat[best]:.4f}"
        )
    state.say(
        f"time: {median * 1e3:.2f} ms a run (median of {len(seconds)}; fastest {fastest * 1e3:.2f} ms), "
        f"{flops / median / 1e9:.1f} GFLOP/s"
    )
    with ProgressBar(state) as progress:
        progress("check", 0, 1, "by the evaluator of the onnx package")
        outcome = verify_model(compiled, model, feeds, "onnx")
        progress("check", 1, 1)
    if state.json:
        state.print_json(
            {
                "command": "demo",
                "model": name,
                "threads": compiled.threads,
                "compile_seconds": compiled.compile_seconds,
                "outputs": {quoted(info.name)[1:-1]: list(info.shape) for info in compiled.outputs},
                "median_ms": median * 1e3,
                "min_ms": fastest * 1e3,
                "gflops": flops / median / 1e9,
                "check": as_data(outcome),
            }
        )
    else:
        report(state, outcome)
    if not outcome.ok:
        context.exit(FAILED)
