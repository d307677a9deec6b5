"""Tensors of other libraries, by DLPack: read where they lie, and lent without a copy.

The structures are those of DLPack 0.8, which libraries write where no newer version is asked for
(dmlc.github.io/dlpack, "C API"). Capsules are made by numpy, which knows when they end; what it cannot know,
another device or element type, is written into them.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Protocol

import numpy as np

from tilewright.devices.model import Array, Device, LendingDevice, Memory
from tilewright.runtime import TensorInfo
from tilewright.support import InputError

_CODES: Final = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT: Final = 4
_NAME: Final = b"dltensor"


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Lendable(Protocol):
    """A tensor of any library that speaks DLPack: ``torch.Tensor``, ``cupy.ndarray``, ``numpy.ndarray``."""

    def __dlpack__(self, *, stream: Any = None) -> object:
        """A capsule of the tensor, ready on ``stream``."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where it lies: kind and number of the device."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTensor:
    """A row-major tensor in a device's memory.

    ``torch.from_dlpack``, ``cupy.from_dlpack`` and, on the host, ``numpy.from_dlpack`` take it where it lies,
    and keep its memory alive.
    """

    device: Device
    memory: Memory
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def numpy(self) -> Array:
        """A copy on the host."""
        array = np.empty(self.shape, self.dtype)
        self.device.download(self.memory, array)
        return array

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device. Raises InputError where other libraries do not know it."""
        return _lending(self.device).dlpack

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule of the tensor, once all that was started on the device has ended.

        Raises InputError where a copy or another device is asked for.
        """
        device = _lending(self.device)
        if copy or (dl_device is not None and tuple(dl_device) != device.dlpack):
            raise InputError(
                f"a tensor of {self.device.name} is lent where it lies", hint="copy it afterwards"
            )
        device.synchronize()
        # an array that nobody reads here: it holds address and memory, and numpy makes the capsule of it
        raw = (ctypes.c_ubyte * max(1, self.memory.nbytes)).from_address(device.address(self.memory))
        raw.kept = self.memory  # type: ignore[attr-defined]  # arrays of ctypes take attributes
        narrow = self.dtype.name == "bfloat16"
        count = prod(self.shape)
        array = np.frombuffer(memoryview(raw), np.uint16 if narrow else self.dtype, count).reshape(self.shape)
        capsule = array.__dlpack__()
        tensor = _tensor_in(capsule)
        tensor.device = _Device(*device.dlpack)
        if narrow:
            tensor.dtype.code = _BFLOAT
        return capsule


def borrowed(device: Device, info: TensorInfo, given: Lendable) -> Memory:
    """The memory of another library's tensor, for the input ``info`` of a model on ``device``.

    Raises InputError where it lies elsewhere, has another type or shape, or does not lie row by row.
    """
    if not hasattr(given, "__dlpack__") or not hasattr(given, "__dlpack_device__"):
        raise InputError(
            f"the input {info} is {type(given).__name__}, which does not speak DLPack",
            hint="give a tensor of torch or cupy, or use run() with arrays",
        )
    lending = _lending(device)
    where = tuple(map(int, given.__dlpack_device__()))
    if where != lending.dlpack:
        raise InputError(
            f"the input {info} lies on device {where}, the model runs on {lending.dlpack}, {device.name}",
            hint="copy it there first (these are DLPack's kind and number of a device)",
        )
    stream = lending.dlpack_stream()
    capsule = given.__dlpack__() if stream is None else given.__dlpack__(stream=stream)
    tensor = _tensor_in(capsule)
    shape = tuple(tensor.shape[: tensor.rank])
    kind = info.dtype.kind
    code = _BFLOAT if info.dtype.name == "bfloat16" else _CODES.get(kind)
    if (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) != (code, 8 * info.dtype.itemsize, 1):
        raise InputError(f"the input {info} has elements of {tensor.dtype.bits} bits of another type")
    if shape != info.shape:
        raise InputError(f"the input {info} has shape {list(shape)}")
    if tensor.strides and not _by_rows(shape, tuple(tensor.strides[: tensor.rank])):
        raise InputError(f"the input {info} does not lie row by row", hint="make it contiguous first")
    nbytes = prod(shape) * info.dtype.itemsize
    return lending.wrap((tensor.data or 0) + tensor.byte_offset, nbytes, capsule)


def _by_rows(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if 0 in shape:
        return True
    wanted = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != wanted:
            return False
        wanted *= extent
    return True


def _lending(device: Device) -> LendingDevice:
    if not isinstance(device, LendingDevice):
        raise InputError(
            f"tensors of {device.name} cannot be passed to other libraries, nor theirs be read",
            hint="use run() or bind() with arrays, which are copied",
        )
    return device


def _tensor_in(capsule: object) -> _Tensor:
    """The structure in a capsule, as long as that lives."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return _Tensor.from_address(pointer(capsule, _NAME))
