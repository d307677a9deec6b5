"""The MODEL argument: an ONNX file, one of the reference architectures, or a Python file with a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import click
import numpy.typing as npt
import onnx
from onnx import ModelProto

from tilewright.cli.arrays import read_feeds
from tilewright.cli.nests import names_nest, nest_arguments
from tilewright.cli.options import CompileOptions, parse_assignments
from tilewright.cli.programs import names_program, open_program
from tilewright.cli.progress import ProgressBar
from tilewright.cli.state import State
from tilewright.devices import load_fixed, load_model
from tilewright.driver import CompiledModel, Nest, compile_model
from tilewright.frontend import zoo
from tilewright.ir import Program
from tilewright.runtime import SavedDynamicModel, SavedModel, is_saved_model
from tilewright.support import known_names, quoted

Array = npt.NDArray[Any]

ZOO: Final = "zoo:"


def open_model(text: str) -> str | ModelProto:
    """What a compilation takes: the path, or the architecture that ``zoo:NAME[:small]`` names."""
    if not text.startswith(ZOO):
        return text
    name, _, size = text.removeprefix(ZOO).partition(":")
    builders = zoo.SMALL if size == "small" else zoo.FULL
    if name in builders and size not in ("", "small"):
        raise click.UsageError(
            f"there is no size {size!r} of {ZOO}{name}: write {ZOO}{name} or {ZOO}{name}:small"
        )
    if name not in builders:
        hint = known_names(name, builders, "the architectures")
        raise click.UsageError(f"there is no architecture {text!r}: {hint}")
    return builders[name]()


def as_proto(model: str | ModelProto) -> ModelProto:
    """The model itself; call it after the model has been compiled or read, which checks the file."""
    return model if isinstance(model, ModelProto) else onnx.load(model)


def source_of(
    model: str | ModelProto, options: CompileOptions
) -> tuple[str | ModelProto | Program, dict[str, Any]]:
    """What is compiled, and the arguments of ``compile_model`` but for the plan."""
    arguments = compile_arguments(options)
    source: str | ModelProto | Program = model
    if isinstance(model, str) and names_nest(model):
        return model, nest_arguments(model, options)
    if isinstance(model, str) and names_program(model):
        source, arguments["shapes"] = open_program(model, options.shapes)
    return source, arguments


def compile_for(state: State, model: str | ModelProto, options: CompileOptions) -> CompiledModel:
    """Compile with progress shown. Raises UsageError for a program whose sizes are left open."""
    if options.defines or options.headers:
        raise click.UsageError(
            f"{'-D' if options.defines else '-I'} is for nests in C, {quoted(str(model)[:80])} is none"
        )
    source, arguments = source_of(model, options)
    with ProgressBar(state) as progress:
        made = compile_model(source, plan=options.plan, progress=progress, **arguments)
    if isinstance(made, CompiledModel):
        return made
    assert not isinstance(made, Nest)
    sizes = " ".join(f"--shape {name}=N" for name in made.sizes)
    raise click.UsageError(f"{quoted(str(model))} leaves sizes open: give {sizes}")


def compile_arguments(options: CompileOptions) -> dict[str, Any]:
    """What decides a compilation, but for its plan, as arguments of ``compile_model``."""
    return {
        "target": options.target,
        "threads": options.threads,
        "shapes": options.shapes,
        "precision": options.precision,
        "accuracy": options.accuracy,
        "winograd": options.winograd,
        "checks": options.checks,
        "strategy": options.strategy,
        "wait_policy": options.wait_policy,
        "records": options.records,
    }


def load_or_compile(state: State, model: str, options: CompileOptions) -> CompiledModel | SavedModel:
    """A saved model as it is, anything else compiled. Raises UsageError for options that come too late."""
    if not is_saved_model(model):
        return compile_for(state, open_model(model), options)
    _refuse_late(options)
    return load_fixed(model, threads=options.threads, wait_policy=options.wait_policy)


def load_open(model: str, options: CompileOptions) -> SavedDynamicModel | None:
    """A saved model with open sizes, else ``None``. Raises UsageError for options that come too late."""
    if not is_saved_model(model):
        return None
    found = load_model(model, threads=options.threads, wait_policy=options.wait_policy)
    if not isinstance(found, SavedDynamicModel):
        return None
    _refuse_late(replace(options, shapes={}))
    return found


def _refuse_late(options: CompileOptions) -> None:
    if options != CompileOptions(threads=options.threads, wait_policy=options.wait_policy):
        raise click.UsageError(
            "a saved model has its shapes, its target and its methods: --shape, --target, --precision, "
            "--accuracy and --no-checks come too late"
        )


def feeds_for(
    compiled: CompiledModel | SavedModel, files: tuple[str, ...], archive: str | None, seed: int
) -> Mapping[str, Array]:
    """The inputs given as files; random ones where none are given at all."""
    given = read_feeds(parse_assignments(files, "--input"), archive, compiled.inputs)
    return given if given else compiled.sample_feeds(seed)


def open_feeds(
    model: SavedDynamicModel,
    shapes: Mapping[str, tuple[int, ...] | int],
    files: tuple[str, ...],
    archive: str | None,
    seed: int,
) -> Mapping[str, Array]:
    """The inputs at the sizes of ``--shape``, by default the largest ones: of files, or random ones.

    Raises UsageError for a shape that is no size, InputError for sizes that the model does not have.
    """
    sizes = {name: known.largest for name, known in model.sizes.items()}
    for name, size in shapes.items():
        if not isinstance(size, int):
            raise click.UsageError(f"--shape {name}: the model's sizes are {', '.join(sizes)}")
        sizes[name] = size
    drawn = model.sample_feeds(seed, **sizes)
    infos = [each.at(sizes) for each in model.inputs]
    given = read_feeds(parse_assignments(files, "--input"), archive, infos)
    return given or drawn


def tensors_as_data(compiled: CompiledModel) -> dict[str, Any]:
    """Inputs and outputs as plain data."""
    return {
        kind: [{"name": each.name, "dtype": each.dtype.name, "shape": list(each.shape)} for each in infos]
        for kind, infos in (("inputs", compiled.inputs), ("outputs", compiled.outputs))
    }
