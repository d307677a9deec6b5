"""``tilewright run``: run a model once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from tilewright.cli.arrays import write_archive
from tilewright.cli.dynamic import run_dynamic
from tilewright.cli.files import check_output
from tilewright.cli.models import feeds_for, load_open, load_or_compile, open_feeds
from tilewright.cli.nests import names_nest, run_nest
from tilewright.cli.options import (
    CompileOptions,
    common_options,
    compile_options,
    input_options,
    model_argument,
    parse_assignments,
    parse_ranges,
)
from tilewright.cli.state import State
from tilewright.driver import CompiledModel, Profile
from tilewright.runtime import SavedDynamicModel, SavedModel, is_saved_model
from tilewright.support import quoted


@click.command()
@model_argument
@input_options
@click.option("--output", metavar="FILE.npz", help="Write the outputs there, by name.")
@click.option(
    "--repeats", default=1, show_default=True, type=click.IntRange(min=1), help="Runs; the median is shown."
)
@click.option("--profile", is_flag=True, help="Show the time of every kernel.")
@click.option(
    "--dynamic",
    "ranges",
    multiple=True,
    metavar="NAME=LEAST:LARGEST",
    help="Leave an unknown size open, such as seq=1:4096, and run at sizes drawn by --seed. May be given "
    "several times.",
)
@click.option(
    "--draws", default=1, show_default=True, type=click.IntRange(min=1), help="Sizes drawn for --dynamic."
)
@click.option("--check", is_flag=True, help="Compare each run of --dynamic with a compile for its sizes.")
@compile_options
@common_options
def run(
    state: State,
    model: str,
    files: tuple[str, ...],
    archive: str | None,
    seed: int,
    output: str | None,
    repeats: int,
    profile: bool,
    ranges: tuple[str, ...],
    draws: int,
    check: bool,
    options: CompileOptions,
) -> None:
    """Run MODEL on the given inputs, or on random ones, and show its outputs.

    MODEL may also be what `tilewright compile --output` saved (one with open sizes runs at those that --shape
    gives, by default the largest ones), or a C file with a nest: then the arguments that it writes are shown.
    """
    if profile and is_saved_model(model):
        raise click.UsageError("--profile needs the model itself, not a saved one")
    if ranges:
        if files or archive or output or profile or options.plan or is_saved_model(model):
            raise click.UsageError(
                "--dynamic draws its inputs, and goes with --seed, --draws and --check alone"
            )
        run_dynamic(state, model, options, parse_ranges(ranges), draws, seed, check=check)
        return
    given = parse_assignments(files, "--input").values()
    check_output(output, model, *given, archive, *options.read)
    if names_nest(model):
        if profile:
            raise click.UsageError(f"`tilewright profile {model}` times the loops of a nest")
        results, seconds_ = run_nest(state, model, options, files, archive, seed, output, repeats)
        _show(state, model, results, seconds_ * 1e3, repeats, output)
        return
    compiled: CompiledModel | SavedModel | SavedDynamicModel
    if (opened := load_open(model, options)) is not None:
        compiled, feeds = opened, open_feeds(opened, options.shapes, files, archive, seed)
    else:
        compiled = load_or_compile(state, model, options)
        feeds = feeds_for(compiled, files, archive, seed)
    names = [info.name for info in compiled.outputs]
    compiled.run(names, feeds)
    seconds = []
    arrays: list[npt.NDArray[Any]] = []
    for _ in range(repeats):
        start = time.perf_counter()
        arrays = compiled.run(names, feeds)
        seconds.append(time.perf_counter() - start)
    if output is not None:
        write_archive(output, dict(zip(names, arrays, strict=True)))
    milliseconds = float(np.median(seconds)) * 1e3
    details = compiled.profile(feeds, repeats) if profile and isinstance(compiled, CompiledModel) else None
    results = dict(zip(names, arrays, strict=True))
    _show(state, model, results, milliseconds, repeats, output, details)


def _show(
    state: State,
    model: str,
    results: Mapping[str, npt.NDArray[Any]],
    milliseconds: float,
    repeats: int,
    output: str | None,
    details: Profile | None = None,
) -> None:
    """What a run gave, and how long it took."""
    if state.json:
        rows = [summary(name, array) for name, array in results.items()]
        data: dict[str, Any] = {"command": "run", "model": model, "outputs": rows, "median_ms": milliseconds}
        if details is not None:
            data["profile"] = details.as_data()
        state.print_json(data)
        return
    for name, array in results.items():
        state.say(describe(name, array))
    state.say(f"{milliseconds:.3f} ms" + (f", median of {repeats}" if repeats > 1 else ""))
    if details is not None:
        state.say(str(details))
    if output is not None:
        state.note(f"outputs written to {output}")


def summary(name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    """An output as plain data: type, shape and the range of its elements."""
    data: dict[str, Any] = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    if array.size and array.dtype.kind in "fiu":
        values = array.astype(np.float64)
        data |= {"min": values.min(), "max": values.max(), "mean": values.mean()}
    return data


def describe(name: str, array: npt.NDArray[Any]) -> str:
    """An output in one line."""
    data = summary(name, array)
    text = f"{quoted(name)}: {data['dtype']}{data['shape']}"
    if "min" in data:
        text += f", from {data['min']:.6g} to {data['max']:.6g}, mean {data['mean']:.6g}"
    return text
