"""Saving models for devices: compiled modules, launches, weights and the manifest, in one file."""

from __future__ import annotations

import os
from dataclasses import replace

from tilewright.devices import DevicePlan
from tilewright.driver.assemble import Assembled, Steps
from tilewright.driver.save import Described, Weights, as_path, results_of
from tilewright.runtime import (
    CODE,
    WEIGHTS,
    DeviceCode,
    KernelCall,
    SavedKernel,
    write_container,
)
from tilewright.target import GpuTarget


def save_for_device(
    path: str | os.PathLike[str], steps: Steps, assembled: Assembled, said: Described
) -> None:
    """Write a model, which ``tilewright.load`` runs where such a device is; it appears whole or not at all.

    Raises ArtefactError where the file cannot be written.
    """
    plan, target = assembled.plan, said.target
    assert isinstance(plan, DevicePlan) and isinstance(target, GpuTarget)
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
            maps=tuple(each.numbers() for each in call.maps),
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
    weights = Weights()
    places = weights.place((*contents.constants, *returned))
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
    manifest = replace(
        said.manifest(contents, tuple(calls), places, results), device=code, returned_constants=len(returned)
    )
    write_container(
        as_path(path, "a saved model"), manifest.as_data(), {CODE: list(binaries), WEIGHTS: weights.pieces}
    )
