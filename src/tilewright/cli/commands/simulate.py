"""``tilewright simulate``: a program on a managed machine: its streams, its result, and its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from tilewright import lang
from tilewright.cli.options import common_options
from tilewright.cli.state import FAILED, State
from tilewright.ir import Program, evaluate_index, read_program
from tilewright.mapping import system
from tilewright.support import InputError, counted, quoted_path

_MAX_TEXT: Final = 64 << 20
"""Bytes of the longest file that is read."""


@click.command()
@click.argument("program", metavar="PROGRAM")
@click.option(
    "--target",
    "machine",
    required=True,
    metavar="MACHINE",
    help="A machine file, or the name of one that comes with the package.",
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="NAME=N",
    help="The value of a size that streams leave open, such as the steps of a recurrence.",
)
@click.option("--emit", is_flag=True, help="Print the instruction streams.")
@click.option("--timeline", "spans", type=click.IntRange(min=0), default=0, help="Draw so many items.")
@click.option(
    "--check", is_flag=True, help="Execute the streams on random integers, and compare the results."
)
@common_options
@click.pass_context
def simulate(
    context: click.Context,
    state: State,
    program: str,
    machine: str,
    sizes: tuple[str, ...],
    emit: bool,
    spans: int,
    check: bool,
) -> None:
    """Schedule a program for a machine of files, and time it in its simulator.

    PROGRAM is a file with the text of a program (as print(program) writes it), or with instruction streams.
    """
    graph = system.load_machine(machine)
    text = _read(program)
    source: Program | None = None
    if text.lstrip().startswith("machine("):
        streams = system.parse_streams(text)
    else:
        source = read_program(text)
        streams = system.schedule(source, graph)
    if emit:
        state.say(system.print_streams(streams))
    timing = system.time_streams(streams, graph, _sizes(sizes), spans=spans)
    used = {n: timing.use(n) for n in (*graph.units, *graph.movers) if timing.busy.get(n)}
    result: dict[str, Any] = {
        "command": "simulate",
        "machine": graph.name,
        "cycles": timing.cycles,
        "items": streams.size,
        "use": used,
        "bytes": dict(timing.bytes),
    }
    state.say(f"{timing.cycles} cycles on {graph.name}; streams of {counted(streams.size, 'item')}")
    for name, part in used.items():
        moved = timing.bytes.get(name)
        state.say(
            f"  {name:<20} {part:6.1%}" + (f"  {moved / timing.cycles:8.1f} bytes a cycle" if moved else "")
        )
    if spans:
        state.say(system.timeline(timing))
    if check:
        if source is None:
            raise InputError("only programs can be checked: streams do not say what they should compute")
        result["equal"] = _equal(source, streams, graph)
        state.say("results equal" if result["equal"] else "results differ")
        if not result["equal"]:
            context.exit(FAILED)
    if state.json:
        state.print_json(result)


def _equal(program: Program, streams: system.StreamProgram, graph: system.SystemGraph) -> bool:
    """Whether the streams compute the program on small integers, whose sums are exact in any order."""
    rng = np.random.default_rng(0)
    arrays = {
        b.name: rng.integers(-2, 3, [evaluate_index(x, {}) for x in b.shape]).astype(b.dtype.numpy)
        for b in program.inputs
    }
    made, wanted = system.execute(streams, graph, arrays), lang.evaluate(program, arrays)
    return all(
        np.allclose(made[n].astype(np.float64), a.astype(np.float64), rtol=1e-5) for n, a in wanted.items()
    )


def _sizes(given: tuple[str, ...]) -> dict[str, int]:
    out: dict[str, int] = {}
    for each in given:
        name, _, value = each.partition("=")
        if not name or not value.isascii() or not value.isdigit():
            raise click.BadParameter(f"{each!r} is not NAME=N", param_hint="--size")
        out[name] = int(value)
    return out


def _read(name: str) -> str:
    path = Path(name)
    try:
        with path.open("rb") as opened:
            data = opened.read(_MAX_TEXT + 1)
    except OSError as error:
        raise InputError(f"{quoted_path(path)} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_TEXT:
        raise InputError(f"{quoted_path(path)} has more than {_MAX_TEXT} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{quoted_path(path)} is not UTF-8") from None
