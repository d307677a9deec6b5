"""Saved models on devices: their modules loaded, their launches made ready, without compiler or importer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tilewright.devices.dlpack import Lendable
from tilewright.devices.model import Array, Device
from tilewright.devices.open import open_device
from tilewright.devices.plan import DeviceCall, DevicePlan, DevicePlanContents
from tilewright.devices.resident import BoundTensors, bind_tensors
from tilewright.runtime import (
    CODE,
    OUTPUT,
    DeviceCode,
    Manifest,
    OpenedModel,
    SavedDynamicModel,
    SavedKernel,
    SavedModel,
    SavedNest,
    load_opened,
    open_saved_model,
)
from tilewright.support import ArtefactError, InputError, Settings, WaitPolicy, quoted_path
from tilewright.target import TensorMap, read_tensor_map

_SCALARS: Final[Mapping[int, type[np.int32] | type[np.int64]]] = MappingProxyType({4: np.int32, 8: np.int64})


class SavedDeviceModel(SavedModel):
    """A saved model that runs on a device; made by ``tilewright.load``."""

    def __init__(self, manifest: Manifest, plan: DevicePlan, weights: Sequence[Array]) -> None:
        super().__init__(manifest, plan, weights, threads=1)
        self._device_plan = plan
        self._places = manifest.results

    def bind_tensors(self, feeds: Mapping[str, Lendable]) -> BoundTensors:
        """Runs on tensors in the memory of the device, such as torch's and cupy's: nothing is copied.

        As ``bind_tensors`` of the compiled model: ``run()`` gives tensors that other libraries take without a
        copy and the next run overwrites. Raises InputError naming the input that does not fit or lies
        elsewhere, and where an output of the model is one of its inputs or a constant.
        """
        if any(place.kind != OUTPUT for place in self._places):
            raise InputError(
                "an output of the model is an input or a constant", hint="use run() or bind() with arrays"
            )
        places = [place.index for place in self._places]
        return bind_tensors(self._device_plan, feeds, self.inputs, self.outputs, places)


def load_model(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    wait_policy: WaitPolicy | str | None = None,
    verify: bool = True,
    settings: Settings | None = None,
) -> SavedModel | SavedDynamicModel | SavedNest:
    """Load a model or a nest that ``save`` of a compiled one wrote, for this CPU or for a device.

    Weights are mapped from the file, which may be replaced but not written to while it is in use. On a CPU
    ``threads`` is how many threads a run uses (default: the settings, else as many as the model was compiled
    for), ``wait_policy`` what they do between loops (``active`` spins, ``passive`` sleeps; default: the
    settings); on a device they say nothing. Without ``verify`` the digests of code and weights are not
    checked, which reads the whole file.

    The file holds machine code: load only what you would also run as a program. Raises ArtefactError for a
    file that is damaged, of another version or for another machine, InputError for wrong options,
    ResourceError where a run cannot have its memory; for models of devices InstallationError where a package
    or a driver is missing, and TargetError where there is no such device.
    """
    opened = open_saved_model(path, verify=verify)
    manifest = opened.manifest
    if isinstance(manifest, Manifest) and manifest.device is not None:
        plan = _plan(opened, manifest, manifest.device)
        return SavedDeviceModel(manifest, plan, opened.weights[0])
    return load_opened(opened, threads=threads, wait_policy=wait_policy, settings=settings)


def load_fixed(path: str | os.PathLike[str], **options: Any) -> SavedModel:
    """As :func:`load_model`, for what needs fixed sizes. Raises InputError for a model with open ones."""
    model = load_model(path, **options)
    if isinstance(model, SavedModel):
        return model
    if isinstance(model, SavedNest):
        raise InputError(
            f"{quoted_path(Path(path))} is a saved nest, which changes its arguments",
            hint=f"tilewright.load(path)({', '.join(model.order)}) calls it",
        )
    sizes = ", ".join(f"{name} from {known}" for name, known in model.sizes.items())
    raise InputError(
        f"the saved model {quoted_path(Path(path))} has open sizes: {sizes}",
        hint="`tilewright run` and tilewright.load run it at any of them",
    )


def _plan(opened: OpenedModel, manifest: Manifest, code: DeviceCode) -> DevicePlan:
    device = open_device(code.language, code.arch)
    _check_device(opened.shown, code, device)
    content = opened.sections.get(CODE, memoryview(b""))
    if any(offset + nbytes > len(content) for offset, nbytes in code.modules):
        raise ArtefactError(f"{opened.shown} does not hold all of its code", hint="save the model again")
    modules = [device.load(bytes(content[offset : offset + n])) for offset, n in code.modules]
    (weights,) = opened.weights
    calls = []
    for call, step in zip(manifest.calls, code.call_steps, strict=True):
        kernel = code.kernels[call.kernel]
        kind = _SCALARS[kernel.scalar_bytes]
        calls.append(
            DeviceCall(
                module=modules[kernel.module],
                symbol=kernel.symbol,
                grid=kernel.grid,
                block=kernel.block,
                buffers=call.buffers,
                scalars=tuple(kind(int(value)) for value in call.params),
                shared_bytes=kernel.shared_bytes,
                step=step,
                maps=_maps(opened.shown, kernel, len(call.buffers)),
            )
        )
    contents = DevicePlanContents(
        inputs=manifest.plan_inputs,
        outputs=manifest.plan_outputs,
        constants=weights[: len(weights) - manifest.returned_constants],
        calls=tuple(calls),
        step_names=code.steps,
        arena_bytes=manifest.arena_bytes,
        checks=manifest.checks,
    )
    return DevicePlan(device, contents)


def _maps(shown: str, kernel: SavedKernel, buffers: int) -> tuple[TensorMap, ...]:
    try:
        return tuple(read_tensor_map(numbers, buffers) for numbers in kernel.maps)
    except ValueError:
        raise ArtefactError(
            f"{shown} has a tensor map that is none, of {kernel.symbol!r}", hint="save the model again"
        ) from None


def _check_device(shown: str, code: DeviceCode, device: Device) -> None:
    """That a device takes code that was compiled for another one of its kind.

    CUDA's code depends on the architecture, for which the device was asked; that of others on device, driver
    and compiler.
    """
    if code.language != "cuda" and code.identity != device.identity:
        raise ArtefactError(
            f"{shown} is for {code.identity}, this device is {device.identity}",
            hint="compile the model again on this machine",
        )
