"""``tilewright simulate``: a program on a managed machine: its streams, its result, and its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from tilewright import lang
from tilewright.cli.mapped import Part, read_parts, read_text
from tilewright.cli.models import ZOO
from tilewright.cli.options import common_options, parse_shapes
from tilewright.cli.programs import names_program
from tilewright.cli.state import FAILED, State
from tilewright.ir import Program, evaluate_index
from tilewright.mapping import system
from tilewright.support import InputError, ProgramError, ResourceError, TargetError, counted


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
@click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZES", help="Settle open sizes of a model.")
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
    shapes: tuple[str, ...],
) -> None:
    """Schedule a program for a machine of files, and time it in its simulator.

    PROGRAM is a file with the text of a program (as print_program writes it) or with instruction streams,
    FILE.py[:NAME], or a model (FILE.onnx, zoo:NAME): its parts one after another, those that the machine
    cannot do left to the host.
    """
    graph = system.load_machine(machine)
    model = program.startswith(ZOO) or program.endswith(".onnx")
    text = "" if model or names_program(program) else read_text(program)
    if text.lstrip().startswith("machine("):
        if check:
            raise InputError("only programs can be checked: streams do not say what they should compute")
        parts = [_Timed("", 1, None, system.parse_streams(text), "")]
    else:
        parts = [_scheduled(p, graph, model=model) for p in read_parts(program, parse_shapes(shapes))]
    results: list[dict[str, Any]] = []
    for part in parts:
        if part.streams is None:
            state.say(f"{part.name}: on the host: {part.why}")
            results.append({"part": part.name, "count": part.count, "host": part.why})
            continue
        results.append(_show(state, part, part.streams, graph, _sizes(sizes), emit, spans))
        if check and part.program is not None:
            results[-1]["equal"] = _equal(part.program, part.streams, graph)
            state.say("results equal" if results[-1]["equal"] else "results differ")
    if model:
        _total(state, results)
    if state.json:
        head = {"command": "simulate", "machine": graph.name}
        total = {"parts": results, "cycles": sum(r.get("cycles", 0) * r["count"] for r in results)}
        state.print_json({**head, **(total if model else results[0])})
    if not all(r.get("equal", True) for r in results):
        context.exit(FAILED)


@dataclass(frozen=True, slots=True)
class _Timed:
    """What runs on a machine; without streams, ``why`` not."""

    name: str
    count: int
    program: Program | None
    streams: system.StreamProgram | None
    why: str


def _scheduled(part: Part, graph: system.SystemGraph, *, model: bool) -> _Timed:
    """A part on the machine; of a model, on the host where the machine cannot do it."""
    try:
        return _Timed(part.name, part.count, part.program, system.schedule(part.program, graph), "")
    except (ProgramError, ResourceError, TargetError) as error:
        if not model:
            raise
        return _Timed(part.name, part.count, part.program, None, error.what)


def _show(
    state: State,
    part: _Timed,
    streams: system.StreamProgram,
    graph: system.SystemGraph,
    sizes: dict[str, int],
    emit: bool,
    spans: int,
) -> dict[str, Any]:
    if emit:
        state.say(system.print_streams(streams))
    timing = system.time_streams(streams, graph, sizes, spans=spans)
    used = {n: timing.use(n) for n in (*graph.units, *graph.movers) if timing.busy.get(n)}
    name, count = part.name, part.count
    times = f", {count} times" if count > 1 else ""
    state.say(
        (f"{name}{times}: " if name else "")
        + f"{timing.cycles} cycles on {graph.name}; streams of {counted(streams.size, 'item')}"
    )
    for node, share in used.items():
        moved = timing.bytes.get(node)
        rate = f"  {moved / timing.cycles:8.1f} bytes a cycle" if moved else ""
        state.say(f"  {node:<20} {share:6.1%}{rate}")
    if spans:
        state.say(system.timeline(timing))
    return {
        "part": name,
        "count": count,
        "cycles": timing.cycles,
        "items": streams.size,
        "use": used,
        "bytes": dict(timing.bytes),
    }


def _total(state: State, results: list[dict[str, Any]]) -> None:
    there = [r for r in results if "cycles" in r]
    cycles = sum(r["cycles"] * r["count"] for r in there)
    moved = sum(sum(r["bytes"].values()) * r["count"] for r in there)
    state.say(
        f"{cycles} cycles and {moved} bytes moved in all; {sum(r['count'] for r in there)} of"
        f" {sum(r['count'] for r in results)} parts on the machine"
    )


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
