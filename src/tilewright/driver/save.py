"""Saving compiled models: kernels linked into one library, weights, and the manifest, in one file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import __version__
from tilewright.build import Kernel, UnitKernel, is_plain
from tilewright.codegen import can_link, link_shared, rename_functions, shared_library
from tilewright.devices import DevicePlanContents
from tilewright.driver.assemble import Assembled, Steps
from tilewright.driver.samples import index_bounds
from tilewright.graph import Graph
from tilewright.runtime import (
    ALIGNMENT,
    CODE,
    CONSTANT,
    INPUT,
    OUTPUT,
    WEIGHTS,
    BufferRef,
    ExecutionPlan,
    KernelCall,
    Manifest,
    OpenManifest,
    OpenPlan,
    PartManifest,
    Piece,
    PlanContents,
    RangeManifest,
    Ranges,
    Requirements,
    SizeProgram,
    Sizes,
    StagedPlan,
    TensorInfo,
    kernel_symbol,
    one_plan,
    write_container,
)
from tilewright.support import InputError, InternalError, quoted
from tilewright.target import CpuTarget, TargetBase

Array = npt.NDArray[Any]


class Library:
    """Kernels of plans that are saved together, numbered as they are met, their functions named anew."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        # an address is a kernel's own as long as that lives
        self._kernels: list[Kernel] = []
        self.objects: list[bytes] = []
        """The object files of all kernels."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The name of each kernel."""
        return tuple(map(kernel_symbol, range(len(self._numbers))))

    def calls(self, steps: Sequence[KernelCall], kernels: Iterable[Kernel]) -> tuple[KernelCall, ...]:
        """The steps of a plan with their kernels' numbers. Raises InternalError for an unknown kernel."""
        for kernel in kernels:
            if kernel.address not in self._numbers:
                number = self._numbers[kernel.address] = len(self._numbers)
                self._kernels.append(kernel)
                names = {name: f"{kernel_symbol(number)}_{at}" for at, name in enumerate(kernel.code.names)}
                names[kernel.symbol] = kernel_symbol(number)
                self.objects.extend(rename_functions(content, names) for content in kernel.code.objects)
        if unknown := [call.name for call in steps if call.kernel not in self._numbers]:
            raise InternalError(f"the step {quoted(unknown[0])} cannot be saved")
        return tuple(replace(call, kernel=self._numbers[call.kernel]) for call in steps)


class Weights:
    """Constants of plans that are saved together, one after another; equal ones once."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, int]] = {}
        self._end = 0
        self.pieces: list[Piece] = []
        """What the section consists of."""

    def place(self, arrays: Iterable[Array]) -> tuple[tuple[int, int], ...]:
        """Offset and bytes of each array."""
        places = []
        for array in arrays:
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            digest = hashlib.sha256(content).digest()
            if digest not in self._known:
                self.pieces.append(bytes(-self._end % ALIGNMENT))
                self.pieces.append(content)
                self._known[digest] = (self._end + len(self.pieces[-2]), array.nbytes)
                self._end = sum(self._known[digest])
            places.append(self._known[digest])
        return tuple(places)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A model taken apart: what it says of itself, its kernels and its constants."""

    manifest: Manifest
    library: Library
    weights: Weights


@dataclass(frozen=True, slots=True)
class Described:
    """What a manifest says of a model besides its plan."""

    name: str
    target: TargetBase
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    index_bounds: Mapping[str, int]

    @property
    def requires(self) -> Requirements:
        """What the code needs of a machine."""
        features = sorted(self.target.features) if isinstance(self.target, CpuTarget) else ()
        return Requirements(self.target.arch, tuple(features))

    def manifest(
        self,
        contents: PlanContents | DevicePlanContents,
        calls: tuple[KernelCall, ...],
        constants: tuple[tuple[int, int], ...],
        results: tuple[BufferRef, ...],
        *,
        threads: int = 1,
    ) -> Manifest:
        """The manifest of one of the model's plans; its kernels are numbered, its constants have places.

        What plans of CPUs or of devices alone have is left out.
        """
        return Manifest(
            name=self.name,
            producer=f"tilewright {__version__}",
            requires=self.requires,
            threads=threads,
            inputs=self.inputs,
            outputs=self.outputs,
            results=results,
            index_bounds=self.index_bounds,
            plan_inputs=contents.inputs,
            plan_outputs=contents.outputs,
            arena_bytes=contents.arena_bytes,
            workspace_bytes=0,
            scratch_bytes=0,
            constants=constants,
            calls=calls,
            checks=contents.checks,
        )

    def manifest_of_cpu(
        self,
        plan: ExecutionPlan,
        calls: tuple[KernelCall, ...],
        constants: tuple[tuple[int, int], ...],
        results: tuple[BufferRef, ...],
    ) -> Manifest:
        """:meth:`manifest` of a plan for CPUs, with the memory of its threads."""
        contents = plan.contents
        return replace(
            self.manifest(contents, calls, constants, results, threads=plan.pool.threads),
            workspace_bytes=contents.workspace_bytes,
            scratch_bytes=contents.scratch_bytes,
            copies=contents.copies,
            param_count=contents.param_count,
            slots=contents.slots,
        )


