"""``tilewright schedule``: the schedule that a strategy finds for a program, as Python."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite
from random import Random

import click

from tilewright.cli.commands.verify import as_data, report
from tilewright.cli.files import check_output, write_text
from tilewright.cli.models import compile_arguments, compile_for
from tilewright.cli.options import CompileOptions, common_options, compile_options, seed_option, trials_option
from tilewright.cli.programs import names_program
from tilewright.cli.state import FAILED, State
from tilewright.driver import (
    CompiledModel,
    LocalMeasurer,
    compile_model,
    nest_times,
    seconds_of,
    tasks_of,
    verify_program,
)
from tilewright.plan import Planned, UnitPlan, build_unit
from tilewright.report import StageRow, as_table, pipeline_svg, stage_rows
from tilewright.strategies import (
    AnyTime,
    BeamStrategy,
    History,
    Strategy,
    Task,
    Trial,
    best_by_model,
    find_strategy,
    stage_seconds,
)
from tilewright.support import InputError, counted, quoted
from tilewright.target import GpuTarget
from tilewright.tune import MEMORY, Budget, Database, tune_task


@click.command()
@click.argument("program", metavar="FILE.py[:NAME]")
@click.option("--budget", help="Time to measure candidates for: 90s, 5m. Without, the model decides at once.")
@trials_option("Candidates that are measured, at most.", 0)
@seed_option("Seed of the search, and of the inputs.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the schedule there.")
@click.option(
    "--fix",
    multiple=True,
    metavar="STAGE=PLACE",
    help="Where a stage is computed, with --strategy beam: own (a nest), inline, or in another's nest: "
    "ROOT.tile, ROOT.row, ROOT.slide, STAGE.AXIS. May be repeated.",
)
@click.option(
    "--stages",
    is_flag=True,
    help="Also print, as comments, the loops, and each stage's place, size and times; always with --budget.",
)
@click.option("--svg", type=click.Path(dir_okay=False), help="Write a picture of the graph of stages there.")
@compile_options
@common_options
@click.pass_context
def schedule(
    context: click.Context,
    state: State,
    program: str,
    budget: str | None,
    trials: int,
    seed: int,
    output: str | None,
    fix: tuple[str, ...],
    stages: bool,
    svg: str | None,
    options: CompileOptions,
) -> None:
    """Print the schedule that --strategy finds for a program, as a Python function.

    FILE.py has the program as `program` (or NAME), or a function of sizes that returns it; sizes are given
    as --shape. The schedule is run and compared with the program's evaluation by numpy: the exit status is 1
    where they differ.
    """
    if not names_program(program):
        raise click.UsageError(f"{quoted(program)} is no Python file: schedules are of programs")
    for written in (output, svg):
        check_output(written, program, *options.read)
    strategy = find_strategy(options.strategy)
    if strategy is None and budget is not None:
        raise click.UsageError("--budget is for strategies that search: the default decides by rules")
    fixed = _fixed(fix)
    if fixed:
        if not isinstance(strategy, BeamStrategy):
            raise click.UsageError("--fix is for --strategy beam: other strategies decide about loops")
        strategy = replace(strategy, fixed=fixed)
    compiled = compile_for(state, program, replace(options, strategy="default"))
    (each,) = tasks_of(compiled)
    task = each.task
    assert isinstance(task, Task)
    planned = task.default()
    times: dict[str, float] = {}
    if strategy is not None and fixed and budget is not None:
        planned = _measured(task, strategy, seed, trials, time.monotonic() + seconds_of(budget))
    elif strategy is not None and budget is None:
        planned = best_by_model(strategy, task, seed)
    elif strategy is not None and budget is not None:
        limit = Budget(trials, time.monotonic() + seconds_of(budget))
        with Database(MEMORY) as records, LocalMeasurer() as measurer:
            result = tune_task(task, each.label, strategy, measurer, records, limit, seed)
        times = {"untuned": result.untuned, "best": result.best, "trials": result.trials}
        if result.reason:
            state.note(f"not measured: {result.reason}")
        if result.plan is not None:
            planned = task.carried_out(result.plan)
    arguments = {**compile_arguments(options), "strategy": "default", "shapes": None}
    made = compile_model(planned.schedule, **arguments)
    assert isinstance(made, CompiledModel)
    checked = verify_program(made, task.program, made.sample_feeds(seed))
    stages = stages or budget is not None
    rows = _rows(task, planned) if stages or svg is not None else ()
    if svg is not None:
        write_text(svg, pipeline_svg(task.program, rows))
        state.note(f"written to {svg}")
    machine = f"{task.machine.on.name}, {counted(task.machine.threads, 'thread')}"
    text = as_python(planned, f"{task.program.name} by {options.strategy}, for {machine}", times)
    if stages:
        text += "\n" + "".join(f"# {line}\n" for line in f"{planned.schedule}\n{as_table(rows)}".splitlines())
    if output is not None:
        write_text(output, text)
        state.note(f"written to {output}")
    if state.json:
        state.print_json(
            {
                "command": "schedule",
                "program": task.program.name,
                "strategy": options.strategy,
                "plan": json.loads(planned.plan.to_json()),
                "trace": json.loads(planned.schedule.trace.to_json()),
                "verify": as_data(checked),
                **({"stages": [asdict(row) for row in rows], "loops": str(planned.schedule)} if rows else {}),
                **times,
            }
        )
    else:
        if output is None:
            state.say(text.rstrip())
        report(state, checked)
    if not checked.ok:
        context.exit(FAILED)


def _fixed(given: Sequence[str]) -> dict[str, str]:
    """The parts of ``--fix`` by stage."""
    out: dict[str, str] = {}
    for each in given:
        name, equal, place = each.partition("=")
        if not equal:
            raise click.UsageError(f"--fix {quoted(each)} names no place: give STAGE=PLACE")
        if out.setdefault(name, place) != place:
            raise click.UsageError(f"--fix has two places for the stage {quoted(name)}: give one")
    return out


def _measured(task: Task, strategy: Strategy, seed: int, trials: int, until: float) -> Planned:
    """The fastest of a strategy's candidates: the default is none of them where it lacks the fixed parts."""
    search = strategy.start(task, History(), Random(seed))
    best: Trial | None = None
    with LocalMeasurer() as measurer:
        for number in range(trials):
            if isinstance(search, AnyTime):
                search.end_by(until)
            found = search.propose(1)
            if not found or (number and time.monotonic() >= until):
                break
            (trial,) = measurer.measure(task, found)
            search.observe([trial])
            if trial.status == "ok" and (best is None or trial.best < best.best):
                best = trial
    if best is None or not isinstance(best.candidate.plan, UnitPlan):
        raise InputError("no schedule with the fixed parts was found in time", hint="give a longer --budget")
    plan = best.candidate.plan
    return Planned(plan, build_unit(task.program, plan, task.machine))


