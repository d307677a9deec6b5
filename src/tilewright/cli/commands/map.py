"""``tilewright map``: the ways to run a program by a machine's instructions, or why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

import click

from tilewright.cli.mapped import Part, read_parts
from tilewright.cli.options import common_options, parse_shapes
from tilewright.cli.state import State
from tilewright.cost import selected_cycles
from tilewright.ir import Program
from tilewright.mapping import (
    Mapping,
    Need,
    Needle,
    Outcome,
    Selection,
    Use,
    search_mappings,
    select_instructions,
    system,
)
from tilewright.target import CpuTarget, TargetBase, find_target


@click.command("map")
@click.argument("program", metavar="PROGRAM")
@click.option(
    "--target",
    default="cpu",
    show_default=True,
    help="A target by its name, a machine that comes with Tilewright, or a machine's file (.json).",
)
@click.option("--instruction", help="Only this instruction.")
@click.option(
    "--rule",
    type=click.Choice(["fewest", "cycles"]),
    default="cycles",
    show_default=True,
    help="What the selection counts: executions, or cycles with what operands take to be where they must be.",
)
@click.option("--why", is_flag=True, help="Show what kept instructions from being mapped.")
@click.option("--bundle", is_flag=True, help="Also several axes of the program on one of an instruction.")
@click.option(
    "--transform", is_flag=True, help="Rewrite the program where failures ask for it, and map it again."
)
@click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZES", help="Settle open sizes of a model.")
@common_options
def map_(
    state: State,
    program: str,
    target: str,
    instruction: str | None,
    rule: Literal["fewest", "cycles"],
    why: bool,
    bundle: bool,
    transform: bool,
    shapes: tuple[str, ...],
) -> None:
    """List the ways to run PROGRAM by instructions of a machine.

    Then the instructions that are selected: each operation is done once. PROGRAM is a file with the text of a
    program, FILE.py[:NAME], or a model (FILE.onnx, zoo:NAME), of whose parts the selections are shown.
    """
    parts = read_parts(program, parse_shapes(shapes))
    machine = _machine(target)
    needles = [n for n in _needles(machine) if instruction in (None, n.name)]
    if not needles:
        raise click.UsageError(
            f"target {target} has no instruction {instruction!r}"
            if instruction
            else f"target {target} has no instructions"
        )
    made = []
    for part in parts:
        if part.name:
            state.say(f"{part.name}" + (f", {part.count} times" if part.count > 1 else ""))
        rows = _listed(state, part, needles, bundle, transform, why) if not part.name else []
        steps, selection = _selected(part.program, machine, needles, rule, transform)
        _show(state, steps, selection, why=why)
        made.append(
            {
                "part": part.name,
                "count": part.count,
                "instructions": rows,
                "steps": steps,
                "selection": [_used(use) for use in selection.uses],
                "cost": list(selection.cost),
                "uncovered": [u.stage for u in selection.uncovered],
            }
        )
    if state.json:
        head = {"command": "map", "program": program, "target": target}
        state.print_json({**head, "parts": made} if parts[0].name else {**head, **made[0]})


def _listed(
    state: State, part: Part, needles: Sequence[Needle], bundle: bool, transform: bool, why: bool
) -> list[dict[str, Any]]:
    """Show and return the ways of a program to be instructions."""
    rows: list[dict[str, Any]] = []
    for needle in needles:
        outcome = _mapped(part.program, needle, bundle=bundle, transform=transform)
        shown = [(each.steps, m) for each in outcome.found for m in each.mappings]
        state.say(f"{needle.name}: {len(shown)} mappings")
        for steps, mapping in shown:
            after = "".join(f"{step}, then " for step in steps)
            state.say(f"  {after}stage {mapping.stage}: {_shown(mapping)}")
            for need in mapping.needs:
                state.say(f"    needs {_need(need)}")
        if why:
            for failure in outcome.failures:
                state.say(f"  not: {failure}")
        rows.append(
            {
                "instruction": needle.name,
                "mappings": [_row(m, [str(s) for s in steps]) for steps, m in shown],
                "failures": [asdict(f) for f in outcome.failures] if why else [],
            }
        )
    return rows


def _machine(target: str) -> system.SystemGraph | TargetBase:
    """A machine of a file, or a target with instructions."""
    if target.endswith(".json") or target in system.shipped_machines():
        return system.load_machine(target)
    return find_target(target)


def _needles(machine: system.SystemGraph | TargetBase) -> Sequence[Needle]:
    """What the mapper looks for: a target's rows, or the instructions of a machine."""
    if isinstance(machine, system.SystemGraph):
        return system.needles_of(machine)
    return [Needle.of(row) for row in machine.operations.values()]


