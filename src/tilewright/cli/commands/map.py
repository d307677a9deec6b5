"""``tilewright map``: the ways to run a program by a machine's instructions, or why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

import click

from tilewright.cli.options import common_options
from tilewright.cli.state import State
from tilewright.cost import selected_cycles
from tilewright.ir import Program, read_program
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
from tilewright.support import InputError, quoted_path
from tilewright.target import CpuTarget, find_target

MAX_FILE: Final = 4 << 20
"""Bytes of the longest program that is read."""


@click.command("map")
@click.argument("program", type=click.Path(exists=True, dir_okay=False, path_type=Path))
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
@common_options
def map_(
    state: State,
    program: Path,
    target: str,
    instruction: str | None,
    rule: Literal["fewest", "cycles"],
    why: bool,
    bundle: bool,
    transform: bool,
) -> None:
    """List the ways to run PROGRAM, a file with the text of a program, by instructions of a machine.

    Then the instructions that are selected: each operation is done once.
    """
    given = _read(program)
    machine = _machine(target)
    needles = [n for n in _needles(machine) if instruction in (None, n.name)]
    if not needles:
        raise click.UsageError(
            f"target {target} has no instruction {instruction!r}"
            if instruction
            else f"target {target} has no instructions"
        )
    rows: list[dict[str, Any]] = []
    for needle in needles:
        outcome = _mapped(given, needle, bundle=bundle, transform=transform)
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
    selection = _selected(given, machine, needles, rule)
    _show(state, selection, why=why)
    if state.json:
        state.print_json(
            {
                "command": "map",
                "program": str(program),
                "target": target,
                "instructions": rows,
                "selection": [_used(use) for use in selection.uses],
                "cost": list(selection.cost),
                "uncovered": [u.stage for u in selection.uncovered],
            }
        )


def _read(path: Path) -> Program:
    if path.stat().st_size > MAX_FILE:
        raise InputError(
            f"{quoted_path(path)} has more than {MAX_FILE} bytes", hint="is it a program's text?"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{quoted_path(path)} is no text", hint="give the text of a program") from None
    return read_program(text)


def _machine(target: str) -> system.SystemGraph | CpuTarget | None:
    """A machine of a file, or a target with instructions."""
    if target.endswith(".json") or target in system.shipped_machines():
        return system.load_machine(target)
    found = find_target(target)
    return found if isinstance(found, CpuTarget) else None


def _needles(machine: system.SystemGraph | CpuTarget | None) -> Sequence[Needle]:
    """What the mapper looks for: a target's rows, or the instructions of a machine."""
    if isinstance(machine, system.SystemGraph):
        return system.needles_of(machine)
    return [] if machine is None else [Needle.of(row) for row in machine.operations.values()]


def _selected(
    program: Program,
    machine: system.SystemGraph | CpuTarget | None,
    needles: Sequence[Needle],
    rule: Literal["fewest", "cycles"],
) -> Selection:
    """What does the program: of a CPU's instructions those that are faster than multiply-adds."""
    if isinstance(machine, system.SystemGraph):
        return system.select(program, machine, system.Heuristics(), rule)
    assert machine is not None
    cpu, tensors = machine, {b.name: b for b in program.buffers}
    products = [n for n in needles if cpu.operations[n.name].is_contraction]

    def price(use: Use) -> tuple[float] | None:
        found = selected_cycles(use, tensors, cpu)
        return found if found is None or rule == "cycles" else (float(use.executions),)

    return select_instructions(program, products, price)


def _show(state: State, selection: Selection, *, why: bool) -> None:
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
