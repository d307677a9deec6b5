"""``tilewright explain``: what a model was compiled to, at every level."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from tilewright.build import KernelDescription
from tilewright.cli.files import check_output, write_text
from tilewright.cli.models import compile_for, open_model
from tilewright.cli.nests import explain_nest, names_nest, open_nest
from tilewright.cli.options import CompileOptions, common_options, compile_options, model_argument
from tilewright.cli.pages import measured, write_page
from tilewright.cli.programs import names_program, open_program
from tilewright.cli.state import State
from tilewright.devices import load_fixed
from tilewright.driver import GroupInfo
from tilewright.ir import print_function, to_function
from tilewright.plan import Reasons
from tilewright.report import BEGINNINGS, Beginning, as_reasons, as_svg, as_text, of_fusion
from tilewright.runtime import SavedModel, is_saved_model
from tilewright.support import format_bytes, quoted, shortened

_Described = tuple[GroupInfo, KernelDescription]

WIDTH: Final = 120
"""Columns of a table, at most; ``--json`` shortens nothing."""
#: Runs that a page is measured by.
RUNS: Final = 20
LEVELS = ("groups", "plan", "schedule", "loops", "lowered", "llvm", "asm", "source")


@click.command()
@model_argument
@click.option(
    "--show",
    type=click.Choice(LEVELS),
    default="groups",
    show_default=True,
    help="groups: which nodes are computed together, by which algorithm, in which layouts, with which tile "
    "of results in registers (rows x columns), on how many threads; plan: what is decided about every "
    "kernel, a text for `compile --plan`; schedule: the decisions, as Python; "
    "loops: the loop program; lowered: what code generation takes; llvm: LLVM IR; asm: assembly; "
    "source: C, or the language of the device.",
)
@click.option(
    "--group", type=click.IntRange(min=0), help="Only this group; without it every different kernel is shown."
)
@click.option(
    "--why",
    metavar="NODE",
    help="Of this node, or the one that makes this value (of a nest in C: an array): the loops of its "
    "kernel, the other ways that were open, with the seconds that the model says and what they are spent "
    "for, and what was refused, and why.",
)
@click.option(
    "--poly",
    is_flag=True,
    help="Of a program in Python or a nest in C: what fusion after tiling makes of it, by exact sets: "
    "groups, what a tile runs of each stage, how often it is computed again, storage, the schedule tree.",
)
@click.option("--tile", default="32x32", show_default=True, help="With --poly: sizes of tiles.")
@click.option(
    "--fusion",
    type=click.Choice(BEGINNINGS),
    default=BEGINNINGS[0],
    show_default=True,
    help="With --poly: which nests share loops before tiling. min, smart, max, hybrid are schedulers'.",
)
@click.option(
    "--svg", type=click.Path(dir_okay=False), help="With --poly: write a picture of neighbouring tiles there."
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write a page instead: kernels with their times and limits, layouts, schedules, loops, the graph.",
)
@compile_options
@common_options
def explain(
    state: State,
    model: str,
    show: str,
    group: int | None,
    why: str | None,
    poly: bool,
    tile: str,
    fusion: Beginning,
    svg: str | None,
    html: str | None,
    options: CompileOptions,
) -> None:
    """Show what MODEL was compiled to: groups and their algorithms, schedules, loops, LLVM IR or assembly.

    Of a saved model: what it needs of a machine, its memory, and the nodes that each step of a run computes.
    """
    if poly:
        _show_fusion(state, model, tile, fusion, svg, options)
        return
    if svg is not None:
        raise click.UsageError("--svg draws what --poly tells: give both")
    if html is not None:
        if is_saved_model(model) or show != LEVELS[0] or group is not None:
            raise click.UsageError("--html shows all of a model that is compiled: without --show and --group")
        check_output(html, model, *options.read)
        write_page(state, html, measured(state, model, RUNS, 0, options))
        return
    if is_saved_model(model):
        if show != LEVELS[0] or group is not None:
            raise click.UsageError("a saved model holds code only: --show and --group need the model itself")
        _show_saved(state, model, load_fixed(model))
        return
    if names_nest(model):
        if group is not None:
            raise click.UsageError("--group is for models: a nest is one kernel")
        explain_nest(state, model, options, show, why)
        return
    compiled = compile_for(state, open_model(model), options)
    if why is not None:
        _show_reasons(state, model, compiled.why(why), why)
        return
    every = compiled.groups()
    if group is not None and group >= len(every):
        raise click.UsageError(f"there is no group {group}: the last one is {len(every) - 1}")
    chosen = every if group is None else (every[group],)
    if show == "plan":
        state.say(compiled.plan().to_json().rstrip())
        return
    if show == "groups":
        described = dict(zip(every, compiled.descriptions(), strict=True))
        _show_groups(state, model, [(each, described[each]) for each in chosen])
        return
    kernels = {each.kernel.name: each for each in reversed(chosen)}
    shown = sorted(kernels.values(), key=lambda each: each.index)
    if state.json:
        texts = [
            {"group": each.index, "kernel": each.kernel.name, "text": _text(each, show)} for each in shown
        ]
        state.print_json({"command": "explain", "model": model, "show": show, "kernels": texts})
        return
    comment = {"llvm": ";", "asm": "#"}.get(show, "#")
    for each in shown:
        state.say(f"{comment} group {each.index}: {each.kernel.name}, {_nodes(each)}")
        state.say(_text(each, show).rstrip() + "\n")


def _show_reasons(
    state: State, model: str, found: Sequence[tuple[GroupInfo, tuple[Reasons, ...]]], node: str
) -> None:
    if state.json:
        kernels = [
            {"group": each.index, "kernel": each.kernel.name, "nests": [_reasons_data(r) for r in reasons]}
            for each, reasons in found
        ]
        state.print_json({"command": "explain", "model": model, "why": node, "kernels": kernels})
        return
    for each, reasons in found:
        state.say(f"group {each.index}: {each.kernel.name}, {_nodes(each)}")
        for nest in reasons:
            state.say(as_reasons(nest))


def _reasons_data(reasons: Reasons) -> dict[str, Any]:
    return {**asdict(reasons), "margin": reasons.margin}


def _show_fusion(
    state: State, model: str, tile: str, fusion: Beginning, svg: str | None, options: CompileOptions
) -> None:
    if not names_program(model) and not names_nest(model):
        raise click.UsageError(
            f"--poly is for programs in Python files and nests in C files, {quoted(model)} is none"
        )
    sizes = [int(part) if part.isdecimal() else 0 for part in tile.split("x")]
    if min(sizes) < 1:
        raise click.UsageError(f"--tile {quoted(tile)} is no size: give for example 32x64")
    check_output(svg, model)
    if names_nest(model):
        nest, values = open_nest(model, options)
        func = nest.at(values)
    else:
        func = to_function(open_program(model, options.shapes)[0])
    found = of_fusion(func, sizes, fusion)
    if svg is not None:
        write_text(svg, as_svg(found))
        state.note(f"written to {svg}")
    if state.json:
        groups = [asdict(each) for each in found.groups]
        state.print_json(
            {"command": "explain", "model": model, "show": "poly", "groups": groups, "tree": found.tree}
        )
        return
    state.say(as_text(found))


def _text(group: GroupInfo, show: str) -> str:
    kernel = group.kernel
    match show:
        case "schedule":
            return kernel.schedule.trace.to_python()
        case "loops":
            return print_function(kernel.loops())
        case "lowered":
            return print_function(kernel.lowered())
        case _:
            return kernel.code_text(show)


def _show_groups(state: State, model: str, groups: Sequence[_Described]) -> None:
    if state.json:
        state.print_json(
            {"command": "explain", "model": model, "show": "groups", "groups": list(_rows(groups))}
        )
        return
    width = max([22, *(len(kernel.algorithm) for _, kernel in groups)])
    state.say(
        f"{'group':>5} {'MFLOP':>9}  {'algorithm':<{width}} {'layouts':<22} {'tile':>6} {'threads':>7}  nodes"
    )
    for each, kernel in groups:
        row = (
            f"{each.index:>5} {each.kernel.flops / 1e6:>9.2f}  {kernel.algorithm:<{width}} "
            f"{kernel.layouts:<22} {kernel.tile_text:>6} {kernel.threads:>7}  {_nodes(each)}"
        )
        state.say(shortened(row, WIDTH))
        for note in kernel.fallbacks:
            state.say(f"{'':>15}  fell back: {note}")


def _show_saved(state: State, model: str, saved: SavedModel) -> None:
    requires = saved.requires
    if state.json:
        state.print_json(
            {
                "command": "explain",
                "model": model,
                "producer": saved.producer,
                "requires": {"arch": requires.arch, "features": list(requires.features)},
                "constant_bytes": saved.constant_bytes,
                "run_bytes": saved.run_bytes,
                "steps": list(saved.step_names),
            }
        )
        return
    state.say(f"saved by {saved.producer} for {requires.arch}")
    for line in textwrap.wrap(", ".join(requires.features) or "no features", WIDTH - 10):
        state.say(f"{'needs':>8}  {line}")
    weights, run = format_bytes(saved.constant_bytes), format_bytes(saved.run_bytes)
    state.say(f"{'memory':>8}  {weights} of weights, {run} a run")
    for at, name in enumerate(saved.step_names):
        state.say(shortened(f"{at:>8}  {quoted(name)}", WIDTH))


def _rows(groups: Sequence[_Described]) -> Iterator[dict[str, Any]]:
    for each, kernel in groups:
        yield {
            "group": each.index,
            "kernel": each.kernel.name,
            "nodes": list(each.nodes),
            "operators": each.operators,
            "inputs": list(each.inputs),
            "outputs": list(each.outputs),
            **kernel.as_data(),
            "flops": each.kernel.flops,
            "workspace_bytes": each.kernel.memory.workspace,
            "scratch_bytes": each.kernel.memory.scratch,
        }


def _nodes(group: GroupInfo) -> str:
    return f"{', '.join(quoted(name) for name in group.nodes)} ({group.operators})"
