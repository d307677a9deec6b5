"""Aligned arrays for what kernels work on, and guarded arrays for the tests of kernels."""

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from ctypes import addressof, byref, c_char, c_int64, c_void_p
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.runtime.native import ALIGNMENT, library
from tilewright.support import ResourceError, format_bytes

NATIVE_FROM_BYTES: Final = 1 << 20
"""From this size on an array comes from the native allocator, which asks for huge pages."""


_FROM_BUFFER: Final[Callable[[Any], c_char]] = c_char.from_buffer


def writeable_addresses(arrays: Sequence[npt.NDArray[Any]]) -> list[int] | None:
    """The addresses of arrays that are writeable, row-major and not empty; ``None`` if one of them is not.

    ``None`` also for element types that the buffer protocol does not know. A quarter of the time of the
    general way to an address: runs of small models notice.
    """
    try:
        return [addressof(_FROM_BUFFER(array)) for array in arrays]
    except (TypeError, ValueError, BufferError):
        return None


def address_of(array: npt.NDArray[Any]) -> int:
    """The address of an array's first element."""
    known = writeable_addresses((array,))
    return known[0] if known else int(array.__array_interface__["data"][0])


def aligned_empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An uninitialised row-major array whose first element is aligned to 64 bytes.

    Raises ResourceError if there is no memory for it.
    """
    extents = (shape,) if isinstance(shape, int) else shape
    kind = np.dtype(dtype)
    nbytes = math.prod(extents) * kind.itemsize
    if nbytes >= NATIVE_FROM_BYTES:
        address = library().tw_alloc(nbytes)
        if not address:
            raise ResourceError(f"no memory for an array of {format_bytes(nbytes)}")
        block = _block(address, nbytes)
        weakref.finalize(block, library().tw_release, address).atexit = False
        return _view(block, kind, extents)
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    skip = -address_of(raw) % ALIGNMENT
    return np.ndarray(extents, kind, buffer=raw, offset=skip)


def aligned_copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A row-major, 64-byte aligned copy of an array."""
    copy = aligned_empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def return_free_memory() -> None:
    """Give memory that this process has freed back to the system: kept large blocks, and what glibc has."""
    library().tw_memory_trim()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim.argtypes = [ctypes.c_size_t]
        trim(0)


def guarded_array(
    shape: int | tuple[int, ...], dtype: npt.DTypeLike, *, at_end: bool = True, align: int | None = None
) -> npt.NDArray[Any]:
    """A zeroed array next to a page that may not be touched: one element too far ends the process.

    With `at_end` the forbidden page lies behind the array, else before it. `align` (bytes, a power of two; by
    default the largest that divides the element size) moves the array away from the page behind it where its
    size is no multiple of it: up to `align - 1` bytes are then not guarded. Raises ResourceError if there is
    no memory, ValueError for another alignment.
    """
    extents = (shape,) if isinstance(shape, int) else shape
    kind = np.dtype(dtype)
    nbytes = math.prod(extents) * kind.itemsize
    unit = kind.itemsize & -kind.itemsize if align is None else align
    if unit < 1 or unit & (unit - 1):
        raise ValueError(f"the alignment must be a power of two, got {unit}")
    region, region_bytes = c_void_p(), c_int64()
    address = library().tw_guarded_alloc(nbytes, unit, int(at_end), byref(region), byref(region_bytes))
    if not address:
        raise ResourceError(f"no memory for a guarded array of {format_bytes(nbytes)}")
    block = _block(address, nbytes)
    release = library().tw_guarded_release
    weakref.finalize(block, release, region.value, region_bytes.value).atexit = False
    return _view(block, kind, extents)


def _block(address: int, nbytes: int) -> "ctypes.Array[ctypes.c_char]":
    return (ctypes.c_char * nbytes).from_address(address)


def _view(
    block: "ctypes.Array[ctypes.c_char]", kind: np.dtype[Any], extents: tuple[int, ...]
) -> npt.NDArray[Any]:
    """The block as an array, which keeps it alive."""
    return np.ndarray(extents, kind, buffer=memoryview(block))
