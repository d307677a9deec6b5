"""Loading saved models, without the compiler and what it depends on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.runtime.code import SharedCode
from tilewright.runtime.container import MAGIC, open_container
from tilewright.runtime.executor import ExecutionPlan, ParamRef, PlanContents
from tilewright.runtime.manifest import CODE, WEIGHTS, Manifest, Requirements, kernel_symbol, read_manifest
from tilewright.runtime.open_manifest import RangeManifest, is_open, read_open_manifest
from tilewright.runtime.pool import ThreadPool, pool_for
from tilewright.runtime.ranges import RangePlan, SizedTensor
from tilewright.runtime.saved import SavedModel
from tilewright.runtime.saved_open import SavedDynamicModel
from tilewright.support import (
    ArtefactError,
    InputError,
    ResourceError,
    Settings,
    TargetError,
    WaitPolicy,
    format_bytes,
    quoted_path,
    read_settings,
)
from tilewright.target import Target, detect

Array = npt.NDArray[Any]


def load_model(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    wait_policy: WaitPolicy | str | None = None,
    verify: bool = True,
    settings: Settings | None = None,
) -> SavedModel | SavedDynamicModel:
    """Load a model that ``CompiledModel.save`` wrote, or ``DynamicModel.save``.

    Weights are mapped from the file, which may be replaced but not written to while it is in use. ``threads``
    is how many threads a run uses (default: the settings, else as many as the model was compiled for),
    ``wait_policy`` what they do between loops (``active`` spins, ``passive`` sleeps; default: the settings).
    Without ``verify`` the digests of code and weights are not checked, which reads the whole file.

    The file holds machine code: load only what you would also run as a program. Raises ArtefactError for a
    file that is damaged, of another version or for another machine, InputError for wrong options,
    ResourceError where a run cannot have its memory.
    """
    options = read_settings() if settings is None else settings
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"a saved model is given by its path, not by {type(path).__name__}")
    file = Path(path)
    shown = quoted_path(file)
    container = open_container(file, verify=verify)
    if is_open(container.manifest):
        opened = read_open_manifest(container.manifest, shown)
        plans = opened.plans
    else:
        opened, plans = None, (read_manifest(container.manifest, shown),)
    check_machine(plans[0].requires, shown)
    if threads is not None and type(threads) is not int:
        raise InputError(f"threads must be a whole number from 1, got {threads!r}")
    count = options.threads or plans[0].threads if threads is None else threads
    pool = pool_for(options, count, wait_policy)
    weights = [_weights(plan, container.sections, shown) for plan in plans]
    for plan in plans:
        _check_memory(plan, pool, shown)
    code = SharedCode(container.sections.get(CODE, memoryview(b"")), shown)
    made = [_plan(plan, arrays, pool, code) for plan, arrays in zip(plans, weights, strict=True)]
    if opened is None:
        return SavedModel(plans[0], made[0], weights[0])
    ranges = [(each.ranges, _range_plan(each, plan)) for each, plan in zip(opened.ranges, made, strict=False)]
    rest = zip(opened.single, made[len(ranges) :], weights[len(ranges) :], strict=True)
    single = {sizes: SavedModel(manifest, plan, arrays) for (sizes, manifest), plan, arrays in rest}
    return SavedDynamicModel(opened, ranges, single)


def load_fixed(path: str | os.PathLike[str], **options: Any) -> SavedModel:
    """As :func:`load_model`, for what needs fixed sizes. Raises InputError for a model with open ones."""
    model = load_model(path, **options)
    if isinstance(model, SavedModel):
        return model
    sizes = ", ".join(f"{name} from {lo} to {hi}" for name, (lo, hi) in model.sizes.items())
    raise InputError(
        f"the saved model {quoted_path(Path(path))} has open sizes: {sizes}",
        hint="`tilewright run` and tilewright.load run it at any of them",
    )


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


def _check_memory(manifest: Manifest, pool: ThreadPool, shown: str) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = manifest.arena_bytes + manifest.workspace_bytes + manifest.scratch_bytes * pool.threads
    if needed > memory:
        raise ResourceError(
            f"one run of {shown} would take {format_bytes(needed)}; there are {format_bytes(memory)}"
        )


def _plan(manifest: Manifest, weights: Sequence[Array], pool: ThreadPool, code: SharedCode) -> ExecutionPlan:
    calls = [replace(call, kernel=code.address(kernel_symbol(call.kernel))) for call in manifest.calls]
    counted = len(manifest.checks) + len(manifest.copies) if manifest.param_count else 0
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
        counts=tuple(ParamRef(manifest.param_count - counted + n) for n in range(counted)),
    )
    return ExecutionPlan(pool, contents, [code])


def _range_plan(each: RangeManifest, plan: ExecutionPlan) -> RangePlan:
    def sized(infos: Sequence[Any], shapes: Sequence[Any]) -> list[SizedTensor]:
        return [SizedTensor(info.name, info.dtype, shape) for info, shape in zip(infos, shapes, strict=True)]

    inputs, outputs = sized(each.plan.inputs, each.inputs), sized(each.plan.outputs, each.outputs)
    made = [ref.index for ref in each.plan.results]
    return RangePlan(plan, each.params, inputs, outputs, made, each.checked)
