"""Loading saved models, without the compiler and what it depends on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.runtime.code import SharedCode
from tilewright.runtime.container import MAGIC, open_container
from tilewright.runtime.entries import MalformedError
from tilewright.runtime.executor import ExecutionPlan, PlanContents, amount_in
from tilewright.runtime.manifest import (
    CODE,
    WEIGHTS,
    Manifest,
    Requirements,
    check_places,
    kernel_symbol,
    read_manifest,
)
from tilewright.runtime.open_manifest import OpenManifest, PartManifest, is_open, read_open_manifest
from tilewright.runtime.open_plan import OpenPlan, SizedTensor
from tilewright.runtime.pool import ThreadPool, pool_for
from tilewright.runtime.saved import SavedModel
from tilewright.runtime.saved_nest import SavedNest
from tilewright.runtime.saved_open import SavedDynamicModel
from tilewright.runtime.staged import StagedPlan
from tilewright.runtime.tensors import TensorInfo, tensor_bytes
from tilewright.support import (
    ArtefactError,
    InputError,
    ResourceError,
    Settings,
    TargetError,
    WaitPolicy,
    format_bytes,
    quoted,
    quoted_path,
    read_settings,
)
from tilewright.target import Target, detect

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class OpenedModel:
    """The file of a saved model: what it says, its sections, and the constants of each of its plans.

    The constants are mapped from the file, which ``shown`` names in messages.
    """

    manifest: Manifest | OpenManifest
    sections: Mapping[str, memoryview]
    weights: tuple[tuple[Array, ...], ...]
    shown: str

    @property
    def plans(self) -> tuple[Manifest, ...]:
        """What it says of each plan."""
        return (self.manifest,) if isinstance(self.manifest, Manifest) else self.manifest.plans


def open_saved_model(path: str | os.PathLike[str], *, verify: bool = True) -> OpenedModel:
    """Open a file and check all that it says. Raises ArtefactError for one that is damaged."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"a saved model is given by its path, not by {type(path).__name__}")
    file = Path(path)
    shown = quoted_path(file)
    container = open_container(file, verify=verify)
    manifest: Manifest | OpenManifest
    if is_open(container.manifest):
        content = container.sections.get(WEIGHTS, memoryview(b""))
        manifest = read_open_manifest(container.manifest, shown, partial(_bytes, content))
    else:
        manifest = read_manifest(container.manifest, shown)
    opened = OpenedModel(manifest, container.sections, (), shown)
    weights = tuple(_weights(plan, container.sections, shown) for plan in opened.plans)
    return replace(opened, weights=weights)


def load_opened(
    opened: OpenedModel,
    *,
    threads: int | None = None,
    wait_policy: WaitPolicy | str | None = None,
    settings: Settings | None = None,
) -> SavedModel | SavedDynamicModel | SavedNest:
    """A model for CPUs, ready to run. Raises what loading it raises (``tilewright.load``)."""
    options = read_settings() if settings is None else settings
    plans, weights, shown = opened.plans, opened.weights, opened.shown
    check_machine(plans[0].requires, shown)
    count = options.threads or plans[0].threads if threads is None else threads
    pool = pool_for(options, count, wait_policy)
    for plan in plans:
        _check_memory(plan, pool, shown)
    code = SharedCode(opened.sections.get(CODE, memoryview(b"")), shown)
    made = [_plan(plan, arrays, pool, code) for plan, arrays in zip(plans, weights, strict=True)]
    if isinstance(opened.manifest, Manifest):
        if opened.manifest.nest is not None:
            return SavedNest(opened.manifest, opened.manifest.nest, made[0], threads=pool.threads)
        return SavedModel(opened.manifest, made[0], weights[0], threads=pool.threads)
    whole, rest = opened.manifest, iter(zip(made, weights, strict=True))
    ranges = [
        (each.ranges, StagedPlan(each.course, [_open_plan(part, *next(rest), shown) for part in each.parts]))
        for each in whole.ranges
    ]
    return SavedDynamicModel(whole, ranges, pool.threads)


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as those of ``CompiledModel.save`` do."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def check_machine(requires: Requirements, shown: str, host: Target | None = None) -> None:
    """That the code can run on this machine (or ``host``). Raises ArtefactError saying what it lacks."""
    try:
        machine = detect() if host is None else host
    except TargetError as error:
        raise ArtefactError(f"{shown} cannot run here: {error.what}") from None
    hint = "compile the model again on this machine"
    if machine.arch != requires.arch:
        raise ArtefactError(f"{shown} is for {requires.arch}, this machine is {machine.arch}", hint=hint)
    if lacking := sorted(set(requires.features) - machine.features):
        raise ArtefactError(f"{shown} needs CPU features this machine lacks: {', '.join(lacking)}", hint=hint)


