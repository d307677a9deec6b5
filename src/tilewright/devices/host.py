"""The CPU of this machine as a device whose language is C: kernels compiled by the system's compiler.

It runs what other devices run, one launch after another, where none of them is at hand.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tilewright.codegen import link_shared
from tilewright.devices.model import (
    Array,
    DeviceLimits,
    DeviceModule,
    Event,
    Extents,
    Language,
    Launch,
    LendingDevice,
    Memory,
)
from tilewright.runtime import ALIGNMENT, address_of, aligned_empty
from tilewright.support import InputError, InternalError, ResourceError
from tilewright.target import TensorMap

_FLAGS: Final = ("-std=c99", "-fvisibility=default", "-fopenmp")
_SCALARS: Final = {"int64": ctypes.c_int64}


@dataclass(frozen=True, slots=True, eq=False)
class HostMemory(Memory):
    """Aligned bytes of this process; ``owner`` is whose they are, if another library's."""

    array: Array
    owner: object = None

    @property
    def nbytes(self) -> int:  # type: ignore[override]  # read only here
        """Number of bytes."""
        return self.array.nbytes

    def part(self, offset: int, nbytes: int) -> HostMemory:
        """:meth:`Memory.part`."""
        return HostMemory(self.array[offset : offset + nbytes], self.owner)


class HostModule(DeviceModule):
    """A shared library in this process."""

    def __init__(self, library: ctypes.CDLL, binary: bytes) -> None:
        self._library = library
        self.binary = binary

    def prepare(
        self,
        symbol: str,
        grid: Extents,
        block: Extents,
        buffers: Sequence[Memory],
        scalars: Sequence[np.generic],
        shared_bytes: int,
        maps: Sequence[TensorMap] = (),
    ) -> HostLaunch:
        """:meth:`DeviceModule.prepare`."""
        function = self._library[symbol]
        function.restype = ctypes.c_int32
        held = [b for b in buffers if isinstance(b, HostMemory)]
        arguments = [ctypes.c_void_p(address_of(b.array)) for b in held]
        return HostLaunch(
            self, symbol, function, [*arguments, *(ctypes.c_int64(int(s)) for s in scalars)], held
        )


@dataclass(frozen=True, slots=True, eq=False)
class HostLaunch(Launch):
    """A function with its arguments."""

    module: HostModule
    symbol: str
    function: ctypes._NamedFuncPointer
    arguments: list[ctypes.c_void_p | ctypes.c_int64]
    kept: list[HostMemory]

    def enqueue(self) -> None:
        """:meth:`Launch.enqueue`. Raises ResourceError where the kernel finds no memory."""
        code = self.function(*self.arguments)
        if code < 0:
            raise ResourceError(f"{self.symbol} found no memory")
        if code:
            raise InternalError(f"{self.symbol} returned {code}, which its caller should have checked")


@dataclass(frozen=True, slots=True)
class HostEvent(Event):
    """A time."""

    seconds: float

    def seconds_since(self, earlier: Event) -> float:
        """:meth:`Event.seconds_since`."""
        assert isinstance(earlier, HostEvent)
        return self.seconds - earlier.seconds


class HostDevice(LendingDevice):
    """The CPU, through C."""

    name = "CPU, through C"
    language: Language = "c"
    dlpack = (1, 0)  # kDLCPU

    def __init__(self) -> None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.limits = DeviceLimits(threads=1 << 30, shared_bytes=memory, memory_bytes=memory)
        self.identity = f"c {' '.join(_FLAGS)}"

    def compile(self, text: str) -> bytes:
        """:meth:`Device.compile`."""
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            path = link_shared(
                [], Path(folder, "kernels.so"), files={"kernels.c": [text.encode()]}, flags=_FLAGS
            )
            return path.read_bytes()

    def load(self, binary: bytes) -> HostModule:
        """:meth:`Device.load`."""
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            # a name of its own each: the loader takes equal ones for the same library
            path = Path(folder, "kernels.so")
            path.write_bytes(binary)
            return HostModule(ctypes.CDLL(str(path)), binary)

    def allocate(self, nbytes: int) -> HostMemory:
        """:meth:`Device.allocate`."""
        return HostMemory(aligned_empty((nbytes,), np.uint8))

    def upload(self, memory: Memory, array: Array) -> None:
        """:meth:`Device.upload`."""
        assert isinstance(memory, HostMemory)
        memory.array[: array.nbytes] = array.reshape(-1).view(np.uint8)

    def download(self, memory: Memory, array: Array) -> None:
        """:meth:`Device.download`."""
        assert isinstance(memory, HostMemory)
        array.reshape(-1).view(np.uint8)[...] = memory.array[: array.nbytes]

    def wrap(self, address: int, nbytes: int, owner: object) -> HostMemory:
        """:meth:`LendingDevice.wrap`."""
        if nbytes and address % ALIGNMENT:
            raise InputError(
                f"memory at {address:#x} does not begin at a multiple of {ALIGNMENT} bytes",
                hint="use run() or bind() with arrays, which are copied",
            )
        raw = (ctypes.c_ubyte * max(1, nbytes)).from_address(address)
        return HostMemory(np.frombuffer(memoryview(raw), np.uint8, nbytes), owner)

    def address(self, memory: Memory) -> int:
        """:meth:`LendingDevice.address`."""
        assert isinstance(memory, HostMemory)
        return address_of(memory.array)

    def event(self) -> HostEvent:
        """:meth:`Device.event`."""
        return HostEvent(time.perf_counter())

    def synchronize(self) -> None:
        """Nothing is ever pending."""
