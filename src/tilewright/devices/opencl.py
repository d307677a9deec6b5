"""OpenCL devices, through pyopencl."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.devices.model import (
    Array,
    Device,
    DeviceLimits,
    DeviceModule,
    Event,
    Extents,
    Language,
    Launch,
    Memory,
)
from tilewright.support import InternalError, ResourceError, format_bytes
from tilewright.target import TensorMap, choose_opencl_device, pyopencl


class OpenClDevice(Device):
    """One OpenCL device, with a context and an in-order queue of its own."""

    language: Language = "opencl"

    def __init__(self, wanted: str = "") -> None:
        """The first device whose name holds ``wanted`` (GPUs first).

        Raises InstallationError where pyopencl or any driver is missing, TargetError where no device has the
        name.
        """
        self._device = device = choose_opencl_device(wanted)
        self._cl = cl = pyopencl()
        self.name = str(device.name).strip()
        axes = tuple(device.max_work_item_sizes)[:3]
        self.limits = DeviceLimits(
            threads=device.max_work_group_size,
            shared_bytes=device.local_mem_size,
            memory_bytes=device.global_mem_size,
            blocks=(2**31 - 1,) * 3,
            threads_per_axis=(axes[0], axes[1], axes[2]),
        )
        self.identity = f"opencl {device.platform.version} {self.name} {device.driver_version}"
        self._context = cl.Context([device])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self._queue = cl.CommandQueue(self._context, device, properties=profiling)

    @contextmanager
    def _errors(self, what: str, nbytes: int = 0) -> Iterator[None]:
        """The driver's errors as ours."""
        cl = self._cl
        try:
            yield
        except cl.MemoryError:
            raise ResourceError(
                f"the device {self.name} has no memory for {what} ({format_bytes(nbytes)} of "
                f"{format_bytes(self.limits.memory_bytes)})"
            ) from None
        except cl.Error as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            first = lines[0] if lines else repr(error)
            raise InternalError(f"OpenCL refuses {what}: {first}") from None

    def compile(self, text: str) -> bytes:
        """:meth:`Device.compile`."""
        cl = self._cl
        with self._errors("generated code"), warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program = cl.Program(self._context, text).build(devices=[self._device], cache_dir=False)
        return bytes(program.binaries[0])

    def load(self, binary: bytes) -> OpenClModule:
        """:meth:`Device.load`."""
        cl = self._cl
        with self._errors("a compiled module"), warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program = cl.Program(self._context, [self._device], [binary]).build(devices=[self._device])
        return OpenClModule(self, program, binary)

    def allocate(self, nbytes: int) -> OpenClMemory:
        """:meth:`Device.allocate`."""
        with self._errors("a buffer", nbytes):
            buffer = self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(1, nbytes))
        return OpenClMemory(nbytes, buffer)

    def upload(self, memory: Memory, array: Array) -> None:
        """:meth:`Device.upload`."""
        assert isinstance(memory, OpenClMemory)
        if array.nbytes:
            with self._errors("an input", array.nbytes):
                self._cl.enqueue_copy(self._queue, memory.buffer, array, is_blocking=True)

    def download(self, memory: Memory, array: Array) -> None:
        """:meth:`Device.download`."""
        assert isinstance(memory, OpenClMemory)
        if array.nbytes:
            with self._errors("an output", array.nbytes):
                self._cl.enqueue_copy(self._queue, array, memory.buffer, is_blocking=True)

    def event(self) -> OpenClEvent:
        """:meth:`Device.event`."""
        with self._errors("an event"):
            return OpenClEvent(self._cl.enqueue_marker(self._queue))

    def synchronize(self) -> None:
        """:meth:`Device.synchronize`."""
        with self._errors("to finish"):
            self._queue.finish()

    def launch(self, kernel: Any, grid: Extents, block: Extents) -> None:
        """Start a kernel whose arguments are set."""
        sizes = tuple(g * b for g, b in zip(grid, block, strict=True))
        with self._errors(f"the launch of {kernel.function_name}"):
            self._cl.enqueue_nd_range_kernel(self._queue, kernel, sizes, block)


@dataclass(frozen=True, slots=True, eq=False)
class OpenClMemory(Memory):
    """A buffer, or a part of one."""

    nbytes: int
    buffer: Any

    def part(self, offset: int, nbytes: int) -> OpenClMemory:
        """:meth:`Memory.part`."""
        return OpenClMemory(nbytes, self.buffer.get_sub_region(offset, max(1, nbytes)))


@dataclass(frozen=True, slots=True, eq=False)
class OpenClModule(DeviceModule):
    """A built program."""

    device: OpenClDevice
    program: Any
    binary: bytes

    def prepare(
        self,
        symbol: str,
        grid: Extents,
        block: Extents,
        buffers: Sequence[Memory],
        scalars: Sequence[np.generic],
        shared_bytes: int,
        maps: Sequence[TensorMap] = (),
    ) -> OpenClLaunch:
        """:meth:`DeviceModule.prepare`."""
        # a kernel object of its own: it holds the arguments
        kernel = self.device._cl.Kernel(self.program, symbol)
        held = [b.buffer for b in buffers if isinstance(b, OpenClMemory)]
        kernel.set_args(*held, *scalars)
        return OpenClLaunch(self.device, kernel, grid, block)


@dataclass(frozen=True, slots=True, eq=False)
class OpenClLaunch(Launch):
    """A kernel whose arguments are set."""

    device: OpenClDevice
    kernel: Any
    grid: Extents
    block: Extents

    def enqueue(self) -> None:
        """:meth:`Launch.enqueue`."""
        self.device.launch(self.kernel, self.grid, self.block)


@dataclass(frozen=True, slots=True, eq=False)
class OpenClEvent(Event):
    """A marker in the queue."""

    marker: Any

    def seconds_since(self, earlier: Event) -> float:
        """:meth:`Event.seconds_since`."""
        assert isinstance(earlier, OpenClEvent)
        self.marker.wait()
        return float(self.marker.profile.end - earlier.marker.profile.end) / 1e9
