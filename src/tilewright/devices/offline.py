"""CUDA devices that are not here: kernels are compiled and saved for them, not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from tilewright.codegen import compile_cuda
from tilewright.devices.model import (
    Device,
    DeviceLimits,
    DeviceModule,
    Language,
)
from tilewright.support import TargetError
from tilewright.target import GpuTarget


@dataclass(frozen=True, slots=True, eq=False)
class OfflineModule(DeviceModule):
    """A compiled module that is nowhere loaded."""

    device: Device
    binary: bytes

    def prepare(self, *_: Any, **__: Any) -> NoReturn:
        """Raises TargetError."""
        raise TargetError(f"the device {self.device.name} is not here")


class OfflineDevice(Device):
    """A device of a target's kind. All that needs the device itself raises TargetError."""

    language: Language = "cuda"
    present = False

    def __init__(self, target: GpuTarget) -> None:
        self._arch = target.arch
        self.name = target.name
        self.limits = DeviceLimits(
            threads=target.threads_per_block,
            shared_bytes=target.shared_per_block,
            memory_bytes=target.memory_bytes,
        )
        self.identity = f"cuda {target.arch} offline"

    def compile(self, text: str) -> bytes:
        """:meth:`Device.compile`."""
        return compile_cuda(text, self._arch).cubin

    def load(self, binary: bytes) -> OfflineModule:
        """:meth:`Device.load`: the module can be saved."""
        return OfflineModule(self, binary)

    def _absent(self, *_: Any, **__: Any) -> NoReturn:
        raise TargetError(f"the device {self.name} is not here")

    # all that needs the device
    allocate = upload = download = event = synchronize = _absent
