"""CUDA devices, through the driver's own interface as cuda-bindings has it; text is compiled by NVRTC."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.codegen import compile_cuda
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
from tilewright.runtime import address_of
from tilewright.support import InputError, InternalError, ResourceError, TargetError, format_bytes
from tilewright.target import CudaDriver, TensorMap, first_cuda_device

LOST: Final = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    }
)
"""Errors after which a context can do nothing any more (CUDA Driver API, CUresult)."""
FOREIGN: Final = frozenset({"CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE"})
"""Errors of modules compiled for another architecture."""
VECTOR_BYTES: Final = 16
"""Bytes at multiples of which kernels access memory at once: arguments must begin there."""
STATIC_SHARED: Final = 48 << 10
"""Shared memory that a kernel has without asking for more."""


class CudaDevice(LendingDevice):
    """The first CUDA device, its primary context, and a stream of its own."""

    language: Language = "cuda"
    dlpack = (2, 0)  # kDLCUDA, the first device

    def __init__(self, wanted: str = "", driver: CudaDriver | None = None) -> None:
        """Open the first device, which must be of the architecture ``wanted`` if that is given.

        ``driver`` is a parameter for tests.

        Raises InstallationError without cuda-bindings or driver, TargetError where there is no such device.
        """
        found = first_cuda_device(driver)
        if wanted and wanted.rstrip("a") != found.arch.rstrip("a"):
            raise TargetError(
                f"the kernels are for {wanted}, but the device here, {found.name}, is {found.arch}",
                hint=f"compile for cuda:{found.arch}, or with --emit for a device elsewhere",
            )
        self._found = found
        self._driver = found.driver
        self.name, self.arch = found.name, found.arch
        self.limits = DeviceLimits(
            threads=found.threads_per_block,
            shared_bytes=found.shared_per_block,
            memory_bytes=found.memory_bytes,
        )
        self.identity = f"cuda {found.arch} {found.version}"
        self._context = self.call("cuDevicePrimaryCtxRetain", found.device, what="a context")
        self._current()
        self.stream = self.call("cuStreamCreate", 0, what="a stream")

    def call(self, name: str, *arguments: Any, what: str, nbytes: int = 0) -> Any:
        """One call of the driver: what it returns, or its error as ours.

        Raises ResourceError where there is no memory, TargetError for a lost device or code of another
        architecture, InternalError for all else.
        """
        answer = getattr(self._driver.module, name)(*arguments)
        error = answer[0]
        if int(error) == 0:
            return answer[1] if len(answer) > 1 else None
        title = str(getattr(error, "name", error))
        if title == "CUDA_ERROR_OUT_OF_MEMORY":
            raise ResourceError(
                f"the device {self.name} has no memory for {what} ({format_bytes(nbytes)} of "
                f"{format_bytes(self.limits.memory_bytes)})"
            )
        if title in LOST:
            raise TargetError(
                f"the device {self.name} was lost during {what} ({title})",
                hint="start the process again; if it happens once more, report it with the model",
            )
        if title in FOREIGN:
            raise TargetError(f"the kernels are not for {self.name}, which is {self.arch} ({title})")
        raise InternalError(f"CUDA refuses {what}: {title}")

    def tensor_map(self, said: TensorMap, pointer: int) -> Any:
        """What the driver makes of a tensor map. Raises TargetError for a driver that has none."""
        driver = self._driver.module
        if not hasattr(driver, "cuTensorMapEncodeTiled"):
            raise TargetError(
                "the driver's interface here has no tensor maps, which the kernels copy by",
                hint="pip install 'cuda-bindings>=12.9'",
            )
        types = {"f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "tf32": "TFLOAT32"}
        turned = f"{said.swizzle}B" if said.swizzle else "NONE"
        kind = driver.CUtensorMapDataType
        # as the driver has them: fastest first, strides in bytes, without that of neighbours
        return self.call(
            "cuTensorMapEncodeTiled",
            getattr(kind, f"CU_TENSOR_MAP_DATA_TYPE_{types[said.dtype]}"),
            len(said.shape),
            pointer,
            list(reversed(said.shape)),
            [stride * said.element for stride in reversed(said.strides[:-1])],
            list(reversed(said.box)),
            [1] * len(said.shape),
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{turned}"),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            what="a tensor map",
        )

    def _current(self) -> None:
        """Make the context that of the calling thread."""
        self.call("cuCtxSetCurrent", self._context, what="its context")

    def compile(self, text: str) -> bytes:
        """:meth:`Device.compile`."""
        return compile_cuda(text, self.arch).cubin

    def load(self, binary: bytes) -> CudaModule:
        """:meth:`Device.load`."""
        self._current()
        return CudaModule(self, self.call("cuModuleLoadData", binary, what="a compiled module"), binary)

    def allocate(self, nbytes: int) -> CudaMemory:
        """:meth:`Device.allocate`."""
        self._current()
        pointer = self.call("cuMemAlloc", max(1, nbytes), what="a buffer", nbytes=nbytes)
        memory = CudaMemory(nbytes, int(pointer), None)
        weakref.finalize(memory, self._driver.module.cuMemFree, pointer).atexit = False
        return memory

    def upload(self, memory: Memory, array: Array) -> None:
        """:meth:`Device.upload`."""
        assert isinstance(memory, CudaMemory)
        self._current()
        if array.nbytes:
            self.call(
                "cuMemcpyHtoDAsync",
                memory.pointer,
                address_of(array),
                array.nbytes,
                self.stream,
                what="an input",
            )
            # the array may change afterwards
            self.synchronize()

    def download(self, memory: Memory, array: Array) -> None:
        """:meth:`Device.download`."""
        assert isinstance(memory, CudaMemory)
        self._current()
        if array.nbytes:
            self.call(
                "cuMemcpyDtoHAsync",
                address_of(array),
                memory.pointer,
                array.nbytes,
                self.stream,
                what="an output",
            )
        self.synchronize()

    def dlpack_stream(self) -> int:
        """:meth:`LendingDevice.dlpack_stream`."""
        return int(self.stream)

    def wrap(self, address: int, nbytes: int, owner: object) -> CudaMemory:
        """:meth:`LendingDevice.wrap`."""
        if nbytes and address % VECTOR_BYTES:
            raise InputError(
                f"memory at {address:#x} does not begin at a multiple of {VECTOR_BYTES} bytes",
                hint="copy the tensor, and pass the copy",
            )
        return CudaMemory(nbytes, address, owner)

    def address(self, memory: Memory) -> int:
        """:meth:`LendingDevice.address`."""
        assert isinstance(memory, CudaMemory)
        return memory.pointer

    def event(self) -> CudaEvent:
        """:meth:`Device.event`."""
        self._current()
        event = self.call("cuEventCreate", 0, what="an event")
        self.call("cuEventRecord", event, self.stream, what="an event")
        return CudaEvent(self, event)

    def synchronize(self) -> None:
        """:meth:`Device.synchronize`."""
        self._current()
        self.call("cuStreamSynchronize", self.stream, what="a run")

    def captured(self, launches: Sequence[Launch]) -> Sequence[Launch]:
        """:meth:`Device.captured`."""
        self._current()
        driver = self._driver.module
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self.call("cuStreamBeginCapture", self.stream, mode, what="a graph")
        for launch in launches:
            launch.enqueue()
        graph = self.call("cuStreamEndCapture", self.stream, what="a graph")
        return (CudaGraph(self, self.call("cuGraphInstantiate", graph, 0, what="a graph")),)


@dataclass(frozen=True, slots=True, eq=False)
class CudaMemory(Memory):
    """An address on the device; ``whole`` is what it belongs to: an allocation, another library's tensor."""

    nbytes: int
    pointer: int
    whole: object

    def part(self, offset: int, nbytes: int) -> CudaMemory:
        """:meth:`Memory.part`."""
        return CudaMemory(nbytes, self.pointer + offset, self)


