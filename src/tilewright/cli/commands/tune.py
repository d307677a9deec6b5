"""``tilewright tune``: search for faster plans of a model's kernels, and write what was found."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from tilewright.cli.models import compile_for, open_model
from tilewright.cli.options import CompileOptions, common_options, compile_options, model_argument
from tilewright.cli.programs import names_program
from tilewright.cli.state import State
from tilewright.driver import (
    CompiledModel,
    LocalMeasurer,
    ModelPlan,
    seconds_of,
    tune_model,
    with_tuned_layouts,
)
from tilewright.strategies import JointStrategy, find_strategy
from tilewright.tune import TaskResult

#: Part of the budget for the layouts of values, before kernels are tuned under them.
LAYOUT_SHARE: Final = 0.3


@click.command()
@model_argument
@click.option("--budget", default="5m", show_default=True, help="Time to search for: 90s, 5m, 1h.")
@click.option("--trials", default=64, show_default=True, help="Candidates of one kernel, at most.")
@click.option(
    "--records", type=click.Path(dir_okay=False), help="A database that keeps all trials, for the next time."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the search.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="Write the plan there, for `tilewright compile --plan`.",
)
@compile_options
@common_options
def tune(
    state: State,
    model: str,
    budget: str,
    trials: int,
    records: str | None,
    seed: int,
    output: str | None,
    options: CompileOptions,
) -> None:
    """Search for faster plans of MODEL's kernels by measuring, the default plan first.

    MODEL may be a program: FILE.py, or FILE.py:NAME, with its sizes as --shape.
    """
    strategy = "random" if options.strategy == "default" else options.strategy
    plain = replace(options, strategy="default")
    compiled = compile_for(state, open_model(model), plain)
    joint = isinstance(find_strategy(strategy), JointStrategy)
    if joint and options.plan is None and not names_program(model):
        compiled = _laid_out(state, model, plain, compiled, seconds_of(budget) * LAYOUT_SHARE)

    def watch(done: TaskResult) -> None:
        if state.json:
            return
        found = "known" if done.known else f"{done.trials} trials"
        if done.reason:
            state.say(f"{done.label[:40]:40} cannot be measured: {done.reason}")
            return
        state.say(f"{done.label[:40]:40} {done.untuned * 1e6:10.1f} us -> {done.best * 1e6:10.1f}  "
                  f"{done.gain:5.2f}x  {found}")  # fmt: skip

    tuned = tune_model(
        compiled,
        budget=budget,
        trials=trials,
        strategy=strategy,
        database=records or ":memory:",
        seed=seed,
        watch=watch,
    )
    if output is not None:
        Path(output).write_text(tuned.plan.to_json())
    if state.json:
        rows = [
            {"task": r.task.key, "label": r.label, "untuned": r.untuned, "best": r.best, "trials": r.trials}
            for r in tuned.results
        ]
        state.print_json({"command": "tune", "model": model, "tasks": rows})
    elif tuned.results and all(r.known for r in tuned.results):
        state.say("nothing to tune: all tasks are in the records")


def _laid_out(
    state: State, model: str, options: CompileOptions, compiled: CompiledModel, seconds: float
) -> CompiledModel:
    """The model with the layouts of values that are fastest, where that pays."""

    def recompile(plan: ModelPlan) -> CompiledModel:
        return compile_for(state, open_model(model), replace(options, plan=plan.to_json()))

    until = time.monotonic() + seconds
    with LocalMeasurer() as measurer:
        made, found = with_tuned_layouts(
            compiled, open_model(model), recompile, measurer, until, options.shapes
        )
    if found is not None and not state.json:
        what = f"{len(found.changed)} values lie elsewhere" if found.changed else "the default stays"
        state.say(
            f"layouts: {found.measured} kernels measured, {found.untuned * 1e6:.1f} us -> "
            f"{found.best * 1e6:.1f} in all; {what}"
        )
    return made