def take_apart(
    steps: Steps, assembled: Assembled, said: Described, library: Library, weights: Weights
) -> Manifest:
    """The manifest of a model of fixed sizes, its kernels and constants put to those of a file."""
    plan = assembled.plan
    assert isinstance(plan, ExecutionPlan)  # for devices: save_device.py
    calls = library.calls(plan.contents.steps, (k.on_cpu() for k in steps.kernels))
    results, returned = results_of(steps, assembled, len(plan.contents.constants))
    places = weights.place((*plan.contents.constants, *returned))
    return said.manifest_of_cpu(plan, calls, places, results)


def range_manifest(
    ranges: Ranges,
    plan: StagedPlan,
    made_of: Sequence[tuple[Graph, Sequence[UnitKernel]]],
    said: Described,
    library: Library,
    weights: Weights,
) -> RangeManifest:
    """The manifest of a range of sizes, its kernels and constants put to those of a file.

    ``made_of`` are the graph and the kernels of each plan.
    """
    parts = [
        _part(each, kernels, replace(said, index_bounds=index_bounds(graph)), library, weights)
        for each, (graph, kernels) in zip(plan.plans, made_of, strict=True)
    ]
    return RangeManifest(ranges, tuple(parts), plan.course)


def single_range(sizes: Sizes, manifest: Manifest) -> RangeManifest:
    """A model of fixed sizes as the range of these alone."""
    shapes = [tuple(info.shape for info in infos) for infos in (manifest.inputs, manifest.outputs)]
    part = PartManifest(
        replace(manifest, param_count=len(sizes)), SizeProgram(len(sizes), ()), shapes[0], shapes[1]
    )
    course = one_plan(len(sizes), [info.name for info in manifest.outputs])
    return RangeManifest(tuple((n, n) for n in sizes), (part,), course)


def _part(
    plan: OpenPlan, kernels: Sequence[UnitKernel], said: Described, library: Library, weights: Weights
) -> PartManifest:
    contents = plan.plan.contents
    # shapes are those of runs; where there are none of these, they are known
    shown = [
        tuple(t.at(()) if not contents.param_count else TensorInfo(t.name, t.dtype, ()) for t in tensors)
        for tensors in (plan.inputs, plan.outputs)
    ]
    said = replace(said, inputs=shown[0], outputs=shown[1])
    calls = library.calls(contents.steps, (k.on_cpu() for k in kernels))
    results = tuple(
        replace(ref, index=len(contents.constants) + ref.index) if ref.kind == CONSTANT else ref
        for ref in plan.results
    )
    places = weights.place((*contents.constants, *plan.constants))
    return PartManifest(
        plan=said.manifest_of_cpu(plan.plan, calls, places, results),
        program=plan.program,
        inputs=tuple(tensor.extents for tensor in plan.inputs),
        outputs=tuple(tensor.extents for tensor in plan.outputs),
        relations=plan.relations,
    )


def as_path(given: object, what: str) -> Path:
    """The path of a file to write. Raises InputError for what is none."""
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise InputError(f"{what} is given by its path, not by {type(given).__name__}")


def save_model(
    manifest: Manifest | OpenManifest, library: Library, weights: Weights, path: str | os.PathLike[str]
) -> None:
    """Write a model as one file, which ``tilewright.load`` reads; it appears whole or not at all.

    On x86-64 the kernels are linked in this process, elsewhere by the system's C compiler. Raises
    ArtefactError where the file cannot be written, InstallationError where it needs a missing C compiler.
    """
    objects, symbols = library.objects, library.symbols
    if can_link(objects):
        code = shared_library(objects, symbols)
    else:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            code = link_shared(objects, Path(folder, "kernels.so"), exports=symbols).read_bytes()
    if isinstance(manifest, OpenManifest):
        data = manifest.as_data(lambda array: weights.place([array])[0])
    else:
        data = manifest.as_data()
    write_container(as_path(path, "a saved model"), data, {CODE: [code], WEIGHTS: weights.pieces})


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
