"""Saving models for devices: compiled modules, launches, weights and the manifest, in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tilewright import __version__
from tilewright.devices import DevicePlan
from tilewright.driver.assemble import Assembled, Steps
from tilewright.driver.save import as_path, placed, results_of
from tilewright.runtime import (
    CODE,
    WEIGHTS,
    DeviceCode,
    KernelCall,
    Manifest,
    Requirements,
    SavedKernel,
    TensorInfo,
    write_container,
)
from tilewright.target import GpuTarget


def save_for_device(
    path: str | os.PathLike[str],
    steps: Steps,
    assembled: Assembled,
    target: GpuTarget,
    inputs: tuple[TensorInfo, ...],
    outputs: tuple[TensorInfo, ...],
    index_bounds: Mapping[str, int],
) -> None:
    """Write a model, which ``tilewright.load`` runs where such a device is; it appears whole or not at all.

    Raises ArtefactError where the file cannot be written.
    """
    plan = assembled.plan
    assert isinstance(plan, DevicePlan)
    contents = plan.contents
    binaries: dict[bytes, int] = {}
    kernels: dict[SavedKernel, int] = {}
    calls: list[KernelCall] = []
    for call in contents.calls:
        kernel = SavedKernel(
            module=binaries.setdefault(call.module.binary, len(binaries)),
            symbol=call.symbol,
            grid=call.grid,
            block=call.block,
            shared_bytes=call.shared_bytes,
            scalar_bytes=call.scalars[0].dtype.itemsize if call.scalars else 4,
        )
        calls.append(
            KernelCall(
                kernel=kernels.setdefault(kernel, len(kernels)),
                buffers=call.buffers,
                params=tuple(map(int, call.scalars)),
                name=contents.step_names[call.step],
                checks=(),
            )
        )
    results, returned = results_of(steps, assembled, len(contents.constants))
    places, pieces = placed((*contents.constants, *returned))
    ends = [0]
    for binary in binaries:
        ends.append(ends[-1] + len(binary))
    code = DeviceCode(
        language=target.language,
        arch=target.arch if target.language == "cuda" else "",
        identity=plan.device.identity,
        modules=tuple(zip(ends, map(len, binaries), strict=False)),
        kernels=tuple(kernels),
        steps=contents.step_names,
        call_steps=tuple(call.step for call in contents.calls),
    )
    manifest = Manifest(
        name=steps.graph.name,
        producer=f"tilewright {__version__}",
        requires=Requirements(target.arch, ()),
        threads=1,
        inputs=inputs,
        outputs=outputs,
        results=results,
        index_bounds=index_bounds,
        plan_inputs=contents.inputs,
        plan_outputs=contents.outputs,
        arena_bytes=contents.arena_bytes,
        workspace_bytes=0,
        scratch_bytes=0,
        constants=tuple(places),
        calls=tuple(calls),
        checks=contents.checks,
        device=code,
        returned_constants=len(returned),
    )
    write_container(
        as_path(path, "a saved model"), manifest.as_data(), {CODE: list(binaries), WEIGHTS: pieces}
    )
