"""What a device is to the runtime: memory, modules of compiled kernels, launches in order, and events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.target import TensorMap

Language = Literal["opencl", "cuda", "c"]
Array: TypeAlias = npt.NDArray[Any]
Extents: TypeAlias = tuple[int, int, int]

DEVICE_ALIGNMENT: Final = 256
"""Bytes at multiples of which buffers begin within a device's memory: what all devices here ask for at
most.
"""


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a kernel may ask for; bytes, threads and blocks."""

    threads: int
    shared_bytes: int
    memory_bytes: int
    blocks: Extents = (2**31 - 1, 65535, 65535)
    threads_per_axis: Extents = (1024, 1024, 64)


class Memory(ABC):
    """A run of bytes of a device, freed when nothing refers to it any more."""

    nbytes: int

    @abstractmethod
    def part(self, offset: int, nbytes: int) -> Memory:
        """The ``nbytes`` bytes from ``offset`` on, a multiple of ``DEVICE_ALIGNMENT``; they keep this
        alive.
        """


class DeviceModule(ABC):
    """Compiled kernels in a device, and the ``binary`` that they were loaded from."""

    binary: bytes

    @abstractmethod
    def prepare(
        self,
        symbol: str,
        grid: Extents,
        block: Extents,
        buffers: Sequence[Memory],
        scalars: Sequence[np.generic],
        shared_bytes: int,
        maps: Sequence[TensorMap] = (),
    ) -> Launch:
        """A launch of one kernel with all its arguments, to be done again and again.

        ``shared_bytes`` are those given with the launch; ``maps`` come after the scalars.
        """


class Launch(ABC):
    """A kernel with its arguments."""

    @abstractmethod
    def enqueue(self) -> None:
        """Start it after all that was started before; does not wait for it."""


class Event(ABC):
    """A moment in the order of what a device does."""

    @abstractmethod
    def seconds_since(self, earlier: Event) -> float:
        """Time on the device between two moments, once both have passed; this waits for them."""


class Device(ABC):
    """A device, with one queue: what is started runs in order.

    Methods raise ResourceError where there is no memory, InternalError where the driver refuses generated
    code, and TargetError where the device is lost.
    """

    name: str
    """As its driver calls it."""
    language: Language
    limits: DeviceLimits
    present: bool = True
    """Whether it can run something; of one that is not here, kernels can be compiled and saved."""
    identity: str
    """What compiled modules depend on besides their text: device, driver and compiler."""

    @abstractmethod
    def compile(self, text: str) -> bytes:
        """Compile a module; the bytes can be kept, and loaded again on the same kind of device."""

    @abstractmethod
    def load(self, binary: bytes) -> DeviceModule:
        """Load what :meth:`compile` gave."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """Fresh memory of undefined content."""

    @abstractmethod
    def upload(self, memory: Memory, array: Array) -> None:
        """Copy a row-major array to the device, in order with launches; the array may change afterwards."""

    @abstractmethod
    def download(self, memory: Memory, array: Array) -> None:
        """Copy bytes into a row-major array, in order with launches; waits until they are there."""

    @abstractmethod
    def event(self) -> Event:
        """The moment when all that was started before has ended."""

    def captured(self, launches: Sequence[Launch]) -> Sequence[Launch]:
        """Launches that do what the given ones do, at less cost where the device can keep them as one."""
        return launches

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all that was started."""


class LendingDevice(Device):
    """A device whose memory other libraries can use, and whose kernels can use theirs."""

    dlpack: tuple[int, int]
    """Kind and number of the device as other libraries have them (``DLDevice``)."""

    def dlpack_stream(self) -> int | None:
        """The queue on which what they lend must be ready, as DLPack names it; ``None``: there is none."""
        return None

    @abstractmethod
    def wrap(self, address: int, nbytes: int, owner: object) -> Memory:
        """The ``nbytes`` bytes at ``address``, memory of ``owner``, which it keeps alive.

        Raises InputError where it does not begin where kernels expect it.
        """

    @abstractmethod
    def address(self, memory: Memory) -> int:
        """Where memory of this device is."""
