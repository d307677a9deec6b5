"""``tilewright compile``: compile a model and say what came out."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Final

import click

from tilewright.cli.dynamic import save_dynamic
from tilewright.cli.files import check_output, write_folder, write_text
from tilewright.cli.models import compile_for, open_model, tensors_as_data
from tilewright.cli.nests import compile_nest, names_nest, open_nest
from tilewright.cli.options import (
    CompileOptions,
    common_options,
    compile_options,
    model_argument,
    parse_ranges,
    parse_sizes,
)
from tilewright.cli.programs import names_program, open_program
from tilewright.cli.progress import ProgressBar
from tilewright.cli.state import State
from tilewright.driver import FORMS, Form, emit_model, tiled_source
from tilewright.ir import to_function
from tilewright.support import counted, format_bytes, quoted
from tilewright.target import GpuTarget, find_target

EMITTED: Final = ("artefact", "c-header", "c", "c-tiles", *FORMS)

#: What a file's name says that it holds, where that is no saved model.
_OTHERS: Final = MappingProxyType(
    {
        ".h": "a C header: --emit c-header",
        ".c": "a C source: --emit c",
        ".so": "a library: --emit c-header",
        ".onnx": "a model that can be compiled",
    }
)


@click.command("compile")
@model_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the compiled model there: MODEL.tw, with --emit c-header MODEL.h (and MODEL.so), with "
    "--emit c MODEL.c.",
)
@click.option(
    "--emit",
    type=click.Choice(EMITTED),
    default=EMITTED[0],
    show_default=True,
    help="What to write. artefact: one file, for `tilewright run` and tilewright.load; c-header: a C header "
    "and a shared library that stands alone; c: the kernels as C99 with pragmas of OpenMP; c-tiles: of "
    "a program in Python or a nest in C, one function whose tile sizes are arguments; source, ptx, "
    "cubin: the kernels for a GPU that need not be here, with --output in a folder.",
)
@click.option(
    "--dynamic",
    "ranges",
    multiple=True,
    metavar="NAME=LEAST:LARGEST",
    help="Leave an unknown size open, such as seq=1:4096; the model saved by --output runs at all of them. "
    "May be given several times.",
)
@click.option(
    "--size",
    "alone",
    multiple=True,
    metavar="NAME=N[,NAME=N]",
    help="Sizes of --dynamic that get kernels of their own in the saved model. May be given several times.",
)
@compile_options
@common_options
def compile_(
    state: State,
    model: str,
    output: str | None,
    emit: str,
    ranges: tuple[str, ...],
    alone: tuple[str, ...],
    options: CompileOptions,
) -> None:
    """Compile MODEL, and report its inputs, outputs, kernels and memory.

    MODEL may be a C file with one nest between #pragma scop and #pragma endscop.

    Compiled code is kept in the object cache: compiling the same model again takes a fraction of the time.
    """
    if (ranges or alone) and (not ranges or output is None or emit != EMITTED[0] or options.plan):
        raise click.UsageError("--dynamic goes with --output alone, --size with --dynamic")
    if emit in FORMS:
        _emit_kernels(state, model, output, emit, options)
        return
    if emit != EMITTED[0] and output is None:
        raise click.UsageError(f"--emit {emit} needs --output")
    if output is not None and emit == EMITTED[0] and (wanted := _OTHERS.get(Path(output).suffix)):
        raise click.UsageError(f"--output {quoted(output)} has the name of {wanted}; saved models end in .tw")
    check_output(output, model, *options.read)
    if emit == "c-tiles":
        _emit_tiles(state, model, str(output), options)
        return
    if names_nest(model):
        compile_nest(state, model, options, emit, output)
        return
    if ranges:
        save_dynamic(state, model, options, parse_ranges(ranges), parse_sizes(alone), str(output))
        return
    compiled = compile_for(state, open_model(model), options)
    written: list[str] = []
    if output is not None:
        with ProgressBar(state) as progress:
            progress("save", 0, 1, output)
            if emit == "c-header":
                check_output(str(Path(output).with_suffix(".so")), model, options.records)
                written = list(map(str, compiled.export_c(output)))
            elif emit == "c":
                write_text(output, compiled.c_source())
            else:
                compiled.save(output)
            progress("save", 1, 1, output)
        written = written or [output]
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
                "written": written,
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
    for file in written:
        state.note(f"written to {file}")


def _emit_tiles(state: State, model: str, output: str, options: CompileOptions) -> None:
    if names_nest(model):
        nest, values = open_nest(model, options)
        func = nest.at(values)
    elif names_program(model):
        func = to_function(open_program(model, options.shapes)[0])
    else:
        raise click.UsageError(f"--emit c-tiles is for programs and nests, {quoted(model)} is none")
    write_text(output, tiled_source(func))
    state.note(f"written to {output}")


def _emit_kernels(state: State, model: str, output: str | None, form: Form, options: CompileOptions) -> None:
    """The kernels of a model for a device: as files of a folder, or text on standard output."""
    target = find_target(options.target)
    if not isinstance(target, GpuTarget):
        raise click.UsageError(f"--emit {form} needs a GPU's target such as --target cuda:sm_90")
    if output is None and form != "source" and not state.json:
        raise click.UsageError(f"--emit {form} needs --output")
    with ProgressBar(state) as progress:
        made = emit_model(
            open_model(model),
            target,
            form,
            shapes=options.shapes,
            precision=options.precision,
            progress=progress,
        )
    if output is not None:
        write_folder(output, {unit.file: unit.content for unit in made})
    if state.json:
        rows = [unit.as_data() for unit in made]
        state.print_json({"command": "compile", "model": model, "target": target.name, "units": rows})
        return
    for unit in made if output is None else ():
        state.say(f"// {unit.file}\n{unit.content.decode()}")
    kernels = sum(len(unit.source.kernels) for unit in made)
    state.note(f"{counted(kernels, 'kernel')} for {target.name}" + (f" in {output}" if output else ""))
