"""``tilewright profile``: the time of every kernel, beside what the machine can do."""

from __future__ import annotations

import click

from tilewright.cli.models import compile_for, feeds_for, open_model
from tilewright.cli.nests import names_nest, profile_nest
from tilewright.cli.options import (
    CompileOptions,
    FiniteRange,
    common_options,
    compile_options,
    input_options,
    model_argument,
)
from tilewright.cli.state import State
from tilewright.driver import OtherLoad, measure_limits
from tilewright.runtime import is_saved_model
from tilewright.target import CpuTarget


@click.command()
@model_argument
@input_options
@click.option(
    "--repeats", default=20, show_default=True, type=click.IntRange(min=1), help="Runs; medians are shown."
)
@click.option(
    "--calibrate",
    default=0.05,
    show_default=True,
    type=FiniteRange(min=0),
    help="Seconds for each of the dozen figures that say what the machine can do; 0: do not measure them.",
)
@compile_options
@common_options
def profile(
    state: State,
    model: str,
    files: tuple[str, ...],
    archive: str | None,
    seed: int,
    repeats: int,
    calibrate: float,
    options: CompileOptions,
) -> None:
    """Time every kernel of MODEL: milliseconds, GFLOP/s, GB/s, and the fraction of its limit.

    A kernel's limit is the larger of its operations over the machine's peak and the bytes of its arguments,
    each once, over the bandwidth of reading so many. Peak and bandwidths are measured first, in the same
    process and with as many threads. Operations are those of the model as it is written: a kernel that saves
    some by another algorithm may pass 100 %. Of a nest in C: how long each outermost loop takes by itself.
    """
    if is_saved_model(model):
        raise click.UsageError(
            "profile needs the model itself, not a saved one: `tilewright bench` and `explain` take that"
        )
    if names_nest(model):
        profile_nest(state, model, options, repeats)
        return
    compiled = compile_for(state, open_model(model), options)
    feeds = feeds_for(compiled, files, archive, seed)
    limits = None
    with OtherLoad() as others:
        if calibrate > 0 and isinstance(compiled.target, CpuTarget):
            named = {name for each in compiled.descriptions() for name in each.instructions}
            limits = measure_limits(compiled.target, compiled.threads, calibrate, sorted(named))
        found = compiled.profile(feeds, repeats, limits=limits)
    if state.json:
        state.print_json(
            {"command": "profile", "model": model, "others_cpu": others.share, **found.as_data()}
        )
    else:
        state.say(str(found))
    if others.warning:
        state.note(others.warning)
