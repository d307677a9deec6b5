"""``tilewright bench``: time a model, side by side with other engines."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import onnx

from tilewright.cli.arrays import read_feeds
from tilewright.cli.models import open_model
from tilewright.cli.options import (
    FiniteRange,
    common_options,
    input_options,
    model_argument,
    parse_assignments,
    parse_shapes,
)
from tilewright.cli.progress import ProgressBar
from tilewright.cli.state import State
from tilewright.devices import load_fixed
from tilewright.driver import (
    ENGINES,
    OURS,
    PRECISIONS,
    BenchPlan,
    BenchResult,
    Precision,
    model_samples,
    run_benchmark,
)
from tilewright.runtime import is_saved_model
from tilewright.support import InputError, read_settings


@click.command()
@model_argument
@click.option(
    "--against",
    default="",
    metavar="ENGINES",
    help="Other engines, separated by commas: " + ", ".join(name for name in ENGINES if name != OURS) + ".",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of every engine. Default: one a CPU.")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="f32",
    show_default=True,
    help="Of engines that have a choice; others run in f32.",
)
@click.option(
    "--target",
    default="cpu",
    show_default=True,
    help="What Tilewright compiles for; see `tilewright targets`.",
)
@click.option(
    "--accuracy",
    default="auto",
    show_default=True,
    help="Of Tilewright's products; see `tilewright compile`.",
)
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(min=1), help="Turns an engine.")
@click.option("--seconds", default=1.0, show_default=True, type=FiniteRange(min=0), help="Seconds a turn.")
@input_options
@click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=SIZES", help="Settle open sizes, see `compile`."
)
@common_options
def bench(
    state: State,
    model: str,
    against: str,
    threads: int | None,
    precision: Precision,
    target: str,
    accuracy: str,
    rounds: int,
    seconds: float,
    files: tuple[str, ...],
    archive: str | None,
    seed: int,
    shapes: tuple[str, ...],
) -> None:
    """Time MODEL, alone or against other engines.

    Each engine runs in a process of its own; they take turns, and only one is at work at a time. Shown are
    the median and the minimum of all runs after a warm-up.
    """
    names = [OURS, *(name.strip() for name in against.split(",") if name.strip())]
    plan = BenchPlan(
        engines=tuple(dict.fromkeys(names)),
        threads=threads or read_settings().thread_count,
        rounds=rounds,
        seconds=seconds,
        precision=precision,
        target=target,
        accuracy=accuracy,
    )
    if saved := is_saved_model(model):
        if len(plan.engines) > 1 or shapes or precision != "f32" or accuracy != "auto":
            raise click.UsageError(
                "a saved model has its shapes and its precision, and no other engine reads it: --against, "
                "--shape, --precision and --accuracy need the model itself"
            )
        loaded = load_fixed(model, threads=threads)
        infos, samples = loaded.inputs, loaded.sample_feeds(seed)
    source = model if saved else open_model(model)
    if not saved:
        infos, samples = model_samples(source, parse_shapes(shapes), seed)
    feeds = read_feeds(parse_assignments(files, "--input"), archive, infos) or samples
    missing = [info for info in infos if info.name not in feeds]
    if missing:
        raise InputError(f"the input {missing[0]} is missing")
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder, ProgressBar(state) as progress:
        path = Path(source) if isinstance(source, str) else Path(folder, "model.onnx")
        if not isinstance(source, str):
            onnx.save(source, path)
        result = run_benchmark(model, path, feeds, plan, progress)
    if state.json:
        state.print_json({"command": "bench", **result.as_data()})
    else:
        _show(state, result)
    if result.others.warning:
        state.note(result.others.warning)
    ours = result.ours
    if ours is not None and ours.error is not None:
        raise InputError(f"tilewright cannot run the model: {ours.error}")


def _show(state: State, result: BenchResult) -> None:
    state.say(f"{'engine':<14} {'median ms':>10} {'min ms':>10} {'runs':>6} {'ours/this':>9}  version")
    ours = result.ours
    for each in result.engines:
        if each.median is None or each.minimum is None:
            state.say(f"{each.engine:<14} failed: {each.error}")
            continue
        ratio = "" if ours is None or ours.median is None else f"{ours.median / each.median:.2f}"
        state.say(
            f"{each.engine:<14} {each.median * 1e3:>10.3f} {each.minimum * 1e3:>10.3f} {len(each.times):>6} "
            f"{ratio:>9}  {each.version}"
        )
