"""Running a model whose sizes are open, at sizes that are drawn from their ranges."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import click
import numpy as np

from tilewright.cli.models import compile_arguments, open_model
from tilewright.cli.options import CompileOptions
from tilewright.cli.progress import ProgressBar
from tilewright.cli.state import State
from tilewright.devices import load_model
from tilewright.driver import DynamicModel, compile_model
from tilewright.runtime import SavedDynamicModel
from tilewright.support import counted

#: Largest difference of a checked run from a static compile's, of the largest result: sums in another order.
TOLERANCE: Final = 1e-3


def run_dynamic(
    state: State,
    model: str,
    options: CompileOptions,
    ranges: Mapping[str, tuple[int, int]],
    draws: int,
    seed: int,
    *,
    check: bool,
) -> None:
    """Run a model at ``draws`` combinations of sizes, and show the time of each; first runs are apart.

    With ``check`` each is compared with the model compiled for its sizes alone; a difference ends the command
    with status 1.
    """
    source = open_model(model)
    arguments = compile_arguments(options)
    with ProgressBar(state) as progress:
        found = compile_model(source, dynamic=ranges, progress=progress, **arguments)
    random = Random(seed)
    rows = [_row(found, source, arguments, random, seed, check=check) for _ in range(draws)]
    if state.json:
        state.print_json({"command": "run", "model": model, "runs": rows})
    for row in () if state.json else rows:
        sizes = ", ".join(f"{name} {n}" for name, n in row["sizes"].items())
        text = f"{sizes}: first run {row['first_ms']:.1f} ms, then {row['ms']:.3f} ms"
        state.say(text + (f", off by {row['difference']:.2g} of the largest" if check else ""))
    if any(row.get("difference", 0.0) > TOLERANCE for row in rows):
        raise click.exceptions.Exit(1)


def save_dynamic(
    state: State,
    model: str,
    options: CompileOptions,
    ranges: Mapping[str, tuple[int, int]],
    alone: Sequence[Mapping[str, int]],
    output: str,
) -> None:
    """Compile a model with open sizes, and save it at all sizes, and compiled for some alone."""
    start = time.perf_counter()
    with ProgressBar(state) as progress:
        made = compile_model(
            open_model(model), dynamic=ranges, progress=progress, **compile_arguments(options)
        )
        progress("save", 0, 1, output)
        made.save(output, sizes=alone)
        progress("save", 1, 1, output)
    saved = load_model(output)
    assert isinstance(saved, SavedDynamicModel)
    seconds = time.perf_counter() - start
    if state.json:
        sizes = {
            name: [known.least, known.largest, *([known.step] if known.step != 1 else [])]
            for name, known in made.sizes.items()
        }
        state.print_json(
            {"command": "compile", "model": model, "name": made.name, "sizes": sizes, "written": [output],
             "ranges": [{n: list(b) for n, b in each.items()} for each in saved.ranges], "seconds": seconds}
        )  # fmt: skip
        return
    for each in made.inputs:
        state.say(f"   input  {each}")
    for each in made.outputs:
        state.say(f"  output  {each}")
    for name, known in made.sizes.items():
        state.say(f"    size  {name} from {known}")
    state.say(f"  target  {made.target.name}, {counted(made.threads, 'thread')}")
    state.say(f"   plans  {counted(len(saved.ranges), 'range')} of sizes")
    state.say(f"    time  {seconds:.2f} s")
    state.note(f"written to {output}")


def _row(
    found: DynamicModel,
    source: Any,
    arguments: Mapping[str, Any],
    random: Random,
    seed: int,
    *,
    check: bool,
) -> dict[str, Any]:
    sizes = {name: random.choice(known.values) for name, known in found.sizes.items()}
    feeds = found.sample_feeds(seed, **sizes)
    start = time.perf_counter()
    outputs = found.run(None, feeds)
    first = time.perf_counter() - start
    start = time.perf_counter()
    found.run(None, feeds)
    row: dict[str, Any] = {"sizes": sizes, "first_ms": first * 1e3, "ms": (time.perf_counter() - start) * 1e3}
    if check:
        shapes = {**arguments["shapes"], **sizes}
        static = compile_model(source, **{**arguments, "shapes": shapes}).run(None, feeds)
        row["difference"] = max(map(_difference, outputs, static), default=0.0)
    return row


def _difference(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    if not found.size:
        return 0.0
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-30))
