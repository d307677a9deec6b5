"""``tilewright verify``: compare a compiled model with a reference."""

from __future__ import annotations

from typing import Any, cast

import click

from tilewright.cli.models import as_proto, compile_for, feeds_for, load_or_compile, open_model
from tilewright.cli.options import (
    CompileOptions,
    common_options,
    compile_options,
    input_options,
    model_argument,
)
from tilewright.cli.programs import names_program
from tilewright.cli.progress import ProgressBar
from tilewright.cli.state import FAILED, State
from tilewright.driver import (
    REFERENCES,
    CompiledModel,
    Reference,
    TensorCheck,
    Verification,
    verify_model,
)
from tilewright.frontend import read_onnx
from tilewright.runtime import SavedModel, is_saved_model
from tilewright.support import counted, quoted


@click.command()
@model_argument
@click.option(
    "--reference",
    type=click.Choice(REFERENCES),
    default="auto",
    show_default=True,
    help="auto: onnxruntime where installed, else the evaluator of the onnx package.",
)
@click.option("--source", metavar="MODEL.onnx", help="What a saved MODEL was compiled from.")
@input_options
@compile_options
@common_options
@click.pass_context
def verify(
    context: click.Context,
    state: State,
    model: str,
    reference: str,
    source: str | None,
    files: tuple[str, ...],
    archive: str | None,
    seed: int,
    options: CompileOptions,
) -> None:
    """Compare MODEL's values, from the first kernel to the outputs, with a reference.

    Names the first tensor that differs by more than rounding allows; the exit status is 1 then. Of a saved
    model, whose --source must be given, the outputs are compared.
    """
    if is_saved_model(model) != (source is not None):
        raise click.UsageError("--source MODEL.onnx says what a saved model was compiled from, and it must")
    if names_program(model):
        raise click.UsageError("programs are compared with their evaluation by `tilewright schedule`")
    original = open_model(model if source is None else source)
    compiled: CompiledModel | SavedModel
    if source is None:
        compiled = compile_for(state, original, options)
    else:
        read_onnx(original)  # nothing compiles it, which would check it
        compiled = load_or_compile(state, model, options)
    feeds = feeds_for(compiled, files, archive, seed)
    with ProgressBar(state) as progress:
        progress("check", 0, 1, f"reference: {reference}")
        outcome = verify_model(compiled, as_proto(original), feeds, cast(Reference, reference))
        progress("check", 1, 1)
    if state.json:
        state.print_json({"command": "verify", "model": model, **as_data(outcome)})
    else:
        report(state, outcome)
    if not outcome.ok:
        context.exit(FAILED)


def as_data(outcome: Verification) -> dict[str, Any]:
    """The outcome as plain data."""
    return {
        "reference": outcome.reference,
        "ok": outcome.ok,
        "worst_ratio": outcome.worst if outcome.worst < float("inf") else None,
        "first_difference": None if outcome.first_difference is None else _row(outcome.first_difference),
        "tensors": [_row(check) for check in outcome.checks],
    }


def report(state: State, outcome: Verification) -> None:
    """Show the outcome to people."""
    first = outcome.first_difference
    outputs = sum(check.output for check in outcome.checks)
    if first is None:
        inner = counted(len(outcome.checks) - outputs, "intermediate tensor")
        state.say(
            f"ok: {counted(outputs, 'output')} and {inner} agree with {outcome.reference}; "
            f"the largest error is {outcome.worst:.2g} of what rounding allows"
        )
        return
    bad = sum(not check.ok for check in outcome.checks)
    state.say(f"differs from {outcome.reference}: {bad} of {counted(len(outcome.checks), 'tensor')}")
    state.say(f"the first is {quoted(first.name)}, made by {quoted(first.made_by)}: {first.comparison}")


def _row(check: TensorCheck) -> dict[str, Any]:
    ratio = check.comparison.ratio
    return {
        "name": check.name,
        "made_by": check.made_by,
        "output": check.output,
        "ok": check.ok,
        "ratio": ratio if ratio < float("inf") else None,
        "message": str(check.comparison),
    }