@dataclass(frozen=True, slots=True, eq=False)
class CudaModule(DeviceModule):
    """A loaded module."""

    device: CudaDevice
    handle: Any
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
    ) -> CudaLaunch:
        """:meth:`DeviceModule.prepare`."""
        device = self.device
        function = device.call("cuModuleGetFunction", self.handle, symbol.encode(), what=symbol)
        if shared_bytes > STATIC_SHARED:
            attribute = device._driver.module.CUfunction_attribute
            device.call(
                "cuFuncSetAttribute",
                function,
                attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                shared_bytes,
                what=f"{shared_bytes} bytes of shared memory for {symbol}",
            )
        pointers = [b.pointer for b in buffers if isinstance(b, CudaMemory)]
        values: list[Any] = [ctypes.c_uint64(pointer) for pointer in pointers]
        for s in scalars:
            wide = s.dtype.itemsize == ctypes.sizeof(ctypes.c_int64)
            values.append(ctypes.c_int64(int(s)) if wide else ctypes.c_int32(int(s)))
        made = [device.tensor_map(each, pointers[each.buffer]) for each in maps]
        # the driver takes the addresses of the arguments
        places = [*map(ctypes.addressof, values), *(int(each.getPtr()) for each in made)]
        table = (ctypes.c_void_p * max(1, len(places)))(*places)
        kept = (values, made, list(buffers))
        return CudaLaunch(device, symbol, function, grid, block, shared_bytes, table, kept)


@dataclass(frozen=True, slots=True, eq=False)
class CudaLaunch(Launch):
    """A kernel with its arguments, which ``kept`` holds."""

    device: CudaDevice
    symbol: str
    function: Any
    grid: Extents
    block: Extents
    shared_bytes: int
    table: ctypes.Array[ctypes.c_void_p]
    kept: object

    def enqueue(self) -> None:
        """:meth:`Launch.enqueue`."""
        self.device.call(
            "cuLaunchKernel",
            self.function,
            *self.grid,
            *self.block,
            self.shared_bytes,
            self.device.stream,
            ctypes.addressof(self.table),
            0,
            what=f"the launch of {self.symbol}",
        )


@dataclass(frozen=True, slots=True, eq=False)
class CudaGraph(Launch):
    """Many launches as one."""

    device: CudaDevice
    handle: Any

    def enqueue(self) -> None:
        """:meth:`Launch.enqueue`."""
        self.device.call("cuGraphLaunch", self.handle, self.device.stream, what="a run")


@dataclass(frozen=True, slots=True, eq=False)
class CudaEvent(Event):
    """An event of the stream."""

    device: CudaDevice
    handle: Any

    def seconds_since(self, earlier: Event) -> float:
        """:meth:`Event.seconds_since`."""
        assert isinstance(earlier, CudaEvent)
        self.device.call("cuEventSynchronize", self.handle, what="an event")
        milliseconds = self.device.call("cuEventElapsedTime", earlier.handle, self.handle, what="an event")
        return float(milliseconds) / 1e3
