"""``tilewright tune``: search for faster plans of a model's kernels, and write what was found."""

from __future__ import annotations

from math import isfinite
from typing import Any

import click

from tilewright.cli.files import check_output, write_text
from tilewright.cli.models import open_model, source_of
from tilewright.cli.options import (
    CompileOptions,
    common_options,
    compile_options,
    model_argument,
    seed_option,
    trials_option,
)
from tilewright.cli.state import State
from tilewright.cli.watching import watched
from tilewright.driver import Tuned, tune_model
from tilewright.support import counted
from tilewright.tune import AUTO, EVENTS_VERSION, LOADED, TaskResult


@click.command()
@model_argument
@click.option("--budget", default="5m", show_default=True, help="Time to search for: 90s, 5m, 1h.")
@trials_option("Candidates of one kernel, at most.", 1)
@seed_option("Seed of the search.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="Write the plan there, for `tilewright compile --plan`.",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Who builds and measures: local[2], or HOST:PORT of a cluster of Ray. Default: this process.",
)
@click.option(
    "--again", is_flag=True, help="Tune kernels that are finished once more, beyond what was tried."
)
@compile_options
@common_options
def tune(
    state: State,
    model: str,
    budget: str,
    trials: int,
    seed: int,
    output: str | None,
    cluster: str | None,
    again: bool,
    options: CompileOptions,
) -> None:
    """Search for faster plans of MODEL's kernels by measuring, the default plan first.

    What is found is kept in the database that --records names, by default the settings' one: later
    compilations take it from there. --strategy says how to search, by default in several ways at once. Ctrl-C
    ends it: what was found by then is kept. MODEL may be a program: FILE.py, or FILE.py:NAME, with its sizes
    as --shape; or a nest in C, FILE.c, of which each part is tuned.

    A terminal shows a table while it runs, other outputs get a line a minute. --json prints events, one a
    line, and the result as the last line.
    """
    # a plan may be written over by what comes of going on from it
    check_output(output, model, options.records)
    strategy = AUTO.name if options.strategy == "default" else options.strategy
    source, arguments = source_of(open_model(model), options)
    if options.plan is not None:
        arguments["plan"] = options.plan
    for name in ("records", "strategy"):
        del arguments[name]
    state.lines = True
    with watched(state) as watch:
        tuned = tune_model(
            source,
            budget=budget,
            trials=trials,
            strategy=strategy,
            database=options.records,
            seed=seed,
            cluster=cluster,
            again=again,
            watch=watch,
            **arguments,
        )
    if output is not None:
        write_text(output, tuned.plan.to_json())
    if state.json:
        head = {"events": EVENTS_VERSION, "command": "tune", "event": "tuned", "model": model}
        state.print_json({**head, **_as_data(tuned)})
    else:
        _report(state, tuned)


def _report(state: State, tuned: Tuned) -> None:
    graph = tuned.graph
    if graph is not None and not isfinite(graph.untuned):
        state.say("kernels: no time to price other decisions (a later tuning does)")
    elif graph is not None:
        what = ", ".join(map(str, graph.changes)) if graph.changes else "the default stays"
        state.say(
            f"kernels: {counted(graph.tried, 'other decision')} priced, {graph.untuned * 1e6:.1f} us -> "
            f"{graph.best * 1e6:.1f} in all; {what}"
        )
    found = tuned.layouts
    if found is not None and not isfinite(found.untuned):
        state.say("layouts: no time to measure all kernels under the default's (a later tuning does)")
    elif found is not None:
        what = f"{len(found.changed)} values lie elsewhere" if found.changed else "the default stays"
        state.say(
            f"layouts: {found.measured} kernels measured, {found.untuned * 1e6:.1f} us -> "
            f"{found.best * 1e6:.1f} in all; {what}"
        )
    for done in tuned.results:
        state.say(_row(done))
    whole = tuned.whole
    if whole is not None:
        state.say(
            f"the whole, {'in a fresh process' if whole.fresh else 'in this process'}: "
            f"{whole.untuned * 1e3:.3f} ms -> {whole.best * 1e3:.3f}"
            f"{'' if whole.faster else ': not surely faster, the default stays'}"
        )
    if tuned.unchecked:
        kernels = counted(tuned.unchecked, "kernel")
        state.say(
            f"{kernels} faster alone, not yet timed inside of the network: a later tuning goes on there"
        )
    if tuned.results and tuned.known:
        state.say("nothing to tune: all tasks are in the records (--again tunes them once more)")
    loaded = [done.load for done in tuned.results if done.load is not None and done.load > LOADED]
    if loaded:
        state.note(f"other processes used up to {max(loaded):.0%} of the CPUs: these figures say little")


def _row(done: TaskResult) -> str:
    if done.reason:
        return f"{done.label[:40]:40} not measured: {done.reason}"
    found = "known" if done.known else f"{done.trials} trials"
    if not done.sure:
        found += ", not surely: the time ended before (a later tuning goes on there)"
    return (
        f"{done.label[:40]:40} {done.untuned * 1e6:10.1f} us -> {done.best * 1e6:10.1f}  "
        f"{done.gain:5.2f}x  {found}"
    )


def _as_data(tuned: Tuned) -> dict[str, Any]:
    whole = tuned.whole
    return {
        "tasks": [
            {
                "task": r.task.key,
                "label": r.label,
                "weight": r.weight,
                "untuned": r.untuned,
                "best": r.best,
                "trials": r.trials,
                "known": r.known,
                **({"reason": r.reason} if r.reason else {}),
                **({} if r.sure else {"sure": False}),
            }
            for r in tuned.results
        ],
        "changes": [] if tuned.graph is None else [str(change) for change in tuned.graph.changes],
        "whole": None
        if whole is None
        else {"untuned": whole.untuned, "best": whole.best, "faster": whole.faster, "fresh": whole.fresh},
    }
