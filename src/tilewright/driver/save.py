"""Saving compiled models: kernels linked into one library, weights, and the manifest, in one file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import __version__
from tilewright.codegen import can_link, link_shared, rename_functions, shared_library
from tilewright.driver.assemble import Assembled, Steps
from tilewright.driver.kernels import ModelKernel
from tilewright.driver.layouts import is_plain
from tilewright.runtime import (
    ALIGNMENT,
    CODE,
    CONSTANT,
    INPUT,
    OUTPUT,
    WEIGHTS,
    BufferRef,
    ExecutionPlan,
    Manifest,
    ParamRef,
    Piece,
    Requirements,
    TensorInfo,
    kernel_symbol,
    write_container,
)
from tilewright.support import InputError, InternalError, quoted
from tilewright.target import Target

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A model taken apart: what it says of itself, its kernels and their objects, pieces of its weights."""

    manifest: Manifest
    symbols: tuple[str, ...]
    objects: tuple[bytes, ...]
    weights: tuple[Piece, ...]


def take_apart(
    steps: Steps,
    assembled: Assembled,
    target: Target,
    inputs: tuple[TensorInfo, ...],
    outputs: tuple[TensorInfo, ...],
    index_bounds: Mapping[str, int],
) -> Parts:
    """Number the kernels, give their functions unique names, and place the weights one after another."""
    assert isinstance(assembled.plan, ExecutionPlan)  # for devices: save_device.py
    contents = assembled.plan.contents
    numbers: dict[int, int] = {}
    objects: list[bytes] = []
    for kernel in steps.kernels:
        assert isinstance(kernel, ModelKernel)
        if kernel.address not in numbers:
            number = numbers[kernel.address] = len(numbers)
            names = {name: f"{kernel_symbol(number)}_{at}" for at, name in enumerate(kernel.code.names)}
            names[kernel.symbol] = kernel_symbol(number)
            objects.extend(rename_functions(content, names) for content in kernel.code.objects)
    calls = []
    for call in contents.steps:
        if any(isinstance(value, ParamRef) for value in call.params) or call.kernel not in numbers:
            raise InternalError(f"the step {quoted(call.name)} cannot be saved")
        calls.append(replace(call, kernel=numbers[call.kernel]))
    results, returned = results_of(steps, assembled, len(contents.constants))
    places, pieces = placed((*contents.constants, *returned))
    manifest = Manifest(
        name=steps.graph.name,
        producer=f"tilewright {__version__}",
        requires=Requirements(target.arch, tuple(sorted(target.features))),
        threads=assembled.plan.pool.threads,
        inputs=inputs,
        outputs=outputs,
        results=results,
        index_bounds=index_bounds,
        plan_inputs=contents.inputs,
        plan_outputs=contents.outputs,
        arena_bytes=contents.arena_bytes,
        workspace_bytes=contents.workspace_bytes,
        scratch_bytes=contents.scratch_bytes,
        constants=tuple(places),
        calls=tuple(calls),
        checks=contents.checks,
        copies=contents.copies,
    )
    symbols = tuple(map(kernel_symbol, range(len(numbers))))
    return Parts(manifest, symbols, tuple(objects), tuple(pieces))


def as_path(given: object, what: str) -> Path:
    """The path of a file to write. Raises InputError for what is none."""
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise InputError(f"{what} is given by its path, not by {type(given).__name__}")


def save_model(parts: Parts, path: str | os.PathLike[str]) -> None:
    """Write a model as one file, which ``tilewright.load`` reads; it appears whole or not at all.

    On x86-64 the kernels are linked in this process, elsewhere by the system's C compiler. Raises
    ArtefactError where the file cannot be written, InstallationError where it needs a missing C compiler.
    """
    if can_link(parts.objects):
        code = shared_library(parts.objects, parts.symbols)
    else:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            code = link_shared(parts.objects, Path(folder, "kernels.so"), exports=parts.symbols).read_bytes()
    write_container(
        as_path(path, "a saved model"), parts.manifest.as_data(), {CODE: [code], WEIGHTS: parts.weights}
    )


def results_of(
    steps: Steps, assembled: Assembled, constant_count: int
) -> tuple[tuple[BufferRef, ...], tuple[Array, ...]]:
    """Where each of the model's outputs is after a run, and the constants among them.

    Those are numbered on from the plan's, of which there are ``constant_count``.
    """
    plan = assembled.plan
    results: list[BufferRef] = []
    constants: list[Array] = []
    for value in steps.graph.outputs:
        root = steps.root(value)
        if root in assembled.outputs:
            buffer = steps.buffers.get(root)
            if buffer is not None and not is_plain(buffer):
                raise InternalError(f"the output {quoted(value)} is in a layout of its own")
            at = assembled.outputs.index(root)
            results.append(BufferRef(OUTPUT, at, 0, plan.outputs[at]))
        elif root in assembled.inputs:
            at = assembled.inputs.index(root)
            results.append(BufferRef(INPUT, at, 0, plan.inputs[at]))
        else:
            constants.append(steps.graph.constants[root])
            at = constant_count + len(constants) - 1
            results.append(BufferRef(CONSTANT, at, 0, constants[-1].nbytes))
    return tuple(results), tuple(constants)


def placed(arrays: Sequence[Array]) -> tuple[list[tuple[int, int]], list[Piece]]:
    """Offset and bytes of each array, equal arrays once, and the pieces that make up the whole."""
    places: list[tuple[int, int]] = []
    pieces: list[Piece] = []
    known: dict[int, tuple[int, int]] = {}
    end = 0
    for array in arrays:
        if id(array) not in known:
            pieces.append(bytes(-end % ALIGNMENT))
            pieces.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            offset = end + len(pieces[-2])
            end = offset + array.nbytes
            known[id(array)] = (offset, array.nbytes)
        places.append(known[id(array)])
    return places, pieces
