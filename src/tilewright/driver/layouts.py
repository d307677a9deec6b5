"""Arrays between their logical order and the layout that a kernel wants them in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.ir import Buffer, FloorDiv, Index, Mod, Var
from tilewright.runtime import aligned_empty
from tilewright.support import InternalError

Array = npt.NDArray[Any]


def physical_sizes(buffer: Buffer) -> tuple[int, ...]:
    """The allocated shape of a buffer of constant shape."""
    return tuple(extent.as_int() for extent in buffer.physical_shape)


def is_plain(buffer: Buffer) -> bool:
    """Whether a buffer's memory is its logical elements, row by row."""
    layout = buffer.layout
    if layout is None:
        return True
    same = tuple(expr.as_var() for expr in layout.exprs) == layout.dims
    return same and layout.shape == buffer.shape


def pack(array: Array, buffer: Buffer) -> Array:
    """A new aligned array of the buffer's physical shape that holds ``array`` in its layout, padding zero."""
    sizes = physical_sizes(buffer)
    out = aligned_empty(sizes, array.dtype)
    if is_plain(buffer):
        np.copyto(out, array.reshape(sizes))
        return out
    out[...] = 0
    out[_places(buffer)] = array.reshape(tuple(extent.as_int() for extent in buffer.shape))
    return out


def unpack(array: Array, buffer: Buffer) -> Array:
    """The logical elements of an array in the buffer's layout; a view where that layout is plain."""
    packed = array.reshape(physical_sizes(buffer))
    return packed if is_plain(buffer) else packed[_places(buffer)]


def _places(buffer: Buffer) -> tuple[npt.NDArray[np.int64], ...]:
    """For each physical axis, where the logical elements are on it (open grids, broadcast by numpy)."""
    assert buffer.layout is not None
    shape = [extent.as_int() for extent in buffer.shape]
    grids = np.ix_(*(np.arange(size, dtype=np.int64) for size in shape))
    axes = dict(zip(buffer.layout.dims, grids, strict=True))
    return tuple(_values(expr, axes) for expr in buffer.layout.exprs)


def _values(index: Index, axes: dict[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    total = np.asarray(index.const, np.int64)
    for atom, coefficient in index.terms:
        match atom:
            case Var():
                value = axes[atom.name]
            case FloorDiv():
                value = _values(atom.arg, axes) // atom.divisor
            case Mod():
                value = _values(atom.arg, axes) % atom.divisor
            case _:
                raise InternalError(f"a layout of a constant buffer holds {atom}")
        total = total + coefficient * value
    return total