def _rows(task: Task, planned: Planned) -> Sequence[StageRow]:
    """What each stage of a schedule takes and holds."""
    machine, s = task.machine, planned.schedule
    measured = (
        {} if isinstance(machine.on, GpuTarget) else nest_times(s.func, machine.target, machine.threads)
    )
    return stage_rows(task.program, planned.plan, s.func, stage_seconds(task, planned.plan), measured)


def as_python(planned: Planned, title: str, times: Mapping[str, float]) -> str:
    """A schedule as a Python function of the program, below the plan that it was made by as comments."""
    lines = [f'"""The schedule of {title}."""', ""]
    if times and isfinite(times["best"]):
        best, untuned = times["best"] * 1e3, times["untuned"] * 1e3
        lines.append(f"# measured: {best:.3f} ms; by default: {untuned:.3f} ms")
    lines += [f"# {line}" for line in str(planned.plan).splitlines()]
    trace = planned.schedule.trace
    source = "program, operations=detect().operations" if trace.instructions else "program"
    lines += [
        "",
        "from tilewright.ir import Program",
        "from tilewright.schedule import Schedule",
        *(["from tilewright.target import detect"] if trace.instructions else []),
        "",
        "",
        "def schedule(program: Program) -> Schedule:",
        *(f"    {line}" for line in trace.to_python("s", source).splitlines()),
        "    return s",
    ]
    return "\n".join(lines) + "\n"
