"""CUDA devices that are not here: kernels are compiled and saved for them, not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tilewright.codegen import compile_cuda
from tilewright.devices.model import (
    Array,
    Device,
    DeviceLimits,
    DeviceModule,
    Event,
    Extents,
    Language,
    Memory,
)
from tilewright.support import TargetError
from tilewright.target import GpuTarget


@dataclass(frozen=True, slots=True, eq=False)
class OfflineModule(DeviceModule):
    """A compiled module that is nowhere loaded."""

    device: OfflineDevice
    binary: bytes

    def prepare(
        self,
        symbol: str,
        grid: Extents,
        block: Extents,
        buffers: Sequence[Memory],
        scalars: Sequence[np.generic],
        shared_bytes: int,
    ) -> NoReturn:
        """Raises TargetError."""
        raise self.device.absent()


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

    def absent(self) -> TargetError:
        """The error of what needs the device."""
        return TargetError(f"the device {self.name} is not here")

    def compile(self, text: str) -> bytes:
        """:meth:`Device.compile`."""
        return compile_cuda(text, self._arch).cubin

    def load(self, binary: bytes) -> OfflineModule:
        """:meth:`Device.load`: the module can be saved."""
        return OfflineModule(self, binary)

    def allocate(self, nbytes: int) -> NoReturn:
        """Raises TargetError."""
        raise self.absent()

    def upload(self, memory: Memory, array: Array) -> NoReturn:
        """Raises TargetError."""
        raise self.absent()

    def download(self, memory: Memory, array: Array) -> NoReturn:
        """Raises TargetError."""
        raise self.absent()

    def event(self) -> Event:
        """Raises TargetError."""
        raise self.absent()

    def synchronize(self) -> NoReturn:
        """Raises TargetError."""
        raise self.absent()
