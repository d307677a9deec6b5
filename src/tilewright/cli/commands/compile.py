"""``tilewright compile``: compile a model and say what came out."""

from __future__ import annotations

import click

from tilewright.cli.models import SAVED, compile_for, open_model, tensors_as_data
from tilewright.cli.options import common_options, compile_options, model_argument
from tilewright.cli.state import State
from tilewright.support import counted, format_bytes


@click.command("compile")
@model_argument
@click.option("--output", metavar=f"FILE{SAVED}", help="Save the compiled model there; `run` takes the file.")
@compile_options
@common_options
def compile_(
    state: State,
    model: str,
    output: str | None,
    target: str,
    threads: int | None,
    shapes: tuple[str, ...],
) -> None:
    """Compile MODEL, and report its inputs, outputs, kernels and memory.

    Compiled code is kept in the object cache: compiling the same model again takes a fraction of the time.
    """
    compiled = compile_for(state, open_model(model), target, threads, shapes)
    if output is not None:
        compiled.save(output)
    groups = compiled.groups()
    kernels = len({id(group.kernel) for group in groups})
    if state.json:
        state.print_json(
            {
                "command": "compile",
                "model": model,
                "name": compiled.name,
                "target": compiled.target.name,
                "threads": compiled.threads,
                **tensors_as_data(compiled),
                "groups": len(groups),
                "kernels": kernels,
                "flops": sum(group.kernel.flops for group in groups),
                "run_bytes": compiled.run_bytes,
                "constant_bytes": compiled.constant_bytes,
                "seconds": compiled.compile_seconds,
            }
        )
        return
    for kind, infos in (("input", compiled.inputs), ("output", compiled.outputs)):
        for info in infos:
            state.say(f"{kind:>8}  {info}")
    state.say(f"  target  {compiled.target.name}, {counted(compiled.threads, 'thread')}")
    state.say(f" kernels  {kernels} different ones in {counted(len(groups), 'step')}")
    state.say(
        f"  memory  {format_bytes(compiled.constant_bytes)} of weights, "
        f"{format_bytes(compiled.run_bytes)} a run"
    )
    phases = ", ".join(f"{name} {taken:.2f} s" for name, taken in compiled.compile_seconds.items())
    state.say(f"    time  {phases}")
    if output is not None:
        state.note(f"saved as {output}")
