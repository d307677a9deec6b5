"""``tilewright tune``: search for faster plans of a model's kernels, and write what was found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tilewright.cli.models import compile_for, open_model
from tilewright.cli.options import CompileOptions, common_options, compile_options, model_argument
from tilewright.cli.state import State
from tilewright.driver import tune_model
from tilewright.tune import TaskResult


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
    """Search for faster plans of MODEL's kernels by measuring, the default plan first."""
    strategy = "random" if options.strategy == "default" else options.strategy
    compiled = compile_for(state, open_model(model), replace(options, strategy="default"))

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