def _weights(manifest: Manifest, sections: Mapping[str, memoryview], shown: str) -> tuple[Array, ...]:
    """The constants as arrays of bytes in the mapped file."""
    content = sections.get(WEIGHTS, memoryview(b""))
    if any(offset + nbytes > len(content) for offset, nbytes in manifest.constants):
        raise ArtefactError(f"{shown} does not hold all of its weights", hint="save the model again")
    whole = np.ndarray(len(content), np.uint8, buffer=content)
    return tuple(whole[offset : offset + nbytes] for offset, nbytes in manifest.constants)


def _bytes(content: memoryview, offset: int, nbytes: int) -> Array:
    if offset + nbytes > len(content):
        raise MalformedError("constants")
    return np.ndarray(nbytes, np.uint8, buffer=content[offset : offset + nbytes])


def _check_memory(manifest: Manifest, pool: ThreadPool, shown: str) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = manifest.arena_bytes + manifest.workspace_bytes + manifest.scratch_bytes * pool.threads
    if needed > memory:
        raise ResourceError(
            f"one run of {shown} would take {format_bytes(needed)}; there are {format_bytes(memory)}"
        )


def _plan(manifest: Manifest, weights: Sequence[Array], pool: ThreadPool, code: SharedCode) -> ExecutionPlan:
    calls = [replace(call, kernel=code.address(kernel_symbol(call.kernel))) for call in manifest.calls]
    contents = PlanContents(
        inputs=manifest.plan_inputs,
        outputs=manifest.plan_outputs,
        param_count=manifest.param_count,
        constants=tuple(weights),
        steps=tuple(calls),
        arena_bytes=manifest.arena_bytes,
        workspace_bytes=manifest.workspace_bytes,
        scratch_bytes=manifest.scratch_bytes,
        checks=manifest.checks,
        copies=manifest.copies,
        slots=manifest.slots,
    )
    return ExecutionPlan(pool, contents, [code])


def _open_plan(each: PartManifest, plan: ExecutionPlan, weights: Sequence[Array], shown: str) -> OpenPlan:
    def sized(infos: Sequence[TensorInfo], shapes: Sequence[Any]) -> list[SizedTensor]:
        return [SizedTensor(info.name, info.dtype, shape) for info, shape in zip(infos, shapes, strict=True)]

    inputs, outputs = sized(each.plan.inputs, each.inputs), sized(each.plan.outputs, each.outputs)

    def check(values: Sequence[int]) -> None:
        # a file is not trusted: what it says is checked at each size before memory is touched
        try:
            check_places(each.plan, values)
            takes = zip(each.plan.plan_inputs, inputs, strict=True)
            gives = zip((ref.nbytes for ref in each.plan.results), outputs, strict=True)
            for nbytes, tensor in (*takes, *gives):
                if amount_in(nbytes, values) != tensor_bytes(tensor.at(values)):
                    raise MalformedError(f"the shape of {quoted(tensor.name)}")
        except MalformedError as error:
            raise ArtefactError(f"the manifest of {shown} is malformed: {error}") from None

    return OpenPlan(plan, each.program, inputs, outputs, each.plan.results, weights, each.relations, check)