def _selected(
    program: Program,
    machine: system.SystemGraph | TargetBase,
    needles: Sequence[Needle],
    rule: Literal["fewest", "cycles"],
    transform: bool,
) -> tuple[list[str], Selection]:
    """Rewrites, and what does the program then: of a CPU's instructions those faster than multiply-adds."""
    if isinstance(machine, system.SystemGraph):
        if not transform:
            return [], system.select(program, machine, system.Heuristics(), rule)
        made, selection = system.cover(program, machine, system.Heuristics(), rule)
        return [str(step) for step in made.trace.steps], selection
    tensors = {b.name: b for b in program.buffers}
    products = [n for n in needles if machine.operations[n.name].is_contraction]

    def price(use: Use) -> tuple[float] | None:
        if not isinstance(machine, CpuTarget):
            return (float(use.executions),)
        found = selected_cycles(use, tensors, machine)
        return found if found is None or rule == "cycles" else (float(use.executions),)

    return [], select_instructions(program, products, price)


def _show(state: State, steps: Sequence[str], selection: Selection, *, why: bool) -> None:
    for step in steps:
        state.say(f"after {step}")
    cost = ", ".join(f"{c:g}" for c in selection.cost)
    state.say(f"selection: {len(selection.uses)} instructions" + (f", cost {cost}" if cost else ""))
    for use in selection.uses:
        first = f" (started by {use.starts.name})" if use.starts is not None else ""
        done = " and ".join(s.name for s in use.stages)
        state.say(f"  {done}: {use.instruction}{first}, {use.executions} executions, {_shown(use.mapping)}")
    for left in selection.uncovered:
        state.say(f"  {left.stage}: no instruction" + (f" for {left.value}" if left.value else ""))
        for failure in left.failures if why else ():
            state.say(f"    not: {failure}")


def _used(use: Use) -> dict[str, Any]:
    return {
        "instruction": use.instruction,
        "starts": use.starts.name if use.starts is not None else None,
        "stages": [s.name for s in use.stages],
        "executions": use.executions,
        "axes": {b.axis: list(b.program) for b in use.mapping.axes},
    }


def _mapped(program: Program, needle: Needle, *, bundle: bool, transform: bool) -> Outcome:
    if transform:
        return search_mappings(program, needle)
    return search_mappings(program, needle, steps=0, bundle=bundle)


def _shown(mapping: Mapping) -> str:
    return str(mapping).partition(": ")[2] + (" (factors exchanged)" if mapping.exchanged else "")


def _need(need: Need) -> str:
    fields = asdict(need)
    return (
        type(need).__name__.removesuffix("Need").lower()
        + " "
        + ", ".join(f"{k} {v}" for k, v in fields.items())
    )


def _row(mapping: Mapping, steps: list[str]) -> dict[str, Any]:
    return {
        "steps": steps,
        "stage": mapping.stage,
        "axes": {b.axis: list(b.program) for b in mapping.axes},
        "operands": {b.operand: f"{b.buffer}[{', '.join(map(str, b.indices))}]" for b in mapping.operands},
        "needs": [_need(n) for n in mapping.needs],
        "exchanged": mapping.exchanged,
    }
